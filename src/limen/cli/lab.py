"""Commands of the laboratory: the tiny base model and the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

lab = typer.Typer(
    name="lab",
    help="Small models on which the papers' effects can be seen.",
    no_args_is_help=True,
    add_completion=False,
)


def register(app: typer.Typer) -> None:
    """Add `limen lab ...` to `app`."""
    app.add_typer(lab)


@lab.command("train-base")
def train_base(
    out: Annotated[Path, typer.Option(help="Folder for the model; must be new or empty.")],
    seed: Annotated[int, typer.Option(help="Seed of initialisation, data order and label noise.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Batches of 256.")] = 1500,
) -> None:
    """Train the tiny base model (334,080 parameters) from a seed: a few minutes on two cores."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from limen.errors import StoreError
    from limen.lab.tiny_base import BaseRecipe
    from limen.lab.tiny_base import train_base as run

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise StoreError(f"{out} is there and not an empty folder: choose another --out")
    columns = (TextColumn("training the base"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]:.3f}")) as bar:
        task = bar.add_task("train", total=steps, loss=float("nan"))
        info = run(
            out, BaseRecipe(seed=seed, steps=steps), lambda step, _, loss: bar.update(task, completed=step, loss=loss)
        )
    print(f"{info['parameters']:,} parameters, loss {info['final_loss']:.3f}, {info['seconds']} s: {out}")
