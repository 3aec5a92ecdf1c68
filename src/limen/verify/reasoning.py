"""Reasoning Gym's own scorers. Correct is a score of exactly 1.0; anything less is partial credit, hence wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from limen.errors import DataError
from limen.verify import extract
from limen.verify.base import Decision, Extraction, Verifier


class ReasoningGym(Verifier):
    """Scores an answer against the entry in `metadata`: {"source_dataset": name, "entry": {...}}."""

    name = "reasoning_gym"
    preload = ("reasoning_gym",)

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
        config = json.dumps(metadata.get("config") or {}, sort_keys=True)
        score = float(_dataset(str(metadata["source_dataset"]), config).score_answer(answer, dict(metadata["entry"])))
        return Decision("correct" if score == 1.0 else "wrong", "reasoning_gym")

    def check(self, metadata: Mapping[str, Any]) -> None:
        if "source_dataset" not in metadata or not isinstance(metadata.get("entry"), Mapping):
            raise DataError(
                "the verifier 'reasoning_gym' needs each problem's metadata to hold 'source_dataset' and 'entry', "
                f"but found only {sorted(metadata)}: load the problems with reasoning_gym:TASK"
            )


@lru_cache(maxsize=64)
def _dataset(name: str, config: str) -> Any:
    """The task as it was set up; a configuration that JSON has bent out of shape falls back to the defaults."""
    import reasoning_gym

    settings = {k: v for k, v in json.loads(config).items() if k != "size"}
    try:
        return reasoning_gym.create_dataset(name, size=1, **settings)
    except (AssertionError, TypeError, ValueError):
        return reasoning_gym.create_dataset(name, size=1, seed=0)
