"""The figure of `limen lab widths`: the change of pass@1 and pass@n against the model's size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from limen.errors import DataError
from limen.lab.claims_rules import change, n_max
from limen.lab.evidence import Evidence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"grpo": "GRPO", "self": "SELF"}


def changes(e: Evidence) -> list[dict[str, Any]]:
    """Method, width, parameters, k and the change of pass@k: seed mean minus the base of the width, with its interval
    over problems. Raises `DataError` where the study has no widths."""
    runs = e.runs()
    sizes = e.doc.get("parameters") or {}
    if not runs or len(sizes) < 2:
        raise DataError(f"{e.path} holds no bases of several widths: make it with `limen lab widths --out DIR`")
    rows = []
    for method in [m for m in NAMES if e.finals(m)]:
        for group in sorted({r.group for r in runs}, key=int):
            own = [r for r in e.finals(method) if r.group == group]
            for k in (1, n_max(runs)):
                value, low, high = change(own, k)
                rows.append({"method": method, "width": int(group), "parameters": int(sizes[group]), "k": k,
                             "seeds": len(own), "change": value, "low": low, "high": high})  # fmt: skip
    return rows


def figure(e: Evidence, out: Path, name: str = "widths") -> list[Path]:
    """Two panels, pass@1 and pass@n; bars: 95% intervals over problems."""
    from limen.dynamics.figures import legend, save, style, titled
    from limen.report.figures import INK

    rows = changes(e)

    def draw(fig: Figure) -> None:
        fig.set_size_inches(6.4, 3.0)
        axes = fig.subplots(1, 2)
        for ax, k in zip(axes, sorted({r["k"] for r in rows}), strict=False):
            ax.axhline(0, color=INK, linewidth=0.9)
            for i, m in enumerate(dict.fromkeys(r["method"] for r in rows)):
                own = [r for r in rows if (r["method"], r["k"]) == (m, k)]
                colour, dash = style(i)
                y = [r["change"] for r in own]
                half = [
                    [max(0.0, r["change"] - r["low"]) for r in own],
                    [max(0.0, r["high"] - r["change"]) for r in own],
                ]
                x = [r["parameters"] * 1.04 ** (2 * i - 1) for r in own]
                ax.errorbar(x, y, half, color=colour, linestyle=dash, linewidth=1.3, marker="o", markersize=3.5,
                            elinewidth=0.9, capsize=2, label=NAMES[m])  # fmt: skip
            ticks = sorted({r["parameters"] for r in rows})
            ax.set_xscale("log")
            ax.set_xticks(ticks, [f"{t / 1e3:.0f}k" if t < 1e6 else f"{t / 1e6:.1f}M" for t in ticks])
            ax.minorticks_off()
            title = "first attempt" if k == 1 else "coverage"
            titled(ax, title, f"change of pass@{k}", "parameters")
        legend(fig, list(axes))

    return save(name, draw, rows, out)
