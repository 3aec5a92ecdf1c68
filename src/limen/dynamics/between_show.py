"""The results of `limen dynamics` on a terminal: every number that the JSON has, the important ones first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from limen.dynamics.resample import Estimate
from limen.report.tables import Table
from limen.report.terminal import rich_table, visible


def show(result: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the parts that `measure` found."""
    console = console or Console()
    if "probe" in result:
        part = result["probe"]
        _table(console, f"On the probe set {part['name']} ({part['pairs']} pairs)", *_probe(part["rows"]))
    for task, part in result.get("perplexity", {}).items():
        title = f"Perplexities{'' if task == 'all' else f', {task}'} (D↑ {len(part['rose'])}, D↓ {len(part['fell'])}"
        _table(console, title + " problems)", *_perplexity(part["rows"], result["k"]))
    if "interference" in result:
        _correlations(console, result["interference"])
    if "traces" in result:
        rows = [[r["source"], r["group"], r["policy"], str(r["traces"]), cell(r["ppl"])] for r in result["traces"]]
        _table(console, "External traces", ["source", "solved by", "policy", "traces", "perplexity"], rows)
    for note in result["notes"]:
        console.print(Text(visible(f"i {note}"), style="dim"))


def cell(e: Estimate | float | None, digits: int = 3) -> str:
    """Value with its interval."""
    if e is None:
        return ""
    if not isinstance(e, Estimate):
        return "" if math.isnan(e) else f"{e:.{digits}g}"
    if math.isnan(e.value):
        return ""
    text = f"{e.value:.{digits}g}"
    return text if math.isnan(e.low) else f"{text} [{e.low:.{digits}g}, {e.high:.{digits}g}]"


def _probe(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    columns = [
        "policy",
        "step",
        "log π(y+)",
        "ppl y+",
        "ppl y−",
        "Δ+ from base",
        "‖Δ‖ from base",
        "clip",
        "Δ+ from last",
    ]
    out = []
    for r in rows:
        base, last = r.get("from_base", {}), r.get("from_previous", {})
        cells = [r["logp_plus"], r["ppl_correct"], r["ppl_wrong"], base.get("delta_plus"), base.get("influence")]
        out.append([_name(r), _step(r), *map(cell, cells), cell(base.get("clip")), cell(last.get("delta_plus"))])
    return columns, out


def _perplexity(rows: Sequence[Mapping[str, Any]], k: int) -> tuple[list[str], list[list[str]]]:
    columns = ["policy", "step", "pass@1", f"pass@{k}", "own", "own under base", "base's", "correct", "wrong"]
    keys = ["pass1", "passk", "own", "own_under_base", "base", "base_correct", "base_wrong", "rose_correct"]
    body = [[_name(r), _step(r), *(cell(r.get(key)) for key in [*keys, "fell_correct"])] for r in rows]
    return [*columns, "D↑ correct", "D↓ correct"], body


def _correlations(console: Console, part: Mapping[str, Any]) -> None:
    rows = [
        [task, str(found["problems"]), str(len(found["pairs"])), cell(found["pearson"]), cell(found["spearman"])]
        for task, found in part["tasks"].items()
    ]
    columns = ["problems of", "problems", "pairs T<T'", "Pearson", "Spearman"]
    _table(console, f"Δ+ against the change of pass@{part['k']}, over pairs of checkpoints", columns, rows)


def _name(row: Mapping[str, Any]) -> str:
    return str(row["name"]).removesuffix(f" {row['step']}")


def _step(row: Mapping[str, Any]) -> str:
    return "" if row["step"] is None else str(row["step"])


def _table(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    console.print(Text(visible(f"\n{title}"), style="bold"))
    console.print(rich_table(Table("dynamics", tuple(columns), tuple(map(tuple, rows)), title), console.width))
