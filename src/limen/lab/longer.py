"""`limen lab longer`: GRPO, SELF, and GRPO with a forward KL, trained four times as long as the demo.

Held-out problems are sampled at marks (an eighth, a quarter, half of the steps, the end). The step size falls linearly
over the whole training, as it does over the demo's 200 steps, so the mark at a quarter is not the demo's end. What is
asked of the results is in `limen.lab.longer_rules`, written down before the runs. A page can be made of what is there
while trainings are missing; it says which.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from limen.errors import ConfigError, DataError
from limen.lab.frontier_arms import ARMS as FRONTIER
from limen.lab.policies import Study, sample_policy, train_policy
from limen.lab.slices import SMALL, counts_json, counts_table, in_slice, pack, small_file
from limen.provenance import machine_of, provenance
from limen.store.writer import write_json

ARMS = ("grpo", "self", "nll-1")
"""Arms of `limen lab frontier`."""
RESERVE = 20.0
"""Seconds of a slice that are kept for the page and for packing."""


def marks(steps: int) -> list[int]:
    """Steps at which a training is sampled."""
    each = max(1, steps // 8)
    return sorted({m for m in (each, 2 * each, 4 * each) if m < steps} | {steps})


def known(arm: str) -> str:
    """The arm. Raises `ConfigError` for one that this study does not have."""
    if arm not in ARMS:
        raise ConfigError(f"unknown arm '{arm}': expected some of {', '.join(ARMS)}")
    return arm


def place(out: Path, arm: str, seed: int, step: int) -> Path:
    """The small file of one mark."""
    return small_file(out / f"seed-{seed}" / f"{arm}-step-{step}")


def describe(study: Study) -> dict[str, Any]:
    """What all runs of one folder must share."""
    return {"recipe": study.recipe, "steps": study.steps, "n": study.n, "base": study.base, "limit": study.limit}


def prepare(study: Study) -> None:
    """The base's two draws."""
    for name in ("base", "control"):
        file = small_file(study.out / name)
        if not file.exists():
            run = sample_policy(study, study.out / name, study.base, name, logprobs=False)
            write_json(file, {"counts": counts_json(run), "study": describe(study), "provenance": provenance()})
        elif json.loads(file.read_text(encoding="utf-8"))["study"] != describe(study):
            raise ConfigError(f"{study.out} holds another study (recipe, steps, n, base or limit): take a new --out")


def run_one(study: Study, arm: str, seed: int) -> None:
    """Train one arm with one seed and sample its marks; what is done is not done again."""
    if all(place(study.out, arm, seed, m).exists() for m in marks(study.steps)):
        return
    train_policy(study, arm, seed, settings(study, arm))
    sample_marks(study, arm, seed)


