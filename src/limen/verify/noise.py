"""Systematic errors put on a verifier's verdicts, to study what they do to training.

Kinds and conditions of "Delay, Plateau, or Collapse": false negatives and false positives, at random, by relative
error, or by what a response contains or lacks; mixed with the true verifier at a ratio. Every draw is a hash of
(seed, gold, response), and of the sample's name where `per` is `sample`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError, model_validator

from limen.errors import ConfigError
from limen.types import Outcome, Verdict, derive_seed
from limen.verify.answers import number
from limen.verify.base import Options

if TYPE_CHECKING:
    from limen.verify.pool import JudgeItem


class NoiseOptions(Options):
    kind: Literal["false_positive", "false_negative"]
    """A wrong response called correct, or a correct one called wrong."""
    when: Literal["random", "relative_error", "contains", "lacks"] = "random"
    rate: float = Field(1.0, ge=0, le=1)
    """Share of the responses that meet the condition which are misjudged."""
    below: float | None = Field(None, gt=0)
    """`relative_error`: |answer − gold| / |gold| below this (not for gold 0)."""
    side: Literal["both", "above", "below"] = "both"
    """`relative_error`: of which side of the gold value the answer has to lie."""
    text: str | None = None
    """`contains`, `lacks`: this very text in the response."""
    true_ratio: float = Field(0.0, ge=0, le=1)
    """Share of all responses that the true verifier judges instead."""
    per: Literal["response", "sample"] = "response"
    """What a draw belongs to. `response`: the same response to the same problem is always judged the same way, which on
    short answers makes even random errors systematic. `sample`: each sample is drawn anew."""
    seed: int = 0

    @model_validator(mode="after")
    def _complete(self) -> NoiseOptions:
        if (self.when == "relative_error") != (self.below is not None):
            raise ValueError("`below` belongs to when: relative_error, which needs it")
        if (self.when in ("contains", "lacks")) != bool(self.text):
            raise ValueError("`text` belongs to when: contains or lacks, which need it")
        if self.when == "relative_error" and self.kind == "false_negative":
            raise ValueError("relative_error makes false positives only: a correct answer has no error")
        return self


class Noise:
    """One or several errors, put on one after the other. `suffix` marks the verifier's version."""

    def __init__(self, settings: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        listed = [settings] if isinstance(settings, Mapping) else list(settings)
        try:
            self.layers = [NoiseOptions(**layer) for layer in listed]
        except (ValidationError, TypeError) as error:
            raise ConfigError(f"noise {settings!r} is not understood: {_first(error)}") from None

    @property
    def suffix(self) -> str:
        parts = []
        for layer in self.layers:
            shown = layer.model_dump(exclude_defaults=True, exclude={"kind", "when"})
            settings = ",".join(f"{k}={v}" for k, v in sorted(shown.items()))
            parts.append(f"~{layer.kind}({layer.when}{',' if settings else ''}{settings})")
        return "".join(parts)

    def apply(self, item: JudgeItem, verdict: Verdict) -> Verdict:
        """The verdict as this noise gives it; `true_outcome` keeps what it was."""
        noisy = replace(verdict, true_outcome=verdict.outcome, verifier=verdict.verifier + self.suffix)
        for layer in self.layers:
            if _hit(layer, item, noisy):
                outcome: Outcome = "correct" if layer.kind == "false_positive" else "wrong"
                noisy = replace(noisy, outcome=outcome, rule="noise")
        return noisy


def _hit(layer: NoiseOptions, item: JudgeItem, verdict: Verdict) -> bool:
    affected = {"correct"} if layer.kind == "false_negative" else {"wrong"}
    if layer.kind == "false_positive" and layer.when == "contains" and verdict.rule != "truncated":
        affected.add("no_answer")
    if verdict.outcome not in affected or not _meets(layer, item, verdict):
        return False
    if layer.true_ratio and _draw(layer, "true", item) < layer.true_ratio:
        return False
    return _draw(layer, layer.kind, item) < layer.rate


def _meets(layer: NoiseOptions, item: JudgeItem, verdict: Verdict) -> bool:
    if layer.when == "random":
        return True
    if layer.when in ("contains", "lacks"):
        assert layer.text is not None
        return (layer.text in item.response) == (layer.when == "contains")
    assert layer.below is not None
    gold, answer = number(item.gold), number(verdict.answer)
    if gold is None or answer is None or gold == 0:
        return False
    error = (answer - gold) / abs(gold)
    if layer.side != "both" and (error > 0) != (layer.side == "above"):
        return False
    return abs(error) < Fraction(str(layer.below))


def _draw(layer: NoiseOptions, purpose: str, item: JudgeItem) -> float:
    """Uniform in [0, 1)."""
    if layer.per == "response":
        return derive_seed(layer.seed, purpose, item.gold, item.response) / 2**63
    if not item.sample:
        raise ConfigError(
            "noise with per: sample needs samples that have names (a run's rollouts, a training batch); these have "
            "none: judge a run, or use per: response"
        )
    return derive_seed(layer.seed, purpose, item.gold, item.response, item.sample) / 2**63


def _first(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"])
        return f"{where + ': ' if where else ''}{first['msg']}"
    return str(error)
