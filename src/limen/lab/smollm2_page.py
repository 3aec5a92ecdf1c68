"""The page, the JSON and the figures of the study on SmolLM2, from small files alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limen.errors import DataError
from limen.lab.slices import counts_table, small_file
from limen.lab.smollm2_study import finished
from limen.lab.trends import MILDER, RARE, TRENDS, Finding, find, find_milder, t_interval
from limen.store.writer import write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from limen.dynamics.curves import RunCurves
    from limen.measure import CountTable

KS = (1, 4, 16, 64, 256)
AGAINST = "self against grpo"
Tables = Mapping[str, Mapping[int, "CountTable"]]
"""By method and seed."""


def write_page(out: Path) -> str:
    """smollm2.md, smollm2.json, and figures into OUT/figures. Returns the page. Raises `DataError` where not even the
    base is finished."""
    base = small_file(out / "base")
    if not base.exists():
        raise DataError(f"{out} holds no {base.name}: nothing of this study is finished")
    first = json.loads(base.read_text(encoding="utf-8"))
    control = small_file(out / "control")
    draws = [counts_table("base", first["counts"])]
    if control.exists():
        again = json.loads(control.read_text(encoding="utf-8"))
        if again["study"] != first["study"]:
            raise DataError(f"{out}: the base's second draw is of a study with other settings")
        draws.append(counts_table("base again", again["counts"]))
    docs = finished(out)
    for by_seed in docs.values():
        for d in by_seed.values():
            if d["study"] != first["study"]:
                raise DataError(f"{out}: {d['method']}, seed {d['seed']} is of a study with other settings")
    tables = {m: {s: counts_table(m, d["counts"]) for s, d in by_seed.items()} for m, by_seed in docs.items()}
    curves = _curves(out, tables)
    found = trends(curves)
    page = smollm2_page(first, draws, tables, found)
    (out / "smollm2.md").write_text(page, encoding="utf-8")
    write_json(out / "smollm2.json", {
        "study": first["study"], "provenance": first["provenance"], "chance": first["chance"],
        "base": [d["counts"] for d in (first,)] + ([{"c": draws[1].c_P.tolist()}] if len(draws) > 1 else []),
        "counts": {f"{m} {s}": t.c_P.tolist() for m, by_seed in tables.items() for s, t in by_seed.items()},
        "trends": {name: [_plain(f) for f in fs] for name, fs in found.items()},
    })  # fmt: skip
    figures(out, draws, tables, first["chance"], curves)
    return page


def _plain(f: Finding) -> dict[str, Any]:
    values = {"mean": f.mean, "low": f.low, "high": f.high, "start": f.start}
    return {"trend": f.words, "verdict": f.verdict, "changes": list(f.changes),
            **{k: v if math.isfinite(v) else None for k, v in values.items()}}  # fmt: skip


def _curves(out: Path, tables: Tables) -> dict[str, dict[int, RunCurves]]:
    from limen.dynamics.curves import read_curves

    found: dict[str, dict[int, RunCurves]] = {}
    for m, by_seed in tables.items():
        for s in by_seed:
            run = out / f"seed-{s}" / f"train-{m}"
            if (run / "run.json").exists() and (run / "metrics.jsonl").exists():
                found.setdefault(m, {})[s] = read_curves(run)
    return found


def trends(curves: Mapping[str, Mapping[int, RunCurves]]) -> dict[str, list[Finding]]:
    """RBP's trends for each method by the rules of `limen.lab.trends`, and SELF against GRPO."""
    found = {m: [find(t, list(by_seed.values())) for t in TRENDS + RARE] for m, by_seed in curves.items()}
    both = sorted(set(curves.get("grpo", {})) & set(curves.get("self", {})))
    if both:
        pairs = [(curves["grpo"][s], curves["self"][s]) for s in both]
        found[AGAINST] = [find_milder(t, pairs) for t in MILDER]
    return found


