"""Every figure as PNG and SVG, in a style fit for a paper: one column wide, colour-blind-safe, no decoration."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limen.report.checkpoints import draw_checkpoints
from limen.report.model import LABELS, MAIN_KEYS, Curve, ReportData, Training
from limen.report.modes import draw_modes, shows_modes
from limen.report.words import finding

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, RULE = "#1d1c1a", "#5d5a54", "#dedad1"
COLORS = (INK, "#b5308a", "#0a7d3c", "#6a35c9", "#8a6d00", "#00798a", "#7c2d12", "#5b6472")
"""The page's --p0 … --p7: the base in ink, the first four apart for every kind of colour blindness, all readable as
text, and none of them near the two that mean lost and gained."""
DASHES: tuple[Any, ...] = ("-", "-", (0, (6, 2.5)), (0, (1.5, 2)), (0, (7, 2, 1.5, 2)), (0, (4, 1.5)), (0, (1, 2)), "-")
CONTROL = "#77726a"
KEPT, GAINED, LOST, NEVER = "#8f8a80", "#0072b2", "#d55e00", "#d8d3c8"
_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans"],
    "font.size": 8.5,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.major.width": 0.7,
    "ytick.major.size": 0,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "limen",
    "figure.dpi": 100,
    "savefig.dpi": 300,
}


def write_figures(data: ReportData, folder: Path) -> list[Path]:
    """Write each figure that the data has as NAME.png and NAME.svg into `folder`; return what was written."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    made = []
    with mpl.rc_context(_STYLE):
        for name, draw in _figures(data).items():
            figure = Figure(layout="constrained")
            draw(figure)
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # laid out once is enough for both files
            for suffix, meta in ((".png", {"Software": None}), (".svg", {"Date": None, "Creator": None})):
                path = folder / f"{name}{suffix}"
                figure.savefig(path, metadata=meta)
                made.append(path)
    return made


def _figures(data: ReportData) -> dict[str, Callable[[Figure], None]]:
    figures: dict[str, Callable[[Figure], None]] = {"passk": lambda f: _passk(f, data)}
    if data.contrasts:
        figures["difference"] = lambda f: _difference(f, data)
        figures["flips"] = lambda f: _flips(f, data)
        figures["support"] = lambda f: _support(f, data)
    if any(len(c.by_budget) > 1 for c in data.contrasts):
        figures["budget"] = lambda f: _budget(f, data)
    if any(not p.last for p in data.policies):
        figures["checkpoints"] = lambda f: draw_checkpoints(f, data, COLORS)
    if data.shows_lengths:
        figures["lengths"] = lambda f: _lengths(f, data)
    if shows_modes(data):
        figures["modes"] = lambda f: draw_modes(f, data, COLORS, SOFT)
    if any(t.series for t in data.training):
        figures["training"] = lambda f: _training(f, data)
    return figures


def _curve(ax: Axes, curve: Curve, i: int, data: ReportData) -> None:
    """One policy's line and band; a control has no band, it only shows where chance goes."""
    control = data.policies[i].role == "control"
    dash = (0, (1, 2)) if control else DASHES[i % len(DASHES)]
    if not control:
        ax.fill_between(curve.k, curve.low, curve.high, color=_color(data, i), alpha=0.13, linewidth=0)
    ax.plot(curve.k, curve.value, color=_color(data, i), linestyle=dash, linewidth=1.5)


def _color(data: ReportData, i: int) -> str:
    return CONTROL if data.policies[i].role == "control" else COLORS[i % len(COLORS)]


def _log_k(ax: Axes, k_max: int, most: int = 10) -> None:
    top = max(1, int(math.log2(k_max)))
    ticks = [2**e for e in range(0, top + 1, max(1, math.ceil((top + 1) / most)))]
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.minorticks_off()
    ax.set_xlim(1, k_max)
    ax.set_xlabel("attempts k")


def _end_labels(ax: Axes, ends: Sequence[tuple[str, float, str]], k_max: int) -> None:
    """Names at the right end of the curves, pushed apart, instead of a legend box."""
    low, high = ax.get_ylim()
    gap = (high - low) * 0.058
    placed = sorted((y, color, name) for color, y, name in ends if not math.isnan(y))
    ys: list[float] = []
    for y, _, _ in placed:
        ys.append(max(y, ys[-1] + gap) if ys else y)
    shift = max(0.0, ys[-1] - high) if ys else 0.0
    for (_, color, name), y in zip(placed, ys, strict=True):
        text = name if len(name) <= 26 else name[:25] + "…"
        ax.annotate(
            text,
            (k_max, y - shift),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=color,
            fontweight="bold",
            annotation_clip=False,
        )


