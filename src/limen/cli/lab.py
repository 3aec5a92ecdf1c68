"""Commands of the laboratory: the tiny base model and the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limen.cli.options import numbers

lab = typer.Typer(
    name="lab",
    help="Small models on which the papers' effects can be seen.",
    no_args_is_help=True,
    add_completion=False,
)


def register(app: typer.Typer) -> None:
    """Add `limen demo` and `limen lab ...` to `app`."""
    from limen.cli import lab_bandit, lab_frontier, lab_gallery, lab_own

    lab_bandit.register(app, lab)
    lab_gallery.register(lab)
    lab_frontier.register(lab)
    lab_own.register(lab)
    app.command("demo")(demo)
    app.add_typer(lab)


@lab.command("train-base")
def train_base(
    out: Annotated[Path, typer.Option(help="Folder for the model; must be new or empty.")],
    seed: Annotated[int, typer.Option(help="Seed of initialisation, data order and label noise.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Batches of 256.")] = 1500,
    forms: Annotated[int, typer.Option(min=1, max=2, help="2: the base that answers in code or in language.")] = 1,
    width: Annotated[int, typer.Option(help="Width of the hidden states; a multiple of 8. Not with --forms 2.")] = 96,
) -> None:
    """Train a tiny base model (334,000 parameters at width 96) from a seed: a few minutes on one or two cores."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from limen.errors import ConfigError, StoreError
    from limen.lab.tiny_base import BaseRecipe
    from limen.lab.tiny_base import train_base as run
    from limen.lab.tiny_modes import ModesRecipe, train_modes_base

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise StoreError(f"{out} is there and not an empty folder: choose another --out")
    if forms == 2 and width != BaseRecipe.width:
        raise ConfigError(f"--width {width} with --forms 2: that base has width {BaseRecipe.width} only")
    recipe = BaseRecipe.of_width(width, seed=seed, steps=steps)
    columns = (TextColumn("training the base"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]:.3f}")) as bar:
        task = bar.add_task("train", total=steps, loss=float("nan"))

        def show(step: int, _: int, loss: float) -> None:
            bar.update(task, completed=step, loss=loss)

        if forms == 2:
            info = train_modes_base(out, ModesRecipe(seed=seed, steps=steps), show)
        else:
            info = run(out, recipe, show)
    print(f"{info['parameters']:,} parameters, loss {info['final_loss']:.3f}, {info['seconds']} s: {out}")


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the report.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of training and sampling.")] = 0,
    base: Annotated[str, typer.Option(help="`tiny`, or a folder that `limen lab train-base` made.")] = "tiny",
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps of each method.")] = 200,
    n: Annotated[int, typer.Option("-n", min=1, help="Samples of each problem.")] = 256,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many of the 300 problems.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    report: Annotated[bool, typer.Option(help="Write report.html and the figures.")] = True,
) -> None:
    """The whole way on a tiny model: sample, train with GRPO and SELF, compare, report. Minutes on two cores."""
    from limen.lab.demo import DemoSettings, run_demo
    from limen.lab.demo_table import print_demo

    found = run_demo(
        DemoSettings(out, seed=seed, base=base, steps=steps, n=n, limit=limit, device=device, report=report)
    )
    print_demo(found)


@lab.command("demo-study")
def demo_study(
    out: Annotated[Path, typer.Option(help="Folder for all runs and demo.md.")],
    seeds: Annotated[str, typer.Option(help="Training seeds.")] = "0,1,2",
    base_seeds: Annotated[str, typer.Option(help="Seeds of the bases; 0 is the shipped one.")] = "0,1,2",
    jobs: Annotated[int, typer.Option(min=1, help="Demos at a time.")] = 1,
    steps: Annotated[int, typer.Option(min=1)] = 200,
    n: Annotated[int, typer.Option("-n", min=1)] = 256,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """The demo over several seeds and bases, as one table."""
    from limen.lab.demo_study import run_study

    print(run_study(out, numbers(seeds), numbers(base_seeds), jobs, steps, n, device))
