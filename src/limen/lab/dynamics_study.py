"""`limen lab dynamics`: figures 2, 7 and 8 on the tiny model, GRPO against SELF, over several seeds.

The demo's recipe, with a probe set of the base's own responses to training problems followed at every fifth step. The
recipe lets the learning rate decay to zero, and the change that one step makes decays with it; so each method is also
trained with constant rates (as in the paper), and the decaying runs are judged per unit of learning rate as well. The
rules by which a trend appears are in `limen.lab.trends`. Every stage is a run folder and is skipped when it is done.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limen.dynamics.between_figures import read_result
from limen.dynamics.callback import FOLDER
from limen.dynamics.curves import RunCurves, read_curves
from limen.dynamics.probe import load_probe
from limen.dynamics.quantities import mean
from limen.errors import ConfigError
from limen.lab.demo import ALGORITHMS, MAX_TOKENS, RECIPE, VERIFIER
from limen.lab.policies import Study, in_processes, sample_policy, train_policy
from limen.lab.trends import MILDER, PER_RATE, RARE, TRENDS, Finding, find, find_milder, t_interval, to_json
from limen.provenance import provenance
from limen.store.writer import write_json

if TYPE_CHECKING:
    from limen.measure import Comparison

SCHEDULES: dict[str, dict[str, Any]] = {
    "decay": {},
    "constant": {"schedule": "constant", "lr": 3e-4},
    "gentle": {"schedule": "constant", "lr": 1e-4},
}
"""What each changes in the optimiser of the demo's recipe (9e-4, falling to zero)."""
METHODS = ("grpo", "self")
EVERY = 5


