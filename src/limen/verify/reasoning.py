"""Reasoning Gym's own scorers. Correct is a score of exactly 1.0; anything less is partial credit, hence wrong.

Three things are put right around them: some `eval` the answer, so an answer to those that holds a call is not shown
to them; some were written for entries with tuples or settings that are objects, which JSON has bent, so the form in
which the task's own answer scores 1.0 is looked for; and one that accepts any text at all gives way to comparing
texts.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from limen.errors import DataError
from limen.verify import extract
from limen.verify.base import Decision, Extraction, Verifier

_NONSENSE = "no answer of this task looks like this"
_REFUSALS = (ArithmeticError, AttributeError, LookupError, RuntimeError, SyntaxError, TypeError, ValueError)
_EVALUATES = re.compile(r"\b(?:eval|exec|parse_expr|sympify)\(")
_FORMULA = re.compile(
    r"\b(?:a?sinh?|a?cosh?|a?tanh?|exp|log|ln|sqrt|abs|Abs|cot|sec|csc|Rational|Integer|factorial|erf)\s*\("
)
_CALL = re.compile(r"[\w)\]}'\"]\s*\(|__")


class ReasoningGym(Verifier):
    """Scores an answer against the entry in `metadata`: {"source_dataset": name, "entry": {...}}, with the task's
    `config` where it is given."""

    name = "reasoning_gym"
    preload = ("reasoning_gym",)
    closed = True

    def extract(self, response: str, metadata: Mapping[str, Any]) -> Extraction:
        for rule, look in (("tag", extract.tagged), ("box", extract.last_box), ("phrase", extract.phrased)):
            found = look(response)
            if found:
                return Extraction(found, rule)
        whole = response.strip()
        return Extraction(whole, "whole") if whole else Extraction(None, "empty")

    def quick(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision | None:
        self.check(metadata)
        return Decision("correct", "string") if answer == metadata["entry"].get("answer") else None

    def decide(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision:
        task, stored = str(metadata["source_dataset"]), dict(metadata["entry"])
        config = json.dumps(metadata.get("config") or {}, sort_keys=True)
        oracle = stored.get("answer")
        for settings, entry in ((config, stored), (config, _tuples(stored)), ("{}", stored), ("{}", _tuples(stored))):
            dataset, evaluates = _dataset(task, settings)
            if not isinstance(oracle, str) or _score(dataset, oracle, entry) == 1.0:
                break
        else:
            return Decision("unjudged", "gold")
        if evaluates and _CALL.search(_FORMULA.sub("+(", answer)):
            return Decision("wrong", "a call in the answer")
        score = _score(dataset, answer, entry)
        if score is None:
            return Decision("wrong", "refused by the scorer")
        if score == 1.0 and _score(dataset, _NONSENSE, entry) == 1.0:
            return Decision("correct" if answer == oracle else "wrong", "string")
        return Decision("correct" if score == 1.0 else "wrong", "reasoning_gym")

    def check(self, metadata: Mapping[str, Any]) -> None:
        if "source_dataset" not in metadata or not isinstance(metadata.get("entry"), Mapping):
            raise DataError(
                "the verifier 'reasoning_gym' needs each problem's metadata to hold 'source_dataset' and 'entry', "
                f"but found only {sorted(metadata)}: load the problems with reasoning_gym:TASK"
            )


def _score(dataset: Any, answer: str, entry: Mapping[str, Any]) -> float | None:
    """None where the scorer raises, which it does on answers of a form that it does not expect."""
    try:
        return float(dataset.score_answer(answer, dict(entry)))
    except _REFUSALS:
        return None


def _tuples(value: Any) -> Any:
    """Lists as tuples inside an entry's metadata."""
    if isinstance(value, Mapping):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


@lru_cache(maxsize=64)
def _dataset(name: str, config: str) -> tuple[Any, bool]:
    """The task as it was set up, and whether its scorer evaluates answers as code. A configuration that JSON has
    bent out of shape falls back to the defaults."""
    import reasoning_gym

    settings = {k: v for k, v in json.loads(config).items() if k != "size"}
    try:
        dataset = reasoning_gym.create_dataset(name, size=1, **settings)
    except (AssertionError, TypeError, ValueError):
        dataset = reasoning_gym.create_dataset(name, size=1, seed=0)
    try:
        source = inspect.getsource(type(dataset))
    except (OSError, TypeError):
        return dataset, True
    return dataset, bool(_EVALUATES.search(source))
