"""What every importer yields, and what it may be told."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limen.errors import DataError
from limen.types import FinishReason, Outcome, Problem


@dataclass(frozen=True, slots=True)
class LogSample:
    """One response out of somebody's log.

    outcome: what the log says of it, None where it does not (then it has to be judged). gold: None where the log
    does not hold the answer. prompt: the text that the model was given, where known. metadata: the problem's.
    """

    problem_id: str
    sample_index: int
    text: str
    outcome: Outcome | None = None
    answer: str = ""
    gold: str | None = None
    question: str = ""
    prompt: str | None = None
    task: str = ""
    policy: str | None = None
    step: int = 0
    finish: FinishReason = "eos"
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Notes(Counter[str]):
    """What an importer left out or took for granted, with how often."""

    def lines(self) -> list[str]:
        """One line each; the count is put in front where it is more than a remark."""
        return [f"{times} {what}" if times > 1 else what for what, times in self.items()]


@dataclass(frozen=True)
class Options:
    """fields: our name -> the log's name. threshold: smallest score that is correct. metric: which of several scores
    counts. problems: by id, for logs without answers. id_pattern: regular expression with the groups `problem` and
    optionally `sample`, that takes a request id apart."""

    fields: Mapping[str, str] = field(default_factory=dict)
    threshold: float = 1.0
    metric: str | None = None
    problems: Mapping[str, Problem] = field(default_factory=dict)
    id_pattern: str | None = None

    def pattern(self) -> re.Pattern[str] | None:
        """The compiled id pattern. Raises `DataError` for one that does not compile or has no `problem` group."""
        if self.id_pattern is None:
            return None
        try:
            pattern = re.compile(self.id_pattern)
        except re.error as error:
            raise DataError(f"id pattern {self.id_pattern!r} is not a regular expression: {error}") from error
        if "problem" not in pattern.groupindex:
            raise DataError(f"id pattern {self.id_pattern!r} has no group (?P<problem>...)")
        return pattern


Importer = Callable[[Sequence[Path], Options, Notes], Iterator[LogSample]]


class Numbering:
    """Gives the samples of one problem the numbers 0, 1, 2, ... in the order in which they come."""

    def __init__(self) -> None:
        self._next: Counter[Any] = Counter()

    def __call__(self, *key: Any) -> int:
        number = self._next[key]
        self._next[key] += 1
        return number


def find_files(paths: Sequence[Path], pattern: str, what: str) -> list[Path]:
    """Files given, and those under the folders given that fit `pattern`, sorted. Raises `DataError` for none."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(path.rglob(pattern))
        elif path.exists():
            found.append(path)
        else:
            raise DataError(f"{path}: no such file or folder")
    if not found:
        raise DataError(f"no {what} in {', '.join(map(str, paths))}: expected files named {pattern}")
    return found


def need(row: Mapping[str, Any], key: str, where: str) -> Any:
    """row[key], or an error that says what is there instead."""
    if key not in row:
        raise DataError(f"{where} has no field {key!r} (it has: {', '.join(map(str, row)) or 'nothing'})")
    return row[key]


def outcome_of_score(value: Any, threshold: float, where: str) -> Outcome | None:
    """Correct from `threshold` on; None and NaN are ungraded. Raises `DataError` for what is no score."""
    if value is None:
        return None
    if isinstance(value, str) and value.strip().lower() in ("true", "false", "correct", "wrong", "incorrect"):
        return "correct" if value.strip().lower() in ("true", "correct") else "wrong"
    try:
        score = float(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: {value!r} is not a score") from error
    if score != score:
        return None
    return "correct" if score >= threshold else "wrong"


def text_of(value: Any, where: str) -> str:
    """A prompt or completion as text: a string, or chat messages (their contents, in order)."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable):
        return "\n".join(_message(m, where) for m in value)
    raise DataError(f"{where}: {type(value).__name__} is neither text nor a list of messages")


def _message(message: Any, where: str) -> str:
    if isinstance(message, str):
        return message
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, str):
        return content
    if isinstance(content, Iterable):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    if content is None:
        return ""
    raise DataError(f"{where}: a message without text content")