@dataclass(frozen=True)
class DynamicsStudy:
    """`checkpoints`: how many of each training are sampled; `probe_size` problems with 4 responses each."""

    study: Study
    every: int = EVERY
    checkpoints: int = 4
    probe_size: int = 512
    schedules: tuple[str, ...] = tuple(SCHEDULES)

    def __post_init__(self) -> None:
        unknown = [s for s in self.schedules if s not in SCHEDULES]
        if unknown:
            raise ConfigError(f"unknown schedule '{unknown[0]}': expected some of {', '.join(SCHEDULES)}")

    @property
    def spacing(self) -> int:
        return max(1, self.study.steps // self.checkpoints)

    @property
    def steps(self) -> list[int]:
        """Steps at which a training is sampled."""
        return list(range(self.spacing, self.study.steps + 1, self.spacing))

    @property
    def arms(self) -> list[str]:
        return [f"{m}-{s}" for s in self.schedules for m in METHODS]

    def trained(self, arm: str, seed: int) -> Path:
        return self.study.out / f"seed-{seed}" / f"train-{arm}"

    def between(self, arm: str, seed: int) -> Path:
        return self.study.out / f"seed-{seed}" / f"{arm}-between"

    def sampled(self, arm: str, seed: int, step: int) -> Path:
        return self.study.out / f"seed-{seed}" / f"{arm}-step-{step}"


def run_one(s: DynamicsStudy, arm: str, seed: int) -> None:
    """Train one method under one schedule with one seed, and sample its checkpoints."""
    method, _, schedule = arm.partition("-")
    if arm not in s.arms:
        raise ConfigError(f"unknown run '{arm}': expected some of {', '.join(s.arms)}")
    settings = {
        "algorithm": ALGORITHMS[method],
        "optimiser": {**RECIPE["optimiser"], **SCHEDULES[schedule]},
        "probe": {"run": str(s.study.out / "probe"), "every": s.every, "base": True},
        "save_steps": s.spacing,
        "keep_checkpoints": s.checkpoints + 1,
    }
    folder = train_policy(s.study, arm, seed, settings)
    for step in s.steps:
        sample_policy(s.study, s.sampled(arm, seed, step), str(folder / f"checkpoint-{step}"), arm, step=step)
    look_between(s, arm, seed)


def look_between(s: DynamicsStudy, arm: str, seed: int) -> None:
    """What `limen dynamics` says of the base and the checkpoints of one training; skipped when it is there."""
    from limen.dynamics.between import gather, write
    from limen.dynamics.checkpoints import read_checkpoints

    if (s.between(arm, seed) / "dynamics.json").exists():
        return
    runs = [s.study.out / "base", *(s.sampled(arm, seed, step) for step in s.steps)]
    found = read_checkpoints([str(r) for r in runs])
    data = gather(found, s.between(arm, seed), s.study.out / "probe", device=s.study.device, dtype="float32")
    write(data, s.between(arm, seed))


def prepare(s: DynamicsStudy) -> None:
    """The probe set, and the base's samples."""
    from limen.config import SampleSettings
    from limen.dynamics.probe import draw_probe

    settings = SampleSettings.make(
        model=s.study.base, problems=f"arithmetic:all?split=train&size={s.probe_size}", n=4, temperature=0.9,
        max_tokens=MAX_TOKENS, template="plain", verifier=VERIFIER, device=s.study.device, dtype="float32",
        policy="base",
    )  # fmt: skip
    draw_probe(settings, s.study.out / "probe", progress=False)
    sample_policy(s.study, s.study.out / "base", s.study.base, "base")


def run_dynamics(s: DynamicsStudy, seeds: Sequence[int], jobs: int = 1) -> str:
    """All methods, schedules and seeds, `jobs` processes at a time (1: here). Returns the page; writes dynamics.md and
    .json and the figures into `study.out`."""
    prepare(s)
    todo = [(arm, seed) for seed in seeds for arm in s.arms]
    if jobs == 1:
        for arm, seed in todo:
            run_one(s, arm, seed)
    else:
        st = s.study
        shared = ["--out", str(st.out), "--steps", str(st.steps), "-n", str(st.n), "--base", st.base]
        shared += ["--every", str(s.every), "--checkpoints", str(s.checkpoints), "--probe-size", str(s.probe_size)]
        shared += ["--schedules", ",".join(s.schedules)]
        shared += ["--device", st.device] if st.device else []
        shared += ["--limit", str(st.limit)] if st.limit else []
        in_processes([["lab", "dynamics", *shared, "--only", arm, "--seeds", str(x)] for arm, x in todo], jobs)
    runs = {arm: [read_curves(s.trained(arm, x)) for x in seeds] for arm in s.arms}
    found = findings(s, runs)
    compared = {arm: [[_compared(s, arm, x, step) for step in s.steps] for x in seeds] for arm in s.arms}
    page = study_page(s, seeds, runs, found, compared)
    (s.study.out / "dynamics.md").write_text(page, encoding="utf-8")
    write_json(
        s.study.out / "dynamics.json",
        {
            "provenance": provenance(),
            "steps": s.study.steps,
            "every": s.every,
            "base": Path(s.study.base).name,
            "trends": to_json(found),
        },
    )
    draw(s, seeds, compared)
    return page


def findings(s: DynamicsStudy, runs: Mapping[str, Sequence[RunCurves]]) -> dict[str, list[Finding]]:
    """The trends of every method and schedule, and SELF against GRPO."""
    out: dict[str, list[Finding]] = {}
    for schedule in s.schedules:
        for method in METHODS:
            arm = f"{method}-{schedule}"
            wanted = TRENDS + RARE + (PER_RATE if schedule == "decay" else ())
            out[arm] = [find(t, runs[arm]) for t in wanted]
        pairs = list(zip(runs[f"grpo-{schedule}"], runs[f"self-{schedule}"], strict=True))
        out[f"self against grpo, {schedule}"] = [find_milder(t, pairs) for t in MILDER]
    return out


def _compared(s: DynamicsStudy, arm: str, seed: int, step: int) -> Comparison:
    from limen.measure import compare, counts_from_run

    return compare(counts_from_run(s.study.out / "base"), counts_from_run(s.sampled(arm, seed, step)), draws=200)


def draw(s: DynamicsStudy, seeds: Sequence[int], compared: Mapping[str, Sequence[Sequence[Comparison]]]) -> None:
    """Figures 2, 7 and 8 of each schedule; 3, 4 and 14 of each method with the first seed."""
    from limen.dynamics.between_figures import between_figure
    from limen.dynamics.figures import training_figure

    for schedule in s.schedules:
        arms = [f"{m}-{schedule}" for m in METHODS]
        folder = s.study.out / f"figures-{schedule}"
        paths = [s.trained(arm, x) for arm in arms for x in seeds]
        passes = pass_points({arm: compared[arm] for arm in arms}, s.steps)
        training_figure(2, paths, folder, passes)
        training_figure(7, paths, folder)
        training_figure(8, paths, folder)
        for arm in arms:
            for number in (3, 4, 14):
                between_figure(number, s.between(arm, seeds[0]), folder / f"{arm}-seed-{seeds[0]}")


def pass_points(
    compared: Mapping[str, Sequence[Sequence[Comparison]]], steps: Sequence[int]
) -> dict[str, dict[str, dict[int, list[float]]]]:
    """pass@1 and pass@n by name of the quantity, method and step; step 0 is the base."""
    some = next(iter(compared.values()))[0][0]
    out: dict[str, dict[str, dict[int, list[float]]]] = {}
    for at in (0, -1):
        name = f"pass@{int(some.k_K[at])}"
        out[name] = {}
        for arm, by_seed in compared.items():
            base = [float(cs[0].base_curve.value_K[at]) for cs in by_seed]
            rest = {x: [float(cs[i].trained_curve.value_K[at]) for cs in by_seed] for i, x in enumerate(steps)}
            out[name][arm] = {0: base[:1], **rest}
    return out


def study_page(
    s: DynamicsStudy,
    seeds: Sequence[int],
    runs: Mapping[str, Sequence[RunCurves]],
    found: Mapping[str, Sequence[Finding]],
    compared: Mapping[str, Sequence[Sequence[Comparison]]],
) -> str:
    """The results as Markdown."""
    import json

    probe: dict[str, Any] = json.loads((s.study.out / "probe" / "run.json").read_text())["probe"]
    some = next(iter(compared.values()))[0][0]
    lines = [_HEAD.format(steps=s.study.steps, seeds=len(seeds), pairs=probe["pairs"], M=some.base.M, n=s.study.n,
                          problems=probe["problems"], correct=probe["outcomes"].get("correct", 0), every=s.every,
                          probe_steps=len(next(iter(runs.values()))[0].get("probe/delta_plus")[0]))]  # fmt: skip
    for name, fs in found.items():
        lines += [
            "",
            f"**{name}**",
            "",
            "| trend of the paper | by the rule | change (95% over seeds) | from | by seed |",
        ]
        lines += ["|---|---|---|---|---|"]
        for f in fs:
            each = ", ".join(f"{x:+.3g}" for x in f.changes)
            between = f" [{f.low:+.3g}, {f.high:+.3g}]" if f.low == f.low else ""
            lines.append(f"| {f.words} | {f.verdict} | {f.mean:+.3g}{between} | {f.start:.3g} | {each} |")
    lines += _by_rate(s, seeds)
    lines += _correlations(s, seeds)
    last = int(some.k_K[-1])
    lines += [
        "",
        f"| run | seed | step | pass@1 | pass@{last} | E | S | chance | p |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    c = some
    lines.append(f"| base | | 0 | {c.base_curve.value_K[0]:.3f} | {c.base_curve.value_K[-1]:.3f} | | | | |")
    for arm, by_seed in compared.items():
        for seed, at in zip(seeds, by_seed, strict=True):
            for step, c in zip(s.steps, at, strict=True):
                assert c.support is not None
                curve, x = c.trained_curve.value_K, c.support
                cells = [arm, str(seed), str(step), f"{curve[0]:.3f}", f"{curve[-1]:.3f}", str(x.E), str(x.S)]
                lines.append("| " + " | ".join([*cells, f"{x.chance_each_way:.1f}", f"{x.mcnemar_p:.2g}"]) + " |")
    return "\n".join(lines) + "\n"


def _correlations(s: DynamicsStudy, seeds: Sequence[int]) -> list[str]:
    """Figure 3 in numbers: one line for each training."""
    lines = ["", "| run | seed | pairs T<T' | Δ⁺ against Δpass@k: Pearson | Spearman |", "|---|---|---|---|---|"]
    for arm in s.arms:
        for seed in seeds:
            part = read_result(s.between(arm, seed))["interference"]
            found = part["tasks"]["all"]
            cells = [arm, str(seed), f"{len(found['pairs'])} (k = {part['k']})"]
            lines.append("| " + " | ".join([*cells, _between(found["pearson"]), _between(found["spearman"])]) + " |")
    return lines


def _by_rate(s: DynamicsStudy, seeds: Sequence[int]) -> list[str]:
    """Who wins and who loses: change of log π(y⁺) from the base to the last probe, by how many of the four probe
    responses of a problem are right."""
    import pyarrow.parquet as pq

    head = "| change of log π(y⁺) from base to end, by right probe responses | 1 of 4 | 2 of 4 | 3 of 4 | 4 of 4 |"
    lines = ["", head, "|---|---|---|---|---|"]
    rate_N = np.round(load_probe(s.study.out / "probe").rate_N * 4).astype(int)
    for arm in s.arms:
        cells = []
        for rate in (1, 2, 3, 4):
            each = []
            for seed in seeds:
                files = sorted((s.trained(arm, seed) / FOLDER).glob("step-*.parquet"))
                first, last = pq.read_table(files[0]), pq.read_table(files[-1])
                keep = np.array(first["correct"]) & (rate_N == rate)
                delta = np.array(last["logprob_after"]) - np.array(first["logprob_before"])
                each.append(mean((delta / np.array(first["n_tokens"]))[keep]))
            value, low, high = t_interval(each)
            cells.append(
                "" if math.isnan(value) else f"{value:+.3f}" + (f" [{low:+.3f}, {high:+.3f}]" if low == low else "")
            )
        lines.append("| " + " | ".join([arm, *cells]) + " |")
    return lines


def _between(e: Mapping[str, float | None]) -> str:
    if e["value"] is None:
        return "undefined"
    return f"{e['value']:.2f}" + ("" if e["low"] is None else f" [{e['low']:.2f}, {e['high']:.2f}]")


_HEAD = """\
GRPO and SELF on the tiny base, {steps} steps of 64 prompts x 8 responses, {seeds} training seeds; {M} held-out
problems, n = {n}. Probe set: {pairs} responses of the base at temperature 0.9 to {problems} training problems
({correct} of them correct), scored before and after every {every}th optimizer step ({probe_steps} probes). `decay`: the
demo's recipe, whose learning rate falls from 9e-4 to zero; `constant`: the same at a constant 3e-4; `gentle`: at a
constant 1e-4.

Rule, fixed before the runs (`limen/lab/trends.py`): the *change* of a quantity is its mean over the last third of the
probes minus that over the first third, the first step left out; a trend *appears* where the 95% t interval of the
change over seeds lies on the paper's side of zero, is *opposite* where it lies on the other side, else *unclear*. For
SELF against GRPO: the difference of the means over all probes (log π(y⁺): over the last third), paired by seed.
*Stable*: the interval holds zero, or the change is less than a quarter of where it began. *Seldom solved*: at most half
of a problem's probe responses are right."""
