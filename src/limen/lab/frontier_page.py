"""The page, the JSON and the figure of the frontier, from small files alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limen.errors import DataError
from limen.lab.frontier import BUDGETS, Finished, read_all
from limen.lab.frontier_arms import ARMS, EXPLORE
from limen.lab.frontier_rule import REACHED, WITHIN, Prize, n_max, pooled, prize
from limen.provenance import machine_of
from limen.store.writer import write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from limen.measure import CountTable

ROLES = {"final": "Final seeds", "exploration": "Seeds of exploration"}


@dataclass(frozen=True)
class Row:
    """One arm at one budget over its seeds. `one`, `most`: (mean, low, high) of pass@1 and pass@n over seeds."""

    arm: str
    role: str
    budget: str
    runs: tuple[Finished, ...]
    one: tuple[float, float, float]
    most: tuple[float, float, float]
    prize: Prize
    E: float
    S: float
    chance: float
    chosen_on: str

    @property
    def seeds(self) -> list[int]:
        return [r.seed for r in self.runs]

    def to_json(self) -> dict[str, Any]:
        plain = {k: [None if math.isnan(x) else x for x in getattr(self, k)] for k in ("one", "most")}
        return {
            "arm": self.arm, "role": self.role, "budget": self.budget, "seeds": self.seeds, "pass_at_1": plain["one"],
            "pass_at_n": plain["most"], "E": self.E, "S": self.S, "chance": self.chance, "chosen_on": self.chosen_on,
            "steps": [r.steps for r in self.runs], "tokens": [r.tokens for r in self.runs],
            "prize": {"verdict": self.prize.verdict, "pass_at_1": self.prize.one.to_json(),
                      "pass_at_n": self.prize.most.to_json()},
        }  # fmt: skip


def role(seed: int) -> str:
    """Which table a seed belongs to."""
    return "exploration" if seed in EXPLORE else "final"


def rows(draws: Sequence[CountTable], runs: Sequence[Finished], k: int | None = None) -> list[Row]:
    """Every arm that has finished runs, with those seeds that GRPO has too. `k`: of pass@k, in the place of n_max."""
    found: dict[tuple[str, str, str], dict[int, Finished]] = {}
    for r in runs:
        if r.table is not None:
            found.setdefault((role(r.seed), r.budget, r.arm), {})[r.seed] = r
    explored = {arm for kind, _, arm in found if kind == "exploration"}
    made = []
    for (kind, budget, arm), own in found.items():
        grpo = found.get((kind, "updates", "grpo"), {})
        seeds = sorted(set(own) & set(grpo))
        if seeds:
            chosen = _chosen(arm, kind, arm in explored)
            made.append(_row(arm, kind, budget, [own[s] for s in seeds], [grpo[s] for s in seeds], draws, chosen,
                             k))  # fmt: skip
    order = list(ARMS)
    return sorted(made, key=lambda r: (list(ROLES).index(r.role), BUDGETS.index(r.budget), r.prize.shortfall,
                                       -r.most[0], order.index(r.arm) if r.arm in order else 99))  # fmt: skip


def _chosen(arm: str, kind: str, explored: bool) -> str:
    """On which seeds this arm was looked at before those of its row."""
    seen = ARMS[arm].seen if arm in ARMS else ()
    places = [", ".join(map(str, EXPLORE))] if explored and kind == "final" else []
    places += [f"{', '.join(map(str, seen))} (methods)"] if seen else []
    return " and ".join(places) or "not seen before"


def _row(
    arm: str, kind: str, budget: str, own: list[Finished], grpo: list[Finished], draws: Sequence[CountTable],
    chosen: str, k: int | None = None,
) -> Row:  # fmt: skip
    from limen.lab.trends import t_interval
    from limen.measure import pass_at_k, support

    mine, theirs = _tables(own), _tables(grpo)
    k = n_max([*mine, *theirs, draws[0]], k)
    one, most = ([float(np.mean(pass_at_k(t.n_P, t.c_P, x))) for t in mine] for x in (1, k))
    flips = [support(draws[0].n_P, draws[0].c_P, t.c_P, t.n_P) for t in mine]
    E, S, chance = (float(np.mean([getattr(f, name) for f in flips])) for name in ("E", "S", "chance_each_way"))
    found = prize(mine, theirs, draws, k)
    return Row(arm, kind, budget, tuple(own), t_interval(one), t_interval(most), found, E, S, chance, chosen)


def _tables(runs: Sequence[Finished]) -> list[CountTable]:
    return [r.table for r in runs if r.table is not None]


def write_page(out: Path, k: int | None = None) -> str:
    """frontier.md, .json, .png, .svg and .csv from the small files in `out`, by pass@`k` (n_max). Returns the page."""
    draws, runs = read_all(out)
    found = rows(draws, runs, k)
    if not found:
        raise DataError(f"{out}: no seed of GRPO is finished, and the prize is measured from it")
    page = frontier_page(draws, runs, found, k)
    (out / "frontier.md").write_text(page, encoding="utf-8")
    study, where = dict(runs[0].study), dict(runs[0].provenance)
    counts = {f"{r.arm} {r.budget} {r.seed}": r.table.c_P.tolist() for r in runs if r.table is not None}
    base = {"ids": list(draws[0].problem_ids), "n": draws[0].n_P.tolist(), "c": [d.c_P.tolist() for d in draws]}
    doc = {"study": study, "provenance": where, "within": WITHIN, "k": k, "base": base, "counts": counts,
           "rows": [r.to_json() for r in found]}  # fmt: skip
    write_json(out / "frontier.json", doc)
    figure(draws, found, out, k)
    return page


def frontier_page(
    draws: Sequence[CountTable], runs: Sequence[Finished], found: Sequence[Row], k: int | None = None
) -> str:
    """The page as Markdown."""
    from limen.measure import pass_at_k

    k = n_max([*draws, *_tables(runs)], k)
    n, c = pooled(draws)
    base_1, base_k = (float(np.mean(pass_at_k(n, c, x))) for x in (1, k))
    study, made = runs[0].study, [r.provenance for r in runs]
    lines = [
        _HEAD.format(
            steps=study["steps"], recipe=study["recipe"], M=draws[0].M, n=study["n"], k=k, base_1=base_1,
            base_k=base_k, draws=len(draws), within=f"{WITHIN:.2f}".lstrip("0"),
            commits=", ".join(sorted({str(p.get("commit"))[:7] for p in made})), hardware=_hardware(made),
        )
    ]  # fmt: skip
    for kind, title in ROLES.items():
        for budget in BUDGETS:
            part = [r for r in found if r.role == kind and r.budget == budget]
            if part:
                lines += ["", f"## {title}, equal {budget}", "", *_table(part, k), "", *_winners(part, kind)]
    lines += _over_budget(runs)
    return "\n".join(lines) + "\n\n![pass@1 against pass@n](frontier.png)\n"


def _hardware(made: Sequence[Any]) -> str:
    return ", ".join(sorted({machine_of(p) for p in made} - {""})) or "unknown hardware"


def _table(part: Sequence[Row], k: int) -> list[str]:
    head = ["arm", "what it is", "seeds", "seen before on", "pass@1", f"pass@{k}", "E", "S", "chance", "updates",
            "tokens (k)", "pass@1 to spare", f"pass@{k} to spare", "prize"]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in part:
        words = ARMS[r.arm].words if r.arm in ARMS else ""
        steps, tokens = (np.mean([getattr(x, key) for x in r.runs]) for key in ("steps", "tokens"))
        cells = [r.arm, words, ", ".join(map(str, r.seeds)), r.chosen_on, _between(r.one), _between(r.most)]
        cells += [f"{x:.1f}" for x in (r.E, r.S, r.chance)] + [f"{steps:.0f}", f"{tokens / 1000:.0f}"]
        cells += [_spare(r.prize.one), _spare(r.prize.most), r.prize.verdict]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _between(x: tuple[float, float, float]) -> str:
    return f"{x[0]:.3f}" + ("" if math.isnan(x[1]) else f" [{x[1]:.3f}, {x[2]:.3f}]")


def _spare(gap: Any) -> str:
    return f"{gap.value:+.3f} [{gap.problems[0]:+.3f}, {gap.problems[1]:+.3f}]"


def _winners(part: Sequence[Row], kind: str) -> list[str]:
    """Who reached the prize, or who came nearest."""
    others = [r for r in part if r.arm != "grpo"]
    reached = [r for r in others if r.prize.verdict.startswith(REACHED)]
    if reached:
        text = "The prize is reached by " + ", ".join(f"**{r.arm}** ({r.prize.verdict})" for r in reached) + "."
    elif others:
        best = min(others, key=lambda r: r.prize.shortfall)
        text = (
            f"No arm reaches the prize; nearest is **{best.arm}**, short by {max(0.0, -best.prize.one.value):.3f} at "
            f"pass@1 and by {max(0.0, -best.prize.most.value):.3f} at pass@n."
        )
    else:
        text = "Only GRPO is finished."
    return [text + (" Arms may be chosen by this table; it proves nothing of them." if kind == "exploration" else "")]


def _over_budget(runs: Sequence[Finished]) -> list[str]:
    ran = {r.arm for r in runs if r.table is not None and r.budget == "tokens"}
    over = {r.arm: sorted(x.seed for x in runs if x.arm == r.arm and x.table is None) for r in runs if r.table is None}
    names = [f"{a} (seeds {', '.join(map(str, over[a]))})" if a in ran else a for a in sorted(over)]
    if not names:
        return []
    return ["", "Not run at equal tokens, since the stored responses alone are more: " + ", ".join(names) + "."]


def figure(draws: Sequence[CountTable], found: Sequence[Row], out: Path, k: int | None = None) -> list[Path]:
    """pass@1 against pass@n, a panel for each role and budget: crosses are 95% t intervals over seeds (where few)."""
    from limen.dynamics.figures import legend, save, style

    panels = list(dict.fromkeys((r.role, r.budget) for r in found))
    arms = sorted({r.arm for r in found}, key=lambda a: (list(ARMS).index(a) if a in ARMS else len(ARMS), a))
    colours = {arm: style(i)[0] for i, arm in enumerate(arms)}

    def draw(fig: Figure) -> None:
        wide = min(2, len(panels))
        high = -(-len(panels) // wide)
        fig.set_size_inches(5.2 * wide, 4.4 * high)
        axes = fig.subplots(high, wide, squeeze=False).ravel()
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        for ax, (kind, budget) in zip(axes, panels, strict=False):
            part = [r for r in found if (r.role, r.budget) == (kind, budget)]
            _panel(ax, draws, part, f"{kind}, equal {budget}", colours, k)
        legend(fig, list(axes))

    points = [
        {"role": r.role, "budget": r.budget, "arm": r.arm, "seeds": len(r.runs), "pass_at_1": r.one[0],
         "low_1": r.one[1], "high_1": r.one[2], "pass_at_n": r.most[0], "low_n": r.most[1], "high_n": r.most[2]}
        for r in found
    ]  # fmt: skip
    return save("frontier", draw, points, out)


def _panel(
    ax: Any, draws: Sequence[CountTable], part: Sequence[Row], title: str, colours: Mapping[str, str], most: int | None
) -> None:
    from limen.dynamics.figures import titled
    from limen.measure import pass_at_k
    from limen.report.figures import INK

    k = n_max([*draws, *(t for r in part for t in _tables(r.runs))], most)
    n, c = pooled(draws)
    base = [float(np.mean(pass_at_k(n, c, x))) for x in (1, k)]
    bound = _grpo_first(part)
    floor = min(base[1], 1.0) - DEEP
    low = sorted(r.arm for r in part if r.most[0] < floor)
    part = [r for r in part if r.arm not in low]
    x = [r.one[0] for r in part] + [base[0], bound - WITHIN]
    y = [r.most[0] for r in part] + [base[1]]
    right, top = max(x) + 0.03, min(1.005, max(y) + 0.02)
    ax.set_xlim(min(x) - 0.02, right)
    ax.set_ylim(min(y) - 0.02, top)
    ax.fill_between([bound - WITHIN, right], base[1], top, color="0.8", alpha=0.6, lw=0, label="prize")
    ax.plot(*base, marker="*", color=INK, markersize=9, linestyle="none", label="base")
    crowded = len(part) > CROWDED
    for r in part:
        half = [[max(0.0, v[0] - v[1])] if v[1] == v[1] else [0.0] for v in (r.one, r.most)]
        whiskers = {} if crowded else {"xerr": half[0], "yerr": half[1]}
        ax.errorbar(r.one[0], r.most[0], **whiskers, color=colours[r.arm], marker="o", markersize=3,
                    linewidth=0.7, alpha=0.85)  # fmt: skip
    _labels(ax, {r.arm: (r.one[0], r.most[0]) for r in part}, -2 if crowded else 3)
    titled(ax, title + (f" (far below: {', '.join(low)})" if low else ""), f"pass@{k}", "pass@1")


def _grpo_first(part: Sequence[Row]) -> float:
    """GRPO's pass@1 over its seeds; where the panel has no row of it, over those of the row with the most seeds."""
    row = max(part, key=lambda r: (r.arm == "grpo", len(r.seeds)))
    return row.one[0] + WITHIN - row.prize.one.value