def settings(study: Study, arm: str) -> dict[str, Any]:
    """What the training puts over the recipe: the arm, and a checkpoint at every mark."""
    spacing = max(1, study.steps // 8)
    more = {"save_steps": spacing, "keep_checkpoints": study.steps // spacing + 1}
    return {**FRONTIER[known(arm)].settings(study.steps), "record_rollouts": False, "grad_ratio_steps": 0, **more}


def sample_marks(study: Study, arm: str, seed: int) -> None:
    """Sample the marks whose checkpoint is there (of a training that did not finish, too)."""
    folder = study.out / f"seed-{seed}" / f"train-{arm}"
    for step in marks(study.steps):
        file, model = place(study.out, arm, seed, step), folder / f"checkpoint-{step}"
        if step == study.steps and (folder / "model" / "config.json").exists():
            model = folder / "model"
        if file.exists() or not (model / "config.json").exists():
            continue
        run = study.out / f"seed-{seed}" / f"{arm}-step-{step}"
        sample_policy(study, run, str(model), f"{arm}-step-{step}", step=step, logprobs=False)
        doc = {"arm": arm, "seed": seed, "step": step, "counts": counts_json(run)}
        write_json(file, {**doc, "study": describe(study), "provenance": provenance()})


def run_longer(
    study: Study, arms: Sequence[str], seeds: Sequence[int], jobs: int = 1, seconds: float | None = None,
    train: bool = True,
) -> str:  # fmt: skip
    """All arms and seeds that are not finished, `jobs` processes at a time (1 without a limit of time: here), for
    `seconds` at most; with `train` false, the checkpoints that are there are sampled and nothing is trained. Returns
    the page; writes longer.md, .json, .png."""
    end = None if seconds is None else time.monotonic() + seconds - RESERVE
    prepare(study)
    todo = [(a, s) for s in seeds for a in map(known, arms)]
    if not train:
        for arm, seed in todo:
            sample_marks(study, arm, seed)
    elif jobs == 1 and end is None:
        for arm, seed in todo:
            run_one(study, arm, seed)
            write_page(study.out)
    else:
        todo = [(a, s) for a, s in todo if not all(place(study.out, a, s, m).exists() for m in marks(study.steps))]
        shared = [sys.executable, "-m", "limen", "lab", "longer", *study.options()]
        commands = {f"{a} {s}": [*shared, "--only", a, "--seeds", str(s)] for a, s in todo}
        found = in_slice(commands, jobs, None if end is None else end - time.monotonic())
        counts = {k: list(found.values()).count(k) for k in ("done", "failed", "cut", "waiting")}
        print(", ".join(f"{v} {k}" for k, v in counts.items()), file=sys.stderr, flush=True)
    return write_page(study.out)


def collect(out: Path, file: Path) -> int:
    """Pack the small files of sampled marks, and the page, into one tar; returns its bytes."""
    return pack(out, [*out.glob(f"*{SMALL}"), *out.glob(f"seed-*/*{SMALL}"), *out.glob("longer.*")], file)


def read_small(out: Path) -> dict[str, Any]:
    """longer.json's content from the small files. Raises `DataError` where the base or every mark is missing, or where
    marks are of another study than the base."""
    from limen.measure import compare

    base_file = small_file(out / "base")
    if not base_file.exists():
        raise DataError(f"{out} holds no {base_file.name}: nothing of this study is finished")
    first = json.loads(base_file.read_text(encoding="utf-8"))
    base, rows, commits, where = counts_table("base", first["counts"]), [], set[str](), set[str]()
    control = small_file(out / "control")
    files = [*([control] if control.exists() else []), *sorted(out.glob(f"seed-*/*{SMALL}"))]
    for file in files:
        d = json.loads(file.read_text(encoding="utf-8"))
        if d["study"] != first["study"]:
            raise DataError(f"{file} is of the study {d['study']}, the base of {first['study']}: one folder each")
        table = counts_table(d.get("arm", "control"), d["counts"])
        commits.add(str(d["provenance"].get("commit"))[:7])
        where.add(machine_of(d["provenance"]))
        row = {"method": d.get("arm", "control"), "seed": int(d.get("seed", 0)), "step": int(d.get("step", 0))}
        rows.append({**row, "comparison": compare(base, table, draws=0).to_json()})
    if not any(r["step"] for r in rows):
        raise DataError(f"{out}: no mark of any training is sampled yet")
    study = first["study"]
    return {
        "provenance": first["provenance"], "recipe": study["recipe"], "steps": study["steps"], "study": study,
        "commits": sorted(commits), "hardware": sorted(where), "runs": rows,
    }  # fmt: skip


def write_page(out: Path) -> str:
    """longer.md, .json, .png, .svg and .csv from the small files in `out`. Returns the page; while nothing but the base
    is sampled, one line. Raises `DataError` where marks are there and are not of one study."""
    from limen.lab.evidence import publish
    from limen.lab.longer_page import figure, longer_page

    try:
        doc = read_small(out)
    except DataError as error:
        if any(out.glob(f"seed-*/*{SMALL}")):
            raise
        return f"{error}\n"
    return publish(out, "longer", doc, longer_page, figure)
