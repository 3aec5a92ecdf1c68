"""Claims that compare learning from stored samples with learning from one's own: from `limen lab offline`."""

from __future__ import annotations

import numpy as np

from limen.lab.claims_rules import (
    AGREES,
    OPPOSITE,
    UNDETERMINED,
    Verdict,
    between,
    guarded,
    n_max,
    said,
    signed,
    values,
)
from limen.lab.evidence import Evidence


def on_policy_concentrates(e: Evidence) -> Verdict | None:
    """RBP-A2: at the checkpoint of SFT nearest in pass@1 to GRPO's end, SFT's pass@n_max is higher."""
    grpo, stored = e.finals("grpo"), e.runs("sft")
    if not grpo or not stored:
        return None
    goal = float(values(grpo, 1).mean())
    steps = {s: [r for r in stored if r.step == s] for s in sorted({r.step for r in stored})}
    step = min(steps, key=lambda s: abs(float(values(steps[s], 1).mean()) - goal))
    k = n_max([*grpo, *stored])
    last, first = between(grpo, steps[step], k), between(grpo, steps[step], 1)
    size = f"SFT at step {step} − GRPO at its end: pass@1 {said(first)}, pass@{k} {said(last)}"
    return guarded(grpo, signed(last, 1), size)


def greedy_marks(e: Evidence) -> Verdict | None:
    """RBP-S6-P: a wrong greedy answer marks a low success rate (AUC above 0.8 for every policy looked at)."""
    rows = [r for r in e.doc.get("greedy") or () if r["auc"] is not None]
    if not rows:
        return None
    low, high = min(r["auc"] for r in rows), max(r["auc"] for r in rows)
    verdict = AGREES if low > 0.8 else OPPOSITE if high <= 0.5 else UNDETERMINED
    size = "; ".join(
        f"{r['policy']}: AUC {r['auc']:.3f}, {r['kept']} kept with median rate {r['quartiles']['kept'][1]:.3f}, upper "
        f"quartile {r['quartiles']['kept'][2]:.3f}, {r['dropped']} dropped with lower quartile "
        f"{r['quartiles']['dropped'][0]:.3f}"
        for r in rows
    )
    return Verdict(verdict, size)


def crosses(e: Evidence) -> Verdict | None:
    """IL-T5: the curves of SFT and DAPO cross at least once; paired interval at n_max."""
    dapo, stored = e.finals("dapo"), e.finals("sft")
    if not dapo or not stored:
        return None
    top = n_max([*dapo, *stored])
    ks = [2**i for i in range(top.bit_length()) if 2**i <= top]
    signs = [float(np.sign(between(stored, dapo, k)[0])) for k in ks]
    turns = [k for k, a, b in zip(ks[1:], signs, signs[1:], strict=False) if a * b < 0]
    ends = ", ".join(f"pass@{k} {said(between(stored, dapo, k))}" for k in (1, 16, top) if k <= top)
    where = f"they cross at k = {', '.join(map(str, turns))}" if turns else "they do not cross"
    return guarded(dapo, AGREES if turns else UNDETERMINED, f"DAPO − SFT: {ends}; {where}")
