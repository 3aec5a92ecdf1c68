"""The A/A control: how many support flips two samples of one and the same policy show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from limen.errors import DataError
from limen.measure.passk import Floats, check_counts, log_fail
from limen.measure.posterior import BetaPrior, fit_prior
from limen.measure.support import SupportResult, support


@dataclass(frozen=True)
class SamePolicyFlips:
    """Flips that are to be expected, each way, between two runs of one policy with `budget` samples a problem.

    each_way: expected number of problems; chance_P: probability of each problem. extrapolated: the budget needs
    more samples than there are, so the value is the fitted model's (see `posterior`), not the unbiased estimate.
    """

    budget: int
    each_way: float
    chance_P: Floats
    extrapolated: bool


def same_policy_flips(
    n: ArrayLike, c: ArrayLike, budget: int | None = None, prior: BetaPrior | None = None
) -> SamePolicyFlips:
    """Expected E (= expected S) between two runs of the policy that gave c successes in n samples.

    budget: samples a problem in each run; by default half of the smallest n, which needs no model at all: over
    all splits into two parts of m, one part has no success and the other has some with probability
    C(n-c, m)/C(n, m) - C(n-c, 2m)/C(n, 2m), unbiased for q(1-q), q = (1-p)^m. Summed over problems this is
    M * (pass@2m - pass@m). Where 2 * budget > n the posterior mean of q(1-q) under the fitted prior stands in.
    """
    n_, c_ = check_counts(n, np.atleast_1d(np.asarray(c)))
    n_ = np.broadcast_to(n_, c_.shape)
    if c_.size == 0 or n_.min() < 2:
        raise DataError("an A/A split needs at least two samples of every problem")
    m = int(n_.min()) // 2 if budget is None else int(budget)
    if m < 1:
        raise DataError(f"the budget of an A/A split must be at least 1, got {budget}")
    extrapolated = 2 * m > int(n_.min())
    if extrapolated:
        own = prior or fit_prior(n_, c_)
        chance = own.fail_power(n_, c_, m) - own.fail_power(n_, c_, 2 * m)
    else:
        chance = np.exp(log_fail(n_, c_, m)) - np.exp(log_fail(n_, c_, 2 * m))
    return SamePolicyFlips(m, float(chance.sum()), np.asarray(chance), extrapolated)


def split_half(n: ArrayLike, c: ArrayLike, seed: int = 0) -> SupportResult:
    """The support table of one random split of a policy's samples into halves: an A/A row for a report.

    Which successes fall into which half is drawn (multivariate hypergeometric), so counts suffice. An odd sample
    is left out. `same_policy_flips` is the mean of E and of S over all such splits.
    """
    n_, c_ = check_counts(n, np.atleast_1d(np.asarray(c)))
    n_ = np.broadcast_to(n_, c_.shape)
    if c_.size == 0 or n_.min() < 2:
        raise DataError("an A/A split needs at least two samples of every problem")
    rng = np.random.default_rng(seed)
    half = n_ // 2
    used = np.where(n_ % 2 == 1, c_ - (rng.random(c_.shape) < c_ / n_), c_)
    first = rng.hypergeometric(used, 2 * half - used, half)
    return support(half, first, used - first)
