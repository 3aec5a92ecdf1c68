"""The demo: the paradox and its remedy on the tiny model, from sampling to a page, on two CPU cores.

Sample the base (twice: the second draw is the control that shows what chance alone does), train it with GRPO and
with SELF for the same number of steps, sample both, compare, write the report. Every stage is an ordinary run
folder, so a demo that was killed goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limen.errors import ConfigError
from limen.types import derive_seed

if TYPE_CHECKING:
    from rich.console import Console

    from limen.measure import Comparison

TEST = "arithmetic:all?split=test"
TRAIN = "arithmetic:all?split=train"
VERIFIER = "exact"
MAX_TOKENS = 6

RECIPE: dict[str, Any] = {
    "problems": TRAIN,
    "template": "plain",
    "verifier": VERIFIER,
    "reward": "binary",
    "optimiser": {"lr": 9e-4, "betas": (0.9, 0.99), "schedule": "linear"},
    "prompts_per_step": 64,
    "group_size": 8,
    "max_new_tokens": MAX_TOKENS,
    "temperature": 1.0,
    "precision": "float32",
}
"""What both methods share. `presets/tiny-grpo.yaml` and `presets/tiny-self.yaml` say the same."""

ALGORITHMS: dict[str, dict[str, Any]] = {
    "grpo": {"name": "grpo"},
    "self": {"name": "self", "forward_kl_beta": 0.2, "kl_samples": 2},
}
"""SELF: 2 of 4 stored base responses for each of the 64 prompts of a step, weight 0.2 a token, no refill."""


@dataclass(frozen=True)
class DemoSettings:
    """`steps` optimizer steps for each method, `n` samples of each problem, `limit` problems (all 300 unless given).

    `seed` is that of training and of sampling; `base` a model that `limen lab train-base` made, or "tiny".
    """

    out: Path
    seed: int = 0
    base: str = "tiny"
    steps: int = 200
    n: int = 256
    limit: int | None = None
    methods: tuple[str, ...] = ("grpo", "self")
    report: bool = True
    device: str | None = "cpu"


@dataclass(frozen=True)
class DemoResult:
    """Comparisons with the base by policy name; `control` is the base's second draw."""

    out: Path
    comparisons: Mapping[str, Comparison]
    report: Path | None


def run_demo(settings: DemoSettings, console: Console | None = None) -> DemoResult:
    """Run every stage that is not done yet. Raises `ConfigError` for an unknown method."""
    unknown = set(settings.methods) - set(ALGORITHMS)
    if unknown:
        raise ConfigError(f"unknown methods {', '.join(sorted(unknown))}: expected some of {', '.join(ALGORITHMS)}")
    from rich.console import Console

    console = console or Console(stderr=True)
    stages = ["base", "control", *(f"train-{m}" for m in settings.methods), *settings.methods]
    for i, stage in enumerate(stages, 1):
        console.print(f"[bold]{i}/{len(stages) + 1}[/bold] {_describe(stage)}")
        if stage.startswith("train-"):
            train_stage(settings, stage.removeprefix("train-"), console)
        else:
            sample_stage(settings, stage)
    console.print(f"[bold]{len(stages) + 1}/{len(stages) + 1}[/bold] comparing")
    return DemoResult(settings.out, compare_stage(settings), _report(settings) if settings.report else None)


def sample_stage(settings: DemoSettings, stage: str) -> None:
    """Sample the base ("base", "control") or a trained policy into OUT/STAGE."""
    from limen.config import SampleSettings
    from limen.sampling import sample_run

    trained = stage in ALGORITHMS
    sample_run(
        SampleSettings.make(
            model=str(settings.out / f"train-{stage}" / "model") if trained else settings.base,
            problems=TEST,
            limit=settings.limit,
            n=settings.n,
            temperature=1.0,
            max_tokens=MAX_TOKENS,
            template="plain",
            verifier=VERIFIER,
            policy=stage,
            step=settings.steps if trained else 0,
            seed=derive_seed(settings.seed, "demo", stage) % 2**31,
            device=settings.device,
            dtype="float32",
        ),
        settings.out / stage,
    )


def train_stage(settings: DemoSettings, method: str, console: Console) -> None:
    """Train the base with `method` into OUT/train-METHOD, with a bar."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from limen.train import train
    from limen.train.settings import parse_settings

    values = {
        **RECIPE,
        "model": settings.base,
        "algorithm": ALGORITHMS[method],
        "steps": settings.steps,
        "save_steps": min(50, settings.steps),
        "keep_checkpoints": 1,
        "seed": settings.seed,
        "out": str(settings.out / f"train-{method}"),
        "name": method,
        "device": settings.device,
    }
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=console) as bar:
        task = bar.add_task(method, total=settings.steps, note="")

        def show(step: int, total: int, metrics: Mapping[str, float]) -> None:
            bar.update(task, completed=step, total=total, note=_note(metrics))

        train(parse_settings(values, f"demo ({method})"), progress=show)


def compare_stage(settings: DemoSettings) -> dict[str, Comparison]:
    """Each policy, and the base's second draw, against the base."""
    from limen.measure import compare, counts_from_run

    base = counts_from_run(settings.out / "base")
    names = ("control", *settings.methods)
    return {name: compare(base, counts_from_run(settings.out / name)) for name in names}


def _report(settings: DemoSettings) -> Path:
    from limen.report import build_report

    return build_report(
        [settings.out / name for name in ("base", *settings.methods, "control")],
        settings.out,
        title="limen demo: GRPO and SELF on the tiny model",
        train_runs=[settings.out / f"train-{m}" for m in settings.methods],
        controls=["control"],
    )


def _describe(stage: str) -> str:
    if stage.startswith("train-"):
        return f"training with {stage.removeprefix('train-').upper()}"
    return {"base": "sampling the base", "control": "sampling the base again (what chance alone does)"}.get(
        stage, f"sampling what {stage.upper()} made"
    )


def _note(metrics: Mapping[str, float]) -> str:
    note = f"reward {metrics.get('reward_batch', metrics.get('reward', float('nan'))):.3f}"
    if metrics.get("screened"):
        note += f", {metrics.get('kept', 0):.0f} of {metrics['screened']:.0f} prompts kept"
    return note
