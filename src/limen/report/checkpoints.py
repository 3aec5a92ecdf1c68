"""pass@k over the checkpoints of a training run: the same lines on paper and in the CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from limen.report.model import ReportData

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def checkpoint_lines(data: ReportData) -> dict[str, list[tuple[int, int]]]:
    """(step, index of the policy) of each family with several checkpoints, in order; the base stands at step 0."""
    families = dict.fromkeys(p.family for p in data.policies if not p.last)
    lines = {}
    for family in families:
        points = [
            (p.step, i) for i, p in enumerate(data.policies) if p.family == family and p.role == "trained" and p.step
        ]
        lines[family] = [(0, 0), *sorted(points)]
    return lines


def shown_ks(data: ReportData) -> list[int]:
    """The smallest, a middle and the largest k that every policy has."""
    ks = [k for k in data.policies[0].curve.k if all(k in p.curve.k for p in data.policies)]
    return sorted({ks[0], ks[len(ks) // 2], ks[-1]})


def draw_checkpoints(figure: Figure, data: ReportData, colors: Sequence[str]) -> None:
    """One panel for each k: pass@k with its interval against the optimizer step, a line for each family."""
    ks, lines = shown_ks(data), checkpoint_lines(data)
    figure.set_size_inches(6.8, 2.2)
    axes = figure.subplots(1, len(ks), squeeze=False).ravel()
    for ax, k in zip(axes, ks, strict=True):
        for family, points in lines.items():
            steps, color = [step for step, _ in points], colors[points[-1][1] % len(colors)]
            value, low, high = zip(*(data.policies[i].curve.at(k) for _, i in points), strict=True)
            ax.fill_between(steps, low, high, color=color, alpha=0.13, linewidth=0)
            ax.plot(steps, value, color=color, linewidth=1.5, marker="o", markersize=3, label=family)
        ax.set_title(f"pass@{k}", fontsize=8.5, loc="left")
        ax.set_xlabel("step")
    if len(lines) > 1:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
