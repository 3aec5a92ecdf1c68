"""Intervals over samples: what pass@k would be if the same problems were sampled again.

Redrawing c from Binomial(n, c/n) does not work for large k: a problem with no success in n would never succeed in
any redraw, and pass@n hangs on just those problems (the interval is then too narrow by a third). So p is drawn
from the posterior under the fitted prior first, c* from p, and the interval is the spread of estimator(c*) minus
truth(p*) around the estimate (a pivot: the estimator is unbiased, so nothing shifts).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from limen.measure.bootstrap import t_tail
from limen.measure.counts import CountTable
from limen.measure.mixing import fit_mixing
from limen.measure.passk import Floats, Ints, pass_at_k_stopped, pass_table

Over = Literal["problems", "samples", "both"]

_CHUNK = 3_000_000  # most elements (draws x problems x k) of a block


class Redraw:
    """Fresh samples of the problems of `table`, drawn from its posterior."""

    def __init__(self, table: CountTable, k_K: Ints) -> None:
        self.table = table
        self.k_K = k_K
        pairs, self.row_P = np.unique(np.stack([table.n_P, table.c_P]), axis=1, return_inverse=True)
        self.prior = fit_mixing(table.n_P, table.c_P)
        posterior_UG = self.prior.posterior(pairs[0], pairs[1])
        self.ladder = (posterior_UG.cumsum(axis=1).clip(0, 1) + np.arange(pairs.shape[1])[:, None]).ravel()
        self.target_K = self.prior.pass_at_k(pairs[0], pairs[1], k_K)[self.row_P].mean(axis=0)
        if table.stop is None:
            self.n_u, self.slot_P = np.unique(table.n_P, return_inverse=True)
            self.start_u = np.concatenate([[0], np.cumsum(self.n_u + 1)[:-1]])
            self.lookup = np.concatenate([pass_table(n, np.arange(n + 1), k_K) for n in self.n_u])

    def estimate(self, p_BP: Floats, pick_BP: Ints, rng: np.random.Generator) -> Floats:
        """pass@k estimated from fresh samples of problems `pick_BP` with success probabilities p, shape (B, P, K)."""
        stop = self.table.stop
        n_BP = self.table.n_P[pick_BP]
        if stop is None:
            c_BP = rng.binomial(n_BP, p_BP)
            return np.asarray(self.lookup[self.start_u[self.slot_P[pick_BP]] + c_BP])
        with np.errstate(invalid="ignore"):
            gaps = rng.geometric(np.maximum(p_BP, 1e-12), size=(stop.r, *p_BP.shape))
        at = np.minimum(gaps, stop.n_max + 1).cumsum(axis=0)  # sample index of each success
        c_BP = (at <= stop.n_max).sum(axis=0)
        N_BP = np.where(c_BP == stop.r, np.minimum(at[-1], stop.n_max), stop.n_max)
        return np.asarray(pass_at_k_stopped(N_BP[..., None], c_BP[..., None], stop.n_max, stop.r, self.k_K))

    def draw(self, pick_BP: Ints, rng: np.random.Generator) -> Floats:
        """Posterior draws of the success probabilities of problems `pick_BP`."""
        row_BP = self.row_P[pick_BP]
        at = np.searchsorted(self.ladder, row_BP + rng.random(pick_BP.shape))
        G = self.prior.p_G.size
        return np.asarray(self.prior.p_G[np.minimum(at - row_BP * G, G - 1)])

    def deviations(self, pick_BP: Ints, rng: np.random.Generator, both: bool) -> Floats:
        """Estimate minus truth of each problem drawn, shape (B, P, K). `both`: truth is that of the population."""
        p_BP = self.draw(pick_BP, rng)
        got_BPK = self.estimate(p_BP, pick_BP, rng)
        if both:
            return np.asarray(got_BPK - self.target_K)
        with np.errstate(divide="ignore"):
            return np.asarray(got_BPK + np.expm1(self.k_K * np.log1p(-p_BP)[..., None]))


@dataclass(frozen=True)
class Deviations:
    """Deviations of the mean over problems, shape (draws, K), and the degrees of freedom of their spread, (K,)."""

    mean_DK: Floats
    df_K: Floats


def redraw_deviations(tables: list[CountTable], k_K: Ints, draws: int, seed: int, over: Over) -> Deviations:
    """Deviations of one table's mean, or of the second's minus the first's: problems in pairs, samples apart.

    df: for `both` M - 1. For `samples` the spread is a sum over problems of which only those with few successes
    (or few failures) add much at large k: with v_i their shares, df = 2 (sum v)^2 / sum v^2 (Satterthwaite).
    """
    redraws = [Redraw(t, k_K) for t in tables]
    M = tables[0].M
    block = max(1, _CHUNK // max(1, M * max(1, k_K.size)))
    pick_rng = np.random.default_rng([seed, 0])
    rngs = [np.random.default_rng([seed, 1 + i]) for i in range(len(tables))]
    means: list[Floats] = []
    square_PK = np.zeros((M, k_K.size))
    for start in range(0, draws, block):
        size = min(block, draws - start)
        same = np.broadcast_to(np.arange(M), (size, M))
        pick = pick_rng.integers(0, M, size=(size, M)) if over == "both" else same
        parts = [r.deviations(pick, g, over == "both") for r, g in zip(redraws, rngs)]
        gap_BPK = parts[1] - parts[0] if len(parts) == 2 else parts[0]
        means.append(gap_BPK.mean(axis=1))
        square_PK += (gap_BPK**2).sum(axis=0)
    if over == "both":
        df_K = np.full(k_K.shape, max(M - 1, 1.0))
    else:
        total, squares = square_PK.sum(axis=0), (square_PK**2).sum(axis=0)
        df_K = np.where(squares > 0, 2 * total**2 / np.where(squares > 0, squares, 1), np.inf)
    return Deviations(np.concatenate(means), np.minimum(df_K, 1e6))


def pivot(
    value_K: Floats, moved: Deviations, level: float, least: float, most: float, M: int, over: Over
) -> tuple[Floats, Floats]:
    """Interval: the estimate minus the quantiles of its deviation, within [least, most]; holds the estimate."""
    factor = np.sqrt(M / (M - 1)) if over == "both" and M > 1 else 1.0
    tails = t_tail(moved.df_K, level, factor)
    columns = [np.quantile(d, [1 - t, t]) for d, t in zip(moved.mean_DK.T, tails)]
    low, high = np.array(columns).T
    lowest, highest = np.minimum(value_K - low, value_K), np.maximum(value_K - high, value_K)
    return np.clip(lowest, least, most), np.clip(highest, least, most)
