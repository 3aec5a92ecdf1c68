"""Tables as Markdown and LaTeX, and the numbers behind every figure as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence

from limen.report.checkpoints import checkpoint_lines
from limen.report.model import Curve, ReportData
from limen.report.modes import mode_csv, shows_modes
from limen.report.tables import RATES, Table

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


def csv_files(data: ReportData) -> dict[str, str]:
    """The numbers behind every figure: name of the file → its text."""
    return _policy_files(data) | _measure_files(data) | _contrast_files(data) | _training_files(data)


def _policy_files(data: ReportData) -> dict[str, str]:
    """Curves and counts, which every report has, and the curves of checkpoints."""
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
    families = checkpoint_lines(data)
    if families:
        files["checkpoints.csv"] = csv_text(
            ("policy", "step", "k", "pass_at_k", "low", "high"),
            (
                (family, step, *point)
                for family, points in families.items()
                for step, i in points
                for point in _points(data.policies[i].curve)
            ),
        )
    return files


def _measure_files(data: ReportData) -> dict[str, str]:
    """Measures, forms of reasoning and lengths, where they are."""
    files = {}
    measured = [(p.name, key, m) for p in data.policies for key, m in p.measures.items()]
    if measured:
        files["measures.csv"] = csv_text(
            ("policy", "measure", "value", "low", "high", "problems"),
            ((n, key, m.value, m.low, m.high, m.problems) for n, key, m in measured),
        )
    if shows_modes(data):
        files["modes.csv"] = csv_text(
            ("policy", "family", "step", "quantity", "value", "low", "high"),
            ((*row[:2], "" if row[2] is None else row[2], *row[3:]) for row in mode_csv(data)),
        )
    lengths = [(p.name, x) for p in data.policies for x in p.health.lengths]
    if lengths:
        files["lengths.csv"] = csv_text(
            ("policy", "kind", "responses", "mean", "q05", "q25", "median", "q75", "q95"),
            ((n, x.kind, x.count, x.mean, x.q05, x.q25, x.median, x.q75, x.q95) for n, x in lengths),
        )
    return files


def _contrast_files(data: ReportData) -> dict[str, str]:
    """What each policy gained and lost against the base."""
    if not data.contrasts:
        return {}
    named = [(data.policies[c.policy].name, c) for c in data.contrasts]
    head = ("policy", "P", "E", "S", "O", "chance_E", "chance_S", "mcnemar_p", *RATES)
    support = csv_text(
        head,
        (
            (n, c.kept, c.gained, c.lost, c.never, c.chance_gained, c.chance_lost, c.p_value, *_rates(c.rates))
            for n, c in named
        ),
    )
    return {
        "difference.csv": csv_text(
            ("policy", "k", "difference", "low", "high"),
            ((n, *point) for n, c in named for point in _points(c.difference)),
        ),
        "support.csv": support,
        "flips.csv": support,
        "budget.csv": csv_text(
            ("policy", "k", "gained", "lost", "chance_each_way"),
            ((n, *point) for n, c in named for point in c.by_budget),
        ),
        "verdicts.csv": csv_text(
            ("policy", "problem_id", "change", "verdict", "evidence", "rate"),
            (
                (n, q.id, c.change_P[i], c.verdict_P[i], *(x[i] if x else "" for x in (c.evidence_P, c.rate_P)))
                for n, c in named
                for i, q in enumerate(data.problems)
            ),
        ),
    }


def _training_files(data: ReportData) -> dict[str, str]:
    """The curves of trainings, where they are."""
    if not data.training:
        return {}
    rows = (
        (t.name, s.key, x, y) for t in data.training for s in t.series for x, y in zip(s.step, s.value, strict=True)
    )
    return {"training.csv": csv_text(("run", "quantity", "step", "value"), rows)}


def _points(curve: Curve) -> list[tuple[int, float, float, float]]:
    return list(zip(curve.k, curve.value, curve.low, curve.high, strict=True))


def _rates(rates: Mapping[str, float]) -> list[float]:
    return [rates.get(key, math.nan) for key in RATES]
