"""Claims about learning dynamics over training: from `limen lab dynamics`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from limen.lab.claims_rules import (
    AGREES,
    OPPOSITE,
    SHORT,
    UNDETERMINED,
    Interval,
    Rule,
    Verdict,
    between,
    change,
    n_max,
    said,
    signed,
    tables,
    together,
    values,
)
from limen.lab.evidence import Evidence, Trained
from limen.lab.evidence_training import by_method
from limen.lab.trends import t_interval

WORDS = {"appears": AGREES, "opposite": OPPOSITE, "unclear": UNDETERMINED}
SCHEDULE = "constant"
"""The paper's learning rate is constant, so those runs decide; the decaying ones are printed beside them."""


def trend(words: str, versus: bool = False) -> Rule:
    """A trend of `limen.lab.trends` by the start of its words; `versus`: of SELF against GRPO."""

    def rule(e: Evidence) -> Verdict | None:
        found: dict[str, Mapping[str, Any]] = {}
        for name, rows in e.doc.get("trends", {}).items():
            if ("against" in name) == versus and (versus or name.startswith("grpo")):
                fitting = [r for r in rows if str(r["trend"]).startswith(words)]
                found |= {name: min(fitting, key=lambda r: len(str(r["trend"])))} if fitting else {}
        main = next((n for n in found if n.endswith(SCHEDULE)), next(iter(found), None))
        if main is None:
            return None
        size = "; ".join(f"{n}: {said((r['mean'], r['low'], r['high']), 4)}" for n, r in found.items())
        what = "difference" if versus else "change over training"
        return Verdict(WORDS[found[main]["verdict"]], f"{found[main]['trend']}; {what}: {size}")

    return rule


def across_bases(studies: Sequence[Evidence]) -> Verdict | None:
    """RBP-F10: each of figure 2's four verdicts is the same on every base; three bases at least, else it is not run.
    Opposite: one of them agrees on one base and is opposite on another."""
    bases = {str(e.doc.get("base", "tiny")): e for e in studies}
    if len(bases) < 3:
        return None
    rules = {"F2A": slips_below, "F2B": trend("‖Δ‖ grows"), "F2C": trend("Δ⁺ falls"), "F2D": trend("log π(y⁺) falls")}
    found = {row: {b: v.verdict for b, e in bases.items() if (v := rule(e)) is not None} for row, rule in rules.items()}
    if any(len(v) < len(bases) for v in found.values()):
        return None
    size = "; ".join(f"{row}: " + ", ".join(f"{b} {v}" for b, v in x.items()) for row, x in found.items())
    if any({AGREES, OPPOSITE} <= set(x.values()) for x in found.values()):
        return Verdict(OPPOSITE, size)
    return Verdict(AGREES if all(len(set(x.values())) == 1 for x in found.values()) else UNDETERMINED, size)


@dataclass(frozen=True)
class Point:
    """One checkpoint of one training: coverages, and E, S beside chance."""

    seed: int
    step: int
    first: float
    last: float
    E: float
    S: float
    chance: float


@dataclass(frozen=True)
class Arm:
    """The checkpoints of one method's trainings under one schedule. `runs`: their counts, where they were kept; then
    intervals are over problems; otherwise those of pass@1 are over seeds, those of pass@n from E, S and `problems`."""

    name: str
    k: int
    base: tuple[float, float]
    points: tuple[Point, ...]
    runs: tuple[Trained, ...]
    problems: int = 0

    @property
    def steps(self) -> list[int]:
        return sorted({p.step for p in self.points})

    def at(self, step: int) -> list[Point]:
        return [p for p in self.points if p.step == step]

    def change(self, step: int, first: bool) -> Interval:
        """pass@1 (or pass@n) at a step minus the base's."""
        own = [r for r in self.runs if r.step == step]
        if own:
            return change(own, 1 if first else self.k)
        if not first and self.problems:
            return self._paired([(p.E, p.S) for p in self.at(step)])
        base = self.base[0] if first else self.base[1]
        return t_interval([(p.first if first else p.last) - base for p in self.at(step)])

    def _paired(self, flips: Sequence[tuple[float, float]]) -> Interval:
        """pass@n minus the base's is (E − S)/M, exactly; normal interval over the M problems. Seeds share the problems,
        so their mean is given the variance of one of them, not a third of it."""
        M = self.problems
        means = [(e - s) / M for e, s in flips]
        spread = [((e + s) / M - x * x) / M for (e, s), x in zip(flips, means, strict=True)]
        mean, half = float(np.mean(means)), 1.96 * math.sqrt(float(np.mean(spread)))
        return mean, mean - half, mean + half

    def guarded(self, verdict: str, size: str) -> Verdict:
        up = self.change(self.steps[-1], True)
        if len({p.seed for p in self.points}) >= 3 and up[1] > 0:
            return Verdict(verdict, size)
        return Verdict(SHORT, f"{size}; pass@1 {said(up)}")