def _labels(ax: Any, points: Mapping[str, tuple[float, float]], rise: float, size: float = 6.0) -> None:
    """Names beside their points, `rise` points up, each at the nearest place where it covers no other name or point."""
    from limen.report.figures import INK

    unit = ax.figure.dpi / 72
    dots = {name: ax.transData.transform(xy) / unit for name, xy in points.items()}
    taken = [(x - 2, y - 2, x + 2, y + 2) for x, y in dots.values()]
    for name, (x, y) in sorted(dots.items(), key=lambda item: -item[1][1]):
        width = 0.55 * size * len(name)
        places = [(dx if dx > 0 else dx - width, dy) for far in range(9) for dx in (4, -4)
                  for dy in {0: (rise,)}.get(far, (far * 6 - 2, -far * 6 - 2))]  # fmt: skip
        boxes = [(x + dx, y + dy, x + dx + width, y + dy + size) for dx, dy in places]
        free = [i for i, b in enumerate(boxes) if not any(_overlap(b, t) for t in taken)]
        at = free[0] if free else 0
        taken.append(boxes[at])
        far = abs(places[at][1] + 2) > size
        line = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2} if far else None
        ax.annotate(name, points[name], xytext=places[at], textcoords="offset points", fontsize=size, color=INK,
                    arrowprops=line)  # fmt: skip


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


CROWDED = 10
"""A panel of more arms shows no intervals; the table has them."""
DEEP = 0.35
"""Arms whose pass@n lies further below the base's are named in the title and not drawn."""

_HEAD = """\
# The frontier: pass@1 against pass@{k}

The tiny base, recipe "{recipe}", {steps} updates of 64 prompts x 8 responses at *equal updates*; at *equal tokens* an
arm is trained until it has generated what GRPO of the same seed generates (groups, screening and stored base responses
counted). {M} held-out problems, n = {n}. Made at {commits} on {hardware}.

The base: pass@1 {base_1:.3f}, pass@{k} {base_k:.3f} ({draws} draws pooled). The prize, by a rule written down before
the runs (`src/limen/lab/frontier_rule.py`): pass@1 within {within} of GRPO's with the same seeds, and at least the
base's pass@{k}. *To spare*: how far above these bounds (negative: short of them), with 95% intervals over problems;
intervals of pass@k are Student's t over seeds. *Beyond chance*: both kinds of interval exclude the other answer, for
both bounds. *Seen before on*: seeds on which this arm had been looked at before; those of the final table are not among
the seeds of exploration. *E*, *S*: gained and lost against the base's first draw; *chance*: what two runs of one policy
would show each way.
"""