def smollm2_page(
    first: Mapping[str, Any], draws: Sequence[CountTable], tables: Tables, found: Mapping[str, Sequence[Finding]]
) -> str:
    """The page as Markdown."""
    base, made = draws[0], first["provenance"]
    hardware = (made.get("hardware") or {}).get("gpus") or [(made.get("hardware") or {}).get("processor")]
    study = {**first["study"], "M": base.M, "tasks": len(set(base.task_P))}
    lines = [_HEAD.format(commit=str(made.get("commit"))[:7], hardware=hardware[0], **study)]
    lines += [*_main_table(draws, tables), *_prize_table(draws, tables), "", "## By task, and what guessing scores", ""]
    lines += [*_task_table(base, tables, first["chance"]), "", "## Dynamics", "", _DYNAMICS]
    for name, fs in found.items():
        sizes = ("SELF minus GRPO", "GRPO") if name == AGAINST else ("change", "from")
        head = ["trend of the paper", "by the rule", f"{sizes[0]} (95% over seeds)", sizes[1]]
        lines += ["", f"**{name}**", "", _line(head), "|---|---|---|---|"]
        lines += [_line([f.words, f.verdict if math.isfinite(f.mean) else "no data", *_sizes(f)]) for f in fs]
    return "\n".join(lines) + "\n\n![pass@k by task and policy](figures/smollm2.png)\n"


def _sizes(f: Finding) -> tuple[str, str]:
    """Mean with its interval, and the start; nothing where there are no numbers."""
    between = f" [{f.low:+.3g}, {f.high:+.3g}]" if math.isfinite(f.low) else ""
    return (f"{f.mean:+.3g}{between}" if math.isfinite(f.mean) else ""), (
        f"{f.start:.3g}" if math.isfinite(f.start) else ""
    )


