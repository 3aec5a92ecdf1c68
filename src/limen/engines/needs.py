"""What a run or a measurement needs of an engine, refused before anything is drawn where the engine lacks it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

from limen.engines.protocol import Capabilities, Engine
from limen.errors import ModelError
from limen.types import Prompt, SamplingParams

INSTEAD = {
    "token_ids": "it returns text only, so its responses can be judged but not scored",
    "raw_logprobs": "it gives no log-probabilities at temperature 1 before top-p and top-k",
    "seeds": "the same seed may draw something else there",
    "score": "it cannot score stored responses",
    "top_k": "it has no top_k, or would silently leave it out",
    "stop": "it does not end responses at stop strings",
}


def needs_of(params: SamplingParams, logprobs: bool = False, also: Iterable[str] = ()) -> dict[str, str]:
    """Capability -> what needs it, for sampling with these parameters."""
    needs = {}
    if logprobs:
        needs["raw_logprobs"] = "storing raw log-probabilities (logprobs)"
    if params.top_k:
        needs["top_k"] = f"top_k {params.top_k}"
    if params.stop:
        needs["stop"] = f"stop strings {list(params.stop)}"
    for name in also:
        needs.setdefault(name, f"the setting need={name}")
    return needs


def require(engine: Engine, needs: dict[str, str]) -> None:
    """Raise `ModelError` that says which need the engine does not meet, why, and which engines do."""
    known = {f.name for f in fields(Capabilities)}
    for name, what in needs.items():
        if name not in known:
            raise ModelError(f"unknown capability '{name}': expected one of {', '.join(sorted(known))}")
        if not getattr(engine.capabilities, name):
            raise ModelError(
                f"{what} needs '{name}', which the engine '{engine.name}' does not have here: {INSTEAD[name]}. Leave "
                "it out, or use an engine that has it (transformers has all; docs/engines.md has the table)"
            )


def prepare(engine: Engine, prompts: Sequence[Prompt], params: SamplingParams) -> None:
    """Let an engine that has to look (a server) find out what it can do, before its capabilities are asked for."""
    look = getattr(engine, "prepare", None)
    if look is not None and prompts:
        look(min(prompts, key=lambda p: len(p.text)), params)  # one that is too long would say nothing else


def as_json(engine: Engine) -> dict[str, bool]:
    """The engine's capabilities by name, for run.json."""
    return {f.name: bool(getattr(engine.capabilities, f.name)) for f in fields(Capabilities)}
