"""The study on a real language model: SmolLM2-135M-Instruct under GRPO, the greedy filter, SELF and W-REINFORCE.

Every run is a folder that is skipped when it is done and gone on with when it was cut; what the page needs of a
finished run stands in a small file beside it, so the study fits into slices of ten minutes on a borrowed GPU.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limen.errors import ConfigError
from limen.lab.frontier_arms import ARMS
from limen.lab.mixing import training_of, weights_of
from limen.lab.policies import Study, sample_policy, train_policy
from limen.lab.slices import SMALL, counts_json, in_slice, pack, small_file
from limen.lab.smollm2_tasks import MAX_TOKENS, STOP, answers_of, commonest, pooled_guess, write_problems
from limen.provenance import provenance
from limen.store.writer import write_json

METHODS: dict[str, dict[str, Any]] = {
    "grpo": {"name": "grpo"},
    "greedy_filter": {"name": "greedy_filter"},
    "self": {"name": "self", "forward_kl_beta": 0.05, "kl_samples": 2},
    "w_reinforce": {"name": "w_reinforce"},
}
PROBE_N, PROBE_TEMPERATURE = 4, 0.9
ROWS = 1024
"""Responses decoded at a time on a GPU: the memory is shared with runs that still train."""
SAVE = 50
"""Steps between two checkpoints of 1.6 GB."""
RESERVE = 25.0
"""Seconds of a slice that are kept for the page and for packing."""


@dataclass(frozen=True)
class SmolStudy:
    """`study.limit`: only the first so many test problems. `prompts` x `group` responses a step. `probe`: problems of
    the probe set, 4 responses each, scored before and after every `every`th step. `train_limit`: only the first so many
    training problems."""

    study: Study
    problems: Path
    prompts: int = 64
    group: int = 8
    probe: int = 256
    every: int = 10
    train_limit: int | None = None

    @property
    def out(self) -> Path:
        return self.study.out

    def file(self, split: str) -> Path:
        return self.out / f"{split}.jsonl"

    def describe(self) -> dict[str, Any]:
        s = self.study
        own = {k: getattr(self, k) for k in ("prompts", "group", "probe", "every", "train_limit")}
        return {"steps": s.steps, "n": s.n, "base": s.base, "limit": s.limit, **own}


def algorithm(method: str, steps: int) -> dict[str, Any]:
    """Settings of a method of this study, or of an arm of the frontier. Raises `ConfigError`."""
    if method in METHODS:
        return {"algorithm": METHODS[method]}
    if method in ARMS:
        return ARMS[method].settings(steps)
    raise ConfigError(f"unknown method '{method}': expected some of {', '.join(METHODS)}, or of {', '.join(ARMS)}")


def sample(s: SmolStudy, out: Path, model: str, policy: str, step: int = 0, **more: Any) -> Path:
    """The test problems under one policy."""
    shared = {"problems": str(s.file("test")), "stop": tuple(STOP), "max_tokens": MAX_TOKENS, "logprobs": False}
    if s.study.device == "cuda":
        shared["batch_size"] = ROWS
    return sample_policy(s.study, out, model, policy, step=step, **{**shared, **more})


def prepare(s: SmolStudy) -> None:
    """Problems, two draws of the base with what guessing would score, and the probe set."""
    write_problems(s.problems, s.out)
    for name in ("base", "control"):
        file = small_file(s.out / name)
        if file.exists():
            if json.loads(file.read_text(encoding="utf-8"))["study"] != s.describe():
                raise ConfigError(f"{s.out} holds a study with other settings: take a new --out")
            continue
        run = sample(s, s.out / name, s.study.base, name)
        doc = {"counts": counts_json(run), "study": s.describe(), "provenance": provenance()}
        if name == "base":
            doc["chance"] = chance(s, run)
        write_json(file, doc)


def chance(s: SmolStudy, run: Path) -> dict[str, Any]:
    """By task: the commonest training answer and what always giving it scores, and what drawing from the base's pooled
    answers to the other problems scores, at each k."""
    golds = {split: _rows(s.file(split)) for split in ("train", "test")}
    found = answers_of(run)
    ks = [k for k in (1, 4, 16, 64, 256) if k <= s.study.n]
    made: dict[str, Any] = {}
    for task in dict.fromkeys(r["task"] for r in golds["test"]):
        own = [r for r in golds["test"] if r["task"] == task and r["id"] in found]
        if not own:
            continue
        answer, score = commonest(
            [r["answer"] for r in golds["train"] if r["task"] == task], [r["answer"] for r in own]
        )
        pooled = pooled_guess([found[r["id"]] for r in own], [r["answer"] for r in own], ks)
        made[task] = {"commonest": answer, "commonest_score": score, "k": ks, "pooled": pooled.tolist()}
    return made


def _rows(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def make_probe(s: SmolStudy) -> Path:
    """The probe set: the base's responses to training problems."""
    from limen.config import SampleSettings
    from limen.dynamics.probe import draw_probe

    settings = SampleSettings.make(
        model=s.study.base, problems=str(s.file("train")), limit=s.probe, n=PROBE_N, temperature=PROBE_TEMPERATURE,
        max_tokens=MAX_TOKENS, template="plain", stop=tuple(STOP), verifier="exact", device=s.study.device,
        dtype="float32", policy="base",
    )  # fmt: skip
    draw_probe(settings, s.out / "probe", progress=False)
    return s.out / "probe"


