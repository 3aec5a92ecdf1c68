"""The prize of the frontier, written down before its runs.

An arm *reaches* it when, with means over its seeds, its pass@1 is at most .02 below that of GRPO with the same seeds
and its pass@n_max is not below the base's (both draws of the base pooled). It reaches it *beyond chance* when for both
gaps the lower ends of two 95% intervals are at or above 0: Student's t over seeds (training's own randomness), and the
bootstrap over problems of the seed mean (the choice of problems). It misses *beyond chance* when for one of the gaps
the upper ends of both intervals are below 0. With one seed there is no interval over seeds, and nothing is beyond
chance. The prize of the issue needs more: the same recipe on a second model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from limen.errors import ConfigError, DataError

if TYPE_CHECKING:
    from limen.measure import CountTable

WITHIN = 0.02
REACHED, MISSED, SURELY = "reached", "missed", " beyond chance"


@dataclass(frozen=True)
class Gap:
    """How far above its bound a quantity lies (negative: below), with 95% intervals over seeds and over problems."""

    value: float
    seeds: tuple[float, float]
    problems: tuple[float, float]

    @property
    def surely_above(self) -> bool:
        return self.seeds[0] >= 0 and self.problems[0] >= 0

    @property
    def surely_below(self) -> bool:
        return self.seeds[1] < 0 and self.problems[1] < 0

    def to_json(self) -> dict[str, Any]:
        ends = (*self.seeds, *self.problems)
        low, high, p_low, p_high = (None if x != x else x for x in ends)
        return {"value": self.value, "over_seeds": [low, high], "over_problems": [p_low, p_high]}


@dataclass(frozen=True)
class Prize:
    """`one`: pass@1 + .02 - GRPO's; `most`: pass@n_max - the base's."""

    one: Gap
    most: Gap
    verdict: str

    @property
    def shortfall(self) -> float:
        """The larger of the two shortfalls; 0 where the prize is reached."""
        return max(0.0, -self.one.value, -self.most.value)


def pooled(draws: Sequence[CountTable]) -> tuple[Any, Any]:
    """(n, c) by problem of several draws of one policy together."""
    if len({d.problem_ids for d in draws}) > 1:
        raise DataError("the draws of the base are of different problems")
    return sum(d.n_P for d in draws), sum(d.c_P for d in draws)


def prize(
    arm: Sequence[CountTable], grpo: Sequence[CountTable], base: Sequence[CountTable], k: int | None = None
) -> Prize:
    """Judge one arm. `arm` and `grpo`: one table for each seed, in the same order of seeds; `base`: its draws. `k`: in
    the place of n_max; with more samples than k pass@k has less noise."""
    from limen.measure import pass_at_k

    ids = base[0].problem_ids
    if len(arm) != len(grpo) or not arm:
        raise DataError(f"{len(arm)} runs of the arm and {len(grpo)} of GRPO: the prize is judged seed by seed")
    if any(t.problem_ids != ids for t in (*arm, *grpo)):
        raise DataError("runs and base are of different problems")
    k = n_max([*arm, *grpo, base[0]], k)
    n, c = pooled(base)
    base_P = pass_at_k(n, c, k)
    one_SP = np.array([pass_at_k(a.n_P, a.c_P, 1) - pass_at_k(g.n_P, g.c_P, 1) for a, g in zip(arm, grpo, strict=True)])
    most_SP = np.array([pass_at_k(a.n_P, a.c_P, k) - base_P for a in arm])
    one, most = gap(one_SP + WITHIN), gap(most_SP)
    reached = one.value >= 0 and most.value >= 0
    sure = (one.surely_above and most.surely_above) if reached else (one.surely_below or most.surely_below)
    return Prize(one, most, (REACHED if reached else MISSED) + (SURELY if sure else ""))


def n_max(tables: Sequence[CountTable], k: int | None = None) -> int:
    """Largest k that all tables have, or the k that is asked for. Raises `ConfigError` where they have less."""
    most = min(t.n_min for t in tables)
    if k is not None and not 1 <= k <= most:
        raise ConfigError(f"k = {k}: the smallest number of judged samples of a problem is {most}")
    return most if k is None else k


def gap(gap_SP: Any) -> Gap:
    """Mean of gaps of shape (seeds, problems) with both intervals."""
    from limen.lab.claims_rules import interval
    from limen.lab.trends import t_interval

    value, low, high = t_interval(gap_SP.mean(1).tolist())
    _, p_low, p_high = interval(gap_SP.mean(0))
    return Gap(round(value, 12), (low, high), (p_low, p_high))
