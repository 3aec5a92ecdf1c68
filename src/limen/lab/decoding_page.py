"""The page and the figure of `limen lab decoding`, from its JSON or its digest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limen.lab import decoding as rule
from limen.lab.claims_rules import n_max, said
from limen.lab.decoding import REFERENCE
from limen.lab.evidence import Evidence, Trained
from limen.lab.longer_rules import words
from limen.lab.trends import t_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"grpo": "GRPO", "self": "SELF"}


def methods(e: Evidence) -> list[str]:
    return [m for m in dict.fromkeys(r.method for r in e.runs()) if m != "control"]


def mean(runs: list[Trained], k: int) -> list[float]:
    return [float(rule.rates(r.trained, k).mean()) for r in runs]


def flips(runs: list[Trained], base: Any) -> tuple[float, float, float]:
    """Mean E, S and chance each way against a base."""
    from limen.measure import support

    found = [support(base.n_P, base.c_P, r.trained.c_P, r.trained.n_P) for r in runs]
    E, S, chance = (float(np.mean([getattr(s, x) for s in found])) for x in ("E", "S", "chance_each_way"))
    return E, S, chance


def decoding_page(e: Evidence) -> str:
    """A row for each setting and policy, then what each setting does."""
    k = n_max(e.runs())
    base = e.runs_of_base(REFERENCE)
    seeds = len({r.seed for r in e.runs() if r.method != "control"})
    lines = [_HEAD.format(M=base.M, n=base.n_min, k=k, seeds=seeds)]
    head = ["temperature", "top-p", "policy", "pass@1", f"pass@{k}", "− base there", "E / S there (chance)",
            "− base as it is", "E / S (chance)"]  # fmt: skip
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for setting in rule.settings(e):
        where = " | ".join(x[1:] for x in setting.split("-"))
        there = e.runs_of_base(setting)
        first = [f"{float(rule.rates(there, x).mean()):.3f}" for x in (1, k)]
        own = ["", ""] if setting == REFERENCE else [said(rule.base_change(e, setting, k)), _own(there, base)]
        lines.append(f"| {where} | base | " + " | ".join([*first, "", "", *own]) + " |")
        for m in [*(["control"] if setting == REFERENCE else []), *methods(e)]:
            runs = rule.at(e, setting, m)
            if not runs:
                continue
            cells = [f"{np.mean(mean(runs, x)):.3f}" for x in (1, k)]
            gaps = [said(_gap(runs, b, k)) for b in (there, base)]
            counts = ["{:.1f} / {:.1f} ({:.1f})".format(*flips(runs, b)) for b in (there, base)]
            row = [*cells, gaps[0], counts[0], gaps[1], counts[1]]
            lines.append(f"| {where} | {NAMES.get(m, 'base again')} | " + " | ".join(row) + " |")
    found = rule.nucleus_fakes(e)
    lines += ["", "- nucleus sampling fakes shrinkage: "
              + ("not measured" if found is None else f"**{found.verdict}**; {found.size}")]  # fmt: skip
    for setting in [s for s in rule.settings(e) if s != REFERENCE]:
        lines.append(f"- {setting}: " + _what(e, setting, k))
    return "\n".join(lines) + "\n\n![pass@1, pass@n and losses by setting](decoding.png)\n"


def _own(there: Any, base: Any) -> str:
    from limen.measure import support

    s = support(base.n_P, base.c_P, there.c_P, there.n_P)
    return f"{s.E} / {s.S} ({s.chance_each_way:.1f})"


def _gap(runs: list[Trained], base: Any, k: int) -> Any:
    from limen.lab.claims_rules import interval

    return interval(np.mean([rule.rates(r.trained, k) - rule.rates(base, k) for r in runs], axis=0))


def _what(e: Evidence, setting: str, k: int) -> str:
    parts = ["an untrained policy looks shrunk" if rule.fakes(e, setting, k) else "an untrained policy does not look "
             "shrunk"]  # fmt: skip
    for m in methods(e):
        g = rule.shift(e, setting, m, k)
        parts.append(f"{NAMES.get(m, m)} − base: **{rule.changes(g)}**, by {words(g)}")
    return "; ".join(parts)


def figure(e: Evidence, out: Path, name: str) -> list[Path]:
    """pass@1, pass@n, the difference to the base at the same setting, and problems lost, by setting. Bars: 95% t
    intervals over seeds; of the base, none."""
    from limen.dynamics.figures import legend, save, style, titled
    from limen.report.figures import INK, SOFT

    k, rows = n_max(e.runs()), list[dict[str, Any]]()
    shown = rule.settings(e)
    x = np.arange(len(shown), dtype=float)

    def draw(fig: Figure) -> None:
        fig.set_size_inches(7.2, 5.2)
        axes = fig.subplots(2, 2).ravel()
        for ax, at_k, title in zip(axes[:2], (1, k), ("first attempt", "coverage"), strict=True):
            base = [float(rule.rates(e.runs_of_base(s), at_k).mean()) for s in shown]
            ax.plot(x, base, color=INK, marker="_", markersize=13, markeredgewidth=1.6, linestyle="none", label="base")
            rows.extend(
                {"setting": s, "policy": "base", "seed": "", "k": at_k, "value": v}
                for s, v in zip(shown, base, strict=True)
            )
            titled(ax, title, f"pass@{at_k}", "")
        axes[2].axhline(0, color=INK, linewidth=0.9)
        titled(axes[2], "against the base at the same setting", f"pass@{k} − base's", "")
        titled(axes[3], "lost, against the base at the same setting (dots: chance)", "problems lost (S)", "")
        for i, m in enumerate(methods(e)):
            colour, _ = style(i)
            own = [rule.at(e, s, m) for s in shown]
            place = x + 0.22 * (i - (len(methods(e)) - 1) / 2)
            series = [[mean(r, at_k) for r in own] for at_k in (1, k)]
            series.append(
                [[float((rule.rates(r.trained, k) - rule.rates(r.base, k)).mean()) for r in runs] for runs in own]
            )
            for ax, values_ in zip(axes[:3], series, strict=True):
                ends = [t_interval(v) for v in values_]
                half = [0.0 if v[1] != v[1] else v[0] - v[1] for v in ends]
                ax.errorbar(place, [v[0] for v in ends], half, color=colour, marker="o", markersize=3.5,
                            linestyle="none", elinewidth=0.9, capsize=2, label=NAMES.get(m, m))  # fmt: skip
            lost = [flips(r, r[0].base) for r in own]
            axes[3].bar(place, [s for _, s, _ in lost], 0.2, color=colour, label=NAMES.get(m, m))
            axes[3].plot(place, [c for *_, c in lost], marker="o", markersize=3, linestyle="none", color=SOFT)
            rows.extend(
                {"setting": s, "policy": m, "seed": r.seed, "k": at_k, "value": v}
                for at_k, found in zip((1, k), series, strict=False)
                for s, runs, values_ in zip(shown, own, found, strict=True)
                for r, v in zip(runs, values_, strict=True)
            )
        for ax in axes:
            ax.set_xticks(x, [_tick(s) for s in shown])
        legend(fig, list(axes[:2]))

    return save(name, draw, rows, out)


def _tick(setting: str) -> str:
    temperature, top_p = (x[1:] for x in setting.split("-"))
    return f"T {temperature}" + ("" if top_p == "1" else f"\np {top_p}")


_HEAD = """\
# Temperature and top-p at evaluation

The tiny base and policies trained from it, sampled at several settings: {M} held-out problems, n = {n}, {seeds}
training seeds, means over seeds. *There*: against the base at the same setting; *as it is*: against the base at
temperature 1 without a nucleus. Intervals: 95%, bootstrap over problems. *E*, *S*: gained and lost, *chance*: what two
runs of one policy would show each way. Rules, written down before the runs: `src/limen/lab/decoding.py`.
"""
