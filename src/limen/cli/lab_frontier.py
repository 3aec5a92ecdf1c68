"""`limen lab frontier`."""

from __future__ import annotations

from typing import Annotated

import typer

from limen.cli.lab_training import Base, Collect, Device, From, Jobs, Limit, Only, Out, Recipe, Samples, Seconds, Steps
from limen.cli.options import numbers


def register(lab: typer.Typer) -> None:
    """Add this module's command to `limen lab`."""
    lab.command("frontier")(frontier)


def frontier(
    out: Out,
    seeds: Annotated[str | None, typer.Option(help="Training seeds; 0,1,2, or 10,11,12 with --explore.")] = None,
    arms: Annotated[str, typer.Option(help="Arms, with commas between, or all. GRPO is always trained.")] = "all",
    explore: Annotated[bool, typer.Option("--explore", help="Seeds on which arms may be chosen.")] = False,
    budgets: Annotated[str, typer.Option(help="updates, tokens, or both.")] = "updates,tokens",
    jobs: Jobs = 1,
    seconds: Seconds = None,
    steps: Steps = 200,
    n: Samples = 256,
    k: Annotated[
        int | None, typer.Option("--k", min=1, help="Judge by pass@k; of more samples it has less noise. [default: n]")
    ] = None,
    base: Base = "tiny",
    device: Device = "cpu",
    limit: Limit = None,
    recipe: Recipe = "demo",
    collect: Collect = None,
    source: From = None,
    go_on: Annotated[bool, typer.Option("--go-on", help="After --from, make the runs that are missing.")] = False,
    only: Only = None,
) -> None:
    """pass@1 against pass@n for some twenty trainings, at equal updates and at equal tokens: who gets the prize?"""
    from limen.lab import frontier as lab
    from limen.lab.frontier_arms import EXPLORE, FINAL, check_seeds, pick
    from limen.lab.policies import Study

    study = Study(out, steps, n, base, device, limit, recipe)
    wanted = numbers(seeds) if seeds else list(EXPLORE if explore else FINAL)
    parts = budgets.split(",")
    if only is not None:
        lab.run_one(study, lab.known(only), wanted[0], parts[0])
        return
    check_seeds(wanted, explore)
    if source is not None:
        from limen.lab.slices import unpack

        print(f"{len(unpack(source, out))} files from {source}")
    if source is not None and not go_on:
        from limen.lab.frontier_page import write_page

        print(write_page(out, k))
    else:
        print(lab.run_frontier(study, pick(arms), wanted, jobs, seconds, parts, k))
    if collect is not None:
        print(f"wrote {collect} ({lab.collect(out, collect):,} bytes)")
