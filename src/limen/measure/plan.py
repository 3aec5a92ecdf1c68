"""How many samples a question are needed to see a change: power from a pilot run.

The pilot's fitted distribution of success probabilities stands for the base. The trained policy is the base with a
stated change: a share of the solvable questions loses every chance (p = 0), or a share of those that are hard gets
a success probability of the solvable ones. Runs of both are simulated at each n and tested as `compare` tests them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import bdtr, stdtrit

from limen.errors import ConfigError
from limen.measure.counts import CountTable
from limen.measure.passk import Ints, pass_table
from limen.measure.posterior import BetaPrior, fit_prior


@dataclass(frozen=True)
class PlanRow:
    """At n samples a question: chance that the change is seen in pass@k, and in E against S (McNemar)."""

    n: int
    power_pass: float
    power_support: float
    S: float
    E: float
    chance_each_way: float


@dataclass(frozen=True)
class Plan:
    """rows by n. n_pass, n_support: smallest n with the wanted power, None where no n up to the largest has it.

    change: the true change of pass@k that was simulated; lost: questions (of `problems`) that it takes, negative
    for gained ones.
    """

    problems: int
    k: int
    change: float
    lost: float
    power: float
    rows: tuple[PlanRow, ...]
    n_pass: int | None
    n_support: int | None
    prior: BetaPrior
    words: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON values; power that is undefined (k > n) is null."""
        rows = [
            {
                "n": r.n,
                "power_pass": None if math.isnan(r.power_pass) else r.power_pass,
                "power_support": r.power_support,
                "S": r.S,
                "E": r.E,
                "chance_each_way": r.chance_each_way,
            }
            for r in self.rows
        ]
        own = {"a": self.prior.a, "b": self.prior.b, "zero": self.prior.zero}
        return {
            "problems": self.problems,
            "k": self.k,
            "change": self.change,
            "lost": self.lost,
            "power": self.power,
            "n_pass": self.n_pass,
            "n_support": self.n_support,
            "rows": rows,
            "prior": own,
            "sentences": list(self.words),
        }


def plan(
    pilot: CountTable,
    k: int,
    *,
    change: float | None = None,
    lost: float | None = None,
    problems: int | None = None,
    power: float = 0.8,
    ns: Sequence[int] | None = None,
    runs: int = 400,
    seed: int = 0,
) -> Plan:
    """Samples a question needed to see `change` in pass@k, or `lost` questions, with probability `power` at 5%.

    Give one of change (such as -0.03; negative is a loss) and lost (questions). problems: size of the benchmark,
    the pilot's by default. Raises `ConfigError` where the pilot has too few solvable questions for the change.
    """
    if (change is None) == (lost is None):
        raise ConfigError("give either the change in pass@k or the number of lost questions that should be seen")
    if not 0 < power < 1:
        raise ConfigError(f"power is {power}: a probability between 0 and 1, such as 0.8")
    M = problems or pilot.M
    prior = fit_prior(pilot.n_P, pilot.c_P)
    reach = float(prior.pass_at_k(0, 0, k))  # prior mean of pass@k
    if change is not None:
        share = -change / reach if change < 0 else change / max(1e-9, (1 - reach))
    else:
        assert lost is not None
        share = lost / (M * (1 - prior.zero)) if lost > 0 else -lost / (M * max(1e-9, 1 - reach))
    if not 0 < share <= 1:
        raise ConfigError(f"such a change cannot be: the pilot's pass@{k} is about {reach:.3f}; ask for a smaller one")
    loss = change < 0 if change is not None else bool(lost and lost > 0)
    rng = np.random.default_rng(seed)
    sizes = sorted({int(n) for n in ns}) if ns is not None else [2**i for i in range(3, 13)]
    rows = tuple(_row(prior, M, k, n, share, loss, runs, rng) for n in sizes)
    true = -share * reach if loss else share * (1 - reach)
    taken = share * M * (1 - prior.zero) if loss else -share * M * (1 - reach)
    n_pass = next((r.n for r in rows if r.power_pass >= power), None)
    n_support = next((r.n for r in rows if r.power_support >= power), None)
    words = _words(true, k, M, power, n_pass, n_support, sizes[-1], pilot)
    return Plan(M, k, true, taken, power, rows, n_pass, n_support, prior, words)


def _row(
    prior: BetaPrior, M: int, k: int, n: int, share: float, loss: bool, runs: int, rng: np.random.Generator
) -> PlanRow:
    p = rng.beta(prior.a, prior.b, size=(runs, M))
    p[rng.random(p.shape) < prior.zero] = 0.0
    hit = rng.random(p.shape) < share
    if loss:
        trained = np.where(hit, 0.0, p)
    else:
        hard = rng.random(p.shape) < (1 - p) ** k  # questions that k attempts would leave unsolved
        trained = np.where(hit & hard, rng.beta(prior.a, prior.b, size=p.shape), p)
    b, t = rng.binomial(n, p), rng.binomial(n, trained)
    E, S = ((b == 0) & (t > 0)).sum(axis=1), ((b > 0) & (t == 0)).sum(axis=1)
    flips = E + S
    mcnemar = np.where(flips > 0, np.minimum(1.0, 2 * bdtr(np.minimum(E, S), np.maximum(flips, 1), 0.5)), 1.0)
    q = (1 - p) ** n
    return PlanRow(
        n=n,
        power_pass=_pass_power(b, t, n, k),
        power_support=float((mcnemar < 0.05).mean()),
        S=float(S.mean()),
        E=float(E.mean()),
        chance_each_way=float((q * (1 - q)).sum(axis=1).mean()),
    )


def _pass_power(b: Ints, t: Ints, n: int, k: int) -> float:
    """Share of runs in which the paired 95% t interval over problems excludes 0."""
    if k > n:
        return math.nan
    value = pass_table(n, np.arange(n + 1), [k])[:, 0]
    gap = value[t] - value[b]
    M = gap.shape[1]
    se = gap.std(axis=1, ddof=1) / math.sqrt(M)
    return float((np.abs(gap.mean(axis=1)) > -stdtrit(M - 1, 0.025) * se).mean())


def _words(
    change: float,
    k: int,
    M: int,
    power: float,
    n_pass: int | None,
    n_support: int | None,
    most: int,
    pilot: CountTable,
) -> tuple[str, ...]:
    def need(n: int | None) -> str:
        return f"{n} samples a question" if n is not None else f"more than {most} samples a question"

    lines = [
        f"A change of {change:+.3f} in pass@{k} on {M} questions is seen with probability {power:g} in pass@{k} with "
        f"{need(n_pass)}, and in the support table with {need(n_support)}."
    ]
    if pilot.M < 50:
        lines.append(f"The pilot has only {pilot.M} questions: its distribution of difficulty is loosely known.")
    if k > int(pilot.n_P.max(initial=0)):
        lines.append(f"pass@{k} lies beyond the pilot's {int(pilot.n_P.max())} samples: the model extrapolates.")
    return tuple(lines)
