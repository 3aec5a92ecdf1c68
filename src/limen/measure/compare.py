"""Two policies on the same problems: pass@k curves, their paired difference, and support."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from limen.errors import DataError
from limen.measure.bootstrap import problem_means, t_percentiles
from limen.measure.counts import CountTable
from limen.measure.curve import PassCurve, pass_curve, pick_ks, problem_values
from limen.measure.passk import Floats, Ints
from limen.measure.support import SupportResult, support


@dataclass(frozen=True)
class Comparison:
    """What `compare` found. `difference_K` is trained minus base, with an interval paired by problem.

    base, trained: the tables compared, restricted to the shared problems in one order. notes: what every reader
    of these numbers should be told (unjudged samples, dropped problems, forced template mismatch).
    """

    base: CountTable
    trained: CountTable
    base_curve: PassCurve
    trained_curve: PassCurve
    difference_K: Floats
    difference_low_K: Floats
    difference_high_K: Floats
    support: SupportResult | None
    notes: tuple[str, ...] = ()
    sentences: tuple[str, ...] = field(default_factory=tuple)

    @property
    def k_K(self) -> Ints:
        return self.base_curve.k_K

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON values (NaN is null and has its reason beside it)."""
        ks = [str(k) for k in self.k_K.tolist()]
        sides = {"base": (self.base, self.base_curve), "trained": (self.trained, self.trained_curve)}
        rows = zip(self.difference_K.tolist(), self.difference_low_K.tolist(), self.difference_high_K.tolist())
        return {
            "names": {side: table.name for side, (table, _) in sides.items()},
            "problems": self.base.M,
            "samples": {side: samples_json(table) for side, (table, _) in sides.items()},
            "pass_at_k": {side: dict(zip(ks, _plain(curve.value_K))) for side, (_, curve) in sides.items()},
            "pass_at_k_interval": {
                side: dict(zip(ks, map(list, zip(_plain(curve.low_K), _plain(curve.high_K)))))
                for side, (_, curve) in sides.items()
            },
            "pass_at_k_difference": {
                k: dict(zip(("value", "low", "high"), _plain(np.array(row)))) for k, row in zip(ks, rows)
            },
            "interval": {"level": self.base_curve.level, "resampled": self.base_curve.resampled},
            "support": None if self.support is None else self.support.to_json(),
            "undefined": {
                side: {str(k): why for k, why in curve.undefined.items()} for side, (_, curve) in sides.items()
            },
            "notes": list(self.notes),
            "sentences": list(self.sentences),
        }


def compare(
    base: CountTable,
    trained: CountTable,
    *,
    ks: Iterable[int] | None = None,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    force: bool = False,
) -> Comparison:
    """Compare two policies problem by problem. Raises `DataError` where that would mislead.

    Refused unless `force`: different problem sets (then the shared ones are compared, and the notes say so) and
    different rendered prompts for the same problem.
    """
    base, trained, notes = align(base, trained, force)
    k_K = pick_ks(ks, base, trained)
    curves = [pass_curve(t, k_K, draws, seed, level) if k_K.size else _no_curve(t, level) for t in (base, trained)]
    gap_PK = problem_values(trained, k_K) - problem_values(base, k_K)
    if draws and k_K.size:
        low, high = t_percentiles(problem_means(gap_PK, draws, seed), base.M, level)
    else:
        low = high = np.full(k_K.shape, math.nan)
    adaptive = base.stop is not None or trained.stop is not None
    empty = bool((base.n_P == 0).any() or (trained.n_P == 0).any())
    if adaptive:
        notes.append("adaptive stopping: P/E/S/O by counts is not valid there")
    elif empty:
        notes.append("support not computed: some problems have no judged sample under one policy")
    found = None if adaptive or empty else support(base.n_P, base.c_P, trained.c_P, trained.n_P)
    return Comparison(
        base=base,
        trained=trained,
        base_curve=curves[0],
        trained_curve=curves[1],
        difference_K=gap_PK.mean(axis=0),
        difference_low_K=low,
        difference_high_K=high,
        support=found,
        notes=tuple(notes),
        sentences=tuple(sentences(found)) if found else (),
    )


