"""Answers of one problem's samples: majority votes, entropy, distinct answers.

Multiplicities: how many samples gave each distinct answer, shape (A,). Equivalent answers are one class: all that
the verifier called correct are one, and the others are told apart by their extracted text.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, xlog1py, xlogy

from limen.measure.passk import Floats, as_counts, pass_at_k

_NODES = 24


def maj_at_k(correct: int, wrong: ArrayLike, k: int, no_answer: int = 0) -> float:
    """Probability that a vote of k of the samples, drawn without replacement, elects the correct answer.

    correct: samples with the correct answer; wrong: multiplicities of the wrong answers; no_answer: samples that
    do not vote. Ties are split evenly among the answers that lead. NaN where n < k. k = 1 is c/n, k = n the vote
    of all samples. Exact: with each sample taken independently with probability k/n and the total conditioned to
    be k, the number of votes of each answer is a truncated binomial; the product over answers is a convolution,
    and 1/(1 + ties) the integral of u^ties over [0, 1] (Gauss-Legendre).
    """
    w = as_counts(np.atleast_1d(np.asarray(wrong, dtype=np.float64)), "wrong")
    w = w[w > 0]
    own, absent = (int(as_counts(x, name)) for x, name in ((correct, "correct"), (no_answer, "no_answer")))
    n = own + absent + int(w.sum())
    k = int(as_counts(k, "k", least=1))
    if n < k:
        return float("nan")
    if own == 0:
        return 0.0
    if k == n:
        top = max(own, int(w.max(initial=0)))
        return 1.0 / (1 + int((w == top).sum())) if own == top else 0.0
    f = k / n
    own_J = _binomial(own, f, k)
    total = 0.0
    for j in range(1, min(own, k) + 1):
        rest = k - j
        rivals = w[w >= j]
        nodes, weights = _unit_nodes(min(rivals.size, rest // j) // 2 + 1)
        others = np.zeros((nodes.size, rest + 1))
        others[:] = _binomial(n - own - int(rivals.sum()), f, rest)  # these can neither lead nor tie
        for m in rivals.tolist():
            others = _convolve(others, _binomial(m, f, min(j, rest)), j, nodes)
        total += own_J[j] * float(weights @ others[:, rest])
    return min(1.0, total / float(_binomial(n, f, k)[k]))


@lru_cache(maxsize=64)
def _unit_nodes(count: int) -> tuple[Floats, Floats]:
    """Gauss-Legendre on [0, 1], exact for degree 2 * count - 1 (capped: beyond that, ties have no weight left)."""
    nodes, weights = np.polynomial.legendre.leggauss(min(count, _NODES))
    return (nodes + 1) / 2, weights / 2


@lru_cache(maxsize=4096)
def _binomial(m: int, f: float, top: int) -> Floats:
    """Binomial(m, f) probabilities of 0..top, shape (top + 1,)."""
    x = np.arange(top + 1, dtype=np.float64)
    left = np.maximum(m - x, 0)
    log = gammaln(m + 1.0) - gammaln(x + 1) - gammaln(left + 1) + xlogy(x, f) + xlog1py(left, -f)
    return np.where(x <= m, np.exp(log), 0.0)


def _convolve(others_UR: Floats, votes: Floats, j: int, nodes_U: Floats) -> Floats:
    """Adds one answer with at most j votes; its j votes (a tie) are weighted with u."""
    out = np.zeros_like(others_UR)
    R = others_UR.shape[1]
    for i, p in enumerate(votes[:R]):
        scale = nodes_U[:, None] * p if i == j else p
        out[:, i:] += scale * others_UR[:, : R - i]
    return out


def answer_entropy(multiplicities: ArrayLike, budget: int | None = None) -> float:
    """Entropy in nats of the answers of one problem: -sum p_j ln p_j with p_j = share of the samples.

    The samples without an answer count as one class: give their number as one of the multiplicities. The plug-in
    value grows with n, so compare at one `budget` (32 in Invisible Leash): the mean over all subsets of that size,
    exactly. NaN where there are fewer samples than the budget.
    """
    m = as_counts(np.atleast_1d(np.asarray(multiplicities)), "multiplicities")
    m = m[m > 0]
    n = int(m.sum())
    size = n if budget is None else int(as_counts(budget, "budget", least=1))
    if n == 0 or size > n:
        return float("nan")
    if size == n:
        return float(-xlogy(m / n, m / n).sum())
    x = np.arange(size + 1, dtype=np.float64)
    sizes, times = np.unique(m, return_counts=True)
    term = -xlogy(x / size, x / size)
    return float(sum(t * (_hypergeometric(n, int(s), size, x) @ term) for s, t in zip(sizes, times)))


def distinct_at_k(multiplicities: ArrayLike, k: int, no_answer: int = 0) -> float:
    """Expected number of distinct answers among k of the samples: sum of 1 - C(n-m, k)/C(n, k). NaN where n < k.

    no_answer: samples that count into n but are no answer.
    """
    m = as_counts(np.atleast_1d(np.asarray(multiplicities)), "multiplicities")
    n = int(m.sum()) + no_answer
    return float(np.sum(pass_at_k(n, m[m > 0], k))) if n >= k else float("nan")


def self_consistency(multiplicities: ArrayLike) -> float:
    """Share of the samples that give the commonest answer. NaN without samples."""
    m = as_counts(np.atleast_1d(np.asarray(multiplicities)), "multiplicities")
    return float(m.max() / m.sum()) if m.sum() else float("nan")


def _hypergeometric(n: int, m: int, size: int, x: Floats) -> Floats:
    """P(x of the m marked are among `size` of n)."""

    def log_choose(a: Floats | float, b: Floats | float) -> Floats:
        return np.asarray(
            gammaln(np.asarray(a) + 1.0) - gammaln(np.asarray(b) + 1.0) - gammaln(np.asarray(a) - b + 1.0)
        )

    legal = (x <= m) & (size - x <= n - m)
    xs = np.where(legal, x, min(m, size) if size - min(m, size) <= n - m else size - (n - m))
    log = log_choose(m, xs) + log_choose(n - m, size - xs) - log_choose(n, size)
    return np.where(legal, np.exp(log), 0.0)
