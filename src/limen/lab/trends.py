"""Which trends of RBP's figures 2, 7 and 8 appear: the rules, fixed before any run, and their evaluation.

Of each training run a quantity is a curve over its probed steps, the very first step left out (AdamW's first step has
the size of the learning rate whatever the gradient is). Its *change* is the mean over the last third of the points
minus the mean over the first third. Over the seeds of one method the mean change has a 95% t interval.

    appears   the whole interval lies on the paper's side of zero
    opposite  the whole interval lies on the other side
    unclear   the interval holds zero (or there is only one seed)

*Milder under SELF* compares the two methods' means over all points (log π(y⁺): over the last third), paired by seed,
by the same rule. "Stable" (clip violations on the training batch) means that the change's interval holds zero, or that
its mean is less than a quarter of the first third's mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from limen.dynamics.curves import RunCurves
from limen.dynamics.quantities import Floats

STABLE_SHARE = 0.25
LEVEL = 0.95


@dataclass(frozen=True)
class Trend:
    """What the paper says of one quantity under GRPO. `sign` +1: grows, -1: falls, 0: stable."""

    key: str
    words: str
    sign: int
    per_rate: int = 0
    """Divide by this power of the learning rate: the change of a small step grows with it (Δ⁺: 1, ‖Δ‖: 2)."""


TRENDS = (
    Trend("probe/delta_plus", "Δ⁺ falls", -1),
    Trend("probe/influence", "‖Δ‖ grows", +1),
    Trend("probe/logp_plus", "log π(y⁺) falls", -1),
    Trend("probe/clip", "clip violations grow on the probe set", +1),
    Trend("probe/clip_batch", "clip violations stay stable on the training batch", 0),
)
PER_RATE = (
    Trend("probe/delta_plus", "Δ⁺/η falls", -1, 1),
    Trend("probe/influence", "‖Δ‖/η² grows", +1, 2),
)
"""The same per unit of learning rate: under a decaying schedule the raw quantities fade with it."""
RARE = (
    Trend("probe/delta_plus_rare", "Δ⁺ falls, problems that the base seldom solves", -1),
    Trend("probe/logp_plus_rare", "log π(y⁺) falls, problems that the base seldom solves", -1),
)
"""The same on correct responses to problems that at most half of the probe responses solve: the tiny base solves most
of its problems most of the time, and what winner-take-all loses are the others."""
MILDER = (
    Trend("probe/delta_plus", "Δ⁺ higher (less negative) under SELF", +1),
    Trend("probe/influence", "‖Δ‖ smaller under SELF", -1),
    Trend("probe/logp_plus", "log π(y⁺) higher under SELF", +1),
    Trend("probe/logp_plus_rare", "log π(y⁺) of seldom solved problems higher under SELF", +1),
    Trend("probe/clip", "fewer clip violations on the probe set under SELF", -1),
    Trend("entropy", "higher token entropy of own samples under SELF", +1),
    Trend("reward", "lower reward of the sampled responses under SELF", -1),
)
"""`sign` of SELF minus GRPO."""


@dataclass(frozen=True)
class Finding:
    """One trend over seeds: each seed's change, their mean and interval, and the verdict by the rule."""

    words: str
    changes: tuple[float, ...]
    mean: float
    low: float
    high: float
    verdict: str
    start: float = math.nan
    """Mean over seeds of the first third's mean (of GRPO's mean, where two methods are compared)."""


def points(run: RunCurves, trend: Trend) -> Floats:
    """The curve's values without the first step, per unit of learning rate where the trend says so."""
    step, value = run.get(trend.key)
    if trend.per_rate:
        rates = dict(zip(*run.get("probe/lr"), strict=True))
        rate = np.array([rates.get(s, np.nan) for s in step])
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.where(rate > 0, value / rate**trend.per_rate, np.nan)
    keep = (step > 1) & np.isfinite(value)
    return np.asarray(value[keep])


def thirds(values: Floats) -> tuple[float, float]:
    """Means over the first and the last third of the points (at least one each); NaN without points."""
    if not len(values):
        return math.nan, math.nan
    size = max(1, len(values) // 3)
    return float(values[:size].mean()), float(values[-size:].mean())


def t_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float, float]:
    """(mean, low, high) of a mean over seeds; NaN ends with fewer than two."""
    from scipy.stats import t

    v = np.asarray(values, dtype=np.float64)
    if len(v) < 2 or not np.isfinite(v).all():
        return float(v.mean()) if len(v) else math.nan, math.nan, math.nan
    half = float(t.ppf((1 + level) / 2, len(v) - 1)) * float(v.std(ddof=1)) / math.sqrt(len(v))
    return float(v.mean()), float(v.mean()) - half, float(v.mean()) + half


def find(trend: Trend, runs: Sequence[RunCurves]) -> Finding:
    """Whether a trend appears over the runs (seeds) of one method."""
    ends = [thirds(points(r, trend)) for r in runs]
    return judge(trend, [b - a for a, b in ends], float(np.mean([a for a, _ in ends])) if ends else math.nan)


def find_milder(trend: Trend, pairs: Sequence[tuple[RunCurves, RunCurves]]) -> Finding:
    """Whether SELF (second of each pair) is milder than GRPO (first), paired by seed."""
    a = [_level(trend, grpo) for grpo, _ in pairs]
    b = [_level(trend, own) for _, own in pairs]
    return judge(trend, [y - x for x, y in zip(a, b, strict=True)], float(np.mean(a)) if a else math.nan)


def _level(trend: Trend, run: RunCurves) -> float:
    values = points(run, trend)
    return (
        thirds(values)[1] if trend.key.startswith("probe/logp") else float(values.mean()) if len(values) else math.nan
    )


def judge(trend: Trend, changes: Sequence[float], start: float) -> Finding:
    """The rule at the top of this file."""
    mean, low, high = t_interval(changes)
    if not math.isfinite(low):
        verdict = "unclear"
    elif trend.sign == 0:
        stable = low <= 0 <= high or abs(mean) < STABLE_SHARE * abs(start)
        verdict = "appears" if stable else "opposite"
    else:
        below, above = (low, high) if trend.sign > 0 else (-high, -low)
        verdict = "appears" if below > 0 else "opposite" if above < 0 else "unclear"
    return Finding(trend.words, tuple(changes), mean, low, high, verdict, start)


def to_json(found: Mapping[str, Sequence[Finding]]) -> dict[str, list[dict[str, object]]]:
    return {
        name: [
            {
                "trend": f.words,
                "verdict": f.verdict,
                "changes": list(f.changes),
                "mean": f.mean,
                "low": f.low,
                "high": f.high,
                "start": f.start,
            }
            for f in findings
        ]
        for name, findings in found.items()
    }
