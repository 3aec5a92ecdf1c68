"""`limen bandit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add this module's command to `app`."""
    app.command("bandit")(bandit)


def bandit(
    out: Annotated[Path, typer.Option(help="Folder for figures, page and numbers.")] = Path("bandit"),
    seed: Annotated[int, typer.Option(min=0, help="Start shown in figure 9 and first on the page.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Starts over which every statement is checked.")] = 500,
    norm2: Annotated[float, typer.Option(min=0.01, help="‖x‖²; the step in the logits is η‖x‖², with η = 0.5.")] = 3.0,
) -> None:
    """REINFORCE against maximum likelihood on 50 actions: figures 5 and 9, lemma D.1, and a page to play with."""
    from limen.lab.bandit_run import run_bandit

    print(run_bandit(out, seed, seeds, norm2))
