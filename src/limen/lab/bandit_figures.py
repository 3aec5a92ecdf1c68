"""Figures 5 and 9 of RBP from the bandit, drawn from the very numbers that are written beside them as CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limen.lab.bandit import ETA, OBJECTIVES, ROWS, Floats, Row, V, alpha, draw_logits, draw_x, run
from limen.report.export import csv_text
from limen.report.figures import _STYLE as STYLE
from limen.report.figures import COLORS, GAINED, INK, LOST, NEVER, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {"reinforce": "REINFORCE", "mle": "likelihood"}
LINES = {"reinforce": COLORS[1], "mle": COLORS[2]}


def paths(seed: int, norm2: float | None, eta: float = ETA) -> dict[tuple[int, str], Floats]:
    """(row, objective) → probabilities after each step, shape (steps + 1, V)."""
    x = draw_x(seed, norm2)
    step = eta * float(x @ x)
    return {
        (row.number, o): run(draw_logits(row.start, seed, x), row.labels, o, step, row.steps)
        for row in ROWS
        for o in OBJECTIVES
    }


def write_figures(out: Path, seed: int, norm2: float | None) -> list[Path]:
    """figure5 and figure9 as .png, .svg and .csv in `out`."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    found = paths(seed, norm2)
    curves = _figure5_data()
    made = []
    drawings: dict[str, Callable[[Figure], None]] = {
        "figure5": lambda f: _figure5(f, curves),
        "figure9": lambda f: _figure9(f, found),
    }
    with mpl.rc_context(STYLE):
        for name, draw in drawings.items():
            figure = Figure(layout="constrained")
            draw(figure)
            for suffix in (".png", ".svg"):
                figure.savefig(out / f"{name}{suffix}", metadata={"Date": None} if suffix == ".svg" else None)
                made.append(out / f"{name}{suffix}")
    for name, text in (("figure5.csv", _csv5(curves)), ("figure9.csv", _csv9(found))):
        (out / name).write_text(text, encoding="utf-8")
        made.append(out / name)
    return made


def _csv9(found: dict[tuple[int, str], Floats]) -> str:
    rows = [
        (number, o, step, action, float(p), float(p / path[0, action]))
        for (number, o), path in found.items()
        for step, pi in enumerate(path)
        for action, p in enumerate(pi)
    ]
    return csv_text(("row", "objective", "step", "action", "pi", "alpha"), rows)


def _figure9(figure: Figure, found: dict[tuple[int, str], Floats]) -> None:
    figure.set_size_inches(9.6, 8.6)
    axes = figure.subplots(len(ROWS), 4)
    for line, row in zip(axes, ROWS, strict=True):
        for o, (bars, change) in zip(OBJECTIVES, (line[:2], line[2:]), strict=True):
            path = found[row.number, o]
            _bars(bars, path, row)
            if row.steps > 1:
                _trajectory(change, path, row)
            else:
                _ratios(change, alpha(path), row)
            if row.number == 1:
                bars.set_title(f"{NAMES[o]}: π (grey: before)", fontsize=8.5, loc="left", color=INK)
                change.set_title(f"{NAMES[o]}: α", fontsize=8.5, loc="left", color=INK)
        line[0].set_ylabel(row.title.replace(", ", "\n"), rotation=0, ha="right", va="center", color=INK)
    for ax in axes[-1]:
        ax.set_xlabel("step" if ax in axes[-1][1::2] else "action")


def _color(action: int, row: Row) -> str:
    sign = row.labels.get(action, 0)
    return GAINED if sign > 0 else LOST if sign < 0 else COLORS[3] if action == row.watched else SOFT


def _bars(ax: Axes, path: Floats, row: Row) -> None:
    ax.bar(range(V), path[0], 0.95, color=NEVER)
    ax.bar(range(V), path[-1], 0.45, color=[_color(a, row) for a in range(V)])
    _name_actions(ax, sorted({*row.labels, row.watched, int(path[0].argmax())}))


def _ratios(ax: Axes, a: Floats, row: Row) -> None:
    top = {*row.labels, row.watched, int(a.argmax())}
    ax.vlines(range(V), 1, a, color=[_color(i, row) for i in range(V)], linewidth=1.6)
    ax.axhline(1, color=INK, linewidth=0.8)
    ax.set_yscale("log")
    low, high = min(float(a.min()), 0.98), max(float(a.max()), 1.02)
    ax.set_ylim(low / (high / low) ** 0.12, high * (high / low) ** 0.12)
    wide = [t for t in (low, high) if abs(np.log(t)) > 0.15 * np.log(high / low)]
    ticks = sorted({1.0, *wide})
    ax.set_yticks(ticks, [f"{t:.3g}" for t in ticks])
    ax.minorticks_off()
    _name_actions(ax, sorted(top), [f"{i}\n{a[i]:.3g}" for i in sorted(top)])


