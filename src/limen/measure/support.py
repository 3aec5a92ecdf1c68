"""Support dynamics: which problems gained or lost every success, beside what chance alone does.

Invisible Leash: P solved by both, E by the trained policy only, S by the base only, O by neither; "solved" is at
least one verified success in the samples. Two runs of the *same* policy show E and S too. Given the pooled
successes c of one problem, under equal success probabilities every arrangement of them over the n_b + n_t samples
is equally likely, so base has none with probability C(N-c, n_b)/C(N, n_b), N = n_b + n_t: about 2^-c for equal n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr

from limen.errors import DataError
from limen.measure.passk import Floats, Ints, check_counts, log_fail, pass_at_k


@dataclass(frozen=True)
class SupportResult:
    """P, E, S, O count problems. Rates are NaN where undefined; `undefined` then says why.

    SRR = P/(P+S), NDR = E/(P+E), SDS their harmonic mean (0 where E = 0), NSCR = (E-S)/(P+E+S).
    chance_E, chance_S: expected E and S if each problem had the same success probability under both policies,
    given its pooled successes; chance_each_way is their mean (for equal n the three are equal).
    mcnemar_p: two-sided exact McNemar test of E against S (unequal n: its Poisson-binomial generalisation).
    E_p, S_p: probability of at least as many E (S) by chance, from the same conditional distribution.
    chance_from: what the chance columns rest on.
    matched: expected P, E, S, O at the common budget min(n_base, n_trained) of each problem; None for equal n.
    """

    M: int
    P: int
    E: int
    S: int
    O: int
    SRR: float
    NDR: float
    SDS: float
    NSCR: float
    chance_E: float = math.nan
    chance_S: float = math.nan
    chance_each_way: float = math.nan
    mcnemar_p: float = math.nan
    E_p: float = math.nan
    S_p: float = math.nan
    chance_from: str = "arrangements of the pooled successes"
    matched: dict[str, float] | None = None
    undefined: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; NaN becomes null, with the reason under `undefined`."""
        out: dict[str, Any] = {}
        for key in self.__dataclass_fields__:
            value = getattr(self, key)
            out[key] = None if isinstance(value, float) and math.isnan(value) else value
        return out


def support_rates(P: int, E: int, S: int) -> tuple[dict[str, float], dict[str, str]]:
    """SRR, NDR, SDS, NSCR from counts of problems, and the reason for each that is undefined (NaN)."""
    why: dict[str, str] = {}
    if P + S == 0:
        why["SRR"] = "the base solved no problem (P+S=0)"
    if P + E == 0:
        why["NDR"] = "the trained policy solved no problem (P+E=0)"
    if P + E + S == 0:
        why["NSCR"] = "neither policy solved any problem (P+E+S=0)"
    srr = math.nan if "SRR" in why else P / (P + S)
    ndr = math.nan if "NDR" in why else E / (P + E)
    nscr = math.nan if "NSCR" in why else (E - S) / (P + E + S)
    if E == 0 and P + S > 0:
        sds = 0.0
    elif "SRR" in why or "NDR" in why:
        sds = math.nan
        why["SDS"] = "needs SRR and NDR; " + "; ".join(why[k] for k in ("SRR", "NDR") if k in why)
    else:
        sds = 2 * srr * ndr / (srr + ndr) if srr + ndr > 0 else 0.0
    return {"SRR": srr, "NDR": ndr, "SDS": sds, "NSCR": nscr}, why


def support(n: ArrayLike, base_c: ArrayLike, trained_c: ArrayLike, trained_n: ArrayLike | None = None) -> SupportResult:
    """P/E/S/O and their rates, what chance alone gives, and the exact tests.

    n: judged samples of the base, a number or one per problem; trained_n: those of the trained policy where they
    differ. base_c, trained_c: successes, shape (P,), same order of problems. Raises `DataError`.

    Unequal n: the policy with more samples solves more by chance; chance_E, chance_S and the tests allow for it,
    and `matched` has the expected counts at equal budgets. Not for adaptive runs (n depends on the successes).
    """
    nb, cb = check_counts(n, np.atleast_1d(np.asarray(base_c)))
    nt, ct = check_counts(n if trained_n is None else trained_n, np.atleast_1d(np.asarray(trained_c)))
    if cb.shape != ct.shape or cb.ndim != 1:
        raise DataError(
            f"base has {cb.shape} and trained {ct.shape} success counts: give one of each per problem, in one order"
        )
    nb, nt = np.broadcast_to(nb, cb.shape), np.broadcast_to(nt, ct.shape)
    if cb.size == 0:
        raise DataError("no problems: support needs at least one")
    if (nb == 0).any() or (nt == 0).any():
        empty = int(((nb == 0) | (nt == 0)).sum())
        raise DataError(f"{empty} problems have no judged sample under one of the policies: sample or leave them out")
    b, t = cb > 0, ct > 0
    plain = support_counts(b, t)
    chance_E_P, chance_S_P = flip_chances(nb, cb, nt, ct)
    equal = bool((nb == nt).all())
    return replace(
        plain,
        chance_E=float(chance_E_P.sum()),
        chance_S=float(chance_S_P.sum()),
        chance_each_way=float((chance_E_P.sum() + chance_S_P.sum()) / 2),
        mcnemar_p=discordance_p(b != t, ~b & t, chance_E_P, chance_S_P, equal),
        E_p=upper_tail(chance_E_P, plain.E),
        S_p=upper_tail(chance_S_P, plain.S),
        matched=None if equal else matched_support(nb, cb, nt, ct),
    )


