"""The same measurement along training: when was a question lost or gained, and does it come back?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.errors import DataError
from limen.measure.adaptive import adaptive_support, posterior_verdicts
from limen.measure.align import align, samples_json
from limen.measure.compare import plain
from limen.measure.counts import CountTable, read_counts
from limen.measure.curve import PassCurve, pass_curve, pick_ks
from limen.measure.passk import Ints
from limen.measure.reader import groups
from limen.measure.runs import counts_from_run
from limen.measure.support import SupportResult, support
from limen.measure.verdicts import question_verdicts


@dataclass(frozen=True)
class Series:
    """Checkpoints in order, the first of which is the reference ("base"). C counts checkpoints.

    support_C: each checkpoint against the base (None for the base itself); step_C: against the checkpoint before.
    verdict_CP: verdict of every question at every checkpoint against the base, each checkpoint at its own false
    discovery rate q. c_CP: successes.
    """

    tables: tuple[CountTable, ...]
    curves: tuple[PassCurve, ...]
    support_C: tuple[SupportResult | None, ...]
    step_C: tuple[SupportResult | None, ...]
    verdict_CP: NDArray[np.str_]
    c_CP: Ints
    q: float
    notes: tuple[str, ...]

    def histories(self) -> list[dict[str, Any]]:
        """One row per question: its successes along training, and what became of it.

        unsolved_from: first checkpoint without a success although the base had one. lost_from: first checkpoint
        at which the loss is beyond chance (verdict `shrunk`); gained_from likewise for `expanded`. returned: a
        question that was lost has a success again at this later checkpoint. None where it never happens.
        """
        names = [t.name for t in self.tables]
        solved_CP = self.c_CP > 0
        out = []
        for i, problem in enumerate(self.tables[0].problem_ids):
            solved, verdict = solved_CP[:, i], self.verdict_CP[:, i]
            unsolved = _first(~solved) if solved[0] else None
            lost, gained = _first(verdict == "shrunk"), _first(verdict == "expanded")
            back = None if lost is None else _first(solved, lost + 1)
            out.append(
                {
                    "problem_id": problem,
                    "c": self.c_CP[:, i].tolist(),
                    "verdict": verdict.tolist(),
                    "unsolved_from": None if unsolved is None else names[unsolved],
                    "lost_from": None if lost is None else names[lost],
                    "gained_from": None if gained is None else names[gained],
                    "returned": None if back is None else names[back],
                }
            )
        return out

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON values (NaN is null)."""
        checkpoints = []
        for table, curve, against, step in zip(self.tables, self.curves, self.support_C, self.step_C):
            ks = [str(k) for k in curve.k_K.tolist()]
            checkpoints.append(
                {
                    "name": table.name,
                    "step": table.step,
                    "samples": samples_json(table),
                    "pass_at_k": dict(zip(ks, plain(curve.value_K))),
                    "pass_at_k_interval": dict(zip(ks, map(list, zip(plain(curve.low_K), plain(curve.high_K))))),
                    "support": None if against is None else against.to_json(),
                    "since_last": None if step is None else step.to_json(),
                }
            )
        return {
            "base": self.tables[0].name,
            "problems": self.tables[0].M,
            "q": self.q,
            "checkpoints": checkpoints,
            "questions": self.histories(),
            "notes": list(self.notes),
            "sentences": self.sentences(),
        }

    def sentences(self) -> list[str]:
        """The outcome in words."""
        rows = self.histories()
        lost = [r for r in rows if r["lost_from"] is not None]
        back = sum(r["returned"] is not None for r in lost)
        dark = [r for r in rows if r["unsolved_from"] is not None]
        again = sum(any(x > 0 for x in r["c"][_index(r["c"]) :]) for r in dark)
        return [
            f"{len(dark)} questions that the base solved had a checkpoint without a success; {again} of them were "
            "solved again later.",
            f"{len(lost)} of them were lost beyond chance at some checkpoint (at each, false discovery rate "
            f"{self.q:g}); "
            f"{back} of those came back.",
        ]


def series(
    tables: Sequence[CountTable],
    *,
    ks: Sequence[int] | None = None,
    draws: int = 1000,
    seed: int = 0,
    q: float = 0.05,
    force: bool = False,
) -> Series:
    """Measure checkpoints against the first of them, question by question. Raises `DataError` like `compare`.

    Where a checkpoint was sampled adaptively, chance and the verdicts against it are from posteriors.
    """
    if len(tables) < 2:
        raise DataError(f"a series needs a base and at least one checkpoint, got {len(tables)} table")
    notes: list[str] = []
    if any(t.stop is not None for t in tables):
        notes.append("adaptive stopping: chance and verdicts are from posteriors, and c stops at the rule's r")
    base, aligned = tables[0], [tables[0]]
    for table in tables[1:]:
        base, other, more = align(base, table, force)
        notes += more
        aligned.append(other)
    ids = set(base.problem_ids)
    same = [t.select(i for i, p in enumerate(t.problem_ids) if p in ids) for t in aligned]
    place = {p: i for i, p in enumerate(base.problem_ids)}
    same = [t.select(np.argsort([place[p] for p in t.problem_ids])) for t in same]
    if any((t.n_P == 0).any() for t in same):
        raise DataError("some checkpoint has problems without a judged sample: finish sampling, or leave them out")
    k_K = pick_ks(ks, *same)
    pairs = list(zip([None, *same[:-1]], same))
    verdicts = [_verdicts(same[0], t, q) for t in same]
    return Series(
        tables=tuple(same),
        curves=tuple(pass_curve(t, k_K, draws, seed) for t in same),
        support_C=(None, *(_support(same[0], t) for t in same[1:])),
        step_C=tuple(None if a is None else _support(a, b) for a, b in pairs),
        verdict_CP=np.array(verdicts),
        c_CP=np.array([t.c_P for t in same]),
        q=q,
        notes=tuple(dict.fromkeys(notes)),
    )


def _support(a: CountTable, b: CountTable) -> SupportResult:
    return adaptive_support(a, b) if a.stop or b.stop else support(a.n_P, a.c_P, b.c_P, b.n_P)


def _verdicts(base: CountTable, other: CountTable, q: float) -> NDArray[np.str_]:
    if base.stop or other.stop:
        return posterior_verdicts(base, other, q).verdict_P
    return question_verdicts(base.n_P, base.c_P, other.c_P, q, other.n_P).verdict_P


def series_tables(paths: Sequence[str | Path], verifier: str | None = None) -> list[CountTable]:
    """Tables of run folders (a folder with several steps gives one each, in order) and count files (all models)."""
    out: list[CountTable] = []
    for path in map(Path, paths):
        if path.is_file():
            out += read_counts(path).values()
            continue
        fits = [g for g in groups(path) if verifier in (None, g.verifier, g.verifier.split("@")[0])]
        steps = sorted({(g.policy, g.step) for g in fits}, key=lambda x: (x[1], x[0]))
        out += [counts_from_run(path, policy, step, verifier) for policy, step in steps] or [counts_from_run(path)]
    names = [t.name for t in out]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise DataError(f"two checkpoints are called {twice[0]!r}: name their run folders apart")
    return out


def _first(flags: NDArray[np.bool_], start: int = 0) -> int | None:
    hits = np.flatnonzero(flags[start:])
    return int(hits[0]) + start if hits.size else None


def _index(c: list[int]) -> int:
    """Position of the first checkpoint without a success."""
    return next((i for i, x in enumerate(c) if x == 0), len(c))
