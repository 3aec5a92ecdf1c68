"""A verdict for each question, under a false discovery rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from limen.errors import DataError
from limen.measure.passk import Floats, Ints, check_counts
from limen.measure.support import flip_chances

QuestionVerdict = Literal["shrunk", "expanded", "kept", "out", "undetermined"]
_BLOCK = 4_000_000


@dataclass(frozen=True)
class QuestionVerdicts:
    """One entry per question.

    verdict_P: `kept`, both policies have a verified success; `out`, neither has; of the flips, `shrunk` (lost)
    and `expanded` (gained) where chance is ruled out at false discovery rate q, else `undetermined`.
    p_flip_P: exact probability, given the pooled successes, of all of them falling on one side (1 for questions
    that did not flip). p_rate_P: two-sided exact (Fisher) p of any change in the success rate; rate_P says
    `fell`, `rose` or `same` at the same q. tested: questions that could have been called a flip at all.
    """

    verdict_P: NDArray[np.str_]
    p_flip_P: Floats
    rate_P: NDArray[np.str_]
    p_rate_P: Floats
    q: float
    tested: int

    def count(self) -> dict[str, int]:
        """Questions by verdict, every verdict named."""
        names = ("kept", "expanded", "shrunk", "undetermined", "out")
        return {name: int((self.verdict_P == name).sum()) for name in names}


def question_verdicts(
    n: ArrayLike, base_c: ArrayLike, trained_c: ArrayLike, q: float = 0.05, trained_n: ArrayLike | None = None
) -> QuestionVerdicts:
    """Which questions were lost or gained beyond chance, at false discovery rate q (Benjamini-Hochberg).

    n: judged samples of the base (and of the trained policy unless trained_n is given); numbers or shape (P,).
    Null of a question: one success probability under both policies. Given its pooled successes c, all of them fall
    on one side with the probability of `flip_chances`, both sides together about 2^(1-c); so a flip with one
    success has p = 1 and is no evidence. Questions whose c makes a flip below q impossible (too few successes, or
    more than one side can hold) are left out of the correction; c is fixed under the null, so this is valid.
    Not for adaptive runs: there n depends on the successes (see `adaptive`).
    """
    if not 0 < q < 1:
        raise DataError(f"q is {q}: a false discovery rate lies between 0 and 1")
    nb, cb = check_counts(n, np.atleast_1d(np.asarray(base_c)))
    nt, ct = check_counts(n if trained_n is None else trained_n, np.atleast_1d(np.asarray(trained_c)))
    if cb.shape != ct.shape or cb.ndim != 1:
        raise DataError(f"base has {cb.shape} and trained {ct.shape} success counts: give one of each per problem")
    nb, nt = np.broadcast_to(nb, cb.shape), np.broadcast_to(nt, ct.shape)
    b, t = cb > 0, ct > 0
    both_sides, own_side = _flip_p(nb, cb, nt, ct)
    flip = b != t
    p_flip = np.where(flip, both_sides, 1.0)
    able = (own_side > 0) & (own_side <= q) & (cb + ct > 0)
    found = np.zeros(cb.shape, dtype=bool)
    found[able] = benjamini_hochberg(p_flip[able], q)
    verdict = np.select(
        [b & t, ~b & ~t, found & b, found & t], ["kept", "out", "shrunk", "expanded"], "undetermined"
    ).astype(np.str_)
    p_rate = fisher_p(nb, cb, nt, ct)
    moved = benjamini_hochberg(p_rate, q)
    up = ct * nb > cb * nt
    rate = np.select([moved & up, moved & ~up], ["rose", "fell"], "same").astype(np.str_)
    return QuestionVerdicts(verdict, p_flip, rate, p_rate, q, int(able.sum()))


def benjamini_hochberg(p: Floats, q: float) -> NDArray[np.bool_]:
    """Which of the hypotheses are rejected at false discovery rate q, shape of p."""
    m = p.size
    if m == 0:
        return np.zeros(0, dtype=bool)
    order = np.argsort(p, kind="stable")
    under = np.flatnonzero(p[order] <= q * np.arange(1, m + 1) / m)
    rejected = np.zeros(m, dtype=bool)
    if under.size:
        rejected[order[: under[-1] + 1]] = True
    return rejected


def _flip_p(nb: Ints, cb: Ints, nt: Ints, ct: Ints) -> tuple[Floats, Floats]:
    """p of the flip that happened, and the smallest p that a flip of this question could have had.

    Two-sided in the sense of Fisher: the probability of the observed side plus that of the other side where that
    is no likelier. For equal n, both sides together.
    """
    E, S = flip_chances(nb, cb, nt, ct)
    observed = np.where(cb == 0, E, S)
    other = np.where(cb == 0, S, E)
    both = observed + np.where(other <= observed * (1 + 1e-9), other, 0.0)
    both = np.where(both > 1 - 1e-9, 1.0, both)
    possible = np.where((E > 0) & (S > 0), np.minimum(E, S), np.maximum(E, S))
    equal = np.isclose(E, S, rtol=1e-9)
    return both, np.where(equal, np.minimum(2 * possible, 1.0), possible)


def fisher_p(nb: Ints, cb: Ints, nt: Ints, ct: Ints) -> Floats:
    """Two-sided exact p per question that its two success rates are one (Fisher: all tables no likelier), (P,)."""
    width = int(np.minimum(nb + 0, cb + ct).max(initial=0)) + 1
    out = np.empty(cb.shape)
    rows = max(1, _BLOCK // width)
    for start in range(0, cb.size, rows):
        at = slice(start, start + rows)
        out[at] = _fisher_block(width, *(x[at].astype(np.float64)[:, None] for x in (nb, cb, nt, ct)))
    return out


def _fisher_block(width: int, nb: Floats, cb: Floats, nt: Floats, ct: Floats) -> Floats:
    total, x = cb + ct, np.arange(width, dtype=np.float64)[None, :]
    legal = (x <= np.minimum(nb, total)) & (x >= total - nt)
    xs = np.where(legal, x, cb)

    def log_choose(n: Floats, k: Floats) -> Floats:
        return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))

    log = np.where(legal, log_choose(nb, xs) + log_choose(nt, total - xs), -np.inf)
    own = log_choose(nb, cb) + log_choose(nt, ct)
    p = np.exp(log - log_choose(nb + nt, total))
    return np.asarray(np.minimum(np.where(log <= own + 1e-9, p, 0).sum(axis=1), 1.0))