def _main_table(draws: Sequence[CountTable], tables: Tables) -> list[str]:
    ks = _ks(KS, draws, tables)
    head = ["policy", "seed", *(f"pass@{k}" for k in ks), "P", "E", "S", "O", "chance", "p"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines.append(_line(["base", "", *_pass(draws[0], ks), *[""] * 6]))
    if len(draws) > 1:
        lines.append(_line(["base again", "", *_pass(draws[1], ks), *_support(draws[0], draws[1])]))
    for method, by_seed in tables.items():
        for seed, t in by_seed.items():
            lines.append(_line([method, str(seed), *_pass(t, ks), *_support(draws[0], t)]))
        cells = [_interval([_value(t, k) for t in by_seed.values()]) for k in ks]
        lines.append(_line([f"**{method}**", f"mean of {len(by_seed)}", *cells, *[""] * 6]))
    return lines


def _prize_table(draws: Sequence[CountTable], tables: Tables) -> list[str]:
    """The frontier's prize, by its own rule, for every method that shares seeds with GRPO."""
    from limen.lab.frontier_rule import WITHIN, n_max, prize

    grpo = tables.get("grpo", {})
    lines: list[str] = []
    for method, by_seed in tables.items():
        seeds = sorted(set(by_seed) & set(grpo))
        if method != "grpo" and seeds:
            found = prize([by_seed[s] for s in seeds], [grpo[s] for s in seeds], draws)
            gaps = [f"{g.value:+.3f} [{g.problems[0]:+.3f}, {g.problems[1]:+.3f}]" for g in (found.one, found.most)]
            lines.append(_line([method, ", ".join(map(str, seeds)), *gaps, found.verdict]))
    if not lines:
        return []
    k = n_max([draws[0], *(t for by_seed in tables.values() for t in by_seed.values())])
    head = ["policy", "seeds", f"pass@1 above GRPO's less {WITHIN}", f"pass@{k} above the base's", "prize"]
    words = "The prize of the frontier, by `src/limen/lab/frontier_rule.py` (95% intervals over problems):"
    return ["", words, "", _line(head), "|" + "---|" * len(head), *lines]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _ks(ks: Sequence[int], draws: Sequence[CountTable], tables: Tables) -> list[int]:
    """Those budgets that every policy has: a sample that was not judged leaves a problem with fewer than n."""
    most = min(t.n_min for t in (*draws, *(t for by_seed in tables.values() for t in by_seed.values())))
    return [k for k in ks if k <= most]


def _value(t: CountTable, k: int) -> float:
    from limen.measure import pass_at_k

    return float(np.mean(pass_at_k(t.n_P, t.c_P, k)))


def _pass(t: CountTable, ks: Sequence[int]) -> list[str]:
    return [f"{_value(t, k):.3f}" for k in ks]


def _support(base: CountTable, t: CountTable) -> list[str]:
    from limen.measure import support

    s = support(base.n_P, base.c_P, t.c_P, t.n_P)
    return [*(str(x) for x in (s.P, s.E, s.S, s.O)), f"{s.chance_each_way:.1f}", f"{s.mcnemar_p:.2g}"]


def _interval(values: Sequence[float]) -> str:
    mean, low, high = t_interval(values)
    return f"**{mean:.3f}**" + (f" [{low:.3f}, {high:.3f}]" if math.isfinite(low) else "")


def _task_table(base: CountTable, tables: Tables, chance: Mapping[str, Any]) -> list[str]:
    k = max(_ks(KS, [base], tables))
    head = ["task", "policy", "pass@1", f"pass@{k}", "commonest answer", f"pooled answers, k = {k}"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for task, own in base.by_task().items():
        guess = chance.get(task)
        cells = ["", ""]
        if guess:
            at = f"{guess['pooled'][guess['k'].index(k)]:.3f}" if k in guess["k"] else ""
            cells = [f"{guess['commonest_score']:.3f} ({guess['commonest']})", at]
        lines.append(_line([task, "base", *_pass(own, [1, k]), *cells]))
        for method, by_seed in tables.items():
            parts = [t.by_task()[task] for t in by_seed.values()]
            means = [f"{np.mean([_value(t, x) for t in parts]):.3f}" for x in (1, k)]
            lines.append(_line([task, method, *means, "", ""]))
    return lines


def figures(
    out: Path,
    draws: Sequence[CountTable],
    tables: Tables,
    chance: Mapping[str, Any],
    curves: Mapping[str, Mapping[int, RunCurves]],
) -> list[Path]:
    """smollm2 (pass@k of all tasks and of each, with what pooled answers score), and figures 2, 7 and 8 of RBP where
    the probe's curves are there."""
    from limen.dynamics.figures import legend, save, training_figure

    tasks = ["all", *draws[0].by_task()]
    points: list[dict[str, Any]] = []

    def draw(fig: Figure) -> None:
        fig.set_size_inches(2.9 * 3, 2.4 * -(-len(tasks) // 3))
        axes = fig.subplots(-(-len(tasks) // 3), 3, squeeze=False).ravel()
        for ax in axes[len(tasks) :]:
            ax.set_visible(False)
        for ax, task in zip(axes, tasks, strict=False):
            points.extend(_task_panel(ax, task, draws[0], tables, chance.get(task)))
        legend(fig, list(axes))

    files = save("smollm2", draw, points, out / "figures")
    runs = [r.path for by_seed in curves.values() for r in by_seed.values() if len(r.get("probe/delta_plus")[0])]
    for number in (2, 7, 8) if runs else ():
        files += training_figure(number, runs, out / "figures")
    return files


def _task_panel(ax: Any, task: str, base: CountTable, tables: Tables, guess: Any) -> list[dict[str, Any]]:
    from limen.dynamics.figures import style, titled
    from limen.report.figures import INK

    ks = _ks((1, 2, 4, 8, 16, 32, 64, 128, 256), [base], tables)
    rows: list[dict[str, Any]] = []

    def of(t: CountTable) -> list[float]:
        own = t if task == "all" else t.by_task()[task]
        return [_value(own, k) for k in ks]

    ax.plot(ks, of(base), color=INK, label="base")
    lines = {"base": [of(base)]}
    for i, (method, by_seed) in enumerate(tables.items()):
        values = np.array([of(t) for t in by_seed.values()])
        colour, dash = style(i)
        ax.plot(ks, values.mean(0), color=colour, linestyle=dash, label=method)
        ax.fill_between(ks, values.min(0), values.max(0), color=colour, alpha=0.15, lw=0)
        lines[method] = values.tolist()
    if guess:
        ax.plot(guess["k"], guess["pooled"], color="0.6", linestyle=":", label="pooled answers")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
    ax.set_ylim(0, 1)
    titled(ax, task, "pass@k", "k")
    for name, each in lines.items():
        for i, curve in enumerate(each):
            rows += [{"task": task, "policy": name, "run": i, "k": k, "pass_at_k": v} for k, v in zip(ks, curve)]
    return rows


_HEAD = """\
# SmolLM2-135M-Instruct

{steps} steps of {prompts} prompts x {group} responses at a constant 1e-5, {M} held-out problems of {tasks} tasks with
frozen three-shot prompts and direct answers, n = {n} at temperature 1. Made at {commit} on {hardware}. Every seed that
was trained is shown; means over seeds carry 95% t intervals. *P, E, S, O*: problems that both, only the trained policy,
only the base, neither solves within n; *chance*: what two runs of one policy would show each way; *p*: exact McNemar.
"""
_DYNAMICS = """\
What one optimizer step does to the base's own responses to training problems (the probe set), by the rules of
`src/limen/lab/trends.py`, which were fixed before any run: change from the first to the last third of the training.
*Seldom solved*: at most half of a problem's probe responses are right."""
