"""The page and the figure of `limen lab modes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limen.lab.modes_rules import Reading
from limen.report.figures import _STYLE as STYLE
from limen.report.figures import COLORS, DASHES, INK, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from limen.lab.modes import Found, ModesStudy

NAMES = {"grpo": "GRPO", "self": "SELF"}
SHOWN_K = (1, 16, 64, 256)


def modes_page(s: ModesStudy, found: Found, rules: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Share of code, accuracy of either form and pass@k, family by family; then the rules."""
    from limen.lab.modes import CHECKPOINT_N

    ks = [k for k in SHOWN_K if k <= s.study.n]
    seeds = len(next(iter(found.series.values())))
    unseen = [f"`{f}`" for f in found.base.families if f not in s.families]
    sizes = sorted({found.base.table.task_P.count(f) for f in found.base.families})
    lines = [
        _HEAD.format(
            steps=s.study.steps, seeds=seeds, trained=" and ".join(s.families), n=s.study.n,
            early=min(CHECKPOINT_N, s.study.n), size=" or ".join(map(str, sizes)),
            unseen=" and ".join(unseen) + (" is" if len(unseen) == 1 else " are") + " not trained on." if unseen
            else "Every family is trained on.",
        )
    ]  # fmt: skip
    head = ["family", "policy", "seed", "step", "code share", "accuracy, code", "accuracy, language"]
    lines += ["| " + " | ".join([*head, *(f"pass@{k}" for k in ks)]) + " |", "|" + "---|" * (len(head) + len(ks))]
    for f in found.base.families:
        lines.append(_line(f, "base", "", found.base.family(f), ks))
        lines.append(_line(f, "base again", "", found.control.family(f), ks))
        for method, by_seed in found.series.items():
            for seed, readings in by_seed.items():
                lines += [_line(f, NAMES[method], str(seed), r.family(f), ks) for r in readings]
    lines += ["", "| method | rule | verdict | size |", "|---|---|---|---|"]
    for method, rows in rules.items():
        lines += [f"| {NAMES[method]} | {name} | {r['verdict']} | {r['size']} |" for name, r in rows.items()]
    return "\n".join(lines) + "\n"


def _line(family: str, policy: str, seed: str, r: Reading, ks: Sequence[int]) -> str:
    accuracies = ["–" if np.isnan(a) else f"{a:.3f}" for a in (r.accuracy("code"), r.accuracy("language"))]
    curve = [f"{r.pass_at(k):.3f}" if k <= r.table.n_min else "" for k in ks]
    return "| " + " | ".join([family, policy, seed, str(r.step), f"{r.code:.3f}", *accuracies, *curve]) + " |"


