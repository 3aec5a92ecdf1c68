"""Claims about pairs of checkpoints and about the influence kernel: `limen dynamics between`, `limen influence`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from limen.lab.claims_dynamics import SCHEDULE
from limen.lab.claims_rules import (
    AGREES,
    OPPOSITE,
    REPORTED,
    SHORT,
    UNDETERMINED,
    Rule,
    Verdict,
    said,
    signed,
    together,
)
from limen.lab.evidence import Evidence
from limen.lab.trends import t_interval


def trainings(e: Evidence) -> tuple[str, list[Mapping[str, Any]]]:
    """(what they are, results of `limen dynamics between`): of GRPO's trainings in the study of dynamics, one a seed,
    or the one that was made by hand."""
    arms = e.doc.get("between")
    if e.kind == "between" or not arms:
        return "one training", [e.doc] if e.kind == "between" else []
    name = next((n for n in arms if n.endswith(SCHEDULE)), next(iter(arms)))
    return f"{name}, {len(arms[name])} trainings", [arms[name][s] for s in sorted(arms[name])]


def predicts(e: Evidence) -> Verdict | None:
    """RBP-F3: Pearson and Spearman of Δ+ with the change of pass@k above 0: the mean over trainings with a t interval
    over them; of a single training, its own interval."""
    what, docs = trainings(e)
    found = [d["interference"]["tasks"] for d in docs if d.get("interference")]
    if not found:
        return None
    size, main = [], []
    for task in found[0]:
        ends = []
        for which in ("pearson", "spearman"):
            each = [_entry(x[task][which]) for x in found]
            ends.append(each[0] if len(each) == 1 else t_interval([v for v, _, _ in each]))
        if task == "all" or len(found[0]) == 1:
            main = ends
        size.append(f"{task}: r {said(ends[0], 2)}, ρ {said(ends[1], 2)}")
    pairs = len(next(iter(found[0].values()))["pairs"])
    return Verdict(
        together(*(signed(x, 1) for x in main)), f"{'; '.join(size)} ({what}, {pairs} checkpoint pairs each)"
    )


def _entry(x: Mapping[str, Any]) -> tuple[float, float, float]:
    return tuple(math.nan if x.get(k) is None else float(x[k]) for k in ("value", "low", "high"))  # type: ignore[return-value]


def perplexity(*parts: str) -> Rule:
    """RBP-F4 and F14: `own` falls; `base` all rise; `correct` ends above all; `movers` D↑ < D↓, and D↓ rises more."""

    def rule(e: Evidence) -> Verdict | None:
        what, docs = trainings(e)
        found = [d["perplexity"] for d in docs if d.get("perplexity")]
        if not found:
            return None
        families = [t for t in found[0] if t != "all"]
        chosen = families if "every" in parts and families else ["all" if "all" in found[0] else families[0]]
        wanted = [p for p in parts if p != "every"]
        verdicts, size = [], []
        for t in chosen:
            for p in wanted:
                judged = [_PARTS[p](x[t]["rows"]) for x in found]
                same = {v for v, _ in judged}
                verdicts.append(judged[0][0] if len(same) == 1 else UNDETERMINED)
                size.append(f"{t}: " + " / ".join(s for _, s in judged))
        return Verdict(together(*verdicts), f"{'; '.join(size)} ({what})")

    return rule


def _move(rows: Sequence[Mapping[str, Any]], key: str, sign: int) -> tuple[str, str]:
    have = [_entry(r[key]) for r in rows if r.get(key) and r[key].get("value") is not None]
    if len(have) < 2:
        return UNDETERMINED, f"{key}: not measured"
    a, b = have[0], have[-1]
    apart = b[1] > a[2] if b[0] > a[0] else b[2] < a[1]
    right = (b[0] - a[0]) * sign > 0
    verdict = AGREES if right and apart else OPPOSITE if apart else UNDETERMINED
    return verdict, f"{key} {a[0]:.3f} → {b[0]:.3f}"


def _own(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    return _move(rows, "own_under_base", -1)


def _base(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    found = [_move(rows, key, 1) for key in ("base", "base_correct", "base_wrong")]
    return together(*(v for v, _ in found)), ", ".join(s for _, s in found)


def _correct(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    ends = [(r["base_correct"]["value"], r["base"]["value"]) for r in (rows[0], rows[-1])
            if r.get("base_correct") and r.get("base")]  # fmt: skip
    if len(ends) < 2 or None in ends[1]:
        return UNDETERMINED, "not measured"
    gap = [a - b for a, b in ends]
    return AGREES if gap[1] > 0 else OPPOSITE, f"correct − all {gap[0]:+.3f} at the start, {gap[1]:+.3f} at the end"


def _movers(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    keys = ("rose_correct", "fell_correct")
    have = [r for r in rows if all(r.get(k) and r[k].get("value") is not None for k in keys)]
    if len(have) < 2:
        return UNDETERMINED, "D↑ and D↓ not measured"
    (up0, down0), (up1, down1) = ([r[k]["value"] for k in keys] for r in (have[0], have[-1]))
    hits = [up0 < down0, down1 - down0 > up1 - up0]
    verdict = AGREES if all(hits) else OPPOSITE if not any(hits) else UNDETERMINED
    return verdict, f"D↑ {up0:.3f} → {up1:.3f}, D↓ {down0:.3f} → {down1:.3f}"


_PARTS = {"own": _own, "base": _base, "correct": _correct, "movers": _movers}


def traces(group: str, sign: int) -> Rule:
    """IL-T2: perplexity of supplied solutions on the questions of `group`, trained against base; sign 0: no claim."""

    def rule(e: Evidence) -> Verdict | None:
        rows = [r for r in e.doc.get("traces") or () if r["group"] == group and r["traces"]]
        by_source = {
            s: [_entry(r["ppl"]) for r in rows if r["source"] == s] for s in dict.fromkeys(r["source"] for r in rows)
        }
        pairs = {s: x for s, x in by_source.items() if len(x) == 2}
        if not pairs:
            return None
        size = "; ".join(f"{s}: base {a[0]:.3f}, trained {b[0]:.3f}" for s, (a, b) in pairs.items())
        if sign == 0:
            return Verdict(REPORTED, size)
        hits = [(b[0] - a[0]) * sign > 0 for a, b in pairs.values()]
        return Verdict(AGREES if all(hits) else OPPOSITE if not any(hits) else UNDETERMINED, size)

    return rule


# limen influence ----------------------------------------------------------------------------------------------------


def first_order(e: Evidence) -> Verdict | None:
    """RBP-P3.1: the residual of the first-order prediction falls as the square of a plain step, correlation > 0.99.

    Residual: standard deviation of the measured change times √(1 − R²). The slope is taken where first order holds
    (R² at least 0.95) and the residual is ten times what rounding leaves (that of the smallest step)."""
    rows = [(p["step"], form, x) for p in e.doc.get("points", ()) for form, x in p["predictions"].items()]
    words, verdicts = [], []
    for step, form, x in rows:
        checks = sorted((c for c in x["sweep"] if c.get("r2") is not None), key=lambda c: float(c["lr"]))
        residual = [_residual(c) for c in checks]
        keep = [i for i, c in enumerate(checks) if c["r2"] >= 0.95 and residual[i] >= 10 * residual[0]]
        if len(keep) < 2:
            continue
        x_, y_ = (np.log(np.array([v[i] for i in keep])) for v in ([float(c["lr"]) for c in checks], residual))
        slope = float(np.polyfit(x_, y_, 1)[0])
        best = max(float(c["correlation"]) for c in checks)
        words.append(f"step {step}, {form}: slope {slope:.2f}, best correlation {best:.4f}")
        if form == "sgd":
            verdicts.append(AGREES if abs(slope - 2) <= 0.1 and best > 0.99 else UNDETERMINED)
    if not verdicts:
        return None
    return Verdict(together(*verdicts), "; ".join(words))


def _residual(c: Mapping[str, Any]) -> float:
    return math.sqrt(max((c["rms"] ** 2 - c["mean_measured"] ** 2) * (1 - c["r2"]), 1e-300))


def dependent(e: Evidence) -> Verdict | None:
    """RBP-C2b: over training the kernel's effective rank falls and the mean off-diagonal cosine rises (Spearman with
    the step of that sign). One training is too few to say."""
    from scipy.stats import spearmanr

    points = sorted(e.doc.get("points", ()), key=lambda p: float(p["step"]))
    if len(points) < 3:
        return None
    rank = [float(p["spectrum"]["effective_rank"]) for p in points]
    cosine = [float(p["spectrum"]["mean_cosine"]) for p in points]
    rho = [float(spearmanr([p["step"] for p in points], x).statistic) for x in (rank, cosine)]
    steps = ", ".join(str(p["step"]) for p in points)
    size = f"one training, steps {steps}: effective rank {_list(rank)} (ρ {rho[0]:+.2f}), mean cosine {_list(cosine)} "
    return Verdict(SHORT, size + f"(ρ {rho[1]:+.2f})")


def _list(xs: Sequence[float]) -> str:
    return " → ".join(f"{x:.3g}" for x in xs)
