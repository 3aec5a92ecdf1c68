"""What a verifier is: three pure functions, the cheap two of which run in the caller's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict

from limen.types import Outcome

MAX_STORED_ANSWER = 2000
"""Characters of an extracted answer that a verdict keeps."""


class Extraction(NamedTuple):
    """The final answer of a response, and how it was found; `answer` is None where there is none."""

    answer: str | None
    rule: str


class Decision(NamedTuple):
    """Outcome of one comparison and the rule that decided. `answer` replaces the extracted one where given."""

    outcome: Outcome
    rule: str
    answer: str | None = None


CORRECT = "correct"
WRONG = "wrong"


class Options(BaseModel):
    """Settings of a verifier; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Verifier:
    """Base of all verifiers.

    `extract` and `quick` run in the caller's process and must be bounded: linear in the text, no sympy. What
    `quick` leaves open (None) goes to `decide` in a worker process that is killed at the deadline. A verifier
    whose judging changes gets a new `revision`. `preload`: modules that a worker will need. `closed`:
    a worker needs neither network nor disk, and is shut off from both where the system allows it.
    """

    name: ClassVar[str]
    revision: ClassVar[int] = 1
    preload: ClassVar[tuple[str, ...]] = ()
    closed: ClassVar[bool] = False
    options_type: ClassVar[type[Options]] = Options

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = self.options_type(**(options or {}))
        self.imports: tuple[str, ...] = self.preload

    @property
    def version(self) -> str:
        """ "math@1", with the settings that differ from the defaults: "math@1[box=first]"."""
        changed = self.options.model_dump(exclude_defaults=True)
        tail = ",".join(f"{k}={str(v).lower()}" for k, v in sorted(changed.items()))
        return f"{self.name}@{self.revision}" + (f"[{tail}]" if tail else "")

    def extract(self, response: str, metadata: Mapping[str, Any]) -> Extraction:
        raise NotImplementedError

    def quick(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision | None:
        return None

    def decide(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision:
        raise NotImplementedError

    def understands(self, gold: str) -> bool:
        """False for a gold answer that can be matched as text only."""
        return True

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise `DataError` where a problem lacks what this verifier needs."""
