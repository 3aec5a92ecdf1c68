"""Claims about learning dynamics: from `limen lab dynamics`, `limen dynamics between` and `limen influence`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from limen.lab.claims_rules import (
    AGREES,
    OPPOSITE,
    REPORTED,
    UNDETERMINED,
    Rule,
    Verdict,
    between,
    change,
    flips,
    guarded,
    n_max,
    said,
    signed,
    tables,
    together,
    values,
)
from limen.lab.evidence import Evidence, Trained
from limen.lab.evidence_training import by_method

WORDS = {"appears": AGREES, "opposite": OPPOSITE, "unclear": UNDETERMINED}
SCHEDULE = "constant"
"""The paper's learning rate is constant, so those runs decide; the decaying ones are printed beside them."""


def trend(words: str, versus: bool = False) -> Rule:
    """A trend of `limen.lab.trends` by the start of its words; `versus`: of SELF against GRPO."""

    def rule(e: Evidence) -> Verdict | None:
        found: dict[str, Mapping[str, Any]] = {}
        for name, rows in e.doc.get("trends", {}).items():
            if ("against" in name) == versus and (versus or name.startswith("grpo")):
                found.update((name, r) for r in rows if str(r["trend"]).startswith(words))
        main = next((n for n in found if n.endswith(SCHEDULE)), next(iter(found), None))
        if main is None:
            return None
        size = "; ".join(f"{n}: {said((r['mean'], r['low'], r['high']), 4)}" for n, r in found.items())
        return Verdict(WORDS[found[main]["verdict"]], f"{found[main]['trend']}, change over training: {size}")

    return rule


def _arm(e: Evidence, method: str) -> str | None:
    arms = list(dict.fromkeys(r.method for r in e.runs() if r.method.split("-")[0] == method))
    return next((a for a in arms if a.endswith(SCHEDULE)), arms[0] if arms else None)


def _by_step(runs: Sequence[Trained]) -> dict[int, list[Trained]]:
    return {s: [r for r in runs if r.step == s] for s in sorted({r.step for r in runs})}


def _falls(runs: Sequence[Trained], k: int) -> str:
    """falls: Spearman with the step below 0 in every seed, and end minus start below 0."""
    from scipy.stats import spearmanr

    steps = _by_step(runs)
    rho = []
    for seed in sorted({r.seed for r in runs}):
        own = [r for r in runs if r.seed == seed]
        points = [(0, float(values(own[:1], k, "base").mean()))]
        points += [(s, float(values([r for r in rs if r.seed == seed], k).mean())) for s, rs in steps.items()]
        level = len({v for _, v in points}) == 1
        rho.append(0.0 if level else float(spearmanr(*zip(*points, strict=True)).statistic))
    end = change(steps[max(steps)], k)
    if all(x < 0 for x in rho) and end[2] < 0:
        return AGREES
    return OPPOSITE if all(x > 0 for x in rho) and end[1] > 0 else UNDETERMINED


def coverage_over_steps(e: Evidence) -> Verdict | None:
    """RBP-F1: GRPO's pass@n_max falls over training; SELF's does not, and ends above the base's."""
    arms = [_arm(e, m) for m in ("grpo", "self")]
    if None in arms:
        return None
    grpo, own = (e.runs(str(a)) for a in arms)
    k = n_max([*grpo, *own])
    down, kept = _falls(grpo, k), _falls(own, k)
    end = change(e.finals(str(arms[1])), k)
    stays = OPPOSITE if kept == AGREES or end[2] < 0 else AGREES if end[0] > 0 else UNDETERMINED
    size = f"pass@{k} − base by step: " + "; ".join(
        f"{a} " + ", ".join(f"{s}: {change(rs, k)[0]:+.3f}" for s, rs in _by_step(e.runs(str(a))).items()) for a in arms
    )
    return guarded(e.finals(str(arms[0])), together(down, stays), f"{size}; SELF's end {said(end)}")


def slips_below(e: Evidence) -> Verdict | None:
    """RBP-F2A: pass@1 rises, pass@n_max ends below the base's; the step of crossing."""
    arm = _arm(e, "grpo")
    if arm is None:
        return None
    steps, ends = _by_step(e.runs(arm)), e.finals(arm)
    k = n_max(ends)
    up, down = change(ends, 1), change(ends, k)
    crossed = next((s for s, rs in steps.items() if change(rs, k)[2] < 0), None)
    size = f"{arm}: pass@1 {said(up)}, pass@{k} {said(down)}; below the base (interval) from step {crossed or 'never'}"
    return guarded(ends, together(signed(up, 1), signed(down, -1)), size)


