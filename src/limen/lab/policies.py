"""Training and sampling on the tiny model, as the studies of methods and of verifier errors share them.

Every stage is an ordinary run folder and is skipped when it is done, so a study that was killed goes on.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from limen.errors import ConfigError, LimenError
from limen.lab.demo import MAX_TOKENS, RECIPE, TEST, VERIFIER
from limen.types import derive_seed

RECIPES: dict[str, dict[str, Any]] = {
    "demo": {},
    "gentle": {"optimiser": {"lr": 3e-4, "betas": (0.9, 0.99), "schedule": "linear", "warmup_steps": 20}},
}
"""What a study puts over the demo's recipe. The demo starts at its full step size, which costs the policy half of its
reward in the first steps before it recovers; `gentle` has a third of it after a warm-up and shows what is left of a
difference between methods, or of the harm of a verifier's errors, without that shock."""


@dataclass(frozen=True)
class Study:
    """Where a study lies and what all its runs share. `n` samples of each held-out problem, `limit` of the problems."""

    out: Path
    steps: int = 200
    n: int = 256
    base: str = "tiny"
    device: str | None = "cpu"
    limit: int | None = None
    recipe: str = "demo"

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES:
            raise ConfigError(f"unknown recipe '{self.recipe}': expected one of {', '.join(RECIPES)}")

    def options(self) -> list[str]:
        """The study as options of the command that runs one of its parts."""
        shared = ["--out", str(self.out), "--steps", str(self.steps), "-n", str(self.n), "--base", self.base]
        shared += ["--recipe", self.recipe]
        shared += ["--device", self.device] if self.device else []
        return shared + (["--limit", str(self.limit)] if self.limit else [])


def train_policy(study: Study, name: str, seed: int, settings: Mapping[str, Any]) -> Path:
    """Train the base into OUT/seed-S/train-NAME with the demo's recipe and `settings` over it."""
    from limen.train import train
    from limen.train.settings import parse_settings

    folder = study.out / f"seed-{seed}" / f"train-{name}"
    values = {
        **RECIPE,
        **RECIPES[study.recipe],
        "model": study.base,
        "steps": study.steps,
        "save_steps": min(50, study.steps),
        "keep_checkpoints": 1,
        "seed": seed,
        "out": str(folder),
        "name": name,
        "device": study.device,
        **settings,
    }

    def show(step: int, total: int, metrics: Mapping[str, float]) -> None:
        if step % 25 == 0 or step == total:
            note = f"{name} seed {seed}: step {step} of {total}, reward {metrics.get('reward_batch', float('nan')):.3f}"
            print(note, file=sys.stderr, flush=True)

    train(parse_settings(values, f"study ({name})"), progress=show)
    return folder


def sample_policy(
    study: Study,
    out: Path,
    model: str,
    policy: str,
    n: int | None = None,
    temperature: float = 1.0,
    step: int = 0,
    **more: Any,
) -> Path:
    """Sample the held-out problems into `out`, with log-probabilities; `more` overrides settings of sampling."""
    from limen.config import SampleSettings
    from limen.sampling import sample_run

    values: dict[str, Any] = {
        "model": model,
        "problems": TEST,
        "limit": study.limit,
        "n": n or study.n,
        "temperature": temperature,
        "max_tokens": MAX_TOKENS,
        "template": "plain",
        "verifier": VERIFIER,
        "policy": policy,
        "step": step,
        "seed": derive_seed(0, "study", _place(study, out), policy) % 2**31,
        "device": study.device,
        "dtype": "float32",
        "logprobs": True,
        **more,
    }
    sample_run(SampleSettings.make(**values), out, progress=False)
    return out


def _place(study: Study, out: Path) -> str:
    """What keeps two runs of one policy's name apart: `seed-0`, say. The study's own folder may have any name."""
    return "" if out.parent == study.out else out.parent.name


def token_entropy(run: Path) -> float:
    """Mean over responses of the mean of -log π over their tokens: at temperature 1 an estimate of the entropy."""
    from limen.store import Run

    column = Run.open(run).table("rollouts", ["logprobs"]).column(0).combine_chunks()
    offsets = np.asarray(column.offsets)
    sums = np.add.reduceat(np.asarray(column.values, dtype=np.float64), offsets[:-1])
    return float(-(sums / np.diff(offsets)).mean())


def answer_entropy(run: Path, budget: int = 32) -> float:
    """Mean over problems of the entropy of their answers (nats), at `budget` samples."""
    from limen.measure import answer_entropy as entropy
    from limen.measure import answers_from_run

    table = answers_from_run(run)
    size = min(budget, int(table.n_P.min()))
    return float(np.mean([entropy(table.multiplicities(i), size) for i in range(len(table.problem_ids))]))


def interference(probe: Path, base_model: str, trained_model: str, device: str | None) -> tuple[float, float]:
    """(Δ+, ‖Δ‖) over the probe pairs: mean change of the per-token log-likelihood of the base's correct responses,
    and mean square change over all of them (RBP eq. 5; no root). Both models through one scorer."""
    from limen.dynamics import quantities
    from limen.dynamics.probe import load_probe
    from limen.dynamics.scorer import score
    from limen.engines.runner import Runner
    from limen.models import load_model

    pairs = load_probe(probe)
    before, after = (
        score(Runner(load_model(m, device, "float32").model), pairs.request_N) for m in (base_model, trained_model)
    )
    delta = quantities.change(before, after)
    return quantities.interference(delta, pairs.correct_N), quantities.influence(delta)


def in_processes(commands: Sequence[Sequence[str]], jobs: int) -> None:
    """Run `limen COMMAND`s, `jobs` at a time, each with its share of the cores."""
    import os

    from limen.lab.slices import cores

    threads = max(1, cores() // jobs)

    def one(command: Sequence[str]) -> None:
        env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        done = subprocess.run([sys.executable, "-m", "limen", *command], stdout=sys.stderr, env=env, check=False)
        if done.returncode:
            raise LimenError(f"`limen {' '.join(command)}` failed with exit code {done.returncode}; see above")

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        list(pool.map(one, commands))
