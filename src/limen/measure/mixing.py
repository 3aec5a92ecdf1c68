"""Success probabilities from counts without a shape for their distribution: nonparametric empirical Bayes.

The likeliest mixing distribution (Kiefer & Wolfowitz 1956) on a fixed grid of p, found by EM. It assumes nothing on
how success probabilities are spread over problems, which is what intervals over samples need: with a Beta prior
they cover 73% instead of 95% where the truth is a mixture of a few kinds of problems.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from limen.measure.passk import Floats, Ints


def grid(n_max: int, points: int = 120) -> Floats:
    """0, 1, and p evenly spaced in log-odds, from well below 1/n_max to well above 1 - 1/n_max."""
    edge = np.log(20.0 * max(n_max, 1))
    return np.concatenate([[0.0], expit(np.linspace(-edge, edge, points)), [1.0]])


@dataclass(frozen=True)
class MixingPrior:
    """Weights over a grid of success probabilities, shape (G,) each."""

    p_G: Floats
    weight_G: Floats

    def posterior(self, n_U: Ints, c_U: Ints) -> Floats:
        """Posterior over the grid after c successes in n samples, shape (U, G)."""
        joint = _likelihood(n_U, c_U, self.p_G) * self.weight_G
        return np.asarray(joint / joint.sum(axis=1, keepdims=True))

    def pass_at_k(self, n_U: Ints, c_U: Ints, k_K: Ints) -> Floats:
        """Posterior mean of 1 - (1-p)^k, shape (U, K)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            solved_GK = -np.expm1(k_K * np.log1p(-self.p_G)[:, None])
        return np.asarray(self.posterior(n_U, c_U) @ solved_GK)


def fit_mixing(n_P: Ints, c_P: Ints, steps: int = 400) -> MixingPrior:
    """EM from even weights; deterministic. Each step moves every weight to its mean posterior share."""
    p_G = grid(int(n_P.max()) if n_P.size else 1)
    pairs, times = np.unique(np.stack([n_P, c_P]), axis=1, return_counts=True)
    like_UG = _likelihood(pairs[0], pairs[1], p_G)
    share_U = times / times.sum()
    weight_G = np.full(p_G.shape, 1 / p_G.size)
    for _ in range(steps):
        weight_G = weight_G * ((share_U / (like_UG @ weight_G)) @ like_UG)
    return MixingPrior(p_G, weight_G / weight_G.sum())


def _likelihood(n_U: Ints, c_U: Ints, p_G: Floats) -> Floats:
    """p^c (1-p)^(n-c), scaled so that the best p of each row has 1: fixed n and adaptive stopping alike."""
    n, c = n_U[:, None].astype(np.float64), c_U[:, None].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.where(c > 0, c * np.log(p_G), 0.0) + np.where(n > c, (n - c) * np.log1p(-p_G), 0.0)
    return np.asarray(np.exp(log - log.max(axis=1, keepdims=True)))
