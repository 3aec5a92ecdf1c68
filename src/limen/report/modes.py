"""Reasoning modes: what share of each policy's responses is code, as a chart and as numbers (RBP fig. 6 and 15)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from limen.report.checkpoints import checkpoint_lines
from limen.report.model import Measure, ReportData

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KEYS = ("code_share", "accuracy_code", "accuracy_language")


def shows_modes(data: ReportData) -> bool:
    """Whether any policy answers in code at all."""
    return any(m.value > 0 for p in data.policies if (m := p.measures.get("code_share")) is not None)


def mode_rows(data: ReportData) -> list[tuple[int, Measure]]:
    """(place of the policy, share of code) for the policies that have one."""
    return [(i, m) for i, p in enumerate(data.policies) if (m := p.measures.get("code_share")) and m.value == m.value]


def draw_modes(figure: Figure, data: ReportData, colors: Sequence[str], soft: str) -> None:
    """Bars of the shares of code; beside them, where a policy was sampled at several steps, its share over them."""
    lines = {f: [(step, i) for step, i in at if _share(data, i)] for f, at in checkpoint_lines(data).items()}
    lines = {f: at for f, at in lines.items() if len(at) > 1}
    rows = [(i, m) for i, m in mode_rows(data) if data.policies[i].last]
    figure.set_size_inches(7.4 if lines else 5.2, max(1.4, 0.75 + 0.3 * len(rows)) if not lines else 2.6)
    axes = figure.subplots(1, 2 if lines else 1, squeeze=False).ravel()
    _bars(axes[0], data, rows, colors, soft)
    if lines:
        _over_steps(axes[1], data, lines, colors)


def _bars(ax: Axes, data: ReportData, rows: Sequence[tuple[int, Measure]], colors: Sequence[str], soft: str) -> None:
    for r, (i, m) in enumerate(rows):
        control = data.policies[i].role == "control"
        ax.barh(r, m.value, 0.55, color=soft if control else colors[i % len(colors)], alpha=0.85)
        if m.low == m.low:
            ax.plot([m.low, m.high], [r, r], color=soft, linewidth=1.2)
        ax.text(max(m.value, m.high if m.high == m.high else 0) + 0.015, r, f"{m.value:.3f}", va="center", fontsize=7.5)
    ax.set_yticks(range(len(rows)), [data.policies[i].name for i, _ in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(0, 1)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel("share of responses in code")


def _over_steps(ax: Axes, data: ReportData, lines: dict[str, list[tuple[int, int]]], colors: Sequence[str]) -> None:
    for family, points in lines.items():
        color = colors[points[-1][1] % len(colors)]
        measures = [data.policies[i].measures["code_share"] for _, i in points]
        steps = [step for step, _ in points]
        ax.fill_between(steps, [m.low for m in measures], [m.high for m in measures], color=color, alpha=0.13, lw=0)
        ax.plot(steps, [m.value for m in measures], color=color, marker="o", markersize=3, label=family)
    ax.set_ylim(0, 1)
    ax.set_xlabel("step")
    ax.set_ylabel("share of code")
    if len(lines) > 1:
        ax.legend(frameon=False, fontsize=7.5)


def _share(data: ReportData, i: int) -> bool:
    m = data.policies[i].measures.get("code_share")
    return m is not None and m.value == m.value


def mode_csv(data: ReportData) -> list[tuple[str, str, int | None, str, float, float, float]]:
    """(policy, family, step, quantity, value, low, high) of the share of code and of the accuracy in either mode."""
    return [
        (p.name, p.family, p.step, key, m.value, m.low, m.high)
        for p in data.policies
        for key in KEYS
        if (m := p.measures.get(key)) is not None and m.value == m.value
    ]
