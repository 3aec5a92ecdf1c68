"""`limen lab methods`, `limen lab noise` and `limen lab dynamics`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limen.cli.options import numbers

Out = Annotated[Path, typer.Option(help="Folder for all runs and the page.")]
Seeds = Annotated[str, typer.Option(help="Training seeds, with commas between.")]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at a time, each a process of its own.")]
Steps = Annotated[int, typer.Option(min=1, help="Optimizer steps.")]
Samples = Annotated[int, typer.Option("-n", min=1, help="Samples of each held-out problem.")]
Base = Annotated[str, typer.Option(help="`tiny`, or a folder that `limen lab train-base` made.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Only = Annotated[str | None, typer.Option(help="One run and no page: what each job of the study calls.")]
Recipe = Annotated[str, typer.Option(help="demo, or gentle: a third of the step size after a warm-up.")]
Seconds = Annotated[float | None, typer.Option(min=1, help="End after so many seconds; go on by the same.")]
Collect = Annotated[Path | None, typer.Option(help="Pack small files of finished runs into this tar.")]
From = Annotated[Path | None, typer.Option("--from", help="Unpack what --collect wrote into --out, and make the page.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first so many held-out problems.")]


def register(lab: typer.Typer) -> None:
    """Add this module's commands to `limen lab`."""
    lab.command("methods")(methods)
    lab.command("noise")(noise)
    lab.command("dynamics")(dynamics)


def methods(
    out: Out,
    seeds: Seeds = "0,1,2",
    which: Annotated[str, typer.Option("--methods", help="Methods, with commas between, or all.")] = "all",
    jobs: Jobs = 1,
    steps: Steps = 200,
    n: Samples = 256,
    base: Base = "tiny",
    device: Device = "cpu",
    limit: Limit = None,
    recipe: Recipe = "demo",
    only: Only = None,
) -> None:
    """Every training method on the tiny model: pass@k, support beside chance, entropy, interference."""
    from limen.lab.methods import METHODS, run_methods, run_one
    from limen.lab.policies import Study

    study = Study(out, steps, n, base, device, limit, recipe)
    if only is not None:
        run_one(study, only, numbers(seeds)[0])
        return
    names = list(METHODS) if which == "all" else which.split(",")
    print(run_methods(study, names, numbers(seeds), jobs))


def noise(
    out: Out,
    seeds: Seeds = "0,1,2",
    which: Annotated[str, typer.Option("--patterns", help="Patterns, with commas between, or all.")] = "all",
    jobs: Jobs = 1,
    steps: Steps = 200,
    n: Samples = 64,
    base: Base = "tiny",
    device: Device = "cpu",
    limit: Limit = None,
    recipe: Recipe = "demo",
    only: Only = None,
) -> None:
    """GRPO under verifiers with systematic errors: delay, plateau or collapse of the true reward."""
    from limen.lab.noise import PATTERNS, run_noise, run_one
    from limen.lab.policies import Study

    study = Study(out, steps, n, base, device, limit, recipe)
    if only is not None:
        run_one(study, only, numbers(seeds)[0])
        return
    names = list(PATTERNS) if which == "all" else which.split(",")
    print(run_noise(study, names, numbers(seeds), jobs))


def dynamics(
    out: Out,
    seeds: Seeds = "0,1,2",
    jobs: Jobs = 1,
    steps: Steps = 200,
    n: Samples = 256,
    base: Base = "tiny",
    device: Device = "cpu",
    every: Annotated[int, typer.Option(min=1, help="Steps between two probes.")] = 5,
    checkpoints: Annotated[int, typer.Option(min=1, help="Checkpoints that are sampled.")] = 4,
    probe_size: Annotated[int, typer.Option(min=1, help="Probe problems, 4 responses each.")] = 512,
    schedules: Annotated[
        str, typer.Option(help="Of decay (the demo's recipe), constant (3e-4), gentle (1e-4).")
    ] = "decay,constant,gentle",
    limit: Limit = None,
    only: Only = None,
) -> None:
    """GRPO against SELF under a probe: figures 2, 7 and 8, and whether each trend of the paper appears."""
    from limen.lab.dynamics_study import DynamicsStudy, run_dynamics, run_one
    from limen.lab.policies import Study

    study = Study(out, steps, n, base, device, limit)
    whole = DynamicsStudy(study, every, checkpoints, probe_size, tuple(schedules.split(",")))
    if only is not None:
        run_one(whole, only, numbers(seeds)[0])
        return
    print(run_dynamics(whole, numbers(seeds), jobs))
