"""The page and the figure of `limen lab longer`, from its JSON or its digest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limen.lab.claims_rules import n_max, tables, values
from limen.lab.evidence import Evidence, Trained
from limen.lab.longer_rules import judge, marks
from limen.lab.trends import t_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {"grpo": "GRPO", "self": "SELF", "nll-1": "GRPO + forward KL 1"}
WANTED_SEEDS = 3


def longer_page(e: Evidence) -> str:
    """pass@1 and pass@n by arm and step, seed by seed and in the mean, support beside chance, and the rules."""
    runs, doc = [r for r in e.runs() if r.step], e.doc
    k = n_max(e.runs())
    head = ["arm", "step", "seeds", "pass@1", f"pass@{k}", f"pass@{k} by seed", "E", "S", "chance"]
    lines = [_HEAD.format(steps=doc["steps"], times=int(doc["steps"]) / 200, recipe=doc["recipe"], n=runs[0].base.n_min,
                          M=runs[0].base.M, k=k, commits=", ".join(doc.get("commits", ())),
                          hardware=", ".join(doc.get("hardware", ())))]  # fmt: skip
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    base = [f"{float(values(runs[:1], x, 'base').mean()):.3f}" for x in (1, k)]
    lines.append("| base | 0 | | " + " | ".join(base) + " | | | | |")
    for r in e.runs("control"):
        lines.append("| base again | 0 | | " + " | ".join(_cells([r], k)) + " |")
    for arm in [a for a in NAMES if e.runs(a)]:
        for step, own in marks(e, arm).items():
            seeds = ", ".join(str(r.seed) for r in own)
            lines.append(f"| {NAMES[arm]} | {step} | {seeds} | " + " | ".join(_cells(own, k)) + " |")
    lines += ["", *missing(e), ""]
    for words, verdict in judge(e).items():
        lines.append(f"- {words}: " + ("not measured" if verdict is None else f"**{verdict.verdict}**; {verdict.size}"))
    return "\n".join(lines) + "\n\n![pass@1 and pass@n over training](longer.png)\n"


def _cells(own: list[Trained], k: int) -> list[str]:
    first, last = ([float(values([r], x).mean()) for r in own] for x in (1, k))
    flips = tables(own)
    counts = [f"{np.mean([getattr(s, key) for s in flips]):.1f}" for key in ("E", "S", "chance_each_way")]
    return [_between(first), _between(last), " ".join(f"{x:.3f}" for x in last), *counts]


def _between(found: list[float]) -> str:
    mean, low, high = t_interval(found)
    return f"{mean:.3f}" + ("" if low != low else f" [{low:.3f}, {high:.3f}]")


def missing(e: Evidence) -> list[str]:
    """Which trainings did not run, or did not come to their end: said on the page."""
    out = []
    for arm, name in NAMES.items():
        found = marks(e, arm)
        seeds = {r.seed for x in found.values() for r in x}
        ended = {r.seed for r in found.get(int(e.doc["steps"]), ())}
        if len(seeds) < WANTED_SEEDS:
            out.append(f"{name}: {len(seeds)} of {WANTED_SEEDS} seeds.")
        out += [
            f"{name}, seed {s}: not finished, sampled up to step {max(m for m, x in found.items() if s in _seeds(x))}."
            for s in sorted(seeds - ended)
        ]
    return ["Not all of it has run. " + " ".join(out)] if out else ["Every training ran to its end."]


def _seeds(runs: list[Trained]) -> set[int]:
    return {r.seed for r in runs}


def figure(e: Evidence, out: Path, name: str) -> list[Path]:
    """pass@1 and pass@n over steps: mean over seeds, bars: 95% t intervals over three seeds or more, the base."""
    from limen.dynamics.figures import legend, save

    k, rows = n_max(e.runs()), list[dict[str, Any]]()

    def draw(fig: Figure) -> None:
        fig.set_size_inches(6.8, 3.1)
        axes = fig.subplots(1, 2)
        for ax, x in zip(axes, (1, k), strict=True):
            rows.extend(_panel(ax, e, x))
        legend(fig, list(axes))

    return save(name, draw, rows, out)


def _panel(ax: Axes, e: Evidence, k: int) -> list[dict[str, Any]]:
    from limen.dynamics.figures import style, titled
    from limen.report.figures import INK

    base = float(values(e.runs()[:1], k, "base").mean())
    ax.axhline(base, color=INK, linewidth=0.9, label="base")
    rows = [{"arm": "base", "step": 0, "k": k, "seeds": 1, "value": base, "low": "", "high": ""}]
    shown = [a for a in NAMES if e.runs(a)]
    total = max(r.step for r in e.runs())
    for i, arm in enumerate(shown):
        found = marks(e, arm)
        ends = {s: t_interval([float(values([r], k).mean()) for r in own]) for s, own in found.items()}
        x = [0.0, *(s + (i - 1) * total / 150 for s in ends)]
        y = [base, *(v[0] for v in ends.values())]
        half = [0.0, *(v[0] - v[1] if len(found[s]) >= WANTED_SEEDS else 0.0 for s, v in ends.items())]
        colour, dash = style(i)
        ax.errorbar(x, y, half, color=colour, linestyle=dash, linewidth=1.3, marker="o", markersize=3,
                    elinewidth=0.8, capsize=2, label=NAMES[arm])  # fmt: skip
        rows += [
            {"arm": arm, "step": s, "k": k, "seeds": len(found[s]), "value": v[0], "low": v[1], "high": v[2]}
            for s, v in ends.items()
        ]
    titled(ax, "first attempt" if k == 1 else "coverage", f"pass@{k}", "step")
    return rows


_HEAD = """\
# Longer training

The tiny base trained for {steps} steps of 64 prompts x 8 responses, {times:g} times as long as the demo; recipe
"{recipe}", whose step size falls linearly over the whole training, so the early marks are not the ends of shorter
ones. {M} held-out problems, n = {n}; means over seeds with 95% t intervals over seeds; *E*, *S*: gained and lost
against the base's first draw, *chance*: what two runs of one policy would show each way. Made at {commits} on
{hardware}. The rules below were written down before the runs (`src/limen/lab/longer_rules.py`).
"""
