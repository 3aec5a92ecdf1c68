"""Figures 3, 4 and 14 of RBP from the JSON of `limen dynamics`: PNG, SVG and the numbers as CSV."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limen.dynamics.figures import save, style, titled
from limen.errors import DataError
from limen.report.figures import INK, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
NAME = "dynamics.json"

LINES: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("own samples under the base", (("own_under_base", "under the base"), ("own", "under the policy itself"))),
    (
        "the base's samples under the policy",
        (("base", "all"), ("base_correct", "correct"), ("base_wrong", "wrong")),
    ),
    ("the base's correct samples, by problem", (("rose_correct", "D↑ (rose)"), ("fell_correct", "D↓ (fell)"))),
)
"""Panels of figure 4 (columns) and 14 (rows): title, and (key, label) of each line."""


def read_result(folder: str | Path) -> dict[str, Any]:
    """The JSON that `limen dynamics --out FOLDER` wrote."""
    file = Path(folder) / NAME
    if not file.exists():
        raise DataError(f"{folder} holds no {NAME}: give the folder of `limen dynamics BASE CKPT... --out FOLDER`")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def between_figure(number: int, folder: str | Path, out: str | Path) -> list[Path]:
    """Figure 3, 4 or 14. Raises `DataError` where the samples that it needs were not given."""
    result = read_result(folder)
    part = "interference" if number == 3 else "perplexity"
    if part not in result:
        raise DataError(f"{folder} was made without samples of the checkpoints, so there is no figure {number}")
    if number == 3:
        return figure3(result["interference"], Path(out))
    tasks = result["perplexity"]
    chosen = {t: v for t, v in tasks.items() if t == "all"} if number == 4 else _benchmarks(tasks)
    return panels(f"figure{number}", chosen, Path(out), by_row=number == 14)


def _benchmarks(tasks: Mapping[str, Any]) -> dict[str, Any]:
    """Each task on its own; all together where there is only one."""
    return {t: v for t, v in tasks.items() if t != "all"} or dict(tasks)


def figure3(part: Mapping[str, Any], out: Path) -> list[Path]:
    """A scatter of Δ⁺ against Δpass@k for each benchmark."""
    tasks, rows = _benchmarks(part["tasks"]), []
    if len(tasks) > 1:
        tasks = {**tasks, "all": part["tasks"]["all"]}
    k = part["k"]
    for task, found in tasks.items():
        for p in found["pairs"]:
            x, y = p["delta_plus"], p["delta_pass"]
            rows.append({"task": task, "from": p["from"], "to": p["to"], "delta_plus": x["value"],
                         "delta_plus_low": x["low"], "delta_plus_high": x["high"], "delta_pass": y["value"],
                         "delta_pass_low": y["low"], "delta_pass_high": y["high"]})  # fmt: skip

    def draw(figure: Figure) -> None:
        columns = min(4, len(tasks))
        down = math.ceil(len(tasks) / columns)
        figure.set_size_inches(max(3.4, 2.6 * columns), 2.6 * down)
        axes = figure.subplots(down, columns, squeeze=False).ravel()
        for ax in axes[len(tasks) :]:
            ax.set_visible(False)
        for i, (ax, (task, found)) in enumerate(zip(axes, tasks.items(), strict=False)):
            _scatter(ax, found, style(i)[0])
            lines = ("all problems" if task == "all" else task, f"r {_short(found['pearson'])}",
                     f"ρ {_short(found['spearman'])}")  # fmt: skip
            titled(ax, "\n".join(lines), f"change of pass@{k}", "Δ+ (nats per token)")

    return save("figure3", draw, rows, out)


def _scatter(ax: Axes, found: Mapping[str, Any], color: str) -> None:
    points = [p for p in found["pairs"] if p["delta_plus"]["value"] is not None]
    for p in points:
        x, y = p["delta_plus"], p["delta_pass"]
        if x["low"] is not None:
            ax.plot([x["low"], x["high"]], [y["value"]] * 2, color=color, alpha=0.25, linewidth=0.8)
        if y["low"] is not None:
            ax.plot([x["value"]] * 2, [y["low"], y["high"]], color=color, alpha=0.25, linewidth=0.8)
    xs, ys = [p["delta_plus"]["value"] for p in points], [p["delta_pass"]["value"] for p in points]
    ax.plot(xs, ys, "o", color=color, markersize=3.5)
    ax.axhline(0, color=INK, linewidth=0.6)
    ax.axvline(0, color=INK, linewidth=0.6)


def _short(e: Mapping[str, float | None]) -> str:
    if e["value"] is None:
        return "undefined"
    return f"{e['value']:.2f}" + ("" if e["low"] is None else f" [{e['low']:.2f}, {e['high']:.2f}]")


def panels(name: str, tasks: Mapping[str, Any], out: Path, by_row: bool) -> list[Path]:
    """Perplexity panels: one row of three (figure 4), or three rows with a column for each benchmark (figure 14)."""
    rows: list[Row] = []
    for task, part in tasks.items():
        for r in part["rows"]:
            for _, lines in LINES:
                for key, _ in lines:
                    e = r.get(key)
                    if e is not None:
                        rows.append({"task": task, "policy": r["name"], "step": r["step"], "quantity": key, **e})

    def draw(figure: Figure) -> None:
        shape = (len(LINES), len(tasks)) if by_row else (len(tasks), len(LINES))
        figure.set_size_inches(3.0 * shape[1], 2.3 * shape[0])
        axes = figure.subplots(*shape, squeeze=False)
        for t, (task, part) in enumerate(tasks.items()):
            for i, (title, lines) in enumerate(LINES):
                ax = axes[i][t] if by_row else axes[t][i]
                where = "" if task == "all" else f"{task}: "
                titled(ax, f"{where}{title}", "perplexity", "step")
                _lines(ax, part["rows"], lines)
                ax.legend(frameon=False, fontsize=6.5, labelcolor=SOFT)

    return save(name, draw, rows, out)


def _lines(ax: Axes, rows: Sequence[Mapping[str, Any]], lines: Sequence[tuple[str, str]]) -> None:
    steps = [r["step"] for r in rows]
    stepped = all(s is not None for s in steps[1:]) and len(set(steps[1:])) == len(steps) - 1
    places = [0 if s is None else s for s in steps] if stepped else list(range(len(rows)))
    for i, (key, label) in enumerate(lines):
        found = [(x, r[key]) for x, r in zip(places, rows, strict=True) if r.get(key) and r[key]["value"] is not None]
        color, dash = style(i)
        if found and found[0][1]["low"] is not None:
            low, high = [[e[k] if e[k] is not None else e["value"] for _, e in found] for k in ("low", "high")]
            ax.fill_between([x for x, _ in found], low, high, color=color, alpha=0.13, linewidth=0)
        ax.plot([x for x, _ in found], [e["value"] for _, e in found], color=color, linestyle=dash, linewidth=1.4,
                label=label, marker="o", markersize=2.5)  # fmt: skip
    if not stepped:
        ax.set_xticks(places, [str(r["name"]) for r in rows], rotation=30, ha="right")
        ax.set_xlabel("")
    shown = [r[key]["value"] for r in rows for key, _ in lines if r.get(key) and r[key]["value"] is not None]
    if shown and max(shown) > 20 * min(shown):
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(lambda v, _: f"{v:g}")
        ax.yaxis.set_minor_formatter(lambda v, _: "")


__all__ = ["between_figure", "figure3", "panels", "read_result"]
