"""Reservations: what a reader must know before trusting the numbers. Each is checked, none is boilerplate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from limen.report.model import Contrast, Note, Policy
from limen.report.sources import Source

FEW_SAMPLES = 64
FEW_PROBLEMS = 50
_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens")


def find_notes(
    sources: Sequence[Source], policies: Sequence[Policy], contrasts: Sequence[Contrast], repeated: Sequence[int]
) -> list[Note]:
    """Warnings first. `repeated`: per policy, samples of one problem that share a seed with another."""
    found = [*_truncating(sources), *_sampling_differs(sources), *_unfinished(sources), *_outcomes(policies)]
    for source, count in zip(sources, repeated, strict=True):
        if count:
            text = f"{source.table.name}: {count} samples share their seed with another of the same problem"
            found.append(Note("warning", f"{text}, so they may be copies."))
    found += [*_size(policies), *_contrasts(policies, contrasts), *_origin(sources)]
    unique = list(dict.fromkeys(found))
    return [n for n in unique if n.level == "warning"] + [n for n in unique if n.level == "note"]


def _truncating(sources: Sequence[Source]) -> Iterable[Note]:
    for s in sources:
        top_p, top_k = s.table.sampling.get("top_p", 1.0), s.table.sampling.get("top_k", 0)
        cuts = [f"top-p {top_p:g}"] * (top_p is not None and top_p < 1) + [f"top-k {top_k}"] * bool(top_k)
        if cuts:
            yield Note(
                "warning",
                f"{s.table.name} was sampled with {' and '.join(cuts)}, which cuts off part of what the model can say: "
                "a lost problem may be out of the sampler's reach rather than the model's.",
            )


def _sampling_differs(sources: Sequence[Source]) -> Iterable[Note]:
    base = sources[0].table
    for s in sources[1:]:
        differ = [
            k
            for k in _SAMPLING
            if k in base.sampling and k in s.table.sampling and base.sampling[k] != s.table.sampling[k]
        ]
        if differ:
            what = ", ".join(f"{k} {base.sampling[k]} against {s.table.sampling[k]}" for k in differ)
            yield Note("warning", f"{base.name} and {s.table.name} were sampled differently ({what}).")


def _unfinished(sources: Sequence[Source]) -> Iterable[Note]:
    for s in sources:
        if s.run is not None and s.run.info.get("status") == "running":
            yield Note("warning", f"{s.table.name} is not finished: the numbers are of what is stored so far.")
        for note in s.table.notes:
            yield Note("warning", note if note.endswith(".") else f"{note}.")


def _outcomes(policies: Sequence[Policy]) -> Iterable[Note]:
    for p in policies:
        h = p.health
        if h.unjudged:
            yield Note(
                "warning",
                f"{p.name}: {h.unjudged} samples could not be judged ({_reasons(p)}). They count as neither right "
                "nor wrong.",
            )
        v = h.verdicts
        if v.false_positives or v.false_negatives:
            yield Note(
                "warning",
                f"{p.name}: noise was put on these verdicts on purpose: {v.false_positives} wrong answers pass and "
                f"{v.false_negatives} right ones fail.",
            )
        if h.truncated > 0.05:
            yield Note(
                "warning",
                f"{p.name}: {h.truncated:.0%} of the samples were cut off at the token limit, and so have no answer.",
            )
        if h.no_answer - (h.truncated if h.truncated == h.truncated else 0) > 0.2:
            yield Note(
                "note", f"{p.name}: {h.no_answer:.0%} of the samples hold no answer that the verifier could find."
            )


def _reasons(policy: Policy) -> str:
    reasons = policy.health.verdicts.reasons
    known = ", ".join(f"{name} {n}" for name, n in reasons.items())
    return known or "the verifier ran out of time or memory, or has not judged them yet"


def _size(policies: Sequence[Policy]) -> list[Note]:
    notes = []
    least = min((min(p.n_P, default=0) for p in policies), default=0)
    if least < FEW_SAMPLES:
        notes.append(
            Note(
                "warning",
                f"Only {least} samples of some problems: a problem that the model solves once in {max(1, least)} tries "
                "is missed about every third time. The boundary shows at 64 samples and more.",
            )
        )
    problems = len(policies[0].n_P)
    if problems < FEW_PROBLEMS:
        notes.append(
            Note("warning", f"Only {problems} problems: the intervals are wide, and a small shift cannot be seen.")
        )
    budgets = {(min(p.n_P, default=0), max(p.n_P, default=0)) for p in policies}
    if len(budgets) > 1 or any(low != high for low, high in budgets):
        notes.append(
            Note(
                "note",
                "Sample counts differ between policies or problems; the chance columns and the test allow for it.",
            )
        )
    return notes


def _contrasts(policies: Sequence[Policy], contrasts: Sequence[Contrast]) -> list[Note]:
    notes = []
    for c in contrasts:
        name = policies[c.policy].name
        for note in c.notes:
            notes.append(Note("note", f"Against {name}: {note.rstrip('.')}."))
        if policies[c.policy].role == "control" and c.p_value < 0.05:
            notes.append(
                Note("warning", f"{name} is a second draw of the base, yet differs from it (p = {c.p_value:.2g}).")
            )
    if not contrasts and len(policies) > 1:
        notes.append(Note("warning", "The policies could not be compared problem by problem."))
    return notes


def _origin(sources: Sequence[Source]) -> Iterable[Note]:
    dirty = [s.table.name for s in sources if s.run is not None and s.run.info.get("provenance", {}).get("dirty")]
    if dirty:
        yield Note("note", f"Made with uncommitted changes in the code: {', '.join(dirty)}.")
    bare = [s.table.name for s in sources if s.run is None]
    if bare:
        yield Note("note", f"Counts only, without responses, settings or versions: {', '.join(bare)}.")