def write_figures(doc: Mapping[str, Any], out: Path) -> list[Path]:
    """Figures 6 and 15 of RBP from what modes.json holds: `modes.png` (and .svg), `modes-training.png` (and .svg)."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    out.mkdir(parents=True, exist_ok=True)
    made = []
    with mpl.rc_context(STYLE):
        for name, draw in (("modes", _by_family), ("modes-training", _in_training)):
            figure = Figure(layout="constrained")
            draw(figure, doc)
            for suffix, meta in ((".png", {"Software": None}), (".svg", {"Date": None, "Creator": None})):
                made.append(out / f"{name}{suffix}")
                figure.savefig(made[-1], metadata=meta)
    return made


def _by_family(figure: Figure, doc: Mapping[str, Any]) -> None:
    """A column for each family: share of code over training, accuracy in either form, pass@k."""
    families = list(doc["base"]["families"])
    figure.set_size_inches(3.1 * len(families), 7.2)
    axes = figure.subplots(3, len(families), squeeze=False, sharey="row")
    for column, f in enumerate(families):
        _shares(axes[0, column], doc, f)
        _accuracies(axes[1, column], doc, f)
        _curves(axes[2, column], doc, f)
        trained = "" if f in doc["trained_on"] else " (not trained on)"
        axes[0, column].set_title(f + trained, loc="left", color=INK)
    for ax, label in zip(axes[:, 0], ("share of code", "accuracy in each form", "pass@k"), strict=True):
        ax.set_ylabel(label)
    handles, labels = axes[2, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, labelcolor=SOFT)


def _in_training(figure: Figure, doc: Mapping[str, Any]) -> None:
    """Left: share of code among the responses trained on. Right: accuracy of either form there, at step 0."""
    figure.set_size_inches(7.4, 2.7)
    left, right = figure.subplots(1, 2)
    for i, (method, by_seed) in enumerate(doc["training_code_share"].items(), 1):
        steps = sorted({step for points in by_seed.values() for step, _ in points})
        curves = [[[float(x) for x in axis] for axis in zip(*points, strict=True)] for points in by_seed.values()]
        values = np.array([np.interp(steps, x, y) for x, y in curves])
        left.fill_between(steps, values.min(0), values.max(0), color=COLORS[i], alpha=0.15, linewidth=0)
        left.plot(steps, values.mean(0), color=COLORS[i], linestyle=DASHES[i], label=NAMES[method])
    left.set_ylim(0, 1)
    left.set_xlabel("step")
    left.set_ylabel("share of code, training samples")
    left.legend(frameon=False, labelcolor=SOFT)
    families = doc["base_train"]["families"]
    for j, (f, summary) in enumerate(families.items()):
        for x, form in enumerate(("code", "language")):
            value, low, high = summary[f"accuracy_{form}"]
            at = x + (j - (len(families) - 1) / 2) * 0.3
            right.bar(at, value or 0, 0.27, color=COLORS[3 + j], alpha=0.8, label=f if x == 0 else None)
            if low is not None:
                right.plot([at, at], [low, high], color=SOFT)
    right.set_xticks([0, 1], ["code", "language"])
    right.set_ylabel("accuracy at step 0, training problems")
    right.legend(frameon=False, labelcolor=SOFT)


def _shares(ax: Axes, doc: Mapping[str, Any], family: str) -> None:
    base = doc["base"]["families"][family]["code_share"][0]
    for i, by_seed in enumerate(doc["series"].values(), 1):
        steps = [0, *(r["step"] for r in next(iter(by_seed.values())))]
        share = np.array([[base, *(r["families"][family]["code_share"][0] for r in rs)] for rs in by_seed.values()])
        ax.fill_between(steps, share.min(0), share.max(0), color=COLORS[i], alpha=0.15, linewidth=0)
        ax.plot(steps, share.mean(0), color=COLORS[i], linestyle=DASHES[i], marker="o", markersize=3)
    ax.set_ylim(0, 1)
    ax.set_xlabel("step")


def _ends(doc: Mapping[str, Any], method: str, family: str) -> list[Mapping[str, Any]]:
    return [readings[-1]["families"][family] for readings in doc["series"][method].values()]


def _accuracies(ax: Axes, doc: Mapping[str, Any], family: str) -> None:
    rows = [(INK, [doc["base"]["families"][family]])]
    rows += [(COLORS[i], _ends(doc, m, family)) for i, m in enumerate(doc["series"], 1)]
    for i, (color, summaries) in enumerate(rows):
        for j, form in enumerate(("code", "language")):
            values = [v for x in summaries if (v := x[f"accuracy_{form}"][0]) is not None]
            at = j + (i - (len(rows) - 1) / 2) * 0.24
            ax.bar(at, np.mean(values) if values else 0, 0.22, color=color, alpha=0.75)
            ax.plot([at] * len(values), values, linestyle="", marker=".", markersize=3, color=SOFT)
    ax.set_xticks([0, 1], ["code", "language"])
    ax.set_ylim(bottom=0)


def _curves(ax: Axes, doc: Mapping[str, Any], family: str) -> None:
    base = doc["base"]["families"][family]["pass_at_k"]
    ks = [int(k) for k in base]
    ax.plot(ks, list(base.values()), color=INK, label="base")
    for i, method in enumerate(doc["series"], 1):
        values = np.array([[x["pass_at_k"][k] for k in base] for x in _ends(doc, method, family)])
        ax.fill_between(ks, values.min(0), values.max(0), color=COLORS[i], alpha=0.15, linewidth=0)
        ax.plot(ks, values.mean(0), color=COLORS[i], linestyle=DASHES[i], label=NAMES[method])
    ticks = [k for k in ks if int(np.log2(k)) % 2 == 0]
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, [str(k) for k in ticks])
    ax.minorticks_off()
    ax.set_ylim(0, 1)
    ax.set_xlabel("attempts k")


_HEAD = """\
GRPO and SELF on the tiny base that answers in two forms, {steps} steps of 64 prompts x 8 responses on {trained};
{seeds} training seeds, {size} held-out problems a family, n = {n} (checkpoints before the last: {early}). *Code share*:
responses that contain `python`. *Accuracy*: mean over the problems that have a response in that form.
{unseen} The rules at the end were fixed before the runs (`limen/lab/modes_rules.py`).
"""
