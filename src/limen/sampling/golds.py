"""Does every gold answer satisfy its own verifier? Asked before a token is sampled."""

from __future__ import annotations

from collections.abc import Sequence

from limen.errors import DataError
from limen.types import Problem
from limen.verify import JudgeItem, VerifierPool


def auto_verifier(problems: Sequence[Problem]) -> str:
    """The verifier that problems of this source need: Reasoning Gym's own scorer, exact text, or math."""
    if all("source_dataset" in p.metadata and "entry" in p.metadata for p in problems):
        return "reasoning_gym"
    if all(p.source == "arithmetic" for p in problems):
        return "exact"
    return "math"


def failing_golds(problems: Sequence[Problem], pool: VerifierPool) -> list[Problem]:
    """Problems whose gold answer, given as the response (bare or boxed), is not judged correct.

    Problems without a gold answer (some Reasoning Gym tasks accept many) are passed over.
    """
    asked = [p for p in problems if p.answer]
    verdicts = pool.judge_many(
        JudgeItem(p.answer, form.replace("{}", p.answer), p.metadata) for p in asked for form in ("{}", r"\boxed{{}}")
    )
    return [p for p, bare, boxed in zip(asked, verdicts[::2], verdicts[1::2]) if not (bare.correct or boxed.correct)]


def check_golds(problems: Sequence[Problem], pool: VerifierPool) -> None:
    """Raise `DataError` that lists the problems whose gold answer fails."""
    bad = failing_golds(problems, pool)
    if bad:
        shown = "; ".join(f"{p.id}: {p.answer[:60]!r}" for p in bad[:5])
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise DataError(
            f"{len(bad)} of {len(problems)} gold answers fail the verifier {pool.version} themselves, so no response "
            f"could be correct ({shown}{more}): mend them, choose another verifier, or pass --keep-bad-golds"
        )
