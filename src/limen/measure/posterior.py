"""Success probabilities from counts: a zero-inflated Beta prior, fitted to all problems of one policy together.

A share `zero` of the problems has p = 0; the p of the others is Beta(a, b). The likelihood of c successes in n
samples is proportional to p^c (1-p)^(n-c) whether n was fixed or the sampling stopped at the r-th success, so all
of this holds under adaptive stopping too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import betainc, betaln, digamma, expit, logit

from limen.errors import DataError
from limen.measure.passk import Floats, Ints, as_counts, check_counts

_LOW, _HIGH = math.log(1e-3), math.log(1e4)  # range of a and b


@dataclass(frozen=True)
class BetaPrior:
    """p = 0 with probability `zero`, else Beta(a, b). `loglik`: of the counts it was fitted to (else NaN)."""

    a: float = 1.0
    b: float = 1.0
    zero: float = 0.0
    loglik: float = math.nan

    def weight_zero(self, n_P: ArrayLike, c_P: ArrayLike) -> Floats:
        """Posterior probability that p = 0."""
        n, c = (np.asarray(x, dtype=np.float64) for x in (n_P, c_P))
        none = np.exp(betaln(self.a, self.b + n) - betaln(self.a, self.b))  # P(c = 0) if p is not 0
        total = self.zero + (1 - self.zero) * none
        return np.where((c == 0) & (total > 0), self.zero / np.where(total > 0, total, 1), 0.0)

    def fail_power(self, n_P: ArrayLike, c_P: ArrayLike, k: ArrayLike) -> Floats:
        """Posterior mean of (1-p)^k: that k further samples all fail. Arrays broadcast; k may be a fraction."""
        n, c, k_ = (np.asarray(x, dtype=np.float64) for x in (n_P, c_P, k))
        a, b = self.a + c, self.b + n - c
        beta = np.exp(betaln(a, b + k_) - betaln(a, b))
        w = self.weight_zero(n, c)
        return np.asarray(w + (1 - w) * beta)

    def pass_at_k(self, n_P: ArrayLike, c_P: ArrayLike, k: ArrayLike) -> Floats:
        """Posterior mean of 1 - (1-p)^k: `1 - B(a+c, b+n-c+k) / B(a+c, b+n-c)`, at any k, also k > n."""
        return np.asarray(1 - self.fail_power(n_P, c_P, k))

    def at_least(self, n_P: ArrayLike, c_P: ArrayLike, threshold: float) -> Floats:
        """Posterior probability that p >= threshold (> 0)."""
        n, c = (np.asarray(x, dtype=np.float64) for x in (n_P, c_P))
        above = 1 - betainc(self.a + c, self.b + n - c, threshold)
        return np.asarray((1 - self.weight_zero(n, c)) * above)

    def draw(self, n_P: Ints, c_P: Ints, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        """Posterior draws of p; `shape` ends in the shape of n_P."""
        p = rng.beta(self.a + c_P, self.b + n_P - c_P, size=shape)
        p[rng.random(shape) < self.weight_zero(n_P, c_P)] = 0.0
        return p


UNIFORM = BetaPrior()


def fit_prior(n: ArrayLike, c: ArrayLike, zero: float | None = None) -> BetaPrior:
    """Empirical Bayes: the (zero, a, b) under which the counts of all problems together are likeliest.

    n, c: shape (P,). zero: hold the share of p = 0 at this value (0 for a plain Beta) instead of fitting it.
    Deterministic. With few problems the fit is loose: `extrapolate` shows how loose. Raises `DataError`.
    """
    n_, c_ = check_counts(n, np.atleast_1d(np.asarray(c)))
    n_ = np.broadcast_to(n_, c_.shape)
    judged = n_ > 0
    if not judged.any():
        raise DataError("no problem has a judged sample: a prior cannot be fitted")
    pairs, times = np.unique(np.stack([n_[judged], c_[judged]]), axis=1, return_counts=True)
    n_u, c_u = pairs.astype(np.float64)
    unsolved = c_u == 0
    held = zero if zero is not None else (0.0 if not unsolved.any() else None)
    mean = float(np.clip((times @ (c_u / n_u)) / times.sum(), 0.01, 0.99))
    none = float(np.clip(times[unsolved].sum() / times.sum(), 0.01, 0.95))
    best = None
    for share in (none, none / 20) if held is None else (none,):
        start = [math.log(mean), math.log(1 - mean), float(logit(share))][: 2 if held is not None else 3]
        bounds = [(_LOW, _HIGH)] * 2 + [(-20.0, 20.0)] * (len(start) - 2)
        got = minimize(_loss, start, (n_u, c_u, times, held), method="L-BFGS-B", jac=True, bounds=bounds)
        if best is None or got.fun < best.fun:
            best = got
    assert best is not None
    a, b = np.exp(best.x[:2])
    share = held if held is not None else float(expit(best.x[2]))
    return BetaPrior(float(a), float(b), 0.0 if share < 1e-6 else share, -float(best.fun))


def _loss(x: Floats, n: Floats, c: Floats, times: Ints, held: float | None) -> tuple[float, Floats]:
    """Negative log-likelihood at (log a, log b[, logit zero]), and its gradient."""
    a, b = np.exp(x[:2])
    zero = held if held is not None else float(expit(x[2]))
    log_beta = betaln(a + c, b + n - c) - betaln(a, b)
    with np.errstate(divide="ignore"):
        log_some = log_beta + np.log1p(-zero)
        log_none = np.where(c == 0, np.log(zero), -np.inf)
        total = np.logaddexp(log_some, log_none)
    some = np.exp(log_some - total)  # posterior probability that p is not 0
    shared = digamma(a + b) - digamma(a + b + n)
    slope = [
        times @ (some * (digamma(a + c) - digamma(a) + shared)) * a,
        times @ (some * (digamma(b + n - c) - digamma(b) + shared)) * b,
    ]
    if held is None:
        slope.append(times @ ((1 - some) - zero))
    return -float(times @ total), -np.array(slope)


@dataclass(frozen=True)
class Extrapolation:
    """Posterior pass@k of the benchmark, also beyond n. `low_K`, `high_K`: the warning band."""

    k_K: Ints
    value_K: Floats
    low_K: Floats
    high_K: Floats
    prior: BetaPrior
    warning: str


def extrapolate(n: ArrayLike, c: ArrayLike, ks: Iterable[int]) -> Extrapolation:
    """Mean pass@k at budgets beyond n, from the fitted beta-binomial, with a band.

    Counts say little on whether an unsolved problem has p = 0 or a small p, and beyond n everything hangs on that.
    The band is therefore over all priors that the counts cannot tell from the best one (profile likelihood of the
    share of p = 0 within 1.92 of the best), each widened by 1.96 posterior standard deviations.
    """
    n_, c_ = check_counts(n, np.atleast_1d(np.asarray(c)))
    n_ = np.broadcast_to(n_, c_.shape)
    k_K = np.unique(as_counts(list(ks), "k", least=1))
    best = fit_prior(n_, c_)
    top = float((c_ == 0).mean())
    grid = np.unique([0.0, best.zero, *np.linspace(0, top, 12)[1:-1], top * 0.999]) if top else np.zeros(1)
    held = [fit_prior(n_, c_, zero=float(z)) for z in grid]
    peak = max(p.loglik for p in [best, *held])
    likely = [p for p in held if p.loglik >= peak - 1.92] + [best]
    means, low, high = [], [], []
    for prior in likely:
        fail_PK = prior.fail_power(n_[:, None], c_[:, None], k_K)
        square_PK = prior.fail_power(n_[:, None], c_[:, None], 2 * k_K)
        sd = np.sqrt(np.maximum(square_PK - fail_PK**2, 0).sum(axis=0)) / c_.size
        means.append(1 - fail_PK.mean(axis=0))
        low.append(means[-1] - 1.96 * sd)
        high.append(means[-1] + 1.96 * sd)
    beyond = int((k_K > n_.min()).sum())
    warning = (
        f"{beyond} budgets are beyond the {int(n_.min())} samples of a problem: those values are the model's "
        "(zero-inflated beta-binomial), not measured"
        if beyond
        else ""
    )
    return Extrapolation(
        k_K, means[-1], np.clip(np.min(low, axis=0), 0, 1), np.clip(np.max(high, axis=0), 0, 1), best, warning
    )


def zero_bound(n: ArrayLike, level: float = 0.95) -> Floats:
    """One-sided upper bound on p after no success in n samples: `1 - (1-level)^(1/n)`, about 3/n."""
    n_ = as_counts(n, "n", least=1).astype(np.float64)
    return np.asarray(-np.expm1(math.log1p(-level) / n_))


def cover(n: ArrayLike, c: ArrayLike, tau: float, prior: BetaPrior | None = None) -> tuple[float, float]:
    """Cover@tau: share of problems whose success probability is at least tau, as (plug-in, posterior mean).

    The plug-in counts c/n >= tau; it is biased where many p are near tau. The posterior mean uses the fitted prior.
    """
    if not 0 < tau <= 1:
        raise DataError(f"tau is {tau}: Cover@tau needs a success probability above 0 and at most 1")
    n_, c_ = check_counts(n, np.atleast_1d(np.asarray(c)))
    n_ = np.broadcast_to(n_, c_.shape)
    own = prior or fit_prior(n_, c_)
    rate = np.where(n_ > 0, c_ / np.maximum(n_, 1), np.nan)
    return float(np.where(np.isnan(rate), np.nan, rate >= tau).mean()), float(own.at_least(n_, c_, tau).mean())
