"""Support under adaptive stopping, where the number of samples depends on the successes.

"Solved" is still what it was: a problem stops only after a success, so it is unsolved exactly when its n_max
samples all failed. P, E, S, O and McNemar's test are those of a run with n_max samples of everything. What breaks
is every argument that takes n as given, such as the arrangements behind the chance columns and the per-question
p-values. The likelihood of p is not touched by the stopping, so the posterior takes their place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from limen.measure.counts import CountTable
from limen.measure.passk import Floats, Ints
from limen.measure.posterior import fit_prior, zero_bound
from limen.measure.support import SupportResult, discordance_p, support_counts, upper_tail
from limen.measure.verdicts import QuestionVerdict


def budget_P(table: CountTable) -> Ints:
    """Samples that each problem was given the chance of, shape (P,): n, or n_max where it stopped early."""
    if table.stop is None:
        return table.n_P
    return np.where(table.c_P < table.stop.r, table.n_P, table.stop.n_max)


def adaptive_support(base: CountTable, trained: CountTable) -> SupportResult:
    """P/E/S/O of two tables on the same problems of which at least one is adaptive, chance from the posterior.

    Chance: one p of both policies, with the posterior given the samples of both under the prior fitted to them;
    E of a problem then has probability E[(1-p)^m_b] - E[(1-p)^(m_b+m_t)], m the budgets, and S likewise.
    """
    plain = support_counts(base.c_P > 0, trained.c_P > 0)
    n, c = base.n_P + trained.n_P, base.c_P + trained.c_P
    prior = fit_prior(n, c)
    mb, mt = budget_P(base), budget_P(trained)
    none = prior.fail_power(n, c, mb + mt)
    chance_E, chance_S = prior.fail_power(n, c, mb) - none, prior.fail_power(n, c, mt) - none
    flip, gained = (base.c_P > 0) != (trained.c_P > 0), (base.c_P == 0) & (trained.c_P > 0)
    equal = bool((mb == mt).all())
    return replace(
        plain,
        chance_E=float(chance_E.sum()),
        chance_S=float(chance_S.sum()),
        chance_each_way=float((chance_E + chance_S).sum() / 2),
        mcnemar_p=discordance_p(flip, gained, chance_E, chance_S, equal),
        E_p=upper_tail(chance_E, plain.E),
        S_p=upper_tail(chance_S, plain.S),
        chance_from="posterior of the pooled samples (adaptive stopping)",
    )


@dataclass(frozen=True)
class PosteriorVerdicts:
    """As `QuestionVerdicts`, from posteriors. probability_P: that the flip is real (0 where none was seen)."""

    verdict_P: NDArray[np.str_]
    probability_P: Floats
    threshold: float
    q: float

    def count(self) -> dict[str, int]:
        """Questions by verdict, every verdict named."""
        names: tuple[QuestionVerdict, ...] = ("kept", "expanded", "shrunk", "undetermined", "out")
        return {name: int((self.verdict_P == name).sum()) for name in names}


def posterior_verdicts(base: CountTable, trained: CountTable, q: float = 0.05) -> PosteriorVerdicts:
    """Verdicts per question where counts are adaptive (valid for fixed n too).

    In support: p at least 1 - 0.05^(1/m), m the largest budget (a problem below it shows no success in m samples
    19 times of 20; Invisible Leash writes it -ln(0.05)/m). A flip is called shrunk or expanded in the order of its
    posterior probability, as long as the mean probability of being wrong among those called stays at most q.
    """
    m = int(max(budget_P(base).max(), budget_P(trained).max()))
    threshold = float(zero_bound(m))
    inside = [fit_prior(t.n_P, t.c_P).at_least(t.n_P, t.c_P, threshold) for t in (base, trained)]
    b, t = base.c_P > 0, trained.c_P > 0
    real = np.where(b & ~t, inside[0] * (1 - inside[1]), 0.0) + np.where(~b & t, (1 - inside[0]) * inside[1], 0.0)
    order = np.argsort(-real, kind="stable")
    wrong = np.cumsum(1 - real[order]) / np.arange(1, real.size + 1)
    called = np.zeros(real.shape, dtype=bool)
    called[order[: int((wrong <= q).sum())]] = True
    verdict = np.select([b & t, ~b & ~t, called & b, called & t], ["kept", "out", "shrunk", "expanded"], "undetermined")
    return PosteriorVerdicts(verdict.astype(np.str_), real, threshold, q)
