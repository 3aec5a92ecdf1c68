"""Whether a form of reasoning died, what that cost, and whether it is what the paper says: rules fixed before any run.

α is the share of code. The *dying* form of a method is the one whose share on the held-out problems fell (mean over
problems and seeds); the other *survives*. Intervals are 95%, bootstrap over problems.

    moved       pass@1 on the families that training saw rises, paired interval above 0, in the mean of the seeds
    F6L         the minority form's share ends below a quarter of its start, in every seed
    F6R         the form that was better on the training problems at step 0 (interval of the paired difference of
                accuracies excludes 0) is the one whose share grows, in every seed
    S5-MIN      pass@n_max of the families where the dying form was better falls (seed mean, paired interval below 0),
                that of the other families does not
    F15a        the dying form's share ends below 5% in every family and seed
    F15b        which form is better at step 0, family by family (interval excludes 0)
    I-h         over the families, the change of pass@1 correlates with (accuracy of the surviving − of the dying form)
                at step 0, in every seed; beside it the change that re-weighting the forms of step 0 to the final α
                predicts

*agrees* as stated; *opposite* where the reverse holds by the same test; else *undetermined*. A method that did not
move is *too short to say*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from limen.measure import CountTable, pass_at_k, pass_curve
from limen.measure.describe import summarise

if TYPE_CHECKING:
    from limen.lab.modes import Found
    from limen.measure.passk import Floats

QUARTER, DEAD = 0.25, 0.05
FORMS = ("code", "language")


@dataclass(frozen=True)
class Reading:
    """One policy at one step: counts, and per problem the share of code and the accuracy in either form (NaN where a
    problem has no response in that form)."""

    step: int
    table: CountTable
    code_P: Floats
    accuracy_code_P: Floats
    accuracy_language_P: Floats

    @property
    def families(self) -> list[str]:
        return list(dict.fromkeys(self.table.task_P))

    def family(self, *names: str) -> Reading:
        """The problems of these families."""
        at = [i for i, task in enumerate(self.table.task_P) if task in names]
        columns = (self.code_P[at], self.accuracy_code_P[at], self.accuracy_language_P[at])
        return Reading(self.step, self.table.select(at), *columns)

    @property
    def code(self) -> float:
        """Mean share of code, α."""
        return float(self.code_P.mean())

    def share(self, form: str) -> float:
        return self.code if form == "code" else 1 - self.code

    def accuracy(self, form: str) -> float:
        """Mean over the problems that have the form (eq. 36)."""
        column = self.accuracy_code_P if form == "code" else self.accuracy_language_P
        return float(np.nanmean(column)) if np.isfinite(column).any() else math.nan

    def pass_at(self, k: int) -> float:
        return float(pass_at_k(self.table.n_P, self.table.c_P, k).mean())

    def summary(self) -> dict[str, Any]:
        """Numbers of this reading, with intervals over problems."""
        columns = {
            "code_share": self.code_P,
            "accuracy_code": self.accuracy_code_P,
            "accuracy_language": self.accuracy_language_P,
        }
        measures = summarise(columns, 1000, 0)
        curve = pass_curve(self.table)
        return {
            **{k: [_plain(m.value), _plain(m.low), _plain(m.high)] for k, m in measures.items()},
            "pass_at_k": {str(k): v for k, v in zip(curve.k_K.tolist(), curve.value_K.tolist(), strict=True)},
            "n": int(self.table.n_min),
            "problems": self.table.M,
            "c": self.table.c_P.tolist(),
        }


def _plain(x: float) -> float | None:
    return None if math.isnan(x) else x


def interval(values_P: Floats, draws: int = 2000, seed: int = 0) -> tuple[float, float, float]:
    """(mean, low, high) over problems; problems without a value are left out."""
    m = summarise({"x": np.asarray(values_P, dtype=np.float64)}, draws, seed)["x"]
    return m.value, m.low, m.high


def better_form(base: Reading) -> tuple[str | None, tuple[float, float, float]]:
    """The form with the higher accuracy (None: the interval holds 0), and code minus language with its interval."""
    gap = interval(base.accuracy_code_P - base.accuracy_language_P)
    form = "code" if gap[1] > 0 else "language" if gap[2] < 0 else None
    return form, gap


def change_at(base: Reading, ends: Sequence[Reading], k: int) -> tuple[float, float, float]:
    """Seed mean of pass@k minus the base's, paired by problem, with its interval over problems."""
    before = pass_at_k(base.table.n_P, base.table.c_P, k)
    after = np.mean([pass_at_k(e.table.n_P, e.table.c_P, k) for e in ends], axis=0)
    return interval(after - before)