def _passk(figure: Figure, data: ReportData) -> None:
    figure.set_size_inches(5.2, 3.1)
    ax = figure.subplots()
    k_max = max([int(p.curve.k[-1]) for p in data.policies if p.curve.k], default=1)
    for i, p in enumerate(data.policies):
        _curve(ax, p.curve, i, data)
    lows = [x for p in data.policies for x in p.curve.low if not math.isnan(x)]
    bottom = min(lows, default=0.0)
    ax.set_ylim(0 if bottom < 0.35 else math.floor(bottom * 10) / 10, 1.0)
    ax.set_ylabel("pass@k")
    _log_k(ax, k_max)
    _end_labels(
        ax, [(_color(data, i), p.curve.value[-1], p.name) for i, p in enumerate(data.policies) if p.curve.k], k_max
    )


def _difference(figure: Figure, data: ReportData) -> None:
    figure.set_size_inches(5.2, 2.6)
    ax = figure.subplots()
    for c in data.contrasts:
        _curve(ax, c.difference, c.policy, data)
    ax.axhline(0, color=INK, linewidth=0.9)
    k_max = max([int(c.difference.k[-1]) for c in data.contrasts if c.difference.k], default=1)
    ax.set_ylabel(f"pass@k − {data.base.name}")
    _log_k(ax, k_max)
    names = [(_color(data, c.policy), data.policies[c.policy].name) for c in data.contrasts]
    ends = [
        (color, c.difference.value[-1], name)
        for (color, name), c in zip(names, data.contrasts, strict=True)
        if c.difference.k
    ]
    _end_labels(ax, ends, k_max)


def _flips(figure: Figure, data: ReportData) -> None:
    rows = data.contrasts
    figure.set_size_inches(5.2, 0.62 + 0.36 * len(rows))
    ax = figure.subplots()
    ax.grid(visible=False)
    reach = max(4.0, *[float(max(c.lost, c.gained, c.chance_lost, c.chance_gained)) for c in rows])
    for r, c in enumerate(rows):
        alpha = 0.45 if data.policies[c.policy].role == "control" else 1.0
        ax.barh(r, -c.lost, 0.5, color=LOST, alpha=alpha)
        ax.barh(r, c.gained, 0.5, color=GAINED, alpha=alpha)
        for chance, n, sign in ((c.chance_lost, c.lost, -1), (c.chance_gained, c.gained, 1)):
            label = "expected by chance alone" if r == 0 and sign < 0 else None
            ax.plot([sign * chance] * 2, [r - 0.38, r + 0.38], color=INK, linewidth=1.4, label=label)
            near = n - 0.02 * reach < chance < n + 0.11 * reach
            at = sign * ((chance if near else n) + 0.025 * reach)
            ax.text(at, r, str(n), va="center", ha="right" if sign < 0 else "left", color=INK, fontweight="bold")
    ax.set_yticks(range(len(rows)), [data.policies[c.policy].name for c in rows], color=INK)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(-reach * 1.18, reach * 1.18)
    ax.axvline(0, color=SOFT, linewidth=0.7)
    ax.set_xticks([])
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.set_title("← lost      gained →", fontsize=8.5, color=SOFT, x=0.5)
    figure.legend(loc="outside lower center", frameon=False, fontsize=7.5, labelcolor=SOFT)


def _support(figure: Figure, data: ReportData) -> None:
    rows = data.contrasts
    figure.set_size_inches(5.2, 0.75 + 0.36 * len(rows))
    ax = figure.subplots()
    ax.grid(visible=False)
    for r, c in enumerate(rows):
        total, left = max(1, c.kept + c.gained + c.lost + c.never), 0.0
        parts = (
            ("kept", c.kept, KEPT),
            ("gained", c.gained, GAINED),
            ("lost", c.lost, LOST),
            ("never", c.never, NEVER),
        )
        for name, n, color in parts:
            share = n / total
            ax.barh(r, share, 0.55, left=left, color=color, label=name if r == 0 else None)
            if share > 0.045:
                ink = INK if name == "never" else "white"
                ax.text(left + share / 2, r, str(n), ha="center", va="center", color=ink, fontsize=7.5)
            left += share
    names = [f"{data.policies[c.policy].name}{' *' if finding(c) in ('shrank', 'grew') else ''}" for c in rows]
    ax.set_yticks(range(len(rows)), names, color=INK)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(0, 1)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("share of problems (* net change beyond chance, p < 0.05)")
    figure.legend(
        loc="outside upper center", ncols=4, frameon=False, labelcolor=SOFT, handlelength=1, columnspacing=1.4
    )


