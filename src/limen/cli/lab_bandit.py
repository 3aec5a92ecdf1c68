"""`limen bandit`, `limen lab modes`, `offline`, `kl`, `widths`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limen.cli.lab_training import Base, Device, Jobs, Limit, Only, Out, Recipe, Samples, Seeds, Steps
from limen.cli.options import numbers


def register(app: typer.Typer, lab: typer.Typer) -> None:
    """Add this module's commands to `app` and to `limen lab`."""
    app.command("bandit")(bandit)
    lab.command("modes")(modes)
    lab.command("offline")(offline)
    lab.command("kl")(kl)
    lab.command("widths")(widths)


def bandit(
    out: Annotated[Path, typer.Option(help="Folder for figures, page and numbers.")] = Path("bandit"),
    seed: Annotated[int, typer.Option(min=0, help="Start shown in figure 9 and first on the page.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Starts over which every statement is checked.")] = 500,
    norm2: Annotated[float, typer.Option(min=0.01, help="‖x‖²; the step in the logits is η‖x‖², with η = 0.5.")] = 3.0,
) -> None:
    """REINFORCE against maximum likelihood on 50 actions: figures 5 and 9, lemma D.1, and a page to play with."""
    from limen.lab.bandit_run import run_bandit

    print(run_bandit(out, seed, seeds, norm2))


def modes(
    out: Out,
    seeds: Seeds = "0,1,2",
    which: Annotated[str, typer.Option("--methods", help="grpo, self, with commas between.")] = "grpo,self",
    jobs: Jobs = 1,
    steps: Steps = 200,
    n: Annotated[int, typer.Option("-n", min=1, help="Samples of each held-out problem at the end.")] = 256,
    base: Annotated[
        str, typer.Option(help="`tiny-modes`, or what `limen lab train-base --forms 2` made.")
    ] = "tiny-modes",
    device: Device = "cpu",
    limit: Limit = None,
    recipe: Recipe = "gentle",
    families: Annotated[str, typer.Option(help="Families that training sees.")] = "add,mul22",
    only: Only = None,
) -> None:
    """GRPO and SELF on a base with two ways of reasoning: which form dies, and what that costs."""
    from limen.lab.modes import ModesStudy, run_modes, run_one
    from limen.lab.policies import Study

    study = ModesStudy(Study(out, steps, n, base, device, limit, recipe), tuple(families.split(",")))
    if only is not None:
        run_one(study, only, numbers(seeds)[0])
        return
    print(run_modes(study, which.split(","), numbers(seeds), jobs))


def offline(
    out: Out,
    seeds: Seeds = "0,1,2",
    jobs: Jobs = 1,
    steps: Steps = 200,
    n: Samples = 256,
    base: Base = "tiny",
    device: Device = "cpu",
    limit: Limit = None,
    recipe: Recipe = "demo",
    only: Only = None,
) -> None:
    """Maximum likelihood on the base's own correct samples, beside GRPO and DAPO.

    Give the folder of `limen lab methods`, and those two are not trained again.
    """
    from limen.lab.offline import run_offline, run_one
    from limen.lab.policies import Study

    study = Study(out, steps, n, base, device, limit, recipe)
    if only is not None:
        run_one(study, only, numbers(seeds)[0])
        return
    print(run_offline(study, numbers(seeds), jobs))


def kl(
    out: Out,
    seeds: Seeds = "0,1,2",
    jobs: Jobs = 1,
    steps: Steps = 200,
    n: Samples = 256,
    base: Base = "tiny",
    device: Device = "cpu",
    limit: Limit = None,
    recipe: Recipe = "demo",
    only: Only = None,
) -> None:
    """GRPO with the reverse KL to the base against the forward KL on stored base samples, three weights each."""
    _arms("kl", out, seeds, jobs, steps, n, base, device, limit, recipe, only)


def widths(
    out: Out,
    seeds: Seeds = "0,1,2",
    jobs: Jobs = 1,
    steps: Steps = 200,
    n: Samples = 256,
    base: Annotated[str, typer.Option(hidden=True)] = "tiny",
    device: Device = "cpu",
    limit: Limit = None,
    recipe: Recipe = "demo",
    only: Only = None,
) -> None:
    """GRPO and SELF on tiny bases of three widths, trained alike: do larger models shrink more?"""
    _arms("widths", out, seeds, jobs, steps, n, base, device, limit, recipe, only)


def _arms(
    kind: str, out: Path, seeds: str, jobs: int, steps: int, n: int, base: str, device: str, limit: int | None,
    recipe: str, only: str | None,
) -> None:  # fmt: skip
    from limen.lab.arms import run_arms, run_one
    from limen.lab.policies import Study

    study = Study(out, steps, n, base, device, limit, recipe)
    if only is not None:
        run_one(study, kind, only, numbers(seeds)[0])
        return
    print(run_arms(study, kind, numbers(seeds), jobs))
