"""The page and the figure of `limen lab bins`, from its JSON or its digest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from limen.lab.bins import HIGH, LOW
from limen.lab.claims_between import traces
from limen.lab.claims_bins import by_bin, name, seeds, winner_takes_all, winners_gain
from limen.lab.claims_rules import said
from limen.lab.evidence import Evidence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"grpo": "GRPO", "self": "SELF"}


def methods(e: Evidence) -> list[str]:
    return [m for m in NAMES if seeds(e, "changes", m)]


def bins_page(e: Evidence) -> str:
    """Bins, thirds of training, outside solutions, and the rules."""
    found = e.doc["study"]
    lines = [_HEAD.format(recipe=e.doc["recipe"], steps=e.doc["steps"], commit=found["commit"], low=LOW, high=HIGH,
                          hardware=found["hardware"], seeds=len(seeds(e, "changes", "grpo")))]  # fmt: skip
    lines += ["| policy | base's p | problems | Δ log π(y⁺) | Δp |", "|---|---|---|---|---|"]
    for m in methods(e):
        rate = by_bin(e, m, "dp")
        for b, (n, x) in by_bin(e, m, "dlogp").items():
            lines.append(f"| {NAMES[m]} | {name(e, b)[2:]} | {n} | {said(x, 2)} | {said(rate[b][1])} |")
    rows = [r for r in e.doc["groups"] if r["method"] == "grpo"]
    if rows:
        lines += ["", "Groups of GRPO's training (means over seeds; in brackets what the base would give):", ""]
        lines += ["| base's p | third | groups | with a signal | success |", "|---|---|---|---|---|"]
        for b in sorted({r["bin"] for r in rows}):
            lines += [_third(e, b, t, [r for r in rows if (r["bin"], r["third"]) == (b, t)]) for t in range(3)]
    lines.append("")
    rules = {"RBP-S4-1": winners_gain, "RBP-S5-WTA": winner_takes_all, "IL-T2a": traces("shrinkage", 1),
             "IL-T2b": traces("expansion", -1), "IL-T2c": traces("neither", 0)}  # fmt: skip
    for row, rule in rules.items():
        v = rule(e)
        lines.append(f"- {row}: " + ("not measured" if v is None else f"**{v.verdict}**; {v.size}"))
    return "\n".join(lines) + "\n\n![Changes by the base's success rate](bins.png)\n"


def _third(e: Evidence, b: int, third: int, rows: list[dict[str, Any]]) -> str:
    if not rows:
        return f"| {name(e, b)[2:]} | {third + 1} | 0 | | |"
    total = sum(r["groups"] for r in rows)

    def of(key: str) -> float:
        return float(sum(r[key] * r["groups"] for r in rows) / total)

    cells = [f"{of(k):.3f} ({of(f'base_{k}'):.3f})" for k in ("signal", "success")]
    return f"| {name(e, b)[2:]} | {third + 1} | {total} | " + " | ".join(cells) + " |"


def figure(e: Evidence, out: Path, name_: str) -> list[Path]:
    """Changes of log π(y⁺) and of p by bin; bars: 95% over problems."""
    from limen.dynamics.figures import legend, save, style, titled
    from limen.report.figures import INK

    rows: list[dict[str, Any]] = []

    def draw(fig: Figure) -> None:
        fig.set_size_inches(7.4, 3.1)
        axes = fig.subplots(1, 2)
        edges = e.doc["edges"]
        for ax, key, unit in zip(axes, ("dlogp", "dp"), ("change of log π(y+), nats", "change of p"), strict=True):
            ax.axhline(0, color=INK, linewidth=0.9)
            for i, m in enumerate(methods(e)):
                found = by_bin(e, m, key)
                colour, _ = style(i)
                x = [b + 0.16 * (2 * i - 1) for b in found]
                y = [v[0] for _, v in found.values()]
                half = [
                    [max(0.0, v[0] - v[1]) for _, v in found.values()],
                    [max(0.0, v[2] - v[0]) for _, v in found.values()],
                ]
                ax.errorbar(x, y, half, color=colour, marker="o", markersize=3.5, linestyle="none", elinewidth=0.9,
                            capsize=2, label=NAMES[m])  # fmt: skip
                rows.extend({"method": m, "quantity": key, "low_edge": edges[b], "high_edge": edges[b + 1],
                             "problems": n, "value": v[0], "low": v[1], "high": v[2]}
                            for b, (n, v) in found.items())  # fmt: skip
            shown = sorted({b for m in methods(e) for b in by_bin(e, m, key)})
            ax.set_xticks(shown, [f"≤ {edges[b + 1]:g}" for b in shown])
            titled(ax, "", unit, "the base's chance of a right sample")
        legend(fig, list(axes))

    return save(name_, draw, rows, out)


_HEAD = """\
# Winners and losers by the base's success rate

GRPO and SELF against the tiny base, recipe "{recipe}", {steps} steps, {seeds} seeds, trained at {commit} on {hardware}.
A problem has one right text here, so p is its exact probability and nothing below is drawn. Changes: mean over the
held-out problems of the bin, seed mean, 95% bootstrap over problems. *Low* problems of the rules: p up to {low}, *high*
ones: from {high}. Rules, written down before the runs: `src/limen/lab/bins.py`.
"""
