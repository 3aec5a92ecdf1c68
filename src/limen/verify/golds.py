"""Is every gold answer equal to itself? A gold that fails its own verifier can never be matched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from limen.types import Problem
from limen.verify.pool import JudgeItem, VerifierPool


@dataclass(frozen=True, slots=True)
class GoldReport:
    """One problem whose gold answer fails, or can be matched only as text.

    `bare`, `boxed`: outcome and rule of the gold answer given as the response. `fails`: neither is correct.
    `unread`: the verifier does not understand it, so that it is matched as text or by math-verify alone.
    """

    problem_id: str
    answer: str
    bare: str
    boxed: str
    fails: bool
    unread: bool


def report_golds(problems: Sequence[Problem], pool: VerifierPool) -> list[GoldReport]:
    """The gold answers that are worth a look; an empty list means that all are sound.

    Problems without a gold answer are passed over (some tasks accept many answers, tests judge programs).
    """
    asked = [p for p in problems if p.answer.strip()]
    items = [JudgeItem(p.answer, form.replace("{}", p.answer), p.metadata) for p in asked for form in _FORMS]
    verdicts = pool.judge_many(items)
    reports = []
    for p, bare, boxed in zip(asked, verdicts[::2], verdicts[1::2], strict=True):
        fails = not (bare.correct or boxed.correct)
        unread = not pool.understands(p.answer)
        if fails or unread or not boxed.correct:
            shown = [f"{v.outcome} ({v.rule})" for v in (bare, boxed)]
            reports.append(GoldReport(p.id, p.answer, shown[0], shown[1], fails, unread))
    return reports


_FORMS = ("{}", "\\boxed{{}}")
