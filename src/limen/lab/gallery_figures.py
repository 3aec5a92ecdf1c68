"""Figures of the papers that are made from the digests of studies: each writes PNG, SVG and its numbers as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limen.dynamics.figures import legend, save, style, titled
from limen.errors import DataError
from limen.lab.claims_rules import families, n_max, tables, values
from limen.lab.evidence import Evidence
from limen.lab.evidence_training import by_method
from limen.lab.gallery_families import classify
from limen.report.figures import GAINED, INK, KEPT, LOST, NEVER, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
NAMES = {"grpo": "GRPO", "self": "SELF", "w_reinforce": "W-REINFORCE", "dapo": "DAPO"}


def coverage_over_training(e: Evidence, out: Path) -> list[Path]:
    """RBP figure 1: pass@n_max against the optimizer step, one line a method, band over seeds, the base as a line."""
    from limen.lab.claims_dynamics import arm

    arms = [a for m in ("grpo", "self") if (a := arm(e, m)) is not None]
    if not arms:
        raise DataError(f"{e.path} holds no checkpoints: run the study in a folder whose samples are kept")
    rows: list[Row] = []

    def draw(figure: Figure) -> None:
        figure.set_size_inches(4.6, 3.0)
        ax = figure.subplots()
        ax.axhline(arms[0].base[1], color=INK, linewidth=0.9, label="base")
        for i, a in enumerate(arms):
            seeds = sorted({p.seed for p in a.points})
            line = {(p.seed, p.step): p.last for p in a.points}
            grid = np.array([[a.base[1], *(line[s, x] for x in a.steps)] for s in seeds])
            _band(ax, [0, *a.steps], grid, i, a.name)
            rows.extend(
                {"method": a.name, "seed": s, "step": x, "k": a.k, "pass_at_k": float(v)}
                for s, values_ in zip(seeds, grid, strict=True)
                for x, v in zip([0, *a.steps], values_, strict=True)
            )
        titled(ax, "", f"pass@{arms[0].k}", "step")
        legend(figure, [ax])

    return save("rbp-figure1", draw, rows, out)


def _band(ax: Axes, x: Sequence[float], grid: Any, i: int, label: str) -> None:
    color, dash = style(i)
    ax.fill_between(x, grid.min(0), grid.max(0), color=color, alpha=0.14, linewidth=0)
    ax.plot(x, grid.mean(0), color=color, linestyle=dash, linewidth=1.4, label=label)


def curves(e: Evidence, out: Path, name: str = "rbp-figure11", only: Sequence[str] = ()) -> list[Path]:
    """RBP figure 11, and with `only` families IL's figures 2 to 4: pass@k against k, all and family by family."""
    methods = [m for m in ("grpo", "self") if e.finals(m)]
    if not methods:
        raise DataError(f"{e.path} holds no counts of GRPO and SELF")
    runs = {m: e.finals(m) for m in methods}
    k = n_max([r for x in runs.values() for r in x])
    ks, rows = [2**i for i in range(k.bit_length()) if 2**i <= k], list[Row]()
    panels: list[tuple[str, ...]] = [(f,) for f in only] or [(), *[(f,) for f in families(runs[methods[0]])]]

    def draw(figure: Figure) -> None:
        columns = min(4, len(panels))
        figure.set_size_inches(2.7 * columns, 0.4 + 2.5 * -(-len(panels) // columns))
        axes = figure.subplots(-(-len(panels) // columns), columns, squeeze=False).ravel()
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        for ax, panel in zip(axes, panels, strict=False):
            title = panel[0] if panel else "all families"
            base = [float(values(runs[methods[0]], x, "base", panel).mean()) for x in ks]
            ax.plot(ks, base, color=INK, linewidth=1.4, label="base")
            rows.extend(_points(title, "base", "", ks, base))
            for i, m in enumerate(methods):
                grid = np.array([[float(values([r], x, "trained", panel).mean()) for x in ks] for r in runs[m]])
                _band(ax, ks, grid, i, NAMES[m])
                for r, line in zip(runs[m], grid, strict=True):
                    rows.extend(_points(title, m, r.where, ks, line))
            _log_k(ax, ks)
            ax.set_ylim(0, 1)
            titled(ax, title, "pass@k", "attempts k")
        legend(figure, list(axes))

    return save(name, draw, rows, out)


def _points(family: str, method: str, where: str, ks: Sequence[int], line: Sequence[float]) -> list[Row]:
    return [
        {"family": family, "method": method, "where": where, "k": k, "pass_at_k": float(v)}
        for k, v in zip(ks, line, strict=True)
    ]


def _log_k(ax: Axes, ks: Sequence[int]) -> None:
    ticks = [k for k in ks if (k.bit_length() - 1) % 2 == 0]
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, [str(k) for k in ticks])
    ax.minorticks_off()


def of_class(e: Evidence, out: Path, wanted: str, name: str) -> list[Path]:
    """IL figures 2 to 4: the families that GRPO preserved, expanded or shrank (rule in `gallery_families`)."""
    runs = e.finals("grpo")
    found = {f: classify(runs, f) for f in families(runs)} if runs else {}
    chosen = [f for f, kind in found.items() if kind == wanted]
    if not chosen:
        what = ", ".join(f"{f}: {kind}" for f, kind in found.items()) or "no counts"
        raise DataError(f"no family of {e.path.name} is a case of {wanted} ({what})")
    return curves(e, out, name, chosen)


def support_figure(e: Evidence, out: Path) -> list[Path]:
    """IL figure 1: kept, gained, lost and never solved, each method and seed; ticks where chance alone would be."""
    runs = [r for r in e.finals() if r.method != "control"] + e.finals("control")[:1]
    if not runs:
        raise DataError(f"{e.path} holds no counts")
    rows: list[Row] = [
        {"method": r.method, "where": r.where, "P": s.P, "E": s.E, "S": s.S, "O": s.O,
         "chance_each_way": s.chance_each_way, "mcnemar_p": s.mcnemar_p}
        for r, s in zip(runs, tables(runs), strict=True)
    ]  # fmt: skip

    def draw(figure: Figure) -> None:
        figure.set_size_inches(5.6, 0.9 + 0.24 * len(rows))
        ax = figure.subplots()
        for y, row in enumerate(rows):
            left = 0
            for key, color in (("P", KEPT), ("E", GAINED), ("S", LOST), ("O", NEVER)):
                ax.barh(y, row[key], 0.7, left=left, color=color, label=_FOUR[key] if y == 0 else None)
                left += row[key]
            ax.text(left * 1.01, y, f"+{row['E']} −{row['S']} ({row['chance_each_way']:.1f})", va="center", fontsize=7)
        ax.set_yticks(range(len(rows)), [f"{r['method']}, {r['where']}" for r in rows], fontsize=7, color=INK)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.grid(visible=False)
        titled(ax, "gained, lost (each way by chance alone)", "", "problems")
        legend(figure, [ax])

    return save("il-figure1", draw, rows, out)


_FOUR = {"P": "kept", "E": "gained", "S": "lost", "O": "never solved"}


def w_reinforce(e: Evidence, out: Path) -> list[Path]:
    """RBP figure 12, of what training logs: accuracy, entropy, gradient norm and length of W-REINFORCE beside GRPO."""
    keys = {"correct_share": "accuracy of training samples", "entropy": "token entropy", "grad_norm": "gradient norm",
            "completions/mean_length": "tokens of a response"}  # fmt: skip
    return _training(e, out, "rbp-figure12", ("grpo", "w_reinforce"), keys)


def _training(e: Evidence, out: Path, name: str, methods: Sequence[str], keys: Mapping[str, str]) -> list[Path]:
    found = {m: by_method(e.doc.get("training", {}), m) for m in methods}
    missing = [m for m, x in found.items() if not x]
    if missing:
        raise DataError(f"{e.path} holds no training curves of {', '.join(missing)}")
    rows: list[Row] = []

    def draw(figure: Figure) -> None:
        figure.set_size_inches(2.5 * len(keys), 2.6)
        axes = figure.subplots(1, len(keys), squeeze=False).ravel()
        for ax, (key, title) in zip(axes, keys.items(), strict=True):
            for i, (m, runs) in enumerate(found.items()):
                grid = np.array([[np.nan if v is None else v for v in t["curves"].get(key, [])] for t in runs])
                if not grid.size:
                    continue
                _band(ax, runs[0]["steps"], grid, i, NAMES.get(m, m))
                for seed, line in enumerate(grid):
                    rows.extend(
                        {"method": m, "run": seed, "quantity": key, "step": s, "value": float(v)}
                        for s, v in zip(runs[0]["steps"], line, strict=True)
                    )
            titled(ax, title, "", "step")
        legend(figure, list(axes))

    return save(name, draw, rows, out)


def cost(e: Evidence, out: Path) -> list[Path]:
    """RBP figure 13: seconds of screening, generation, forward and backward per step (first 100), stacked."""
    training = e.doc.get("training", {})
    methods = list(dict.fromkeys(k.rpartition("/")[2] for k in training))
    if not methods:
        raise DataError(f"{e.path} holds no training runs with seconds per step")
    parts = {"screen": SOFT, "generate": style(0)[0], "forward": style(1)[0], "backward": style(2)[0]}
    mean = {m: {k: float(np.mean([t["cost"][k] for t in by_method(training, m)])) for k in _COSTS} for m in methods}
    rows = [{"method": m, "quantity": k, "per_step": v} for m, x in mean.items() for k, v in x.items()]

    def draw(figure: Figure) -> None:
        figure.set_size_inches(5.6, 0.8 + 0.34 * len(methods))
        ax = figure.subplots()
        for y, m in enumerate(methods):
            left = 0.0
            for part, color in parts.items():
                width = mean[m][f"seconds/{part}"]
                ax.barh(y, width, 0.62, left=left, color=color, label=part if y == 0 else None)
                left += width
            tokens = mean[m]["tokens/generate"] + mean[m]["tokens/screen"]
            ax.text(left, y, f"  {tokens:.0f} tokens", va="center", fontsize=7, color=SOFT)
        ax.set_yticks(range(len(methods)), [NAMES.get(m, m) for m in methods], color=INK)
        ax.set_ylim(len(methods) - 0.4, -0.6)
        ax.grid(visible=False, axis="y")
        titled(ax, "", "", "seconds per step, mean of the first 100")
        legend(figure, [ax])

    return save("rbp-figure13", draw, rows, out)


_COSTS = ("seconds/screen", "seconds/generate", "seconds/forward", "seconds/backward", "tokens/screen",
          "tokens/generate")  # fmt: skip