def arm(e: Evidence, method: str) -> Arm | None:
    """The method's arm at the constant rate, else its first one."""
    runs, table = e.runs(), e.doc.get("table") or {}
    names = list(dict.fromkeys([r.method for r in runs] + [row[0] for row in table.get("rows", ())]))
    own = [n for n in names if n.split("-")[0] == method]
    name = next((n for n in own if n.endswith(SCHEDULE)), own[0] if own else None)
    if name is None:
        return None
    kept = tuple(r for r in runs if r.method == name)
    if kept:
        k = n_max(runs)
        points = []
        for r, s in zip(kept, tables(kept), strict=True):
            ends = [float(values([r], x).mean()) for x in (1, k)]
            points.append(Point(r.seed, r.step, ends[0], ends[1], s.E, s.S, s.chance_each_way))
        base = (float(values(kept[:1], 1, "base").mean()), float(values(kept[:1], k, "base").mean()))
        return Arm(name, k, base, tuple(points), kept)
    rows = [Point(*row[1:8]) for row in table["rows"] if row[0] == name]
    return Arm(
        name, int(table["n"]), (table["base"][0], table["base"][1]), tuple(rows), (), int(table.get("problems", 0))
    )


def _falls(a: Arm) -> str:
    """falls: Spearman with the step below 0 in every seed, and end minus start below 0."""
    from scipy.stats import spearmanr

    rho = []
    for seed in sorted({p.seed for p in a.points}):
        line = [(0, a.base[1]), *((p.step, p.last) for p in sorted(a.points, key=lambda p: p.step) if p.seed == seed)]
        level = len({v for _, v in line}) == 1
        rho.append(0.0 if level else float(spearmanr(*zip(*line, strict=True)).statistic))
    end = a.change(a.steps[-1], False)
    if all(x < 0 for x in rho) and end[2] < 0:
        return AGREES
    return OPPOSITE if all(x > 0 for x in rho) and end[1] > 0 else UNDETERMINED


def coverage_over_steps(e: Evidence) -> Verdict | None:
    """RBP-F1: GRPO's pass@n_max falls over training; SELF's does not, and ends above the base's."""
    grpo, own = arm(e, "grpo"), arm(e, "self")
    if grpo is None or own is None:
        return None
    down, kept = _falls(grpo), _falls(own)
    end = own.change(own.steps[-1], False)
    stays = OPPOSITE if kept == AGREES or end[2] < 0 else AGREES if end[0] > 0 else UNDETERMINED
    size = f"pass@{grpo.k} − base by step: " + "; ".join(
        f"{a.name} " + ", ".join(f"{s}: {a.change(s, False)[0]:+.3f}" for s in a.steps) for a in (grpo, own)
    )
    return grpo.guarded(together(down, stays), f"{size}; SELF's end {said(end)}")


def slips_below(e: Evidence) -> Verdict | None:
    """RBP-F2A: pass@1 rises, pass@n_max ends below the base's; the step of crossing."""
    a = arm(e, "grpo")
    if a is None:
        return None
    up, down = a.change(a.steps[-1], True), a.change(a.steps[-1], False)
    crossed = next((s for s in a.steps if a.change(s, False)[2] < 0), None)
    size = f"{a.name}: pass@1 {said(up)}, pass@{a.k} {said(down)}; below the base (interval) from step "
    size += str(crossed or "never")
    return a.guarded(together(signed(up, 1), signed(down, -1)), size)