def judge(found: Found, trained_on: Sequence[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """method → rule → verdict and size."""
    return {method: judge_method(found, method, trained_on) for method in found.series}


def judge_method(found: Found, method: str, trained_on: Sequence[str]) -> dict[str, dict[str, Any]]:
    """All rules for one method."""
    base, ends = found.base, found.last(method)
    dying = "code" if np.mean([e.code for e in ends]) < base.code else "language"
    moved = change_at(base.family(*trained_on), [e.family(*trained_on) for e in ends], 1)
    rows = {
        "F6L": _dies(base, ends),
        "F6R": _better_grows(found.base_train, base, ends),
        "S5-MIN": _cost(base, ends, dying),
        "F15a": _dead_everywhere(base, ends, dying),
        "F15b": _who_is_better(base),
        "I-h": _explained(base, ends, dying),
    }
    if moved[1] <= 0:
        for name, row in rows.items():
            row["verdict"] = row["verdict"] if name == "F15b" else "too short to say"
    said = f"pass@1 on {', '.join(trained_on)} {_said(moved)}"
    return {"moved": {"verdict": "yes" if moved[1] > 0 else "no", "size": said}, **rows}


def _said(x: tuple[float, float, float]) -> str:
    return f"{x[0]:+.3f} [{x[1]:+.3f}, {x[2]:+.3f}]"


def _dies(base: Reading, ends: Sequence[Reading]) -> dict[str, Any]:
    minority = "code" if base.code < 0.5 else "language"
    start, shares = base.share(minority), [e.share(minority) for e in ends]
    verdict = "undetermined"
    if all(x < QUARTER * start for x in shares):
        verdict = "agrees"
    elif all(x >= start for x in shares):
        verdict = "opposite"
    size = f"share of {minority} {start:.3f} → {', '.join(f'{x:.3f}' for x in shares)}"
    return {"verdict": verdict, "size": size}


def _better_grows(train: Reading, base: Reading, ends: Sequence[Reading]) -> dict[str, Any]:
    form, gap = better_form(train)
    verdict = "undetermined"
    if form is not None:
        grows = [e.share(form) > base.share(form) for e in ends]
        verdict = "agrees" if all(grows) else "opposite" if not any(grows) else "undetermined"
    size = f"accuracy of code − language on training problems {_said(gap)}; better: {form or 'neither'}"
    return {"verdict": verdict, "size": size}


def _cost(base: Reading, ends: Sequence[Reading], dying: str) -> dict[str, Any]:
    k = int(min(base.table.n_min, *(e.table.n_min for e in ends)))
    changes = {f: change_at(base.family(f), [e.family(f) for e in ends], k) for f in base.families}
    needed = [f for f in changes if better_form(base.family(f))[0] == dying]
    other = [f for f in changes if f not in needed]
    verdict = "undetermined"
    if needed and all(changes[f][2] < 0 for f in needed) and not any(changes[f][2] < 0 for f in other):
        verdict = "agrees"
    elif needed and all(changes[f][1] > 0 for f in needed):
        verdict = "opposite"
    first = {f: change_at(base.family(f), [e.family(f) for e in ends], 1) for f in changes}
    size = "; ".join(
        f"{f}{' (needed ' + dying + ')' if f in needed else ''}: pass@{k} {_said(c)}, pass@1 {_said(first[f])}"
        for f, c in changes.items()
    )
    return {"verdict": verdict, "size": size}


def _dead_everywhere(base: Reading, ends: Sequence[Reading], dying: str) -> dict[str, Any]:
    shares = {f: [e.family(f).share(dying) for e in ends] for f in base.families}
    flat = [x for xs in shares.values() for x in xs]
    verdict = "agrees" if max(flat) < DEAD else "opposite" if min(flat) >= base.share(dying) else "undetermined"
    size = f"share of {dying} at the end: " + "; ".join(
        f"{f} {', '.join(f'{x:.3f}' for x in xs)}" for f, xs in shares.items()
    )
    return {"verdict": verdict, "size": size}


def _who_is_better(base: Reading) -> dict[str, Any]:
    rows = {f: better_form(base.family(f)) for f in base.families}
    sides = {form for form, _ in rows.values()}
    verdict = "agrees" if {"code", "language"} <= sides else "undetermined"
    size = "; ".join(f"{f}: {form or 'neither'} (code − language {_said(gap)})" for f, (form, gap) in rows.items())
    return {"verdict": verdict, "size": size}


def _explained(base: Reading, ends: Sequence[Reading], dying: str) -> dict[str, Any]:
    survives = "language" if dying == "code" else "code"
    parts = {f: base.family(f) for f in base.families}
    lead = [p.accuracy(survives) - p.accuracy(dying) for p in parts.values()]
    rows, predicted = [], []
    for e in ends:
        rows.append([e.family(f).pass_at(1) - p.pass_at(1) for f, p in parts.items()])
        predicted.append([_reweighted(p, e.family(f).share(dying), dying, survives) for f, p in parts.items()])
    r = [float(np.corrcoef(lead, row)[0, 1]) if np.std(row) > 0 and np.std(lead) > 0 else math.nan for row in rows]
    verdict = "agrees" if all(x > 0 for x in r) else "opposite" if all(x < 0 for x in r) else "undetermined"
    both = zip(parts, np.mean(predicted, axis=0), np.mean(rows, axis=0), strict=True)
    size = f"r = {', '.join(f'{x:.2f}' for x in r)}; re-weighted / real change of pass@1: " + "; ".join(
        f"{f} {a:+.3f} / {b:+.3f}" for f, a, b in both
    )
    return {"verdict": verdict, "size": size}


def _reweighted(base: Reading, share: float, dying: str, survives: str) -> float:
    """Change of pass@1 had only the shares of the forms changed, to `share` of the dying one."""
    moved = base.share(dying) - share
    return moved * (base.accuracy(survives) - base.accuracy(dying))
