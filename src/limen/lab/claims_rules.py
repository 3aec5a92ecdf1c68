"""Tests that the claims share: seed means paired by problem, their intervals, and the words for a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from limen.lab.evidence import Evidence, Trained
from limen.measure import pass_at_k, support
from limen.measure.describe import summarise
from limen.measure.passk import Floats
from limen.measure.support import SupportResult

AGREES, OPPOSITE, UNDETERMINED = "agrees", "opposite", "undetermined"
SHORT, NOT_RUN, OUT_OF_REACH = "too short to say", "not run yet", "out of reach here"
REPORTED = "reported"
"""A row for which no sign is expected: what was found is the result."""

VERDICTS = (AGREES, OPPOSITE, UNDETERMINED, SHORT, REPORTED, NOT_RUN, OUT_OF_REACH)


@dataclass(frozen=True)
class Verdict:
    """What ours says of a claim. `size`: the numbers, in words; `source`: the study's file."""

    verdict: str
    size: str
    source: str = ""


Interval = tuple[float, float, float]
"""(mean, low, high)."""


def n_max(runs: Sequence[Trained]) -> int:
    """Largest budget that every policy has."""
    return min(min(r.base.n_min, r.trained.n_min) for r in runs)


def values(runs: Sequence[Trained], k: int, side: str = "trained", tasks: Sequence[str] = ()) -> Floats:
    """pass@k per problem, mean over runs (seeds, and bases where there are several)."""
    rows = []
    for r in runs:
        table = r.trained if side == "trained" else r.base
        at = [i for i, t in enumerate(table.task_P) if not tasks or t in tasks]
        rows.append(pass_at_k(table.n_P[at], table.c_P[at], k))
    return np.asarray(np.mean(rows, axis=0))


def interval(gap_P: Floats) -> Interval:
    """Mean over problems with its 95% bootstrap interval."""
    m = summarise({"x": gap_P}, 2000, 0)["x"]
    return m.value, m.low, m.high


def change(runs: Sequence[Trained], k: int, tasks: Sequence[str] = ()) -> Interval:
    """pass@k of the seed mean minus the base's, paired by problem."""
    return interval(values(runs, k, "trained", tasks) - values(runs, k, "base", tasks))


def between(a: Sequence[Trained], b: Sequence[Trained], k: int, tasks: Sequence[str] = ()) -> Interval:
    """pass@k of b's seed mean minus a's, paired by problem."""
    return interval(values(b, k, "trained", tasks) - values(a, k, "trained", tasks))


def moved(runs: Sequence[Trained]) -> bool:
    """At least three seeds, and a pass@1 above the base's whose paired interval excludes 0."""
    return len({(r.seed, r.group) for r in runs}) >= 3 and change(runs, 1)[1] > 0


def said(x: Interval, digits: int = 3) -> str:
    if math.isnan(x[1]):
        return f"{x[0]:+.{digits}f}"
    return f"{x[0]:+.{digits}f} [{x[1]:+.{digits}f}, {x[2]:+.{digits}f}]"


def signed(x: Interval, sign: int) -> str:
    """agrees where the interval lies on `sign`'s side of 0, opposite where it lies on the other."""
    low, high = (x[1], x[2]) if sign > 0 else (-x[2], -x[1])
    return AGREES if low > 0 else OPPOSITE if high < 0 else UNDETERMINED


def together(*verdicts: str) -> str:
    """A row of several parts: agrees where all do, opposite where none does and one is opposite."""
    if all(v == AGREES for v in verdicts):
        return AGREES
    return OPPOSITE if OPPOSITE in verdicts and AGREES not in verdicts else UNDETERMINED


def tables(runs: Sequence[Trained], tasks: Sequence[str] = ()) -> list[SupportResult]:
    """Support of each run against its base."""
    out = []
    for r in runs:
        at = [i for i, t in enumerate(r.base.task_P) if not tasks or t in tasks]
        out.append(support(r.base.n_P[at], r.base.c_P[at], r.trained.c_P[at], trained_n=r.trained.n_P[at]))
    return out


def families(runs: Sequence[Trained]) -> list[str]:
    return list(dict.fromkeys(runs[0].base.task_P))


def flips(found: Sequence[SupportResult]) -> str:
    """Gained and lost beside chance, run by run."""
    return ", ".join(f"{s.E} / {s.S} ({s.chance_each_way:.1f})" for s in found)


def crossing(runs: Sequence[Trained]) -> int | None:
    """Smallest power of two at which the seed mean's pass@k is below the base's."""
    k = 1
    while k <= n_max(runs):
        if float((values(runs, k) - values(runs, k, "base")).mean()) < 0:
            return k
        k *= 2
    return None


Rule = Callable[[Evidence], Verdict | None]
"""None: the study does not hold what the row needs."""


def guarded(runs: Sequence[Trained], verdict: str, size: str) -> Verdict:
    """The verdict, unless the runs did not move."""
    if moved(runs):
        return Verdict(verdict, size)
    return Verdict(SHORT, f"{size}; seeds {len(runs)}, pass@1 {said(change(runs, 1))}")
