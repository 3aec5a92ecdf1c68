"""What `limen lab longer` is asked, as rules written down before its runs.

Gaps are those of `limen.lab.frontier_rule`: a mean over seeds with two 95% intervals, Student's t over seeds and the
bootstrap over problems. *Surely* above or below: both intervals say so. The *early* mark is the one at a quarter of the
steps, the length of the demo; the *end* is the last mark that every training of the arm has.

SELF holds: at the end its pass@1 is surely above the base's, and its pass@n is surely above the base's minus `MARGIN`;
opposite: its pass@n is surely below the base's. The same of GRPO with the forward KL.
GRPO's shrinkage goes on: its pass@n at the end is surely below that at the early mark, which itself is surely below the
base's; opposite: surely above that at the early mark. With fewer than three seeds nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from limen.lab.claims_rules import AGREES, OPPOSITE, SHORT, UNDETERMINED, Verdict, n_max
from limen.lab.evidence import Evidence, Trained
from limen.lab.frontier_rule import Gap, gap

MARGIN = 0.03
HOLDERS = ("self", "nll-1")


def marks(e: Evidence, arm: str) -> dict[int, list[Trained]]:
    """Step → the runs of the arm there, in order of seeds."""
    runs = e.runs(arm)
    return {s: sorted((r for r in runs if r.step == s), key=lambda r: r.seed) for s in sorted({r.step for r in runs})}


def common(e: Evidence, arm: str) -> list[int]:
    """Steps at which every training of the arm that was sampled at all has been sampled."""
    found = marks(e, arm)
    seeds = {r.seed for x in found.values() for r in x}
    return [s for s, x in found.items() if {r.seed for r in x} == seeds]


def against_base(runs: Sequence[Trained], k: int, above: float = 0.0) -> Gap:
    """pass@k minus the base's, plus `above`."""
    return gap(np.array([_pass(r, k, True) - _pass(r, k, False) for r in runs]) + above)


def against(a: Sequence[Trained], b: Sequence[Trained], k: int) -> Gap:
    """pass@k of b minus a's, seed by seed."""
    ours, theirs = ({r.seed: r for r in x} for x in (b, a))
    both = sorted(set(ours) & set(theirs))
    return gap(np.array([_pass(ours[s], k, True) - _pass(theirs[s], k, True) for s in both]))


def _pass(r: Trained, k: int, trained: bool) -> np.ndarray:  # type: ignore[type-arg]
    from limen.measure import pass_at_k

    table = r.trained if trained else r.base
    return np.asarray(pass_at_k(table.n_P, table.c_P, k))


def words(g: Gap) -> str:
    """The gap with both intervals."""
    seeds = "" if g.seeds[0] != g.seeds[0] else f", seeds [{g.seeds[0]:+.3f}, {g.seeds[1]:+.3f}]"
    return f"{g.value:+.3f} (problems [{g.problems[0]:+.3f}, {g.problems[1]:+.3f}]{seeds})"


def holds(e: Evidence, arm: str) -> Verdict | None:
    """The arm keeps a gain at pass@1 and the base's coverage to the end. None: it was not sampled."""
    steps = common(e, arm)
    if not steps:
        return None
    end = marks(e, arm)[steps[-1]]
    k = n_max(e.runs())
    first, last, room = against_base(end, 1), against_base(end, k), against_base(end, k, MARGIN)
    size = f"step {steps[-1]}, {len(end)} seeds: pass@1 − base {words(first)}, pass@{k} − base {words(last)}"
    if len(end) < 3:
        return Verdict(SHORT, size)
    if last.surely_below:
        return Verdict(OPPOSITE, size)
    kept = first.surely_above and first.value > 0 and room.surely_above
    return Verdict(AGREES if kept else UNDETERMINED, size)


def goes_on(e: Evidence, arm: str = "grpo", total: int | None = None) -> Verdict | None:
    """The arm's coverage falls on after the early mark. None: fewer than two marks were sampled."""
    steps = common(e, arm)
    early = early_mark(steps, int(total or e.doc.get("steps", 0)))
    if early is None or steps[-1] <= early:
        return None
    found = marks(e, arm)
    k = n_max(e.runs())
    before, on = against_base(found[early], k), against(found[early], found[steps[-1]], k)
    size = f"pass@{k} at step {early} − base {words(before)}; at step {steps[-1]} − at step {early} {words(on)}"
    if len(found[early]) < 3:
        return Verdict(SHORT, f"{size}; {len(found[early])} seeds")
    if before.surely_below and on.surely_below:
        return Verdict(AGREES, size)
    return Verdict(OPPOSITE if on.surely_above and on.value > 0 else UNDETERMINED, size)


def early_mark(steps: Sequence[int], total: int) -> int | None:
    """The mark at a quarter of the steps, or the first one after it."""
    return next((s for s in steps if 4 * s >= total), None)


def judge(e: Evidence) -> dict[str, Verdict | None]:
    """Every question by its words."""
    return {
        "SELF holds": holds(e, "self"),
        "GRPO + forward KL nll 1 holds": holds(e, "nll-1"),
        "GRPO's shrinkage goes on after the demo's length": goes_on(e, "grpo"),
    }
