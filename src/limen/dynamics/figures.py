"""Figures 2, 7 and 8 of RBP from training runs with a probe: PNG, SVG and the numbers as CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limen.dynamics.curves import RunCurves, band, groups, read_curves
from limen.errors import ConfigError
from limen.report.figures import _STYLE as STYLE
from limen.report.figures import COLORS, DASHES, INK, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
Points = Mapping[str, Mapping[int, Sequence[float]]]
"""Values of a group (several seeds) by step."""

LABELS = {
    "probe/delta_plus": ("interference Δ+", "nats per token, one step"),
    "probe/influence": ("influence ||Δ||", "nats² per token², one step"),
    "probe/logp_plus": ("log π(y+|x), the base's correct responses", "nats per token"),
    "probe/clip": ("clip violations, probe set", "share of tokens"),
    "probe/clip_batch": ("clip violations, training batch", "share of tokens"),
    "reward": ("reward of the sampled responses", "mean"),
    "entropy": ("token entropy of own samples", "nats"),
}
PANELS = {
    2: ("probe/influence", "probe/delta_plus", "probe/logp_plus"),
    7: ("probe/clip_batch", "probe/clip"),
    8: ("reward", "entropy", "probe/delta_plus", "probe/influence", "probe/clip", "probe/logp_plus"),
}


def training_figure(
    number: int, paths: Sequence[str | Path], out: str | Path, passes: Mapping[str, Points] | None = None
) -> list[Path]:
    """Figure 2, 7 or 8 of the paper from training runs; runs of one name are one line with a band from the lowest to
    the highest. `passes`: pass@k by name of the quantity ("pass@1"), group and step, for panel A of figure 2.

    Raises `ConfigError` for another number, `DataError` where a run had no probe.
    """
    if number not in PANELS:
        raise ConfigError(
            f"figure {number} is not made from training runs: 2, 7, 8 and 10 are; 3, 4 and 14 from the folder of "
            "`limen dynamics`"
        )
    keys = PANELS[number]
    runs = [read_curves(p, [k for k in keys if k.startswith("probe/") and k != "probe/clip_batch"]) for p in paths]
    found = groups(runs)
    drawn: list[tuple[str, Callable[[Axes], None]]] = []
    rows: list[Row] = []
    if number == 2 and passes:
        drawn.append(("", partial(_passes, passes=passes, names=list(found), rows=rows)))
    for key in keys:
        drawn.append((key, partial(_curves, found=found, key=key, rows=rows)))

    def draw(figure: Figure) -> None:
        columns = 2 if len(drawn) in (2, 4) else min(3, len(drawn))
        lines = math.ceil(len(drawn) / columns)
        figure.set_size_inches(3.1 * columns, 0.35 + 2.05 * lines)
        axes = figure.subplots(lines, columns, squeeze=False, sharey=number == 7).ravel()
        for ax in axes[len(drawn) :]:
            ax.set_visible(False)
        for ax, (_, one) in zip(axes, drawn, strict=False):
            one(ax)
        legend(figure, list(axes))

    return save(f"figure{number}", draw, rows, Path(out))


def _curves(ax: Axes, found: Mapping[str, Sequence[RunCurves]], key: str, rows: list[Row]) -> None:
    title, unit = LABELS[key]
    values: list[float] = []
    for i, (name, runs) in enumerate(found.items()):
        points = max(len(r.get(key)[0]) for r in runs)
        b = band(runs, key, window=max(1, points // 15))
        if b is None:
            continue
        color, dash = style(i)
        if b.runs > 1:
            ax.fill_between(b.step, b.low, b.high, color=color, alpha=0.15, linewidth=0)
        elif points > 15:
            raw = runs[0].get(key)
            ax.plot(raw[0], raw[1], color=color, linewidth=0.5, alpha=0.35)
        mark = "o" if len(b.step) == 1 else None
        ax.plot(b.step, b.mean, color=color, linestyle=dash, linewidth=1.4, label=name, marker=mark, markersize=3)
        values += b.low.tolist()
        for run in runs:
            step, value = run.get(key)
            rows += [
                {"quantity": key, "group": name, "run": str(run.path), "step": int(s), "value": float(v)}
                for s, v in zip(step, value, strict=True)
            ]
    if key == "probe/influence" and values and min(values) > 0 and max(values) > 20 * min(values):
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(lambda v, _: f"{v:g}")
        ax.yaxis.set_minor_formatter(lambda v, _: "")
    if key == "probe/delta_plus":
        ax.axhline(0, color=INK, linewidth=0.7)
    titled(ax, title, unit, "step")


def _passes(ax: Axes, passes: Mapping[str, Points], names: Sequence[str], rows: list[Row]) -> None:
    """Panel A: accuracy and coverage over checkpoints, solid for the first quantity and dashed for the others."""
    for q, (quantity, by_group) in enumerate(passes.items()):
        for group, at in by_group.items():
            i = names.index(group) if group in names else len(names)
            steps = sorted(at)
            means = [sum(at[s]) / len(at[s]) for s in steps]
            ax.plot(steps, means, color=style(i)[0], linestyle="-" if q == 0 else (0, (3, 1.5)), linewidth=1.4)
            ax.fill_between(
                steps, [min(at[s]) for s in steps], [max(at[s]) for s in steps], color=style(i)[0], alpha=0.12, lw=0
            )
            ax.annotate(quantity, (steps[-1], means[-1]), xytext=(3, 0), textcoords="offset points", va="center",
                        fontsize=6.5, color=style(i)[0], annotation_clip=False)  # fmt: skip
            rows += [
                {"quantity": quantity, "group": group, "run": "", "step": s, "value": v} for s in steps for v in at[s]
            ]
    titled(ax, "accuracy and coverage", "mean over problems", "step")


def pass_points(samples: Sequence[str | Path]) -> dict[str, dict[str, dict[int, list[float]]]]:
    """pass@1 and pass@k at the largest common k, by name of the quantity, policy and step, from runs of
    `limen sample` of checkpoints (their settings say policy and step). A run of step 0 is the base of all."""
    from limen.measure import counts_from_run, pass_at_k

    tables = [counts_from_run(s) for s in samples]
    most = min(t.n_min for t in tables)
    trained = list(dict.fromkeys(t.policy for t in tables if t.step))
    out: dict[str, dict[str, dict[int, list[float]]]] = {}
    for k in dict.fromkeys((1, most)):
        by_group = out.setdefault(f"pass@{k}", {})
        for t in tables:
            value = float(pass_at_k(t.n_P, t.c_P, k).mean())
            for group in [t.policy] if t.step or not trained else trained:
                by_group.setdefault(group, {}).setdefault(t.step or 0, []).append(value)
    return out


def style(i: int) -> tuple[str, Any]:
    """Colour and dash of the i-th group (the base's ink is left to bases)."""
    return COLORS[1 + i % (len(COLORS) - 1)], DASHES[1 + i % (len(DASHES) - 1)]


def titled(ax: Axes, title: str, unit: str, x: str) -> None:
    ax.set_title(title, fontsize=8, loc="left", color=INK)
    ax.set_ylabel(unit, fontsize=7)
    ax.set_xlabel(x, fontsize=7)
    ax.tick_params(labelsize=7)


def legend(figure: Figure, axes: Sequence[Axes], columns: int = 4) -> None:
    """One legend below for all panels."""
    unique: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            unique.setdefault(label, handle)
    if unique:
        figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=columns, frameon=False,
                      labelcolor=SOFT, fontsize=7.5)  # fmt: skip


def save(name: str, draw: Callable[[Figure], None], rows: list[Row], out: Path) -> list[Path]:
    """Write NAME.png, NAME.svg and NAME.csv into `out`."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    out.mkdir(parents=True, exist_ok=True)
    made = []
    with mpl.rc_context(STYLE):
        figure = Figure(layout="constrained")
        draw(figure)
        for suffix, meta in ((".png", {"Software": None}), (".svg", {"Date": None, "Creator": None})):
            made.append(out / f"{name}{suffix}")
            figure.savefig(made[-1], metadata=meta)
    made.append(out / f"{name}.csv")
    with made[-1].open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["quantity"])
        writer.writeheader()
        writer.writerows(rows)
    return made
