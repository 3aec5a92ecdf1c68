"""The rule, the page and the figure of `limen lab variance`, from its JSON or its digest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limen.lab.claims_rules import AGREES, OPPOSITE, SHORT, UNDETERMINED, Interval, Verdict, said, signed
from limen.lab.evidence import Evidence
from limen.lab.trends import t_interval
from limen.lab.variance import ARMS, GROUP, PROBLEMS, TOP

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {"w_reinforce": "W-REINFORCE", "grpo": "GRPO"}
KEYS = {"success": "success", "variance": "gradient variance over groups", "relative": "variance / squared mean",
        "tail": f"mass below the {TOP} likeliest tokens"}  # fmt: skip


def series(e: Evidence, arm: str, key: str) -> dict[int, dict[int, float]]:
    """step → seed → value, where it was measured."""
    out: dict[int, dict[int, float]] = {}
    for p in e.doc.get("points", ()):
        if p["method"] == arm and p[key] is not None:
            out.setdefault(int(p["step"]), {})[int(p["seed"])] = float(p[key])
    return dict(sorted(out.items()))


def drop(e: Evidence) -> int | None:
    """The first mark at which W-REINFORCE's success is at most half of GRPO's, in the mean over seeds."""
    ours, theirs = (series(e, a, "success") for a in ARMS)
    for step in ours:
        both = set(ours[step]) & set(theirs.get(step, ()))
        if both and np.mean([ours[step][s] for s in both]) <= np.mean([theirs[step][s] for s in both]) / 2:
            return step
    return None


def paired(e: Evidence, key: str, until: int) -> tuple[list[int], list[int]]:
    """The marks before `until` at which both arms have the quantity, and the seeds that have it at all of them."""
    ours, theirs = (series(e, a, key) for a in ARMS)
    steps = [s for s in ours if 0 < s < until and s in theirs]
    return steps, sorted(set.intersection(*(set(x[s]) for s in steps for x in (ours, theirs)))) if steps else []


def before(e: Evidence, key: str, until: int) -> Interval | None:
    """W-REINFORCE minus GRPO over the marks before `until`, mean by seed, t interval over seeds. Variances are compared
    by their logarithms."""
    ours, theirs = (series(e, a, key) for a in ARMS)
    steps, seeds = paired(e, key, until)
    if not seeds:
        return None
    scale = np.log if key in ("variance", "relative") else np.asarray
    gaps = [float(np.mean([scale(ours[s][x]) - scale(theirs[s][x]) for s in steps])) for x in seeds]
    return t_interval(gaps)


def cause(e: Evidence) -> Verdict | None:
    """RBP-F12-h; the rule is in `limen.lab.variance`."""
    if not e.doc.get("points"):
        return None
    at = drop(e)
    if at is None:
        return Verdict(SHORT, "W-REINFORCE's success never falls to half of GRPO's")
    found = {k: before(e, k, at) for k in ("variance", "tail", "relative")}
    gaps = {k: v for k, v in found.items() if v is not None}
    if len(gaps) < 3:
        if not any(0 < s < at for s in series(e, ARMS[0], "success")):
            return Verdict(SHORT, f"the drop is at the first mark, step {at}")
        lacking = ", ".join(KEYS[k] for k in found if k not in gaps)
        return Verdict(SHORT, f"drop at step {at}; no seed has at every mark before it, in both arms: {lacking}")
    size = (
        f"drop at step {at}; before it, W-REINFORCE − GRPO: log variance {said(gaps['variance'], 2)}, mass below the "
    )
    size += f"{TOP} likeliest tokens {said(gaps['tail'], 4)}, log of the relative variance {said(gaps['relative'], 2)}"
    both = [signed(gaps[k], 1) for k in ("variance", "tail")]
    if min(len(paired(e, k, at)[1]) for k in ("variance", "tail")) < 3:
        return Verdict(SHORT, size)
    return Verdict(both[0] if both[0] == both[1] and both[0] in (AGREES, OPPOSITE) else UNDETERMINED, size)


def variance_page(e: Evidence) -> str:
    """A row for each arm and mark, means over seeds, and the rule."""
    seeds = len({p["seed"] for p in e.doc["points"]})
    lines = [_HEAD.format(seeds=seeds, problems=PROBLEMS, group=GROUP, top=TOP)]
    lines += ["| arm | step | " + " | ".join(KEYS.values()) + " | active groups |", "|" + "---|" * 7]
    for arm in ARMS:
        active = series(e, arm, "active")
        for step in active:
            cells = [_mean(series(e, arm, k).get(step, {})) for k in KEYS]
            cells.append(f"{np.mean(list(active[step].values())):.0f}")
            lines.append(f"| {NAMES[arm]} | {step} | " + " | ".join(cells) + " |")
    found = cause(e)
    lines += ["", "- RBP-F12-h: " + ("not measured" if found is None else f"**{found.verdict}**; {found.size}")]
    return "\n".join(lines) + "\n\n![Success, variance, relative variance and tail by step](variance.png)\n"


def _mean(values: dict[int, float]) -> str:
    return f"{np.mean(list(values.values())):.3g}" if values else ""


def figure(e: Evidence, out: Path, name: str) -> list[Path]:
    """Success, variance, relative variance and tail over steps: mean over seeds, band from lowest to highest."""
    from limen.dynamics.figures import legend, save, style, titled

    rows: list[dict[str, Any]] = []

    def draw(fig: Figure) -> None:
        fig.set_size_inches(7.4, 4.8)
        axes = fig.subplots(2, 2).ravel()
        for ax, (key, unit) in zip(axes, KEYS.items(), strict=True):
            for i, arm in enumerate(ARMS):
                found = series(e, arm, key)
                grid = [list(v.values()) for v in found.values()]
                colour, dash = style(i)
                ax.fill_between(list(found), [min(v) for v in grid], [max(v) for v in grid], color=colour, alpha=0.14,
                                linewidth=0)  # fmt: skip
                ax.plot(list(found), [np.mean(v) for v in grid], color=colour, linestyle=dash, linewidth=1.4,
                        label=NAMES[arm])  # fmt: skip
                rows.extend({"arm": arm, "quantity": key, "step": s, "seed": x, "value": y}
                            for s, v in found.items() for x, y in v.items())  # fmt: skip
            if key in ("variance", "relative"):
                _log_ticks(ax)
            at = drop(e)
            if at is not None:
                ax.axvline(at, color="0.6", linewidth=0.8, linestyle=":")
            titled(ax, "", unit, "step")
        legend(fig, list(axes))

    return save(name, draw, rows, out)


def _log_ticks(ax: Axes) -> None:
    """A log axis whose ticks are plain numbers: the figures read no markup."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


_HEAD = """\
# Why W-REINFORCE becomes unstable

W-REINFORCE and GRPO on the tiny base with the demo's step size held constant, {seeds} seeds, means over seeds. At every
mark the policy answers {problems} training problems {group} times. Variance: trace of the covariance of the groups'
gradients; tail: mass that the policy gives to all but its {top} likeliest tokens, over the tokens of its answers. The
dotted line of the figure is the drop. Rule, written down before the runs: `src/limen/lab/variance.py`.
"""
