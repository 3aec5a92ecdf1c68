"""Tables on a terminal. Numbers come from the results; nothing is computed here."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from limen.measure.compare import Comparison
from limen.measure.counts import CountTable
from limen.measure.describe import Description, Measure, measure_json
from limen.measure.plan import Plan
from limen.measure.series import Series
from limen.measure.summary import Summary
from limen.measure.support import SupportResult

__all__ = [
    "measure_json",
    "print_comparison",
    "print_descriptions",
    "print_plan",
    "print_series",
    "print_summaries",
]


def print_summaries(found: Sequence[Summary], console: Console | None = None) -> None:
    """pass@k of each policy, one column pair each."""
    console = console or Console()
    for one in found:
        table = Table(title="pass@k", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
        votes = ("maj@k", "interval") if one.maj else ()
        for head in ("k", "pass@k", "interval", *votes):
            table.add_column(head, justify="right", no_wrap=True)
        c = one.curve
        for k, v, a, b in zip(c.k_K.tolist(), c.value_K.tolist(), c.low_K.tolist(), c.high_K.tolist()):
            m = one.maj.get(k)
            voted = [] if not one.maj else ["", ""] if m is None else [number(m.value), interval(m.low, m.high)]
            table.add_row(str(k), number(v), interval(a, b), *voted)
        console.print(_title(one.table), markup=False, highlight=False)
        console.print(table)
        _notes(console, [f"Interval: {c.resampled}", *c.undefined.values(), *one.notes])


def print_comparison(found: Comparison, console: Console | None = None) -> None:
    """Curves side by side, support beside chance, and the result in words."""
    console = console or Console()
    b, t = found.base_curve, found.trained_curve
    table = Table(title="pass@k", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
    for head in ("k", "base", "interval", "trained", "interval", "difference", "interval"):
        table.add_column(head, justify="right", no_wrap=True)
    for i, k in enumerate(found.k_K.tolist()):
        table.add_row(
            str(k),
            number(b.value_K[i]),
            interval(b.low_K[i], b.high_K[i]),
            number(t.value_K[i]),
            interval(t.low_K[i], t.high_K[i]),
            number(found.difference_K[i], sign=True),
            interval(found.difference_low_K[i], found.difference_high_K[i], sign=True),
        )
    console.print(table)
    if found.support is not None:
        console.print(support_table(found.support))
    _notes(
        console,
        [
            *([] if found.support is None else [rates_line(found.support), *found.support.undefined.values()]),
            *found.sentences,
            f"Interval: {b.resampled}; differences are paired by problem",
            f"base     {_title(found.base)}",
            f"trained  {_title(found.trained)}",
            *b.undefined.values(),
            *found.notes,
        ],
    )


def print_descriptions(
    found: Sequence[Description], difference: dict[str, Measure], console: Console | None = None
) -> None:
    """Measures of one or more runs side by side; with two, their paired difference."""
    console = console or Console()
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    alone = len(found) == 1  # beside others, only the difference has room for its interval
    for i, one in enumerate(found):
        table.add_column(one.table.name if len(found) < 4 else f"({i + 1})", justify="right")
    if alone or difference:
        table.add_column("interval" if alone else "difference", justify="right", no_wrap=True)
    for name in dict.fromkeys(n for one in found for n in one.measures):
        row = [one.measures.get(name) for one in found]
        cells = ["" if m is None else _digits(m.value) for m in row]
        last = row[0] if alone else difference.get(name)
        if last is not None and (alone or difference):
            span = "" if math.isnan(last.low) else f"{_digits(last.low)}..{_digits(last.high)}"
            cells.append(span if alone else f"{_digits(last.value)}  {span}")
        table.add_row(name.replace("_", " "), *cells)
    console.print(table)
    for one in found:
        _notes(console, [f"{_title(one.table)}; diversity at {one.budget} samples", *one.table.notes])
        _notes(console, [f"  {name}: {why}" for name, why in one.why.items()])
    _notes(console, [f"Interval: {found[0].resampled}" + ("; differences are paired by problem" if difference else "")])


def _digits(x: float) -> str:
    return "–" if math.isnan(x) else f"{x:.3f}" if abs(x) < 10 else f"{x:.1f}"


def print_series(found: Series, console: Console | None = None) -> None:
    """One line per checkpoint: pass@k at both ends, support against the base, and what moved since the last one."""
    console = console or Console()
    table = Table(title="Against the first", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
    k_K = found.curves[0].k_K
    ends = (int(k_K[0]), int(k_K[-1])) if k_K.size else ()
    for head in ("checkpoint", *(f"pass@{k}" for k in ends), "P", "E", "S", "O", "chance", "p", "lost", "back"):
        table.add_column(head, justify="left" if head == "checkpoint" else "right", no_wrap=head != "checkpoint")
    for t, c, s, step in zip(found.tables, found.curves, found.support_C, found.step_C):
        cells = [number(c.at(k)) for k in ends]
        if s is not None and step is not None:
            cells += [str(s.P), str(s.E), str(s.S), str(s.O), f"{s.chance_each_way:.1f}", f"{s.mcnemar_p:.2g}"]
            cells += [str(step.S), str(step.E)]
        table.add_row(t.name, *cells)
    console.print(table)
    legend = "chance: flips each way between two runs of one policy; lost, back: solved questions since the line above"
    _notes(console, [*found.sentences(), legend, *found.notes])


def print_plan(found: Plan, console: Console | None = None) -> None:
    """Power by number of samples."""
    console = console or Console()
    title = f"Seeing {found.change:+.3f} in pass@{found.k} on {found.problems} questions"
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left")
    for head in ("n", f"power, pass@{found.k}", "power, support", "S", "E", "by chance"):
        table.add_column(head, justify="right", no_wrap=True)
    for r in found.rows:
        table.add_row(
            str(r.n),
            number(r.power_pass),
            number(r.power_support),
            f"{r.S:.1f}",
            f"{r.E:.1f}",
            f"{r.chance_each_way:.1f}",
        )
    console.print(table)
    _notes(console, list(found.words))


def support_table(s: SupportResult) -> Table:
    """P/E/S/O with what chance alone gives."""
    table = Table(title=f"Support on {s.M} problems", box=SIMPLE_HEAD, title_justify="left")
    for head in ("", "problems", "by chance", "p"):
        table.add_column(head, justify="right" if head else "left", no_wrap=True)
    table.add_row("P  both solve", str(s.P), "", "")
    table.add_row("E  gained", str(s.E), f"{s.chance_E:.2f}", f"{s.E_p:.2g}")
    table.add_row("S  lost", str(s.S), f"{s.chance_S:.2f}", f"{s.S_p:.2g}")
    table.add_row("O  neither", str(s.O), "", "")
    return table


def rates_line(s: SupportResult) -> str:
    """The four rates and the test of the net change on one line."""
    rates = ", ".join(f"{name} {number(getattr(s, name))}" for name in ("SRR", "NDR", "SDS", "NSCR"))
    return f"{rates}; exact McNemar p = {s.mcnemar_p:.2g}"


def number(x: float, sign: bool = False) -> str:
    """Three decimals; a dash where undefined."""
    return "–" if math.isnan(x) else f"{x:+.3f}" if sign else f"{x:.3f}"


def interval(low: float, high: float, sign: bool = False) -> str:
    return "" if math.isnan(low) else f"{number(low, sign)}..{number(high, sign)}"


def _title(table: CountTable) -> str:
    n = table.n_P
    per = f"{n.min()}" if table.M and n.min() == n.max() else f"{n.min()} to {n.max()}" if table.M else "0"
    cut = int(table.truncated_P.sum())
    none = int(table.no_answer_P.sum())
    more = f", {none} without an answer" if none else ""
    more += f", {cut} cut off at the token limit" if cut else ""
    more += f", {int(table.unjudged_P.sum())} unjudged"
    return f"{table.name}: {table.M} problems × {per} judged samples{more}"


def _notes(console: Console, lines: Sequence[str]) -> None:
    for line in dict.fromkeys(lines):
        console.print(line, markup=False, highlight=False)