def _budget(figure: Figure, data: ReportData) -> None:
    """Expected lost and gained problems at every budget, beside what chance alone flips."""
    rows = [c for c in data.contrasts if len(c.by_budget) > 1]
    columns = min(3, len(rows))
    lines = math.ceil(len(rows) / columns)
    figure.set_size_inches(max(3.9, 0.4 + 2.3 * columns), 0.4 + 2.0 * lines)
    axes = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
    for ax in axes[len(rows) :]:
        ax.set_visible(False)
    for ax, c in zip(axes, rows, strict=False):
        ks, gained, lost, chance = zip(*c.by_budget, strict=True)
        ax.plot(ks, lost, color=LOST, linewidth=1.5, label="lost")
        ax.plot(ks, gained, color=GAINED, linewidth=1.5, label="gained")
        ax.plot(ks, chance, color=INK, linewidth=1.1, linestyle=(0, (1.5, 1.5)), label="chance alone, each way")
        _log_k(ax, ks[-1], 5)
        ax.set_ylim(bottom=0)
        ax.set_title(data.policies[c.policy].name, fontsize=8.5, loc="left", color=INK)
    axes[0].set_ylabel("problems")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, labelcolor=SOFT)


def _lengths(figure: Figure, data: ReportData) -> None:
    """Tokens of correct and of other responses: median, middle half and 5 to 95% of each policy."""
    rows = [(i, p, x) for i, p in enumerate(data.policies) for x in p.health.lengths]
    figure.set_size_inches(5.2, 0.55 + 0.24 * len(rows))
    ax = figure.subplots()
    for r, (i, _, x) in enumerate(rows):
        color, alpha = _color(data, i), 1.0 if x.kind == "correct" else 0.45
        for ends in ([x.q05, x.q25], [x.q75, x.q95]):
            ax.plot(ends, [r, r], color=color, alpha=alpha, linewidth=0.9, solid_capstyle="butt")
        ax.plot([x.q25, x.q75], [r, r], color=color, alpha=alpha, linewidth=4.5, solid_capstyle="butt")
        ax.plot([x.median], [r], marker="|", color="white", markersize=5)
    ax.set_yticks(range(len(rows)), [f"{p.name}, {x.kind}" for _, p, x in rows], color=INK)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.spines["left"].set_visible(False)
    ax.set_xlim(left=0)
    ax.set_xlabel("tokens of a response (bar: middle half; line: 5 to 95%)")


def _training(figure: Figure, data: ReportData) -> None:
    every = training_keys(data.training)
    keys = [k for k in every if not k.startswith("probe/")][:6] + [k for k in every if k.startswith("probe/")][:6]
    columns = min(3, len(keys))
    lines = math.ceil(len(keys) / columns)
    figure.set_size_inches(6.8, 0.35 + 1.45 * lines)
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for ax in axes[len(keys) :]:
        ax.set_visible(False)
    for ax, key in zip(axes, keys, strict=False):
        for r, run in enumerate(data.training):
            i = (r + 1 if run.policy is None else run.policy) % len(COLORS)
            for series in run.series:
                if series.key == key:
                    mark = "o" if len(series.step) == 1 else None
                    faint = bool(series.smooth)
                    ax.plot(
                        series.step,
                        series.value,
                        color=COLORS[i],
                        linewidth=0.6 if faint else 1.1,
                        alpha=0.35 if faint else 1,
                        marker=mark,
                        label=None if faint else run.name,
                    )
                    if faint:
                        ax.plot(series.step, series.smooth, color=COLORS[i], linewidth=1.3, label=run.name)
        ax.set_title(LABELS.get(key, key), fontsize=8.5, loc="left", color=INK)
        ax.set_xlabel("step")
    handles, labels = axes[0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=4, frameon=False, labelcolor=SOFT)


def training_keys(runs: Sequence[Training]) -> list[str]:
    """Logged quantities, the ones that matter first, then by name."""
    keys = {s.key for run in runs for s in run.series}
    return [k for k in MAIN_KEYS if k in keys] + sorted(keys - set(MAIN_KEYS))
