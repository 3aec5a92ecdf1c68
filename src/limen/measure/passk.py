"""pass@k of one problem from counts: fixed n, and adaptive stopping.

Estimator (Chen et al. 2021, eq. 1): `1 - C(n-c, k) / C(n, k)`, the mean over all k-subsets of the n samples of
"at least one is correct". Unbiased for `1 - (1-p)^k` whenever k <= n. Where n < k nothing unbiased exists, so the
value is NaN and stays visible, rather than that problem being dropped from the mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from limen.errors import DataError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def as_counts(value: ArrayLike, name: str, least: int = 0) -> Ints:
    """Whole numbers >= `least` as int64, whatever number type they came in. Raises `DataError`."""
    array = np.asarray(value)
    if array.dtype.kind == "b" or array.dtype.kind not in "iuf":
        raise DataError(f"{name} must be whole numbers, got values of type {array.dtype}: give counts, not flags")
    if array.dtype.kind == "f" and not (np.isfinite(array).all() and (array == np.floor(array)).all()):
        raise DataError(f"{name} must be whole numbers, got fractions or NaN: give counts, not rates")
    if array.size and array.min() < least:
        raise DataError(f"{name} must be at least {least}, got {array.min()}")
    return array.astype(np.int64)


def check_counts(n: ArrayLike, c: ArrayLike) -> tuple[Ints, Ints]:
    """n and c as int64 arrays; `DataError` where c > n."""
    n_, c_ = as_counts(n, "n (samples)"), as_counts(c, "c (correct samples)")
    over = np.broadcast_to(c_ > n_, np.broadcast_shapes(n_.shape, c_.shape))
    if over.any():
        where = int(np.flatnonzero(over.ravel())[0])
        n_first, c_first = (int(np.broadcast_to(a, over.shape).ravel()[where]) for a in (n_, c_))
        raise DataError(
            f"more correct than samples: c={c_first} > n={n_first} at position {where}; "
            "counts are per problem, c of n samples (not totals of a data set)"
        )
    return n_, c_


def log_fail(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> Floats:
    """log of C(n-c, k) / C(n, k): that k of the n samples, drawn without replacement, are all wrong.

    Arrays broadcast. -inf where n - c < k <= n, NaN where n < k. Float inputs are allowed (no checks).
    """
    n_, c_, k_ = (np.asarray(a, dtype=np.float64) for a in (n, c, k))
    left = n_ - c_ - k_
    with np.errstate(invalid="ignore", divide="ignore"):
        value = gammaln(n_ - c_ + 1) - gammaln(np.maximum(left, 0) + 1)
        value = value - gammaln(n_ + 1) + gammaln(np.maximum(n_ - k_, 0) + 1)
        one = np.log1p(-c_ / n_)  # k = 1 without cancellation
    value = np.where(k_ == 1, one, np.minimum(value, 0.0))
    value = np.where(c_ == 0, 0.0, value)
    value = np.where(left < 0, -np.inf, value)
    return np.asarray(np.where(n_ < k_, np.nan, value))


def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> Any:
    """Unbiased pass@k: `1 - C(n-c, k) / C(n, k)`, exactly 1 where n-c < k, NaN where n < k.

    n, c, k: whole numbers or arrays of them, which broadcast as numpy arrays do: `pass_at_k(n_P, c_P, 8)` has
    shape (P,), `pass_at_k(n_P[:, None], c_P[:, None], k_K)` has shape (P, K). Scalars in, float out.
    Raises `DataError` for c > n, negative counts, fractions, k < 1.

    Counts are of a fixed number of samples. For runs that stop at the r-th success use `pass_at_k_stopped`: this
    formula is biased there.
    """
    n_, c_ = check_counts(n, c)
    value = 0.0 - np.expm1(log_fail(n_, c_, as_counts(k, "k", least=1)))
    return float(value) if value.ndim == 0 else value


def pass_table(n_P: ArrayLike, c_P: ArrayLike, k_K: ArrayLike) -> Floats:
    """pass@k of every problem at every k, shape (P, K)."""
    n_, c_ = check_counts(n_P, c_P)
    n_, c_ = np.broadcast_arrays(np.atleast_1d(n_), np.atleast_1d(c_))
    return np.asarray(pass_at_k(n_[:, None], c_[:, None], np.atleast_1d(np.asarray(k_K))[None, :]))


def pass_at_k_stopped(stopped_at: ArrayLike, successes: ArrayLike, n_max: ArrayLike, r: int, k: ArrayLike) -> Any:
    """Unbiased pass@k of problems that were sampled until their r-th success, or up to n_max samples.

    stopped_at: N, the index (from 1) of the last sample that counts: that of the r-th success, or n_max.
    successes: r where the problem stopped, else the c < r successes in its n_max samples.
    n_max: most samples of a problem; r: successes at which it stops; k: budget. All but r broadcast.

    Stopped at N:  `1 - C(N-k-1, r-1) / C(N-1, r-1)`, and 1 where N-k < r. (Given N, the first N-1 samples hold
    r-1 successes in any order with equal probability, and the N-th is one; so this is the probability that the
    first k hold one.)  Not stopped:  the fixed-n formula with n_max.  NaN where k > n_max.

    Samples drawn after the r-th success (batches overshoot) must not be counted. Raises `DataError` if they are.
    """
    if isinstance(r, bool) or int(r) != r or r < 1:
        raise DataError(f"r (successes at which a problem stops) must be a whole number of at least 1, got {r}")
    N, c = check_counts(stopped_at, successes)
    cap, k_ = as_counts(n_max, "n_max", least=1), as_counts(k, "k", least=1)
    if (c > r).any():
        raise DataError(f"{int(c.max())} successes where a problem stops at its {r}-th: cut the samples after that")
    if (cap < N).any():
        raise DataError(f"stopped_at={int(N.max())} is beyond n_max={int(np.max(cap))}")
    short = (c < r) & (cap > N)
    if np.any(short):
        raise DataError(
            f"{int(np.sum(short))} problems have fewer than {r} successes and fewer than n_max samples: they are "
            "not finished; sample on, or give the n_max that they had"
        )
    N_, c_, cap_, k_f = np.broadcast_arrays(*(a.astype(np.float64) for a in (N, c, cap, k_)))
    # C(N-k-1, r-1) / C(N-1, r-1) = C((N-1)-(r-1), k) / C(N-1, k): the fixed-n formula on the N-1 samples before.
    stopped = log_fail(N_ - 1, np.minimum(r - 1, N_ - 1), k_f)
    stopped = np.where(N_ - k_f < r, -np.inf, stopped)
    fixed = log_fail(cap_, c_, k_f)
    value = np.asarray(0.0 - np.expm1(np.where(c_ == r, stopped, fixed)))
    value = np.where(k_f > cap_, np.nan, value)
    return float(value) if value.ndim == 0 else value
