"""The same verdicts and tables for a terminal."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from limen.report.model import ReportData
from limen.report.tables import Table, tables
from limen.report.words import headline, verdicts

_STYLES = {"shrank": "bold red", "grew": "bold blue", "mixed": "bold yellow", "chance": "bold"}


def print_report(data: ReportData, console: Console | None = None) -> None:
    """Headline, verdicts, tables and warnings. Text of models and files is printed literally, never as markup."""
    console = console or Console()
    console.print(Text.assemble(*[(visible(text), _STYLES.get(kind, "bold")) for text, kind in headline(data)]))
    for v in verdicts(data):
        console.print(
            Text.assemble("\n", (visible(f"{v.name}: {v.word}"), _STYLES[v.finding]), visible(f" {v.sentence}"))
        )
        console.print(Text(visible(v.detail), style="dim"))
    for t in tables(data):
        console.print()
        console.print(rich_table(t, console.width))
    for note in data.notes:
        console.print(
            Text(
                visible(f"{'! ' if note.level == 'warning' else 'i '}{note.text}"),
                style="yellow" if note.level == "warning" else "dim",
            )
        )


def rich_table(table: Table, width: int = 200) -> RichTable:
    """The table; where it is wider than `width`, without the intervals that stand in brackets behind values."""
    if sum(2 + max(map(len, column)) for column in zip(table.columns, *table.rows, strict=True)) > width:
        table = replace(table, rows=tuple(tuple(cell.split(" [")[0] for cell in row) for row in table.rows))
    grid = RichTable(box=None, pad_edge=False, header_style="dim", title_justify="left")
    for i, column in enumerate(table.columns):
        grid.add_column(Text(visible(column)), justify="left" if i == 0 else "right")
    for i, row in enumerate(table.rows):
        grid.add_row(*[Text(visible(cell)) for cell in row], style="dim italic" if table.kind(i) == "control" else "")
    return grid


def visible(text: str) -> str:
    """Without control characters, which could drive a terminal; every kind of space is a space."""
    return "".join(c if c.isprintable() or c == "\n" else " " if c.isspace() else "�" for c in text)
