"""The report's tables, once, as rows of text; rendered as HTML by the page, and here as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from limen.report.model import Curve, Policy, ReportData, SplitHalf
from limen.report.words import join, p_number, rate

RATES = ("SRR", "NDR", "SDS", "NSCR")
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "\u00a0": "~",
        "−": r"$-$",
        "–": "--",
        "×": r"$\times$",
        **{c: f"$^{{{d}}}$" for c, d in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True)},
    }
)


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

    def tokens(p: Policy) -> str:
        whole = sum(x.count for x in p.health.lengths)
        return f"{sum(x.count * x.mean for x in p.health.lengths) / whole:.0f}" if whole else "–"

    rows = []
    for p in data.policies:
        h = p.health
        shares = (share(h.no_answer), share(h.truncated))
        more = (rate(p.majority), rate(p.answer_entropy), tokens(p), h.verifier or "–")
        rows.append((p.name, str(h.samples), str(h.unjudged), *shares, *more))
    budgets = sorted({p.entropy_budget for p in data.policies if p.entropy_budget})
    at = f" at {join([str(b) for b in budgets])} samples" if budgets else ""
    caption = (
        "Outcomes of the samples. Unjudged ones (the verifier timed out or crashed) count as neither right nor wrong; "
        "truncated ones have no answer. Vote: problems that a majority of all samples gets right, ties split. "
        f"Answer entropy: in nats{at}, mean over problems. Tokens: mean length of a response."
    )
    columns = ("policy", "judged", "unjudged", "no answer", "truncated", "vote", "answer entropy", "tokens", "verifier")
    return Table("outcomes", columns, tuple(rows), caption, tuple(p.role for p in data.policies))


def opinion_table(data: ReportData) -> Table:
    """Verifiers against each other on the same samples."""
    rows = tuple(
        (p.name, p.health.verifier, o.verifier, str(o.both), str(o.only_first), str(o.only_other))
        for p in data.policies
        for o in p.health.verdicts.opinions
    )
    columns = ("policy", "used here", "other", "both judged", "correct by used only", "correct by other only")
    return Table("verifiers", columns, rows, "Where two verifiers judged the same samples, and how often they differ.")


def markdown(table: Table) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(plain_markdown(c) for c in cells) + " |"

    bar = "|" + "|".join([" :--- ", *[" ---: "] * (len(table.columns) - 1)]) + "|"
    return "\n".join([line(table.columns), bar, *[line(r) for r in table.rows], "", plain_markdown(table.caption), ""])


def latex(table: Table) -> str:
    """A booktabs table; every cell is escaped."""
    rows = [" & ".join(_tex(c) for c in row) + r" \\" for row in table.rows]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering\small",
            rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
            r"\toprule",
            " & ".join(_tex(c) for c in table.columns) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{_tex(table.caption)}}}",
            rf"\label{{tab:{table.key}}}",
            r"\end{table}",
            "",
        ]
    )


def _tex(text: str) -> str:
    return "".join(c for c in text if c.isprintable() or c == "\u00a0").translate(_LATEX)


def plain_markdown(text: str) -> str:
    """A cell that stays a cell: no line breaks, no column bars, no markup."""
    flat = " ".join(text.split())
    for c in "\\`*_[]<>|":
        flat = flat.replace(c, "\\" + c)
    return flat


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """CSV; NaN is an empty cell, and a text that a spreadsheet would run as a formula is put in quotes' care."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(v) for v in row] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, float) and math.isnan(value):
        return ""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value


def _samples(policy: Policy) -> str:
    low, high = min(policy.n_P, default=0), max(policy.n_P, default=0)
    return str(low) if low == high else f"{low}–{high}"


def csv_files(data: ReportData) -> dict[str, str]:
    """The numbers behind every figure: name of the file → its text."""
    files = {
        "passk.csv": csv_text(
            ("policy", "k", "pass_at_k", "low", "high"),
            ((p.name, k, v, lo, hi) for p in data.policies for k, v, lo, hi in _points(p.curve)),
        ),
        "problems.csv": csv_text(
            ("problem_id", "task", *[f"{what}:{p.name}" for p in data.policies for what in ("n", "c")]),
            (
                (q.id, q.task, *[x for p in data.policies for x in (p.n_P[i], p.correct_P[i])])
                for i, q in enumerate(data.problems)
            ),
        ),
    }
    lengths = [(p.name, x) for p in data.policies for x in p.health.lengths]
    if lengths:
        files["lengths.csv"] = csv_text(
            ("policy", "kind", "responses", "mean", "q05", "q25", "median", "q75", "q95"),
            ((n, x.kind, x.count, x.mean, x.q05, x.q25, x.median, x.q75, x.q95) for n, x in lengths),
        )
    if data.contrasts:
        names = [data.policies[c.policy].name for c in data.contrasts]
        files["difference.csv"] = csv_text(
            ("policy", "k", "difference", "low", "high"),
            ((n, *point) for n, c in zip(names, data.contrasts, strict=True) for point in _points(c.difference)),
        )
        head = ("policy", "P", "E", "S", "O", "chance_E", "chance_S", "mcnemar_p", *RATES)
        rows = [
            (n, c.kept, c.gained, c.lost, c.never, c.chance_gained, c.chance_lost, c.p_value, *_rates(c.rates))
            for n, c in zip(names, data.contrasts, strict=True)
        ]
        files["support.csv"] = files["flips.csv"] = csv_text(head, rows)
        files["budget.csv"] = csv_text(
            ("policy", "k", "gained", "lost", "chance_each_way"),
            ((n, *point) for n, c in zip(names, data.contrasts, strict=True) for point in c.by_budget),
        )
        files["verdicts.csv"] = csv_text(
            ("policy", "problem_id", "change", "verdict", "evidence", "rate"),
            (
                (n, q.id, c.change_P[i], c.verdict_P[i], *(x[i] if x else "" for x in (c.evidence_P, c.rate_P)))
                for n, c in zip(names, data.contrasts, strict=True)
                for i, q in enumerate(data.problems)
            ),
        )
    if data.training:
        files["training.csv"] = csv_text(
            ("run", "quantity", "step", "value"),
            (
                (t.name, s.key, x, y)
                for t in data.training
                for s in t.series
                for x, y in zip(s.step, s.value, strict=True)
            ),
        )
    return files


def _points(curve: Curve) -> list[tuple[int, float, float, float]]:
    return list(zip(curve.k, curve.value, curve.low, curve.high, strict=True))


def _rates(rates: Mapping[str, float]) -> list[float]:
    return [rates.get(key, math.nan) for key in RATES]
