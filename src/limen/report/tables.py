"""The report's tables, once, as rows of text; the page, `export` and the terminal render them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from limen.report.model import Policy, ReportData, SplitHalf
from limen.report.words import join, p_number, rate

RATES = ("SRR", "NDR", "SDS", "NSCR")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; the first column is the row's name. `kinds`: "control" rows are set apart."""

    key: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str
    kinds: tuple[str, ...] = ()

    def kind(self, row: int) -> str:
        return self.kinds[row] if self.kinds else ""


def tables(data: ReportData) -> list[Table]:
    """pass@k, support (where there is something to compare) and outcomes."""
    made = [passk_table(data)]
    if data.contrasts:
        made.append(support_table(data))
    made.append(health_table(data))
    responses = response_table(data)
    if responses is not None:
        made.append(responses)
    if any(p.health.verdicts.opinions for p in data.policies):
        made.append(opinion_table(data))
    return made


def table_ks(data: ReportData, most: int = 6) -> list[int]:
    """Budgets worth a column: the first, the last, and powers of four between."""
    ks = sorted({k for p in data.policies for k in p.curve.k})
    if len(ks) <= most:
        return ks
    fours = [k for k in ks if (math.log2(k) % 2) == 0]
    return sorted({ks[0], *fours, ks[-1]})


def passk_table(data: ReportData) -> Table:
    ks = table_ks(data)

    def cell(policy: Policy, k: int) -> str:
        if k not in list(policy.curve.k):
            return "–"
        value, low, high = policy.curve.at(k)
        return rate(value) if math.isnan(low) else f"{rate(value)} [{rate(low)}, {rate(high)}]"

    rows = tuple((p.name, _samples(p), *[cell(p, k) for k in ks]) for p in data.policies)
    caption = (
        "Unbiased pass@k, mean over problems, with 95% bootstrap intervals over problems. "
        "“–”: some problem has fewer than k judged samples."
    )
    columns = ("policy", "n", *[f"pass@{k}" for k in ks])
    return Table("passk", columns, rows, caption, tuple(p.role for p in data.policies))


def support_table(data: ReportData) -> Table:
    rows = []
    for c in data.contrasts:
        rows.append(
            (
                data.policies[c.policy].name,
                str(c.kept),
                str(c.gained),
                f"{c.chance_gained:.1f}",
                str(c.lost),
                f"{c.chance_lost:.1f}",
                str(c.never),
                p_number(c.p_value),
                *[rate(c.rates.get(key, math.nan)) for key in RATES],
            )
        )
    kinds = tuple(data.policies[c.policy].role for c in data.contrasts)
    if data.split_half is not None:
        rows.append(_split_row(data.base.name, data.split_half))
        kinds += ("control",)
    caption = (
        f"Problems by whether {data.base.name} and the policy solve them at least once in their samples: P both, "
        "E only the policy (gained), S only the base (lost), O neither. By chance: flips expected of two draws of one "
        "policy, given the pooled successes. p: exact McNemar test of E against S. SRR = P/(P+S), NDR = E/(P+E), "
        "SDS their harmonic mean, NSCR = (E−S)/(P+E+S)."
    )
    columns = ("policy", "P", "E", "E by chance", "S", "S by chance", "O", "p", *RATES)
    return Table("support", columns, tuple(rows), caption, kinds)


def _split_row(base: str, s: SplitHalf) -> tuple[str, ...]:
    """The A/A row: what the same columns show where nothing was trained."""
    name = f"{base} against itself (halves of {s.budget})"
    cells = (s.kept, s.gained, f"{s.chance:.1f}", s.lost, f"{s.chance:.1f}", s.never, p_number(s.p_value))
    return (name, *map(str, cells), *[rate(s.rates.get(key, math.nan)) for key in RATES])


def health_table(data: ReportData) -> Table:
    def share(x: float) -> str:
        return "–" if math.isnan(x) else f"{100 * x:.1f}%"

    rows = []
    for p in data.policies:
        h = p.health
        rows.append(
            (p.name, str(h.samples), str(h.unjudged), share(h.no_answer), share(h.truncated), h.verifier or "–")
        )
    caption = (
        "Outcomes of the samples. Unjudged ones (the verifier timed out or crashed) count as neither right nor wrong; "
        "truncated ones have no answer."
    )
    columns = ("policy", "judged", "unjudged", "no answer", "truncated", "verifier")
    return Table("outcomes", columns, tuple(rows), caption, tuple(p.role for p in data.policies))


def response_table(data: ReportData) -> Table | None:
    """Votes, diversity, entropy, length and modes, each with its interval; None for counts alone."""
    columns = [(key, name) for key, name in _MEASURES if any(_has(p, key) for p in data.policies)]
    coded = [p.measures["code_share"].value for p in data.policies if _has(p, "code_share")]
    if not any(x > 0 for x in coded):
        columns = [(key, name) for key, name in columns if "code" not in key and "language" not in key]
    if not columns:
        return None
    rows = tuple((p.name, *[_measured(p, key) for key, _ in columns]) for p in data.policies)
    budgets = sorted({str(p.budget) for p in data.policies if p.budget})
    shown = {key for key, _ in columns}
    caption = (
        "Means over problems, with 95% intervals over problems. Vote: the answer of most samples is right, ties split. "
        f"Answer entropy (nats) and distinct answers at {join(budgets)} samples."
    )
    if "token_entropy" in shown:
        caption += " Token entropy (nats): of the sampling policy, from the log-probabilities of the drawn tokens."
    if "code_share" in shown:
        caption += " Code: responses that contain “python”."
    kinds = tuple(p.role for p in data.policies)
    return Table("responses", ("policy", *[name for _, name in columns]), rows, caption, kinds)


_MEASURES = (
    ("vote", "vote of all"),
    ("answer_entropy", "answer entropy"),
    ("distinct_answers", "distinct answers"),
    ("token_entropy", "token entropy"),
    ("tokens", "tokens"),
    ("tokens_correct", "tokens, correct"),
    ("code_share", "code share"),
    ("accuracy_code", "accuracy, code"),
    ("accuracy_language", "accuracy, language"),
)


def _has(policy: Policy, key: str) -> bool:
    m = policy.measures.get(key)
    return m is not None and not math.isnan(m.value)


def _measured(policy: Policy, key: str) -> str:
    m = policy.measures.get(key)
    if m is None or math.isnan(m.value):
        return "–"
    if key.startswith("tokens"):
        return f"{m.value:.0f}" if math.isnan(m.low) else f"{m.value:.0f} [{m.low:.0f}, {m.high:.0f}]"
    return rate(m.value) if math.isnan(m.low) else f"{rate(m.value)} [{rate(m.low)}, {rate(m.high)}]"


def opinion_table(data: ReportData) -> Table:
    """Verifiers against each other on the same samples."""
    rows = tuple(
        (p.name, p.health.verifier, o.verifier, str(o.both), str(o.only_first), str(o.only_other))
        for p in data.policies
        for o in p.health.verdicts.opinions
    )
    columns = ("policy", "used here", "other", "both judged", "correct by used only", "correct by other only")
    return Table("verifiers", columns, rows, "Where two verifiers judged the same samples, and how often they differ.")


def _samples(policy: Policy) -> str:
    low, high = min(policy.n_P, default=0), max(policy.n_P, default=0)
    return str(low) if low == high else f"{low}–{high}"
