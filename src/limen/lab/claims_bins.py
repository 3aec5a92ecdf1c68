"""Claims about winners and losers by bin of the base's success rate: from `limen lab bins`, whose rules these are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from limen.lab.bins import FEW, HIGH, LOW, THIRDS
from limen.lab.claims_rules import (
    AGREES,
    OPPOSITE,
    SHORT,
    UNDETERMINED,
    Interval,
    Verdict,
    interval,
    said,
    signed,
    together,
)
from limen.lab.evidence import Evidence
from limen.lab.trends import t_interval


def name(e: Evidence, b: int) -> str:
    """A bin in words."""
    edges = e.doc["edges"]
    return f"p {edges[b]:g}–{edges[b + 1]:g}"


def by_bin(e: Evidence, method: str, key: str) -> dict[int, tuple[int, Interval]]:
    """bin → (problems, interval of the seed mean) of `dlogp` or `dp`, each a line of numbers in the digest."""
    found: dict[int, list[list[float]]] = {}
    for r in e.doc.get("changes", ()):
        if r["method"] == method:
            found.setdefault(int(r["bin"]), []).append([float(x) for x in r[key].split()])
    return {b: (len(x[0]), interval(np.mean(x, axis=0))) for b, x in sorted(found.items())}


def seeds(e: Evidence, part: str, method: str) -> list[int]:
    return sorted({int(r["seed"]) for r in e.doc.get(part, ()) if r["method"] == method})


def winners_gain(e: Evidence) -> Verdict | None:
    """RBP-S4-1."""
    likely, rate = by_bin(e, "grpo", "dlogp"), by_bin(e, "grpo", "dp")
    filled = [b for b, (n, _) in likely.items() if n >= FEW]
    if len(filled) < 2:
        return None
    lowest, highest = filled[0], filled[-1]
    size = "Δ log π(y⁺), Δp: " + "; ".join(
        f"{name(e, b)} ({likely[b][0]} problems) {said(likely[b][1], 2)}, {said(rate[b][1])}" for b in filled
    )
    gain, loss = rate[highest][1], likely[lowest][1]
    verdict = OPPOSITE if loss[1] > 0 else together(signed(gain, 1), signed(loss, -1))
    return Verdict(verdict if len(seeds(e, "changes", "grpo")) >= 3 else SHORT, size)


def over_training(e: Evidence, method: str, low: bool, key: str) -> tuple[Interval, list[float]] | None:
    """Last third minus first third of `signal` or `success` beside the base's, low or high problems: t interval over
    seeds, and the means by third."""
    edges, rows = e.doc["edges"], [r for r in e.doc.get("groups", ()) if r["method"] == method]
    inside = [r for r in rows if (edges[r["bin"] + 1] <= LOW if low else edges[r["bin"]] >= HIGH)]
    table = []
    for seed in sorted({r["seed"] for r in inside}):
        own = [_weighted([r for r in inside if (r["seed"], r["third"]) == (seed, t)], key) for t in range(THIRDS)]
        table.append(own)
    if not table:
        return None
    return t_interval([x[-1] - x[0] for x in table]), np.mean(table, axis=0).tolist()


def _weighted(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    """Mean over groups of a quantity minus what the base would give."""
    weights = [r["groups"] for r in rows]
    return float(np.average([r[key] - r[f"base_{key}"] for r in rows], weights=weights)) if rows else float("nan")


def winner_takes_all(e: Evidence) -> Verdict | None:
    """RBP-S5-WTA."""
    parts = {(w, k): over_training(e, "grpo", w, k) for w, k in ((True, "signal"), (True, "success"),
                                                                   (False, "success"), (False, "signal"))}  # fmt: skip
    if any(v is None for v in parts.values()):
        return None
    known = {k: v for k, v in parts.items() if v is not None}
    size = "; ".join(
        f"{'low' if w else 'high'} problems, {k} over the base's by thirds {' → '.join(f'{x:+.3f}' for x in v[1])}, "
        f"change {said(v[0])}"
        for (w, k), v in known.items()
    )
    if len(seeds(e, "groups", "grpo")) < 3:
        return Verdict(SHORT, size)
    low = [known[True, k][0] for k in ("signal", "success")]
    if all(x[1] > 0 for x in low):
        return Verdict(OPPOSITE, size)
    verdict = together(*(signed(x, -1) for x in low), signed(known[False, "success"][0], 1))
    return Verdict(verdict if verdict == AGREES else UNDETERMINED, size)
