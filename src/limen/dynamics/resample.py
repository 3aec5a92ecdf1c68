"""Intervals of the quantities of the learning dynamics: the problems are drawn anew, and their responses with them.

Responses of one problem are not independent, so it is problems that are resampled. A mean over responses becomes a
ratio of two sums over problems; a correlation over checkpoint pairs is recomputed, all its points, in every draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from limen.dynamics.quantities import Bools, Floats
from limen.measure.bootstrap import problem_weights


@dataclass(frozen=True)
class Estimate:
    """A value with its percentile interval over problems; NaN where it is undefined."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def to_json(self) -> dict[str, float | None]:
        return {k: v if math.isfinite(v) else None for k, v in vars_of(self).items()}


def vars_of(e: Estimate) -> dict[str, float]:
    return {"value": e.value, "low": e.low, "high": e.high}


class Resampler:
    """Draws of `problems` with replacement, the same for everything that is asked of it."""

    def __init__(self, problems: Sequence[str], draws: int = 1000, seed: int = 0, level: float = 0.95) -> None:
        self.at = {p: i for i, p in enumerate(problems)}
        self.level = level
        rng = np.random.default_rng(seed)
        M = len(problems)
        self.weight_DM = problem_weights(M, draws, rng) if draws and M else np.zeros((0, M))

    def sums(self, value_N: ArrayLike, problem_N: Sequence[str], keep_N: Bools | None = None) -> tuple[Floats, Floats]:
        """Per problem, over its kept responses: sum of values and number of them, each (M,). NaN is left out."""
        value = np.asarray(value_N, dtype=np.float64)
        keep = ~np.isnan(value) if keep_N is None else np.asarray(keep_N, dtype=bool) & ~np.isnan(value)
        at = np.array([self.at.get(p, -1) for p in problem_N], dtype=np.int64)
        keep = keep & (at >= 0)
        M = len(self.at)
        sums = np.bincount(at[keep], value[keep], M).astype(np.float64)
        return sums, np.bincount(at[keep], minlength=M).astype(np.float64)

    def ratio(self, sum_M: Floats, count_M: Floats) -> Estimate:
        """Mean over responses from the problems' sums."""
        total = count_M.sum()
        if not total:
            return Estimate(math.nan)
        return self._interval(float(sum_M.sum() / total), self.ratio_draws(sum_M, count_M))

    def ratio_draws(self, sum_M: Floats, count_M: Floats) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((self.weight_DM @ sum_M) / (self.weight_DM @ count_M))

    def mean(self, value_N: ArrayLike, problem_N: Sequence[str], keep_N: Bools | None = None) -> Estimate:
        """Mean over (kept) responses, with its interval."""
        return self.ratio(*self.sums(value_N, problem_N, keep_N))

    def _interval(self, value: float, draws: Floats) -> Estimate:
        draws = draws[np.isfinite(draws)]
        if len(draws) < 20:
            return Estimate(value)
        tail = (1 - self.level) / 2
        low, high = np.quantile(draws, [tail, 1 - tail])
        return Estimate(value, float(low), float(high))

    def correlation(self, sums: Sequence[tuple[Floats, Floats]], change_JM: Floats, kind: str = "pearson") -> Estimate:
        """Correlation over J checkpoint pairs of Δ⁺ (from per-problem sums and counts) with the mean over problems of
        `change_JM`. NaN with fewer than three pairs."""
        if len(sums) < 3:
            return Estimate(math.nan)
        x_J = np.array([s.sum() / c.sum() if c.sum() else np.nan for s, c in sums])
        value = correlate(x_J[None], change_JM.mean(1)[None], kind)[0]
        if not len(self.weight_DM):
            return Estimate(float(value))
        x_DJ = np.stack([self.ratio_draws(s, c) for s, c in sums], axis=1)
        y_DJ = self.weight_DM @ change_JM.T
        return self._interval(float(value), correlate(x_DJ, y_DJ, kind))


def correlate(x_DJ: Floats, y_DJ: Floats, kind: str = "pearson") -> Floats:
    """Pearson (or Spearman) correlation of each row, shape (D,); NaN where a row is constant or holds NaN."""
    if kind == "spearman":
        from scipy.stats import rankdata

        x_DJ, y_DJ = rankdata(x_DJ, axis=1, nan_policy="propagate"), rankdata(y_DJ, axis=1, nan_policy="propagate")
    x, y = x_DJ - x_DJ.mean(1, keepdims=True), y_DJ - y_DJ.mean(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((x * y).sum(1) / np.sqrt((x * x).sum(1) * (y * y).sum(1)))


def to_json(value: Any) -> Any:
    """Estimates inside, JSON outside."""
    if isinstance(value, Estimate):
        return value.to_json()
    if isinstance(value, dict):
        return {k: to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
