"""Bringing two tables onto the same problems, and refusing what would not be a comparison."""

from __future__ import annotations

from typing import Any

from limen.errors import DataError
from limen.measure.counts import CountTable
from limen.measure.posterior import zero_bound


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
        notes += table_notes(table)
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


def table_notes(table: CountTable) -> list[str]:
    """What a reader of any number made from these counts should be told."""
    notes = list(table.notes)
    if table.unjudged_P.sum():
        notes.append(unjudged_note(table))
    n, c = int(table.n_P.sum()), int(table.c_P.sum())
    if n and c in (0, n):
        what, side = ("no success", "below") if c == 0 else ("no failure", "above")
        least = int(table.n_P[table.n_P > 0].min())
        bound = float(zero_bound(least))
        notes.append(
            f"{table.name}: {what} in {n} samples, so that resampling shows no spread; of a problem with {least} of "
            f"them all that is known (95%) is that p is {side} {bound if c == 0 else 1 - bound:.2g}"
        )
    return notes


def unjudged_note(table: CountTable) -> str:
    """One line that counts the samples which are in neither n nor c."""
    total, of = int(table.unjudged_P.sum()), int(table.unjudged_P.sum() + table.n_P.sum())
    where = int((table.unjudged_P > 0).sum())
    return f"{table.name}: {total} of {of} samples are unjudged (on {where} problems) and are in neither n nor c"


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
