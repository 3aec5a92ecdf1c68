"""Does every gold answer satisfy its own verifier? Asked before a token is sampled."""

from __future__ import annotations

from collections.abc import Sequence

from limen.errors import DataError
from limen.types import Problem
from limen.verify import VerifierPool
from limen.verify.golds import report_golds


def auto_verifier(problems: Sequence[Problem]) -> str:
    """The verifier that problems of this source need: Reasoning Gym's own scorer, exact text, or math."""
    if all("source_dataset" in p.metadata and "entry" in p.metadata for p in problems):
        return "reasoning_gym"
    if all(p.source == "arithmetic" for p in problems):
        return "exact"
    return "math"


def failing_golds(problems: Sequence[Problem], pool: VerifierPool) -> list[Problem]:
    """Problems whose gold answer, given as the response, is not judged correct."""
    bad = {report.problem_id for report in report_golds(problems, pool) if report.fails}
    return [p for p in problems if p.id in bad]


def check_golds(problems: Sequence[Problem], pool: VerifierPool) -> None:
    """Raise `DataError` that lists the problems whose gold answer, given as the response, is not judged correct."""
    bad = failing_golds(problems, pool)
    if bad:
        shown = "; ".join(f"{p.id}: {p.answer[:60]!r}" for p in bad[:5])
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise DataError(
            f"{len(bad)} of {len(problems)} gold answers fail the verifier {pool.version} themselves, so no response "
            f"could be correct ({shown}{more}): mend them, choose another verifier, or pass --keep-bad-golds"
        )
