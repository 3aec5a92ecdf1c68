"""The verdict in words, and how numbers are written. One place, so that page, tables and terminal agree."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from limen.report.model import Contrast, ReportData

ALPHA = 0.05
"""Two-sided level of the exact test on (gained, lost) above which a net change is called chance."""

Finding = Literal["shrank", "grew", "mixed", "chance"]
"""`mixed`: the test leaves chance open, but the interval of the difference at the largest k excludes nought."""
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One policy against the base. `word` is the finding, `sentence` its numbers, `detail` pass@k beside it."""

    policy: int
    name: str
    finding: Finding
    word: str
    sentence: str
    detail: str


def finding(contrast: Contrast) -> Finding:
    if not contrast.p_value < ALPHA or contrast.net == 0:
        d = contrast.difference
        return "mixed" if d.k and (d.low[-1] > 0 or d.high[-1] < 0) else "chance"
    return "shrank" if contrast.net < 0 else "grew"


def verdicts(data: ReportData) -> list[Verdict]:
    return [_verdict(data, c) for c in data.contrasts]


def headline(data: ReportData) -> list[tuple[str, str]]:
    """The page's first sentence as (text, class) pieces; class is the finding where the piece names one."""
    trained = [c for c in data.contrasts if data.policies[c.policy].role == "trained" and data.policies[c.policy].last]
    if not trained:
        k = int(data.base.curve.k[-1]) if data.base.curve.k else 0
        value = data.base.curve.value[-1] if data.base.curve.k else math.nan
        return [(f"{data.base.name} solves {value:.1%} of {len(data.problems)} problems within {k} attempts.", "")]
    pieces: list[tuple[str, str]] = []
    groups: dict[Finding, list[str]] = {"shrank": [], "grew": [], "mixed": [], "chance": []}
    for c in trained:
        groups[finding(c)].append(data.policies[c.policy].name)
    what = " what the base can solve"
    clauses: dict[Finding, list[tuple[str, str]]] = {
        "shrank": [("{} ", ""), ("shrank", "shrank"), (what, "")],
        "grew": [("{} ", ""), ("widened", "grew"), (what, "")],
        "mixed": [("the evidence on {} is mixed", "")],
        "chance": [("{} did not measurably change" + what, "")],
    }
    parts = [(kind, names) for kind, names in groups.items() if names]
    for i, (kind, names) in enumerate(parts):
        lead = "" if i == 0 else ", while " if len(parts) == 2 else "; "
        (text, css), *rest = clauses[kind]
        text = text.replace("{}", join(names))
        pieces += [(lead + (text if i else text[0].upper() + text[1:] if kind == "mixed" else text), css), *rest]
    return [*pieces, (".", "")]


def _verdict(data: ReportData, c: Contrast) -> Verdict:
    policy, kind = data.policies[c.policy], finding(c)
    chance = (
        f"{c.chance_lost:.1f} each way"
        if abs(c.chance_lost - c.chance_gained) < 0.05
        else f"{c.chance_lost:.1f} lost and {c.chance_gained:.1f} gained"
    )
    total = c.kept + c.gained + c.lost + c.never
    sentence = (
        f"Of {total} problems it lost {c.lost or 'none'} that the base solved in {c.budget} samples and gained "
        f"{c.gained or 'none'} that the base did not; chance alone would flip {chance}. "
        f"Exact McNemar test of the net change ({signed_count(c.net)}): {p_text(c.p_value)}."
    )
    called = Counter(c.verdict_P)
    if called["shrunk"] + called["expanded"] + called["undetermined"]:
        sentence += (
            f" Problem by problem, at a false discovery rate of {c.fdr:.0%}: {called['shrunk']} called lost and "
            f"{called['expanded']} called gained, {called['undetermined']} flips too thin to call."
        )
    word = {
        "shrank": "Shrank, beyond chance.",
        "grew": "Widened, beyond chance.",
        "mixed": f"Mixed evidence: the test leaves chance open, the interval of pass@{c.budget} does not.",
        "chance": "No change beyond chance.",
    }[kind]
    if policy.role == "control":
        same = "no change beyond chance." if kind == "chance" else "differs beyond chance!"
        word = f"Control (the base drawn twice): {same}"
    return Verdict(c.policy, policy.name, kind, word, sentence, _detail(data, c))


def _detail(data: ReportData, c: Contrast) -> str:
    base, policy = data.base.curve, data.policies[c.policy].curve
    parts = []
    shared = [k for k in policy.k if k in set(base.k)]
    for k in dict.fromkeys([*shared[:1], *shared[-1:]]):
        text = f"pass@{k} {base.at(k)[0]:.3f} → {policy.at(k)[0]:.3f}"
        if k in list(c.difference.k):
            value, low, high = c.difference.at(k)
            text += f" ({signed(value)}, 95% interval {signed(low)} to {signed(high)})"
        parts.append(text)
    return "; ".join(parts)


def join(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def signed(x: float) -> str:
    return "–" if math.isnan(x) else f"{'−' if x < 0 else '+'}{abs(x):.3f}"


def signed_count(n: int) -> str:
    return f"{'−' if n < 0 else '+'}{abs(n)}" if n else "0"


def rate(x: float) -> str:
    return "–" if math.isnan(x) else f"{'−' if round(x, 3) < 0 else ''}{abs(x):.3f}"


def p_number(p: float) -> str:
    """A p-value as read in a paper: two digits, powers of ten below 0.001."""
    if math.isnan(p):
        return "–"
    if p >= 0.001:
        return f"{p:.2f}" if p >= 0.095 else f"{p:.2g}"
    if p == 0:
        return "0"
    digit, power = f"{p:.0e}".split("e")
    return f"{digit}×10{str(int(power)).translate(_SUPERSCRIPT)}"


def p_text(p: float) -> str:
    return "p undefined" if math.isnan(p) else f"p\u00a0=\u00a0{p_number(p)}"