def _name_actions(ax: Axes, actions: Sequence[int], labels: Sequence[str] | None = None) -> None:
    """Ticks at these actions; neighbours lean away from each other."""
    ax.set_xticks(actions, labels or [str(a) for a in actions])
    for label, a in zip(ax.get_xticklabels(), actions, strict=True):
        near = [b - a for b in actions if 0 < abs(b - a) < 10]
        side = min(near, key=abs, default=0) if sum(near) else 0
        label.set_horizontalalignment("right" if side > 0 else "left" if side < 0 else "center")
        label.set_fontsize(7.5)
    ax.set_xlim(-1, V)


def _trajectory(ax: Axes, path: Floats, row: Row) -> None:
    greedy = int(path[0].argmax())
    lines: tuple[tuple[int, Any, str], ...] = (
        (8, "-", GAINED),
        (11, (0, (5, 2)), GAINED),
        (greedy, (0, (1, 1.5)), SOFT),
    )
    at: list[float] = []
    for action, dash, color in sorted(lines, key=lambda line: path[-1, line[0]]):
        ax.plot(path[:, action], color=color, linestyle=dash, linewidth=1.5)
        at.append(max(float(path[-1, action]), at[-1] + 0.09 if at else 0.0))
        ax.annotate(f"π({action})", (row.steps, at[-1]), xytext=(4, 0), textcoords="offset points", va="center",
                    fontsize=7, color=color, annotation_clip=False)  # fmt: skip
    ax.set_xticks(range(0, row.steps + 1, 2))
    ax.set_ylim(0, 1)
    ax.set_xlim(0, row.steps)


def _figure5_data(eta: float = 1.5) -> dict[str, dict[str, Floats]]:
    """Left: α − 1 of a single rewarded action against its π. Middle: α of two rewarded ones against their gap, the sum
    kept at 0.5. Right: α of every other action against its π when one of π = 0.2 is pushed down."""
    p = np.geomspace(1e-4, 0.6, 120)
    single = np.concatenate([p[:, None], np.repeat((1 - p)[:, None] / (V - 1), V - 1, 1)], 1)
    gap = np.linspace(0, 0.48, 97)
    rest = np.full((len(gap), V - 2), 0.5 / (V - 2))
    two = np.concatenate([((0.5 + gap) / 2)[:, None], ((0.5 - gap) / 2)[:, None], rest], 1)
    falling = np.geomspace(1, 1e-3, V - 1)
    down = np.concatenate([[0.2], 0.8 * falling / falling.sum()])
    out: dict[str, dict[str, Floats]] = {"left": {"pi": p}, "middle": {"gap": gap}, "right": {"pi": down[1:]}}
    for o in OBJECTIVES:
        out["left"][o] = alpha(run(np.log(single), {0: 1}, o, eta))[:, 0] - 1
        both = alpha(run(np.log(two), {0: 1, 1: 1}, o, eta))
        out["middle"][f"{o}, likelier"], out["middle"][f"{o}, rarer"] = both[:, 0], both[:, 1]
        out["right"][o] = alpha(run(np.log(down), {0: -1}, o, eta))[1:]
    return out


def _csv5(curves: dict[str, dict[str, Floats]]) -> str:
    rows: list[tuple[Any, ...]] = []
    for panel, columns in curves.items():
        (_, x), *ys = columns.items()
        rows += [(panel, name, float(a), float(b)) for name, y in ys for a, b in zip(x, y, strict=True)]
    return csv_text(("panel", "curve", "x", "value"), rows)


def _figure5(figure: Figure, curves: dict[str, dict[str, Floats]]) -> None:
    figure.set_size_inches(9.2, 2.9)
    left, middle, right = figure.subplots(1, 3)
    for o in OBJECTIVES:
        left.plot(curves["left"]["pi"], curves["left"][o], color=LINES[o], label=NAMES[o])
        middle.plot(curves["middle"]["gap"], curves["middle"][f"{o}, likelier"], color=LINES[o])
        middle.plot(curves["middle"]["gap"], curves["middle"][f"{o}, rarer"], color=LINES[o], linestyle=(0, (4, 2)))
        right.plot(curves["right"]["pi"], curves["right"][o], color=LINES[o], marker=".", markersize=3)
    for ax in (left, right):
        _powers(ax, "x")
        ax.set_xlabel("π of the action before")
    _powers(left, "y")
    left.set_ylabel("α − 1")
    left.set_title("one rewarded action", fontsize=8.5, loc="left", color=INK)
    middle.axhline(1, color=INK, linewidth=0.8)
    middle.set_xlabel("gap of the two (their sum is 0.5)")
    middle.set_ylabel("α")
    middle.set_title("two rewarded: likelier (solid), rarer (dashed)", fontsize=8.5, loc="left", color=INK)
    right.axhline(1, color=INK, linewidth=0.8)
    right.set_ylabel("α")
    right.set_title("another action pushed down", fontsize=8.5, loc="left", color=INK)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, labelcolor=SOFT)


def _powers(ax: Axes, axis: str) -> None:
    """A logarithmic axis with plain numbers at its powers of ten."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    getattr(ax, f"set_{axis}scale")("log")
    which = getattr(ax, f"{axis}axis")
    which.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    which.set_minor_locator(NullLocator())
