"""`limen lab samples`: how the verdict on a trained policy depends on the number of samples.

From the counts of a study (n samples a problem) every smaller number m is worked out in closed form, without drawing.
Had only m of the n samples been taken, the base would have solved a problem with probability `pass_at_k(n, c, m)`
(hypergeometric), and the trained policy likewise and independently: so P, E, S, O are their expected values over all
ways to thin both, and the interval of the difference is that of one study that had taken m samples (normal, paired
by problem, from the expected E and S). *Chance* is what `limen compare` would print on average: the mean over
the thinned successes of its arrangements of the pooled ones.

Rules, written down before the figures were made (pass@k of these policies had been seen). *Shrinkage shows from m*: the
smallest m from which on the interval lies below 0. *The verdict depends on n* agrees where the interval lies above 0 at
one m and below 0 at another; it is opposite where it keeps one side at every m; else undetermined. *Not lost after
all*: the share of the losses at m that the policy solves within its n samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limen.errors import DataError
from limen.lab.claims_rules import AGREES, OPPOSITE, UNDETERMINED, Interval, Verdict, n_max, said, signed
from limen.lab.evidence import Evidence, Trained
from limen.measure.passk import Floats, log_fail, pass_at_k
from limen.provenance import provenance
from limen.store.writer import write_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {"grpo": "GRPO", "self": "SELF", "control": "the base again"}
SMALLEST = 2


@dataclass(frozen=True)
class Point:
    """What a study with m samples would show of one method, mean over its runs. `gap`: pass@m − base with the interval
    of such a study; `back`: share of S that the policy solves with all its samples."""

    m: int
    base: float
    trained: float
    gap: Interval
    E: float
    S: float
    chance: float
    back: float

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "gap": list(self.gap), "back": None if math.isnan(self.back) else self.back}


def numbers_of_samples(n: int) -> list[int]:
    """Powers of two from `SMALLEST`, and n."""
    return sorted({2**i for i in range(n.bit_length()) if SMALLEST <= 2**i <= n} | {n})


def thinned(c: int, n: int, m: int) -> Floats:
    """Distribution of the successes among m of n samples that hold c: hypergeometric, shape (m + 1,)."""
    from scipy.stats import hypergeom

    return np.asarray(hypergeom.pmf(np.arange(m + 1), n, c, m))


def expected_chance(r: Trained, m: int) -> float:
    """Expected `chance_each_way` of `limen.measure.support` when both policies are thinned to m samples a problem."""
    none = np.exp(log_fail(2.0 * m, np.arange(2 * m + 1, dtype=float), float(m)))  # by pooled successes
    none[0] = 0.0  # nobody solved it: no flip
    pairs: dict[tuple[int, int, int, int], float] = {}
    total = 0.0
    for n, c, nt, ct in zip(r.base.n_P, r.base.c_P, r.trained.n_P, r.trained.c_P, strict=True):
        key = (int(n), int(c), int(nt), int(ct))
        if key not in pairs:
            pooled = np.convolve(thinned(key[1], key[0], m), thinned(key[3], key[2], m))
            pairs[key] = float(pooled @ none)
        total += pairs[key]
    return total


def point(runs: Sequence[Trained], m: int) -> Point:
    """Means over runs at m samples."""
    M = runs[0].base.M
    cells = {"base": [], "trained": [], "E": [], "S": [], "back": []}  # type: dict[str, list[float]]
    for r in runs:
        b, t = (np.asarray(pass_at_k(x.n_P, x.c_P, m)) for x in (r.base, r.trained))
        lost = b * (1 - t)
        cells["base"].append(float(b.mean()))
        cells["trained"].append(float(t.mean()))
        cells["E"].append(float(((1 - b) * t).sum()))
        cells["S"].append(float(lost.sum()))
        cells["back"].append(float(lost[r.trained.c_P > 0].sum()))
    mean = {k: float(np.mean(v)) for k, v in cells.items()}
    gap = mean["trained"] - mean["base"]
    half = 1.96 * math.sqrt(max(0.0, (mean["E"] + mean["S"]) / M - gap**2) / M)
    chance = float(np.mean([expected_chance(r, m) for r in runs]))
    back = mean["back"] / mean["S"] if mean["S"] > 0 else math.nan
    return Point(m, mean["base"], mean["trained"], (gap, gap - half, gap + half), mean["E"], mean["S"], chance, back)


def curve(e: Evidence, method: str) -> list[Point]:
    """Every number of samples. Raises `DataError` where the study has no such runs."""
    runs = e.finals(method)
    if not runs:
        have = ", ".join(dict.fromkeys(r.method for r in e.runs())) or "no counts"
        raise DataError(f"{e.path} holds no runs of '{method}': it has {have}")
    return [point(runs, m) for m in numbers_of_samples(n_max(runs))]


def shows_from(points: Sequence[Point]) -> int | None:
    """Smallest m from which on the interval lies below 0."""
    below = [p.gap[2] < 0 for p in points]
    return next((p.m for i, p in enumerate(points) if all(below[i:])), None)


def depends(points: Sequence[Point]) -> Verdict:
    """Does the verdict depend on the number of samples? By the rule at the top."""
    sides = [signed(p.gap, 1) for p in points]
    verdict = UNDETERMINED
    if AGREES in sides and OPPOSITE in sides:
        verdict = AGREES
    elif len(set(sides)) == 1 and sides[0] != UNDETERMINED:
        verdict = OPPOSITE
    shown = [points[0], points[len(points) // 2], points[-1]]
    return Verdict(verdict, ", ".join(f"{p.m} samples: {said(p.gap)}" for p in shown))


def run_samples(e: Evidence, out: Path, methods: Sequence[str]) -> str:
    """Returns the page; writes samples.md, .json, .png, .svg, .csv."""
    curves = {m: curve(e, m) for m in methods}
    out.mkdir(parents=True, exist_ok=True)
    page = samples_page(e, curves)
    (out / "samples.md").write_text(page, encoding="utf-8")
    doc = {"provenance": provenance(), "from": e.path.name, "study": dict(e.doc.get("provenance", {})),
           "curves": {m: [p.to_json() for p in c] for m, c in curves.items()}}  # fmt: skip
    write_json(out / "samples.json", doc)
    draw(curves, out, "samples")
    return page


def methods_of(e: Evidence) -> list[str]:
    """Those of `NAMES` that the study has."""
    return [m for m in NAMES if e.finals(m)]


def samples_page(e: Evidence, curves: dict[str, list[Point]]) -> str:
    """A table for each method, and the rules."""
    runs = {m: len(e.finals(m)) for m in curves}
    lines = [_HEAD.format(file=e.path.name, commit=e.commit or "unknown", M=e.runs()[0].base.M)]
    head = ["policy", "samples", "base", "policy's", "difference", "E", "S", "chance each way", "not lost after all"]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for m, points in curves.items():
        for p in points:
            cells = [NAMES.get(m, m), str(p.m), f"{p.base:.3f}", f"{p.trained:.3f}", said(p.gap), f"{p.E:.1f}",
                     f"{p.S:.1f}", f"{p.chance:.1f}", "" if math.isnan(p.back) else f"{p.back:.0%}"]  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for m, points in curves.items():
        found, start = depends(points), shows_from(points)
        lines.append(
            f"- {NAMES.get(m, m)} ({runs[m]} runs): the verdict depends on n: **{found.verdict}**; {found.size}; "
            f"shrinkage shows from {start or 'no number of'} samples"
        )
    return "\n".join(lines) + "\n\n![Difference, losses and gains by the number of samples](samples.png)\n"


def draw(curves: dict[str, list[Point]], out: Path, name: str) -> list[Path]:
    """Difference of pass@m with the interval of a study of m samples; S and E, chance dotted."""
    from limen.dynamics.figures import legend, save, style, titled
    from limen.report.figures import INK

    def panels(fig: Figure) -> None:
        fig.set_size_inches(8.2, 3.0)
        axes = fig.subplots(1, 3)
        axes[0].axhline(0, color=INK, linewidth=0.9)
        for i, (m, points) in enumerate(curves.items()):
            colour, dash = (INK, (0, (1, 1.5))) if m == "control" else style(i)
            x = [p.m for p in points]
            label = NAMES.get(m, m)
            if m != "control":
                low, high = ([p.gap[j] for p in points] for j in (1, 2))
                axes[0].fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0)
            axes[0].plot(x, [p.gap[0] for p in points], color=colour, linestyle=dash, linewidth=1.4, label=label)
            for ax, key in zip(axes[1:], "SE", strict=True):
                ax.plot(x, [getattr(p, key) for p in points], color=colour, linestyle=dash, linewidth=1.4, label=label)
                if m != "control":
                    ax.plot(x, [p.chance for p in points], color=colour, linestyle=":", linewidth=0.9)
        titles = ("difference", "lost (thin dots: chance)", "gained (thin dots: chance)")
        for ax, title, unit in zip(axes, titles, ("pass@n − base", "problems S", "problems E"), strict=True):
            _log2(ax, [p.m for p in next(iter(curves.values()))])
            titled(ax, title, unit, "samples n")
        legend(fig, list(axes))

    rows = [{"method": m, **{k: v for k, v in p.to_json().items() if k != "gap"}, "gap": p.gap[0], "low": p.gap[1],
             "high": p.gap[2]} for m, points in curves.items() for p in points]  # fmt: skip
    return save(name, panels, rows, out)


def _log2(ax: Axes, ks: Sequence[int]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(ks), [str(k) for k in ks])
    ax.minorticks_off()


def draw_study(e: Evidence, out: Path) -> list[Path]:
    """The figure from a study or a digest, for the gallery."""
    found = methods_of(e)
    if not found:
        raise DataError(f"{e.path} holds no counts of {', '.join(NAMES)}")
    return draw({m: curve(e, m) for m in found}, out, "limen-figure3")


_HEAD = """\
# The number of samples

What a study with fewer samples would have shown, from the counts in `{file}` (made at {commit}, {M} held-out
problems): expected values over all ways to thin both policies, in closed form; nothing is drawn. The interval is that
of one study with so many samples. *E*, *S*: gained and lost; *chance each way*: what two runs of one policy would
show; *not lost after all*: share of S that the policy solves within all its samples. Rules:
`src/limen/lab/samples.py`.
"""
