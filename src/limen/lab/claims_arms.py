"""Claims that trainings side by side decide: the KL's direction (`limen lab kl`) and the model's size (`lab widths`).

Over sizes: the slope of a quantity on log2 of the parameters, by least squares over all trainings; its 95% interval is
a bootstrap over problems (quantities of problems) or a t interval over trainings (Δ+)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from limen.lab.claims_rules import (
    AGREES,
    OPPOSITE,
    UNDETERMINED,
    Interval,
    Rule,
    Verdict,
    between,
    change,
    families,
    guarded,
    interval,
    moved,
    n_max,
    said,
    signed,
    together,
    values,
)
from limen.lab.evidence import Evidence, Trained

EQUAL = 0.02
"""Arms whose pass@1 differ by no more than this are called equal there."""


def reverse_kl(e: Evidence) -> Verdict | None:
    """RBP-S5-RKL: under the reverse KL coverage still ends below the base's; the forward KL keeps more at equal pass@1.

    Equal: within `EQUAL`; where no pair is, the nearest."""
    arms = {m: e.finals(m) for m in dict.fromkeys(r.method for r in e.runs())}
    reverse = {m: x for m, x in arms.items() if m.startswith("reverse") and moved(x)}
    forward = {m: x for m, x in arms.items() if m.startswith("forward") and moved(x)}
    if not arms.get("grpo") or not reverse or not forward:
        return None
    k = n_max([r for x in arms.values() for r in x])
    ends = {m: change(x, k) for m, x in reverse.items()}
    pairs = [(abs(between(a, b, 1)[0]), r, f) for r, a in reverse.items() for f, b in forward.items()]
    equal = [(r, f) for d, r, f in sorted(pairs) if d <= EQUAL] or [min(pairs)[1:]]
    gaps = {(r, f): between(reverse[r], forward[f], k) for r, f in equal}
    below = [signed(x, -1) for x in ends.values()]
    first = AGREES if all(v == AGREES for v in below) else OPPOSITE if OPPOSITE in below else UNDETERMINED
    size = f"pass@{k} − base: " + ", ".join(f"{m} {said(x)}" for m, x in ends.items())
    size += f"; forward − reverse at pass@1 within {EQUAL} (or nearest): " + ", ".join(
        f"{f} − {r} {said(x)}" for (r, f), x in gaps.items()
    )
    return guarded(arms["grpo"], together(first, *(signed(x, 1) for x in gaps.values())), size)


def _sizes(e: Evidence, method: str) -> dict[str, list[Trained]]:
    """Trainings of one method by the base's width, smallest first."""
    found = e.finals(method)
    return {g: [r for r in found if r.group == g] for g in sorted({r.group for r in found}, key=int)}


def _log2(e: Evidence, groups: Sequence[str]) -> list[float]:
    return [math.log2(float(e.doc["parameters"][g])) for g in groups]


def _slope(x: Sequence[float], y_GP: Sequence[np.ndarray]) -> Interval:  # type: ignore[type-arg]
    """Slope of the group means on x, bootstrap over problems: rows are sizes, columns problems."""
    centred = np.asarray(x) - np.mean(x)
    weights = centred / float(np.square(centred).sum())
    return interval(np.tensordot(weights, np.stack(list(y_GP)), axes=1))


def shrinks_more(e: Evidence) -> Verdict | None:
    """RBP-T1e: the change of pass@n_max under GRPO falls with size."""
    groups = _sizes(e, "grpo")
    if len(groups) < 3:
        return None
    k = n_max([r for x in groups.values() for r in x])
    rows = [values(x, k) - values(x, k, "base") for x in groups.values()]
    slope = _slope(_log2(e, list(groups)), rows)
    size = f"change of pass@{k} per doubling of parameters {said(slope)}; " + _by_size(e, groups, rows)
    return _all_moved(groups, signed(slope, -1), size)


def lead_grows(e: Evidence) -> Verdict | None:
    """RBP-T1f: SELF's lead over GRPO at n_max grows with size; pass@1 beside it."""
    grpo, own = _sizes(e, "grpo"), _sizes(e, "self")
    if len(grpo) < 3 or set(grpo) != set(own):
        return None
    k = n_max([r for x in [*grpo.values(), *own.values()] for r in x])
    rows = [values(own[g], k) - values(grpo[g], k) for g in grpo]
    first = [values(own[g], 1) - values(grpo[g], 1) for g in grpo]
    slope = _slope(_log2(e, list(grpo)), rows)
    size = f"SELF − GRPO at pass@{k} per doubling {said(slope)}; " + _by_size(e, grpo, rows)
    size += "; at pass@1 " + ", ".join(f"{x.mean():+.3f}" for x in first)
    return _all_moved(grpo, signed(slope, 1), size)


def interference_grows(e: Evidence) -> Verdict | None:
    """RBP-F10-size: Δ+ falls with size (over all trainings; a t interval of the slope)."""
    from scipy.stats import linregress, t

    groups = _sizes(e, "grpo")
    if len(groups) < 3:
        return None
    points = [
        (x, float(r.extra["interference"]))
        for g, x in zip(groups, _log2(e, list(groups)), strict=True)
        for r in groups[g]
    ]
    fit = linregress(*zip(*points, strict=True))
    half = float(t.ppf(0.975, len(points) - 2)) * float(fit.stderr)
    slope = (float(fit.slope), float(fit.slope) - half, float(fit.slope) + half)
    means = ", ".join(f"{g}: {np.mean([r.extra['interference'] for r in x]):+.3f}" for g, x in groups.items())
    gains = ", ".join(f"{change(x, 1)[0]:+.3f}" for x in groups.values())
    size = f"Δ+ per doubling of parameters {said(slope)}; by width {means}; gains at pass@1 {gains}, not made equal"
    return _all_moved(groups, signed(slope, -1), size)


def larger_trails(e: Evidence) -> Verdict | None:
    """RBP-F10-inv: after GRPO, in some family a larger model is below a smaller one at n_max (interval below 0)."""
    groups = _sizes(e, "grpo")
    if len(groups) < 2:
        return None
    k = n_max([r for x in groups.values() for r in x])
    names = list(groups)
    hits = []
    for i, small in enumerate(names):
        for large in names[i + 1 :]:
            for f in families(groups[small]):
                gap = between(groups[small], groups[large], k, (f,))
                if gap[2] < 0:
                    hits.append(f"{f}: width {large} − {small} {said(gap)}")
    size = "; ".join(hits) if hits else f"in no family is a larger model below a smaller one at pass@{k}"
    return _all_moved(groups, AGREES if hits else UNDETERMINED, size)


def _by_size(e: Evidence, groups: dict[str, list[Trained]], rows: Sequence[np.ndarray]) -> str:  # type: ignore[type-arg]
    return ", ".join(
        f"width {g} ({float(e.doc['parameters'][g]) / 1e3:.0f}k) {x.mean():+.3f}"
        for g, x in zip(groups, rows, strict=True)
    )


def _all_moved(groups: dict[str, list[Trained]], verdict: str, size: str) -> Verdict:
    short = [x for x in groups.values() if not moved(x)]
    return guarded(short[0] if short else next(iter(groups.values())), verdict, size)


OF_KIND: dict[str, dict[str, Rule]] = {
    "kl": {"RBP-S5-RKL": reverse_kl},
    "widths": {
        "RBP-T1e": shrinks_more,
        "RBP-T1f": lead_grows,
        "RBP-F10-size": interference_grows,
        "RBP-F10-inv": larger_trails,
    },
}
