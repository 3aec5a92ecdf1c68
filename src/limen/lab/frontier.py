"""`limen lab frontier`: pass@1 against pass@n of GRPO, SELF and what lies between, at equal updates and equal tokens.

Every arm is trained for the same number of updates. Then each is trained once more until it has generated as many
tokens as GRPO of the same seed did (groups, screening and stored base responses count alike); an arm that spends what
GRPO spends is not trained twice. Who gets the prize is decided by `limen.lab.frontier_rule`.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limen.errors import ConfigError, DataError
from limen.lab.frontier_arms import ARMS, Arm
from limen.lab.mixing import training_of, weights_of
from limen.lab.policies import Study, sample_policy, train_policy
from limen.lab.slices import SMALL, counts_json, counts_table, in_slice, pack, small_file
from limen.provenance import provenance
from limen.store.writer import write_json

if TYPE_CHECKING:
    from limen.measure import CountTable

BUDGETS = ("updates", "tokens")
SAME = 0.02
"""A run whose tokens are this near to the budget (as a share of it) is the run at equal tokens too."""
LONGEST = 6
"""A run at equal tokens has at most so many times the updates."""
RESERVE = 20.0
"""Seconds of a slice that are kept for the page and for packing."""


@dataclass(frozen=True)
class Finished:
    """What the small file of a run says. `tokens`: generated, screened and stored together; `by_step`: generated and
    screened ones of each update. `table` is None where the budget is spent before the first update."""

    arm: str
    seed: int
    budget: str
    steps: int
    tokens: int
    stored: int
    by_step: tuple[int, ...]
    table: CountTable | None
    study: Mapping[str, Any]
    provenance: Mapping[str, Any]


def run_name(arm: str, budget: str) -> str:
    """Name of the run's folder, below that of its seed."""
    return arm if budget == "updates" else f"{arm}-tokens"


def place(out: Path, arm: str, seed: int, budget: str) -> Path:
    """The small file of one run."""
    return small_file(out / f"seed-{seed}" / run_name(arm, budget))


def describe(study: Study) -> dict[str, Any]:
    """What all runs of one folder must share."""
    return {"recipe": study.recipe, "steps": study.steps, "n": study.n, "base": study.base, "limit": study.limit}