def align(base: CountTable, trained: CountTable, force: bool = False) -> tuple[CountTable, CountTable, list[str]]:
    """Both tables on the shared problems, in the base's order, and the notes that go with the numbers."""
    notes: list[str] = []
    at = {p: i for i, p in enumerate(trained.problem_ids)}
    shared = [i for i, p in enumerate(base.problem_ids) if p in at]
    only_base, only_trained = base.M - len(shared), trained.M - len(shared)
    if not shared:
        raise DataError(
            f"{base.name!r} and {trained.name!r} have no problem in common: were they run on the same file?"
        )
    if only_base or only_trained:
        what = (
            f"{base.name!r} has {only_base} problems that {trained.name!r} has not, and {trained.name!r} "
            f"{only_trained} that {base.name!r} has not; {len(shared)} are shared"
        )
        if not force:
            raise DataError(f"{what}. Run both on the same problems, or force a comparison of the shared ones")
        notes.append(f"forced: {what}, and only those are compared")
    left = base.select(shared)
    right = trained.select(at[p] for p in left.problem_ids)
    notes += _check_prompts(left, right, force)
    for table in (left, right):
        notes += list(table.notes)
        if table.unjudged_P.sum():
            notes.append(unjudged_note(table))
    return left, right, notes


def _check_prompts(left: CountTable, right: CountTable, force: bool) -> list[str]:
    pairs = [(a, b) for a, b in zip(left.prompt_hash_P, right.prompt_hash_P) if a and b]
    differ = sum(a != b for a, b in pairs)
    if not differ:
        return []
    what = (
        f"{differ} of {len(pairs)} problems were given another rendered prompt by {right.name!r} than by {left.name!r}"
    )
    if not force:
        raise DataError(
            f"{what}: a template alone can move accuracy by tens of points. Sample both with one template, or force it"
        )
    return [f"forced: {what}"]


def unjudged_note(table: CountTable) -> str:
    """One line that counts the samples which are in neither n nor c."""
    total, of = int(table.unjudged_P.sum()), int(table.unjudged_P.sum() + table.n_P.sum())
    where = int((table.unjudged_P > 0).sum())
    return f"{table.name}: {total} of {of} samples are unjudged (on {where} problems) and are in neither n nor c"


def sentences(s: SupportResult) -> list[str]:
    """The result in plain words."""
    lost = f"{s.S} of {s.M} problems that the base solved were solved by none of the trained policy's samples"
    won = f"{s.E} the other way round"
    chance = f"two runs of one policy would show about {s.chance_S:.1f} and {s.chance_E:.1f} by chance alone"
    verdict = (
        f"the net change is {'beyond' if s.mcnemar_p < 0.05 else 'within'} chance (exact McNemar p = {s.mcnemar_p:.2g})"
    )
    return [f"{lost}, {won}; {chance}.", f"{verdict[0].upper()}{verdict[1:]}."]


def samples_json(table: CountTable) -> dict[str, Any]:
    """What was sampled and judged, summed over problems."""
    n = table.n_P
    return {
        "judged": int(n.sum()),
        "per_problem": [int(n.min()), int(n.max())],
        "correct": int(table.c_P.sum()),
        "unjudged": int(table.unjudged_P.sum()),
        "no_answer": int(table.no_answer_P.sum()),
        "truncated": int(table.truncated_P.sum()),
        "verifier": table.verifier or None,
        "policy": table.policy or None,
        "step": table.step,
    }


def _no_curve(table: CountTable, level: float) -> PassCurve:
    none = np.empty(0)
    return PassCurve(table.name, np.empty(0, dtype=np.int64), none, none, none, level, "nothing")


def _plain(values: Floats) -> list[float | None]:
    return [None if math.isnan(v) else v for v in values.tolist()]