def run_one(s: SmolStudy, method: str, seed: int) -> None:
    """Train and sample one method with one seed, and write its small file; nothing where that is there."""
    from limen.store import Run

    run = s.out / f"seed-{seed}" / method
    if small_file(run).exists():
        return
    settings = {
        "problems": str(s.file("train")), "limit": s.train_limit, "template": "plain", "stop": STOP,
        "max_new_tokens": MAX_TOKENS,
        "optimiser": {"lr": 1e-5, "betas": (0.9, 0.99)}, "prompts_per_step": s.prompts, "group_size": s.group,
        "share_prompts": True,
        "precision": "float32" if s.study.device == "cpu" else "bf16", "save_steps": min(SAVE, s.study.steps),
        "record_rollouts": False, "probe": {"run": str(s.out / "probe"), "every": s.every},
        **algorithm(method, s.study.steps),
    }  # fmt: skip
    arm = ARMS.get(method)
    name = training_of(run.parent, method, arm.parent if arm else None)
    trained = train_policy(s.study, name, seed, settings)
    for folder in trained.glob("checkpoint-*"):  # 1.6 GB each, and not needed any more
        shutil.rmtree(folder, ignore_errors=True)
    info = Run.open(trained).info
    model = weights_of(arm, s.study.base, trained, run.with_name(f"model-{method}"))
    sample(s, run, str(model), method, step=int(info["steps_done"]))
    doc = {"method": method, "seed": seed, "counts": counts_json(run), "study": s.describe(),
           "steps": info["steps_done"], "counters": info["counters"], "settings": settings,
           "provenance": provenance()}  # fmt: skip
    write_json(small_file(run), doc)


def run_study(
    s: SmolStudy, methods: Sequence[str], seeds: Sequence[int], command: Sequence[str], jobs: int, seconds: float | None
) -> str:
    """All methods and seeds that are not finished, for `seconds` at most; `command` is this program and its options,
    to which `--only METHOD --seeds S` is added. Returns the page."""
    from limen.lab.smollm2_page import write_page

    end = None if seconds is None else time.monotonic() + seconds - RESERVE
    for method in methods:
        algorithm(method, s.study.steps)
    prepare(s)
    todo = [(m, x) for x in seeds for m in methods if not small_file(s.out / f"seed-{x}" / m).exists()]
    if todo:
        make_probe(s)
    if s.study.device == "cuda":
        import torch

        torch.cuda.empty_cache()  # what this process sampled with is for the jobs
    found: dict[str, str] = {}
    for later in (False, True):  # arms that take another's weights come after it
        part = [(m, x) for m, x in todo if (m in ARMS and ARMS[m].parent is not None) == later]
        commands = {f"{m} {x}": [*command, "--only", m, "--seeds", str(x)] for m, x in part}
        found |= in_slice(commands, jobs, None if end is None else end - time.monotonic())
    for word in ("done", "failed", "cut", "waiting"):
        names = [name for name, state in found.items() if state == word]
        print(f"{word}: {', '.join(names) or 'none'}", file=sys.stderr, flush=True)
    return write_page(s.out)


def collect(out: Path, file: Path) -> int:
    """Pack what the page is made from, and the page; returns the bytes of the tar."""
    files = [*out.glob(f"*{SMALL}"), *out.glob(f"seed-*/*{SMALL}"), *out.glob("smollm2.*"), *out.glob("figures/*")]
    for small in out.glob(f"seed-*/*{SMALL}"):
        trained = small.with_name("train-" + small.name.removesuffix(SMALL))
        files += [f for f in (trained / "run.json", trained / "metrics.jsonl") if f.exists()]
    return pack(out, files, file)


def finished(out: Path) -> dict[str, dict[int, Mapping[str, Any]]]:
    """Small files of finished runs by method and seed; methods in the order of the study."""
    docs = [json.loads(f.read_text(encoding="utf-8")) for f in sorted(out.glob(f"seed-*/*{SMALL}"))]
    names = [*METHODS, *ARMS]
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for d in sorted(docs, key=lambda d: (names.index(d["method"]), d["seed"])):
        found.setdefault(d["method"], {})[d["seed"]] = d
    return found