def steps_for(budget: int, stored: int, by_step: Sequence[int], steps: int, longest: int = LONGEST) -> int:
    """Updates after which an arm has generated `budget` tokens, going by its run of `steps` updates: the first update
    that reaches it, or beyond its end at the rate of its last quarter. 0: the stored responses alone exceed it;
    `steps` itself where the run's tokens are within `SAME` of the budget."""
    if stored >= budget:
        return 0
    total = stored + sum(by_step)
    if abs(total - budget) <= SAME * budget:
        return steps
    spent = stored
    for i, tokens in enumerate(by_step, 1):
        spent += tokens
        if spent >= budget:
            return i
    last = by_step[-max(1, len(by_step) // 4) :]
    rate = sum(last) / len(last)
    return longest * steps if rate == 0 else min(longest * steps, steps + math.ceil((budget - total) / rate))


def run_one(study: Study, arm: Arm, seed: int, budget: str = "updates") -> None:
    """Train and sample one arm with one seed, and write its small file; nothing where that is there."""
    if budget not in BUDGETS:
        raise ConfigError(f"unknown budget '{budget}': expected {' or '.join(BUDGETS)}")
    if place(study.out, arm.name, seed, budget).exists():
        return
    if budget == "updates":
        _train(study, arm, seed, budget, study.steps, {})
        return
    goal, own = (read_small(place(study.out, a, seed, "updates")) for a in ("grpo", arm.name))
    steps = steps_for(goal.tokens, own.stored, own.by_step, study.steps)
    if steps in (0, study.steps):
        doc = json.loads(place(study.out, arm.name, seed, "updates").read_text(encoding="utf-8"))
        doc["budget"] = budget
        if steps == 0:
            doc |= {"counts": None, "steps": 0}
        write_json(place(study.out, arm.name, seed, budget), doc)
    else:
        _train(study, arm, seed, budget, steps, {"steps": steps, "token_budget": goal.tokens})


def _train(study: Study, arm: Arm, seed: int, budget: str, steps: int, more: Mapping[str, Any]) -> None:
    from limen.store import Run

    name = run_name(arm.name, budget)
    settings = {**arm.settings(steps), "record_rollouts": False, "grad_ratio_steps": 0, **more}
    folder = study.out / f"seed-{seed}"
    parent = run_name(arm.parent, budget) if arm.parent else None
    trained = train_policy(study, training_of(folder, name, parent), seed, settings)
    info = Run.open(trained).info
    run, model = folder / name, weights_of(arm, study.base, trained, folder / f"model-{name}")
    sample_policy(study, run, str(model), name, step=int(info["steps_done"]), logprobs=False)
    spent = info["counters"]
    doc = {
        "arm": arm.name, "seed": seed, "budget": budget, "steps": info["steps_done"], "settings": settings,
        "tokens": {k: spent[f"tokens_{k}"] for k in ("generated", "screened", "stored")},
        "by_step": tokens_by_step(trained / "metrics.jsonl"), "counts": counts_json(run),
        "study": describe(study), "provenance": provenance(),
    }  # fmt: skip
    write_json(place(study.out, arm.name, seed, budget), doc)


def tokens_by_step(metrics: Path) -> list[int]:
    """Generated and screened tokens of each update."""
    by_step: dict[int, int] = {}
    for line in metrics.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        new = int(row.get("tokens/generate", 0) + row.get("tokens/screen", 0))
        by_step[row["step"]] = by_step.get(row["step"], 0) + new
    return [by_step[s] for s in sorted(by_step)]


def read_small(file: Path) -> Finished:
    """One run from its small file. Raises `DataError` where there is none."""
    if not file.exists():
        raise DataError(f"no {file}: that run is not finished (a run at equal tokens needs GRPO's and its own before)")
    d = json.loads(file.read_text(encoding="utf-8"))
    table = None if d["counts"] is None else counts_table(f"{d['arm']}, seed {d['seed']}", d["counts"])
    tokens = sum(d["tokens"].values())
    return Finished(d["arm"], d["seed"], d["budget"], d["steps"], tokens, d["tokens"]["stored"], tuple(d["by_step"]),
                    table, d["study"], d["provenance"])  # fmt: skip


def read_all(out: Path) -> tuple[list[CountTable], list[Finished]]:
    """The base's two draws and every finished run. Raises `DataError` where the base is missing, or where runs of
    different studies lie in one folder."""
    files = [small_file(out / name) for name in ("base", "control")]
    if not files[0].exists():
        raise DataError(f"{out} holds no {files[0].name}: nothing of this study is finished")
    docs = [json.loads(f.read_text(encoding="utf-8")) for f in files if f.exists()]
    runs = [read_small(f) for f in sorted(out.glob(f"seed-*/*{SMALL}"))]
    for r in runs:
        if r.study != docs[0]["study"]:
            raise DataError(
                f"{out}: {r.arm}, seed {r.seed} is of the study {dict(r.study)}, the base of {docs[0]['study']}: give "
                "every study a folder of its own"
            )
    return [counts_table(n, d["counts"]) for n, d in zip(("base", "control"), docs, strict=False)], runs


def prepare(study: Study) -> None:
    """The base's two draws."""
    for name in ("base", "control"):
        file = small_file(study.out / name)
        if file.exists():
            if json.loads(file.read_text(encoding="utf-8"))["study"] != describe(study):
                raise ConfigError(
                    f"{study.out} holds another study (recipe, steps, n, base or limit): take a new --out"
                )
            continue
        run = sample_policy(study, study.out / name, study.base, name, logprobs=False)
        write_json(file, {"counts": counts_json(run), "study": describe(study), "provenance": provenance()})


def run_frontier(
    study: Study,
    arms: Sequence[Arm],
    seeds: Sequence[int],
    jobs: int = 1,
    seconds: float | None = None,
    budgets: Sequence[str] = BUDGETS,
    k: int | None = None,
) -> str:
    """All arms and seeds that are not finished, `jobs` processes at a time (1 without a limit of time: here), for
    `seconds` at most. Returns the page, by pass@`k` (pass@n unless given); writes frontier.md, .json, .png."""
    from limen.lab.frontier_page import write_page

    unknown = sorted(set(budgets) - set(BUDGETS))
    if unknown:
        raise ConfigError(f"unknown budget '{unknown[0]}': expected {' or '.join(BUDGETS)}")
    if k is not None and not 1 <= k <= study.n:
        raise ConfigError(f"--k {k}: expected 1 to {study.n}, the samples of a problem (-n)")
    end = None if seconds is None else time.monotonic() + seconds - RESERVE
    prepare(study)
    for budget in budgets:
        for own in ([a for a in arms if a.parent is None], [a for a in arms if a.parent is not None]):
            _run_budget(study, own, seeds, jobs, end, budget)
    return write_page(study.out, k)


def _run_budget(
    study: Study, arms: Sequence[Arm], seeds: Sequence[int], jobs: int, end: float | None, budget: str
) -> None:
    """What is not finished of these arms at one budget. Arms with a parent come after it, for its weights."""
    todo = [(a, s) for s in seeds for a in arms if not place(study.out, a.name, s, budget).exists()]
    if budget == "tokens":
        todo = [(a, s) for a, s in todo if _ready(study.out, a.name, s)]
    if not todo:
        return
    if jobs == 1 and end is None:
        for arm, seed in todo:
            run_one(study, arm, seed, budget)
        return
    shared = [sys.executable, "-m", "limen", "lab", "frontier", *study.options(), "--budgets", budget]
    commands = {f"{a.name} {s}": [*shared, "--only", a.name, "--seeds", str(s)] for a, s in todo}
    found = in_slice(commands, jobs, None if end is None else end - time.monotonic())
    counts = {k: list(found.values()).count(k) for k in ("done", "failed", "cut", "waiting")}
    print(f"at equal {budget}: " + ", ".join(f"{v} {k}" for k, v in counts.items()), file=sys.stderr, flush=True)


def _ready(out: Path, arm: str, seed: int) -> bool:
    return all(place(out, a, seed, "updates").exists() for a in ("grpo", arm))


def collect(out: Path, file: Path) -> int:
    """Pack the small files of finished runs, and the page, into one tar; returns its bytes."""
    return pack(out, [*out.glob(f"*{SMALL}"), *out.glob(f"seed-*/*{SMALL}"), *out.glob("frontier.*")], file)


def known(arm: str) -> Arm:
    """An arm by name. Raises `ConfigError`."""
    if arm not in ARMS:
        raise ConfigError(f"unknown arm '{arm}': expected some of {', '.join(ARMS)}")
    return ARMS[arm]
