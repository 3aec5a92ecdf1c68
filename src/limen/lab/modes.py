"""`limen lab modes`: what GRPO and SELF make of a base with two ways of reasoning (RBP fig. 6 and 15, app. I).

The base (`limen.lab.tiny_modes`) is better in language on `add` and `mul22` and better in code on `mul21`. Training is
on the first two alone, so `mul21` stands where Minerva stands in the paper: a test family that needs the form which
training has no use for. The rules by which the paper's claims are judged are in `limen.lab.modes_rules`, fixed before
any run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from limen.errors import ConfigError
from limen.lab.demo import ALGORITHMS
from limen.lab.modes_rules import Reading, judge
from limen.lab.policies import Study, in_processes, sample_policy, train_policy
from limen.lab.tiny_modes import MAX_TOKENS, VERIFIER
from limen.provenance import provenance
from limen.store.writer import write_json

METHODS = ("grpo", "self")
TRAINED = ("add", "mul22")
CHECKPOINTS, CHECKPOINT_N, TRAIN_SIZE = 4, 64, 300


@dataclass(frozen=True)
class ModesStudy:
    """`families`: those that training sees."""

    study: Study
    families: tuple[str, ...] = TRAINED

    @property
    def steps(self) -> list[int]:
        """Steps at which a training is sampled, the last one with all `n`."""
        spacing = max(1, self.study.steps // CHECKPOINTS)
        return [*range(spacing, self.study.steps, spacing), self.study.steps]

    @property
    def sampling(self) -> dict[str, Any]:
        """What sampling differs in from the other studies; a limit is taken evenly from the families."""
        size = f"&size={self.study.limit}" if self.study.limit else ""
        more = {"problems": f"arithmetic:all?split=test{size}", "limit": None}
        return {"max_tokens": MAX_TOKENS, "verifier": VERIFIER, "logprobs": False, **more}

    def sampled(self, method: str, seed: int, step: int) -> Path:
        return self.study.out / f"seed-{seed}" / f"{method}-step-{step}"


def run_one(s: ModesStudy, method: str, seed: int) -> None:
    """Train one method with one seed, and sample its checkpoints."""
    if method not in METHODS:
        raise ConfigError(f"unknown method '{method}': expected some of {', '.join(METHODS)}")
    spacing = s.steps[0]
    settings = {
        "algorithm": ALGORITHMS[method],
        "problems": f"arithmetic:{','.join(s.families)}?split=train",
        "verifier": VERIFIER,
        "max_new_tokens": MAX_TOKENS,
        "save_steps": spacing,
        "keep_checkpoints": len(s.steps) + 1,
    }
    folder = train_policy(s.study, method, seed, settings)
    for step in s.steps:
        last = step == s.study.steps
        model = folder / ("model" if last else f"checkpoint-{step}")
        n = s.study.n if last else min(CHECKPOINT_N, s.study.n)
        sample_policy(s.study, s.sampled(method, seed, step), str(model), method, n, step=step, **s.sampling)


def prepare(s: ModesStudy) -> None:
    """The base's samples of held-out problems, twice, and of some training problems."""
    for name in ("base", "control"):
        sample_policy(s.study, s.study.out / name, s.study.base, name, **s.sampling)
    size = min(TRAIN_SIZE, s.study.limit or TRAIN_SIZE)
    problems = f"arithmetic:{','.join(s.families)}?split=train&size={size}"
    more = {**s.sampling, "problems": problems}
    sample_policy(s.study, s.study.out / "base-train", s.study.base, "base-train", CHECKPOINT_N, **more)


def run_modes(s: ModesStudy, methods: Sequence[str], seeds: Sequence[int], jobs: int = 1) -> str:
    """All methods and seeds, `jobs` processes at a time (1: here). Returns the page; writes modes.md/.json/.png."""
    prepare(s)
    todo = [(m, seed) for seed in seeds for m in methods]
    if jobs == 1:
        for method, seed in todo:
            run_one(s, method, seed)
    else:
        shared = [*s.study.options(), "--families", ",".join(s.families)]
        in_processes([["lab", "modes", *shared, "--only", m, "--seeds", str(x)] for m, x in todo], jobs)
    from limen.lab.modes_page import modes_page, write_figures

    found = read_study(s, methods, seeds)
    rules = judge(found, s.families)
    page = modes_page(s, found, rules)
    (s.study.out / "modes.md").write_text(page, encoding="utf-8")
    doc = to_json(s, found, rules)
    write_json(s.study.out / "modes.json", doc)
    write_figures(doc, s.study.out)
    return page


@dataclass(frozen=True)
class Found:
    """What was measured. `series[method][seed]`: readings of the checkpoints, the last one at full n; `training`: share
    of code among the training samples of each step."""

    base: Reading
    control: Reading
    base_train: Reading
    series: Mapping[str, Mapping[int, Sequence[Reading]]]
    training: Mapping[str, Mapping[int, Sequence[tuple[int, float]]]]

    def last(self, method: str) -> list[Reading]:
        return [readings[-1] for readings in self.series[method].values()]


def read_study(s: ModesStudy, methods: Sequence[str], seeds: Sequence[int]) -> Found:
    """Read every run folder of the study."""
    out = s.study.out
    return Found(
        reading(out / "base"),
        reading(out / "control"),
        reading(out / "base-train"),
        {m: {x: [reading(s.sampled(m, x, step)) for step in s.steps] for x in seeds} for m in methods},
        {m: {x: training_share(out / f"seed-{x}" / f"train-{m}") for x in seeds} for m in methods},
    )


def reading(run: Path) -> Reading:
    """Counts and forms of one sampling run, problem by problem."""
    from limen.measure import counts_from_run, responses_from_run
    from limen.store import Run

    table, responses = counts_from_run(run), responses_from_run(run)
    assert responses is not None
    assert responses.problem_ids == table.problem_ids
    columns = responses.columns
    step = int(Run.open(run).settings.get("step", 0))
    names = ("code_share", "accuracy_code", "accuracy_language")
    return Reading(step, table, *(np.asarray(columns[k]) for k in names))


def training_share(run: Path) -> list[tuple[int, float]]:
    """(step, share of code) of the responses that were trained on."""
    from limen.measure.responses import CODE
    from limen.store import Run

    table = Run.open(run).table("rollouts", ["step", "text"])
    code: dict[int, list[bool]] = {}
    for step, text in zip(table.column("step").to_pylist(), table.column("text").to_pylist(), strict=True):
        code.setdefault(int(step), []).append(CODE in text)
    return [(step, float(np.mean(found))) for step, found in sorted(code.items())]


def to_json(s: ModesStudy, found: Found, rules: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Everything that the page and the claims need, without the samples."""

    def plain(r: Reading) -> dict[str, Any]:
        return {"step": r.step, "families": {f: r.family(f).summary() for f in r.families}}

    return {
        "provenance": provenance(),
        "steps": s.study.steps,
        "n": s.study.n,
        "recipe": s.study.recipe,
        "trained_on": list(s.families),
        "base": plain(found.base),
        "control": plain(found.control),
        "base_train": plain(found.base_train),
        "series": {m: {str(x): [plain(r) for r in rs] for x, rs in by.items()} for m, by in found.series.items()},
        "training_code_share": {m: {str(x): v for x, v in by.items()} for m, by in found.training.items()},
        "rules": rules,
    }
