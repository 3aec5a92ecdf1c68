"""The figure of `limen influence`: prediction against measurement, where it breaks, spectrum, effective rank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from limen.dynamics.influence_step import HOLDS
from limen.report.figures import COLORS, INK, RULE, SOFT

if TYPE_CHECKING:
    from limen.dynamics.influence import Influence


def write_figure(found: Influence, folder: Path) -> list[Path]:
    """`influence.png` and `.svg`; returns what was written."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style = {
        "font.size": 8.0, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "limen",
        "axes.edgecolor": SOFT, "axes.labelcolor": SOFT, "text.parse_math": False, "svg.fonttype": "none",
    }  # fmt: skip
    with mpl.rc_context(style):
        figure = Figure(figsize=(9.6, 2.6), layout="constrained")
        axes = figure.subplots(1, 4)
        _scatter(axes[0], found)
        _sweep(axes[1], found)
        _spectrum(axes[2], found)
        _rank(axes[3], found)
        made = []
        for suffix, meta in ((".png", {"Software": None}), (".svg", {"Date": None, "Creator": None})):
            figure.savefig(folder / f"influence{suffix}", metadata=meta, dpi=200)
            made.append(folder / f"influence{suffix}")
    return made


def _scatter(ax: Any, found: Influence) -> None:
    held = [p for p in found.points if p.main.check.r2 >= HOLDS]  # the last step that first order explains
    point = (held or list(found.points))[-1]
    p = point.main
    x, y = p.predicted_M.numpy(), p.measured_M.numpy()
    correct = [bool(pair.correct) for pair in found.probe]
    for value, color, name in ((True, COLORS[2], "correct"), (False, COLORS[1], "wrong")):
        places = [i for i, c in enumerate(correct) if c is value]
        ax.scatter(x[places], y[places], s=5, color=color, alpha=0.6, linewidths=0, label=name)
    ends = [min(x.min(), y.min()), max(x.max(), y.max())]
    ax.plot(ends, ends, color=INK, linewidth=0.7)
    ax.set_xlabel(f"predicted Δ log π ({p.form}, step {point.place.step})")
    ax.set_ylabel("measured")
    ax.set_title(f"R² {p.check.r2:.3f} at step size {p.lr:.2g}", fontsize=8, loc="left")
    ax.legend(frameon=False, fontsize=7, handletextpad=0.1)


def _sweep(ax: Any, found: Influence) -> None:
    for i, point in enumerate(found.points):
        for form, p in point.predictions.items():
            rms = [c.rms for c in p.sweep]
            dash = "-" if form == "adam" else (0, (1.5, 2))
            label = f"step {point.place.step}, {form}"
            ax.plot(rms, [max(c.r2, -0.2) for c in p.sweep], color=COLORS[i % len(COLORS)], linestyle=dash,
                    linewidth=1.1, label=label)  # fmt: skip
    ax.axhline(HOLDS, color=RULE, linewidth=0.8)
    ax.set_xscale("log")
    _plain(ax.xaxis)
    ax.set_ylim(-0.22, 1.03)
    ax.set_xlabel("size of the step: rms Δ log π, nats")
    ax.set_ylabel("R² of the prediction")
    if sum(len(p.predictions) for p in found.points) <= 8:
        ax.legend(frameon=False, fontsize=6)


def _spectrum(ax: Any, found: Influence) -> None:
    for i, point in enumerate(found.points):
        values = point.spectrum.eigenvalue_R
        shares = values / values.sum()
        ax.plot(range(1, len(shares) + 1), shares.clip(1e-9), color=COLORS[i % len(COLORS)], linewidth=1.1,
                label=f"step {point.place.step}")  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(bottom=1e-7)
    _plain(ax.xaxis, ax.yaxis)
    ax.set_xlabel("eigenvalue, largest first")
    ax.set_ylabel("share of the trace")
    ax.legend(frameon=False, fontsize=6)


def _plain(*sides: Any) -> None:
    """Powers of ten as plain numbers: math is not parsed here, so that no label can break the figure."""
    from matplotlib.ticker import LogLocator

    for side in sides:
        side.set_major_locator(LogLocator(numticks=5))
        side.set_major_formatter(lambda v, _: f"{v:g}")
        side.set_minor_formatter(lambda v, _: "")


def _rank(ax: Any, found: Influence) -> None:
    steps = [p.place.step for p in found.points]
    ax.plot(steps, [p.spectrum.effective_rank for p in found.points], "o-", color=INK, markersize=3, linewidth=1.1,
            label="kernel")  # fmt: skip
    ax.plot(steps, [p.spectrum.effective_rank_cosine for p in found.points], "o--", color=COLORS[3], markersize=3,
            linewidth=1.1, label="cosines")  # fmt: skip
    ax.set_ylim(bottom=0)
    ax.set_xlabel("optimizer step")
    ax.set_ylabel("effective rank")
    ax.legend(frameon=False, fontsize=7)