def later_discovers_more(e: Evidence) -> Verdict | None:
    """IL-T1b: E and S both larger at the later of two checkpoints."""
    a = arm(e, "grpo")
    if a is None or len(a.steps) < 2:
        return None
    early, late = a.steps[len(a.steps) // 2 - 1], a.steps[-1]
    rows = [[float(np.mean([getattr(p, x) for p in a.at(s)])) for x in "ES"] for s in (early, late)]
    more = [rows[1][i] > rows[0][i] for i in range(2)]
    verdict = AGREES if all(more) else OPPOSITE if not any(more) else UNDETERMINED
    size = (
        f"{a.name}, step {early} → {late}: E {rows[0][0]:.1f} → {rows[1][0]:.1f}, S {rows[0][1]:.1f} → {rows[1][1]:.1f}"
    )
    return a.guarded(verdict, size)


def nothing_gained(e: Evidence) -> Verdict | None:
    """IL-T4a: E at or below chance at every checkpoint (seed means)."""
    a = arm(e, "grpo")
    if a is None:
        return None
    over = {s: float(np.mean([p.E - p.chance for p in a.at(s)])) for s in a.steps}
    above = [all(p.chance < p.E for p in a.at(s)) for s in a.steps]
    verdict = AGREES if all(x <= 0 for x in over.values()) else OPPOSITE if all(above) else UNDETERMINED
    return a.guarded(verdict, _flips_by_step(a))


def like_size(e: Evidence) -> Verdict | None:
    """IL-T4b: E and S of like size: at every checkpoint their seed means differ by no more than chance each way."""
    a = arm(e, "grpo")
    if a is None:
        return None
    near = [
        abs(float(np.mean([p.E - p.S for p in a.at(s)]))) <= float(np.mean([p.chance for p in a.at(s)]))
        for s in a.steps
    ]
    verdict = AGREES if all(near) else OPPOSITE if not any(near) else UNDETERMINED
    return a.guarded(verdict, _flips_by_step(a))


def _flips_by_step(a: Arm) -> str:
    return f"{a.name}, E / S (chance): " + "; ".join(
        f"step {s}: " + ", ".join(f"{p.E:.0f} / {p.S:.0f} ({p.chance:.1f})" for p in a.at(s)) for s in a.steps
    )


def efficient(e: Evidence) -> Verdict | None:
    """RBP-A3: at equal generated tokens SELF's pass@n_max is above GRPO's, from half of the budget on."""
    grpo, own, training = arm(e, "grpo"), arm(e, "self"), e.doc.get("training", {})
    if grpo is None or own is None or not all(by_method(training, a.name) for a in (grpo, own)):
        return None
    spent = {a.name: {s: _tokens(training, a.name, s) for s in a.steps} for a in (grpo, own)}
    budget, rows = min(max(x.values()) for x in spent.values()), []
    for step, tokens in spent[own.name].items():
        if tokens >= budget / 2:
            near = min(grpo.steps, key=lambda s: abs(spent[grpo.name][s] - tokens))
            rows.append((step, tokens, near, _lead(grpo, near, own, step, False), _lead(grpo, near, own, step, True)))
    if not rows:
        return None
    size = "; ".join(
        f"SELF at step {s} ({t / 1e3:.0f}k tokens) − GRPO at step {n}: pass@{grpo.k} {said(x)}, pass@1 {said(y)}"
        for s, t, n, x, y in rows
    )
    return grpo.guarded(together(*(signed(x, 1) for *_, x, _ in rows)), size)


def _lead(a: Arm, at: int, b: Arm, step: int, first: bool) -> Interval:
    """b's pass@1 (or pass@n) minus a's: paired by problem, or by seed where no counts were kept."""
    left, right = [r for r in a.runs if r.step == at], [r for r in b.runs if r.step == step]
    if left and right:
        return between(left, right, 1 if first else a.k)
    key = "first" if first else "last"
    ours, theirs = ({p.seed: getattr(p, key) for p in x.at(s)} for x, s in ((b, step), (a, at)))
    return t_interval([ours[s] - theirs[s] for s in ours if s in theirs])


def _tokens(training: Mapping[str, Any], name: str, step: int) -> float:
    """Tokens generated up to `step`, mean over seeds."""
    return float(np.mean([np.interp(step, t["steps"], t["tokens"]) for t in by_method(training, name)]))
