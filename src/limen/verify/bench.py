"""Accuracy and speed of a verifier on labelled pairs, with math-verify alone on the same work in the same run."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from limen.errors import DataError
from limen.types import OUTCOMES
from limen.verify.pool import JudgeItem, VerifierPool

_OTHER = "math-verify"


@dataclass(frozen=True, slots=True)
class Case:
    """A labelled pair: the outcome that is right, why, and the settings under which it is (§ policies)."""

    gold: str
    response: str
    expected: str
    kind: str = ""
    why: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Score:
    """`right` of `labelled` outcomes are as labelled (correct against anything else); `false_positives` and
    `false_negatives` among the rest; `failures`: raised or given up. `seconds` of wall clock for all pairs."""

    name: str
    labelled: int = 0
    right: int = 0
    false_positives: int = 0
    false_negatives: int = 0
    failures: int = 0
    seconds: float = 0.0
    pairs: int = 0
    misses: list[dict[str, str]] = field(default_factory=list)

    def count(self, case: Case, outcome: str, rule: str) -> None:
        self.labelled += 1
        wanted, got = case.expected == "correct", outcome == "correct"
        self.failures += outcome == "unjudged"
        if wanted == got:
            self.right += 1
            return
        self.false_positives += got
        self.false_negatives += wanted
        self.misses.append({**asdict(case), "got": outcome, "rule": rule, "response": case.response[-200:]})

    @property
    def accuracy(self) -> float:
        return self.right / self.labelled if self.labelled else float("nan")

    @property
    def pairs_per_second(self) -> float:
        return self.pairs / self.seconds if self.seconds else float("nan")


def own_cases() -> list[Case]:
    """The labelled cases that come with limen."""
    text = resources.files("limen.verify").joinpath("cases.jsonl").read_text(encoding="utf-8")
    return _parse(text.splitlines(), "cases.jsonl")


def read_cases(path: str | Path) -> list[Case]:
    """Cases from a JSONL file: `gold`, `response`, `expected` (an outcome, or true/false), optionally `kind`, `why`,
    `options`, `metadata`. Raises `DataError` with the line."""
    try:
        return _parse(Path(path).read_text(encoding="utf-8").splitlines(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}): give a JSONL file of labelled pairs") from None


def _parse(lines: Sequence[str], name: str) -> list[Case]:
    cases = []
    for i, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            expected = row["expected"]
            if isinstance(expected, bool):
                expected = "correct" if expected else "wrong"
            if expected not in OUTCOMES:
                raise ValueError(f"expected {expected!r} is no outcome")
            extra = {k: row[k] for k in ("kind", "why", "options", "metadata") if k in row}
            cases.append(Case(str(row["gold"]), str(row["response"]), expected, **extra))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{name}, line {i}: {type(error).__name__}: {error}; expected an object with gold, response and "
                "expected (true, false or an outcome)"
            ) from None
    if not cases:
        raise DataError(f"{name} holds no cases")
    return cases


def measure(cases: Sequence[Case], verifier: Mapping[str, Any], workers: int | None, deadline: float) -> Score:
    """limen's verdicts. Time is from the first pair to the last verdict; starting the processes counts."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(json.dumps({**verifier, **case.options}, sort_keys=True), []).append(case)
    score = Score("")
    for spec, members in groups.items():
        start = time.perf_counter()
        with VerifierPool(json.loads(spec), workers=workers, deadline=deadline) as pool:
            verdicts = pool.judge_many(JudgeItem(c.gold, c.response, c.metadata) for c in members)
            score.seconds += time.perf_counter() - start
            score.name = score.name or pool.version.partition("[")[0]
        for case, verdict in zip(members, verdicts, strict=True):
            score.count(case, verdict.outcome, verdict.rule)
    score.pairs = len(cases)
    return score


def measure_math_verify(cases: Sequence[Case], seconds: int = 5) -> Score:
    """math-verify as its documentation has it: parse both, verify, with its own timeouts, in this process."""
    import logging

    import math_verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    logging.getLogger("math_verify.grader").setLevel(logging.CRITICAL)
    config = [math_verify.LatexExtractionConfig(), math_verify.ExprExtractionConfig()]
    score = Score(_OTHER)
    outcomes: list[str] = []
    start = time.perf_counter()
    for case in cases:
        gold = case.gold if "$" in case.gold else f"${case.gold}$"
        try:
            expected = math_verify.parse(gold, extraction_config=config, parsing_timeout=seconds)
            answer = math_verify.parse(case.response, extraction_config=config, parsing_timeout=seconds)
            same = math_verify.verify(expected, answer, timeout_seconds=seconds)
            outcomes.append("correct" if same else "wrong")
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            outcomes.append("unjudged")
    score.seconds = time.perf_counter() - start
    score.pairs = len(cases)
    for case, outcome in zip(cases, outcomes, strict=True):
        score.count(case, outcome, _OTHER)
    return score
