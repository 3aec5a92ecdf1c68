"""pass@k curves of a benchmark: the mean over problems, with an interval."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from limen.errors import DataError
from limen.measure.bootstrap import problem_means, t_percentiles
from limen.measure.counts import CountTable
from limen.measure.passk import Floats, Ints, as_counts, pass_at_k_stopped, pass_table
from limen.measure.resample import Over, pivot, redraw_deviations


@dataclass(frozen=True)
class PassCurve:
    """pass@k at each k, with a `level` interval. NaN where a problem has fewer than k samples (`undefined`: why).

    `resampled` says what the interval is over, in words that a table can print.
    """

    name: str
    k_K: Ints
    value_K: Floats
    low_K: Floats
    high_K: Floats
    level: float
    resampled: str
    undefined: dict[int, str] = field(default_factory=dict)

    def at(self, k: int) -> float:
        """pass@k, NaN where k is not on the curve."""
        hit = np.flatnonzero(self.k_K == k)
        return float(self.value_K[hit[0]]) if hit.size else math.nan


def problem_values(table: CountTable, k_K: Ints) -> Floats:
    """pass@k of each problem, shape (P, K), by the estimator that fits how the table was sampled."""
    if table.stop is None:
        return pass_table(table.n_P, table.c_P, k_K)
    r, n_max = table.stop.r, table.stop.n_max
    cap = np.where(table.c_P < r, table.n_P, n_max)
    return np.asarray(pass_at_k_stopped(table.n_P[:, None], table.c_P[:, None], cap[:, None], r, k_K[None, :]))


def default_ks(*tables: CountTable) -> Ints:
    """Powers of two up to the largest k that every problem of every table allows, and that k itself."""
    top = min(t.n_min for t in tables)
    powers = [2**i for i in range(max(top, 0).bit_length()) if 2**i <= top]
    return np.asarray(sorted({*powers, top} - {0}), dtype=np.int64)


def pick_ks(ks: Iterable[int] | None, *tables: CountTable) -> Ints:
    """`ks` checked and sorted, or `default_ks`."""
    if ks is None:
        return default_ks(*tables)
    k_K = np.unique(as_counts(list(ks), "k", least=1))
    if k_K.size == 0:
        raise DataError("no k given: give one or more budgets, or none for powers of two")
    return k_K


def pass_curve(
    table: CountTable,
    ks: Iterable[int] | None = None,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    over: Over = "problems",
) -> PassCurve:
    """Mean pass@k over problems, with a seeded bootstrap interval.

    ks: budgets; by default powers of two up to the smallest n, and that n. draws=0 gives no interval (NaN).
    over: what the interval is about. `problems`: other problems of this kind, sampled anew (resamples problems,
    which carry the noise of their samples along). `samples`: these problems, sampled anew. `both`: as `problems`,
    with samples redrawn from the fitted posterior, which is smoother where problems are few.
    """
    if table.M == 0:
        raise DataError(f"{table.name!r} has no problems: nothing to measure")
    k_K = pick_ks(ks, table)
    value_PK = problem_values(table, k_K)
    low, high = mean_interval([table], [value_PK], k_K, draws, seed, level, over)
    return PassCurve(
        name=table.name,
        k_K=k_K,
        value_K=value_PK.mean(axis=0),
        low_K=low,
        high_K=high,
        level=level,
        resampled=resampled(table.M, draws, seed, level, over),
        undefined=undefined_ks(table, k_K),
    )


def mean_interval(
    tables: list[CountTable],
    values_PK: list[Floats],
    k_K: Ints,
    draws: int,
    seed: int,
    level: float,
    over: Over = "problems",
) -> tuple[Floats, Floats]:
    """Interval of the mean over problems of one table; of two: of second minus first, paired by problem."""
    if over not in ("problems", "samples", "both"):
        raise DataError(f"over is {over!r}, expected problems, samples or both")
    paired = len(tables) == 2
    value_PK = values_PK[1] - values_PK[0] if paired else values_PK[0]
    if not draws or not k_K.size:
        return np.full(k_K.shape, math.nan), np.full(k_K.shape, math.nan)
    if over == "problems":
        return t_percentiles(problem_means(value_PK, draws, seed), tables[0].M, level)
    moved = redraw_deviations(tables, k_K, draws, seed, over)
    return pivot(value_PK.mean(axis=0), moved, level, -1.0 if paired else 0.0, 1.0, tables[0].M, over)


def resampled(M: int, draws: int, seed: int, level: float, over: Over) -> str:
    """What an interval is over, in words for a table."""
    what = {
        "problems": f"problems ({M}) with replacement",
        "samples": f"samples of the same {M} problems, redrawn from the fitted posterior",
        "both": f"problems ({M}) with replacement and their samples, redrawn from the fitted posterior",
    }[over]
    return f"{what}, {draws} draws, seed {seed}, {level:.0%} interval" if draws else "nothing (no interval asked for)"


def undefined_ks(table: CountTable, k_K: Ints) -> dict[int, str]:
    """Why pass@k is NaN, for each k where it is."""
    cap = table.n_P if table.stop is None else np.where(table.c_P < table.stop.r, table.n_P, table.stop.n_max)
    why: dict[int, str] = {}
    for k in k_K.tolist():
        short = cap < k
        if short.any():
            lost = int((short & (table.n_P + table.unjudged_P >= k)).sum())
            because = f", {lost} of them because of unjudged samples" if lost else ""
            why[k] = f"{int(short.sum())} of {table.M} problems have fewer than {k} judged samples{because}"
    return why


def curve_json(curve: PassCurve) -> dict[str, Any]:
    """value, low, high by k (keys are strings, NaN is null)."""
    rows = zip(curve.k_K.tolist(), curve.value_K.tolist(), curve.low_K.tolist(), curve.high_K.tolist())
    return {str(k): {"value": _plain(v), "low": _plain(a), "high": _plain(b)} for k, v, a, b in rows}


def _plain(x: float) -> float | None:
    return None if math.isnan(x) else x