def later_discovers_more(e: Evidence) -> Verdict | None:
    """IL-T1b: E and S both larger at the later of two checkpoints."""
    arm = _arm(e, "grpo")
    steps = _by_step(e.runs(arm)) if arm else {}
    if len(steps) < 2:
        return None
    early, late = sorted(steps)[len(steps) // 2 - 1], max(steps)
    rows = [(float(np.mean([s.E for s in t])), float(np.mean([s.S for s in t])))
            for t in (tables(steps[early]), tables(steps[late]))]  # fmt: skip
    more = [rows[1][i] > rows[0][i] for i in range(2)]
    verdict = AGREES if all(more) else OPPOSITE if not any(more) else UNDETERMINED
    size = f"{arm}, step {early} → {late}: E {rows[0][0]:.1f} → {rows[1][0]:.1f}, S {rows[0][1]:.1f} → {rows[1][1]:.1f}"
    return guarded(steps[late], verdict, size)


def nothing_gained(e: Evidence) -> Verdict | None:
    """IL-T4a: E at or below chance at every checkpoint (seed means)."""
    arm = _arm(e, "grpo")
    if arm is None:
        return None
    steps = {s: tables(rs) for s, rs in _by_step(e.runs(arm)).items()}
    above = [all(x.E_p < 0.05 for x in found) for found in steps.values()]
    below = [float(np.mean([x.E - x.chance_E for x in found])) <= 0 for found in steps.values()]
    verdict = AGREES if all(below) else OPPOSITE if all(above) else UNDETERMINED
    return guarded(e.finals(arm), verdict, _flips_by_step(steps))


def like_size(e: Evidence) -> Verdict | None:
    """IL-T4b: E and S of like size, NSCR near 0 (both outcomes exist in the paper)."""
    arm = _arm(e, "grpo")
    if arm is None:
        return None
    steps = {s: tables(rs) for s, rs in _by_step(e.runs(arm)).items()}
    near = [abs(float(np.mean([x.NSCR for x in found]))) < 0.05 for found in steps.values()]
    verdict = AGREES if all(near) else OPPOSITE if not any(near) else UNDETERMINED
    return guarded(e.finals(arm), verdict, _flips_by_step(steps))


def _flips_by_step(steps: Mapping[int, Sequence[Any]]) -> str:
    return "E / S (chance): " + "; ".join(f"step {s}: {flips(found)}" for s, found in steps.items())


def efficient(e: Evidence) -> Verdict | None:
    """RBP-A3: at equal generated tokens SELF's pass@n_max is above GRPO's, from half of the budget on."""
    arms = [_arm(e, m) for m in ("grpo", "self")]
    training = e.doc.get("training", {})
    if None in arms or not all(by_method(training, str(a)) for a in arms):
        return None
    at = {a: {s: _tokens(training, str(a), s) for s in _by_step(e.runs(str(a)))} for a in arms}
    k = n_max(e.runs(*map(str, arms)))
    budget, rows = min(max(x.values()) for x in at.values()), []
    for step, spent in at[arms[1]].items():
        if spent >= budget / 2:
            near = min(at[arms[0]], key=lambda s: abs(at[arms[0]][s] - spent))
            pair = [[r for r in e.runs(str(a)) if r.step == s] for a, s in zip(arms, (near, step), strict=True)]
            rows.append((step, spent, near, between(pair[0], pair[1], k), between(pair[0], pair[1], 1)))
    if not rows:
        return None
    size = "; ".join(
        f"SELF at step {s} ({t / 1e3:.0f}k tokens) − GRPO at step {n}: pass@{k} {said(x)}, pass@1 {said(y)}"
        for s, t, n, x, y in rows
    )
    return guarded(e.finals(str(arms[0])), together(*(signed(x, 1) for *_, x, _ in rows)), size)


def _tokens(training: Mapping[str, Any], arm: str, step: int) -> float:
    """Tokens generated up to `step`, mean over seeds."""
    return float(np.mean([np.interp(step, t["steps"], t["tokens"]) for t in by_method(training, arm)]))


# limen dynamics between ---------------------------------------------------------------------------------------------


def predicts(e: Evidence) -> Verdict | None:
    """RBP-F3: Pearson and Spearman of Δ+ with the change of pass@k above 0."""
    tasks = (e.doc.get("interference") or {}).get("tasks")
    if not tasks:
        return None
    rows = {t: [_entry(tasks[t][c]) for c in ("pearson", "spearman")] for t in tasks}
    main = rows.get("all") or next(iter(rows.values()))
    size = "; ".join(f"{t}: r {said(a, 2)}, ρ {said(b, 2)}" for t, (a, b) in rows.items())
    return Verdict(together(*(signed(x, 1) for x in main)), f"{size} (one training, {_pairs(tasks)} checkpoint pairs)")


def _pairs(tasks: Mapping[str, Any]) -> int:
    return len(next(iter(tasks.values()))["pairs"])


def _entry(x: Mapping[str, Any]) -> tuple[float, float, float]:
    return tuple(math.nan if x.get(k) is None else float(x[k]) for k in ("value", "low", "high"))  # type: ignore[return-value]


def perplexity(*parts: str) -> Rule:
    """RBP-F4 and F14: `own` falls; `base` all rise; `correct` ends above all; `movers` D↑ < D↓, and D↓ rises more."""

    def rule(e: Evidence) -> Verdict | None:
        tasks = e.doc.get("perplexity")
        if not tasks:
            return None
        families = [t for t in tasks if t != "all"]
        chosen = families if "every" in parts and families else ["all" if "all" in tasks else families[0]]
        wanted = [p for p in parts if p != "every"]
        judged = {t: [_PARTS[p](tasks[t]["rows"]) for p in wanted] for t in chosen}
        verdicts = [v for rows in judged.values() for v, _ in rows]
        size = "; ".join(f"{t}: " + ", ".join(s for _, s in rows) for t, rows in judged.items())
        return Verdict(together(*verdicts), size)

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
        by_source = {s: [_entry(r["ppl"]) for r in rows if r["source"] == s] for s in {r["source"] for r in rows}}
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

    Residual: standard deviation of the measured change times √(1 − R²)."""
    rows = [(p["step"], form, x) for p in e.doc.get("points", ()) for form, x in p["predictions"].items()]
    if not rows:
        return None
    said_, verdicts = [], []
    for step, form, x in rows:
        checks = [c for c in x["sweep"] if c.get("r2") is not None and 0.5 < c["r2"] < 1 - 1e-9]
        if len(checks) < 2:
            continue
        lr = np.log([c["lr"] for c in checks])
        spread = [c["rms"] ** 2 - c["mean_measured"] ** 2 for c in checks]
        residual = np.log([math.sqrt(max(v * (1 - c["r2"]), 1e-300)) for v, c in zip(spread, checks, strict=True)])
        slope, best = float(np.polyfit(lr, residual, 1)[0]), max(c["correlation"] for c in checks)
        said_.append(f"step {step}, {form}: slope {slope:.2f}, best correlation {best:.4f}")
        if form == "sgd":
            verdicts.append(AGREES if abs(slope - 2) <= 0.1 and best > 0.99 else UNDETERMINED)
    if not said_:
        return None
    return Verdict(together(*verdicts) if verdicts else UNDETERMINED, "; ".join(said_))


def dependent(e: Evidence) -> Verdict | None:
    """RBP-C2b: over training the kernel's effective rank falls and the mean off-diagonal cosine rises."""
    points = sorted(e.doc.get("points", ()), key=lambda p: p["step"])
    if len(points) < 2:
        return None
    rank = [float(p["spectrum"]["effective_rank"]) for p in points]
    cosine = [float(p["spectrum"]["mean_cosine"]) for p in points]
    hits = [rank[-1] < rank[0], cosine[-1] > cosine[0]]
    verdict = AGREES if all(hits) else OPPOSITE if not any(hits) else UNDETERMINED
    steps = ", ".join(str(p["step"]) for p in points)
    size = f"steps {steps}: effective rank {_list(rank)}, mean cosine {_list(cosine)} (one training)"
    return Verdict(verdict, size)


def _list(xs: Sequence[float]) -> str:
    return " → ".join(f"{x:.3g}" for x in xs)