def support_counts(b: NDArray[np.bool_], t: NDArray[np.bool_]) -> SupportResult:
    """P/E/S/O and rates from which problems were solved; chance and tests are still NaN."""
    P, E, S, O = (int(x.sum()) for x in (b & t, ~b & t, b & ~t, ~b & ~t))
    assert int(b.sum()) == P + S  # base pass@n is (P+S)/M
    assert int(t.sum()) == P + E  # trained pass@n is (P+E)/M
    rates, why = support_rates(P, E, S)
    return SupportResult(
        int(b.size), P, E, S, O, rates["SRR"], rates["NDR"], rates["SDS"], rates["NSCR"], undefined=why
    )


def flip_chances(nb: Ints, cb: Ints, nt: Ints, ct: Ints) -> tuple[Floats, Floats]:
    """Per problem: probability of E (base none) and of S (trained none) given the pooled successes, shape (P,)."""
    N, c = nb + nt, cb + ct
    some = c > 0
    E_P = np.where(some, np.exp(log_fail(N, c, nb)), 0.0)
    S_P = np.where(some, np.exp(log_fail(N, c, nt)), 0.0)
    return E_P, S_P


def matched_support(nb: Ints, cb: Ints, nt: Ints, ct: Ints, budget: int | None = None) -> dict[str, float]:
    """Expected P, E, S, O if each policy had only m samples of each problem: m = min(nb, nt), or `budget`.

    Unbiased: the hypergeometric mean over all subsets of m of the samples that were drawn. NaN where m > n.
    """
    m = np.minimum(nb, nt) if budget is None else np.full_like(nb, budget)
    b, t = np.asarray(pass_at_k(nb, cb, m)), np.asarray(pass_at_k(nt, ct, m))
    cells = {"P": b * t, "E": (1 - b) * t, "S": b * (1 - t), "O": (1 - b) * (1 - t)}
    return {name: float(value.sum()) for name, value in cells.items()}


def discordance_p(flip: Any, is_E: Any, chance_E_P: Floats, chance_S_P: Floats, equal: bool) -> float:
    """Exact two-sided p of E among the E+S flips. Equal n: binomial(E+S, 1/2), which is McNemar's exact test."""
    n_flips, E = int(flip.sum()), int(is_E.sum())
    if n_flips == 0:
        return 1.0
    if equal:
        return float(min(1.0, 2 * bdtr(min(E, n_flips - E), n_flips, 0.5)))
    share = chance_E_P[flip] / (chance_E_P[flip] + chance_S_P[flip])
    pmf = poisson_binomial(share)
    return float(min(1.0, 2 * min(pmf[: E + 1].sum(), pmf[E:].sum())))


def poisson_binomial(p: ArrayLike) -> Floats:
    """Distribution of the number of successes of independent trials with probabilities p; shape (len(p) + 1,)."""
    trials = np.asarray(p, dtype=np.float64)
    pmf = np.zeros(trials.size + 1)
    pmf[0] = 1.0
    for i, one in enumerate(trials.tolist(), start=1):
        pmf[1 : i + 1] = pmf[1 : i + 1] * (1 - one) + pmf[:i] * one
        pmf[0] *= 1 - one
    return pmf


def upper_tail(p: Floats, observed: int) -> float:
    """Probability of at least `observed` successes of independent trials with probabilities p."""
    if observed <= 0:
        return 1.0
    return float(min(1.0, poisson_binomial(p[p > 1e-18])[observed:].sum()))
