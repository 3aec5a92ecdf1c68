"""Results in plain sentences, for terminals, reports and abstracts alike."""

from __future__ import annotations

from limen.measure.support import SupportResult


def _questions(n: int) -> str:
    return "1 question" if n == 1 else f"{n} questions"


def support_sentences(s: SupportResult, budget: str, verdicts: dict[str, int], q: float) -> list[str]:
    """What was lost and gained, against chance; then the net change; then single questions."""
    out = [
        f"With {budget} samples a question, {_questions(s.S)} lost every success where chance alone loses "
        f"{s.chance_S:.1f}, and {_questions(s.E)} gained a first one where chance alone gains {s.chance_E:.1f}."
    ]
    net = s.E - s.S
    if s.E + s.S == 0:
        out.append("No question changed sides.")
    else:
        beyond = "more than" if s.mcnemar_p < 0.05 else "no more than"
        what = "even" if net == 0 else f"{abs(net)} {'gained' if net > 0 else 'lost'}"
        out.append(f"The net change ({what}) is {beyond} chance explains: exact McNemar p = {s.mcnemar_p:.2g}.")
    if s.E + s.S:
        out.append(
            f"Question by question, at a false discovery rate of {q:g}: {verdicts['shrunk']} shrunk, "
            f"{verdicts['expanded']} expanded; {verdicts['undetermined']} flips are too thin to call."
        )
    return out


def same_policy_sentence(name: str, budget: int, each_way: float) -> str:
    """The A/A control in words."""
    return (
        f"Two samples of {budget} of {name} itself differ in about {each_way:.1f} questions each way "
        "(A/A, mean over all splits)."
    )


def crossing_sentence(k: int | None, up_first: bool) -> str | None:
    """Where the two pass@k curves cross."""
    if k is None:
        return None
    first, then = ("above", "below") if up_first else ("below", "above")
    return f"The trained policy is {first} the base at small k and {then} it from k = {k} on."
