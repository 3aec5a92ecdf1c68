"""`limen lab longer`, `decoding`, `samples`, `bins`, `variance`: one question and one figure each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limen.cli.lab_training import Base, Collect, Device, From, Jobs, Limit, Only, Out, Recipe, Seconds, Seeds, Steps
from limen.cli.options import numbers


def register(lab: typer.Typer) -> None:
    """Add this module's commands to `limen lab`."""
    lab.command("longer")(longer)
    lab.command("decoding")(decoding)
    lab.command("samples")(samples)
    lab.command("bins")(bins)
    lab.command("variance")(variance)


def longer(
    out: Out,
    seeds: Seeds = "0,1,2",
    arms: Annotated[str, typer.Option(help="Some of grpo, self, nll-1, with commas between.")] = "grpo,self,nll-1",
    jobs: Jobs = 1,
    seconds: Seconds = None,
    steps: Steps = 800,
    n: Annotated[int, typer.Option("-n", min=1, help="Samples of each held-out problem at each mark.")] = 256,
    base: Base = "tiny",
    device: Device = "cpu",
    limit: Limit = None,
    recipe: Recipe = "demo",
    train: Annotated[bool, typer.Option(help="--no-train: sample the checkpoints that are there, and stop.")] = True,
    collect: Collect = None,
    source: From = None,
    only: Only = None,
) -> None:
    """Four times the demo's training: does SELF hold, and does GRPO's shrinkage go on?"""
    from limen.lab import longer as own
    from limen.lab.policies import Study

    study = Study(out, steps, n, base, device, limit, recipe)
    if only is not None:
        own.run_one(study, own.known(only), numbers(seeds)[0])
        return
    if source is not None:
        from limen.lab.slices import unpack

        print(f"{len(unpack(source, out))} files from {source}")
        print(own.write_page(out))
    else:
        print(own.run_longer(study, arms.split(","), numbers(seeds), jobs, seconds, train))
    if collect is not None:
        print(f"wrote {collect} ({own.collect(out, collect):,} bytes)")


def decoding(
    trained: Annotated[Path, typer.Argument(help="Folder of `limen lab methods` (seed-S/train-METHOD/model).")],
    out: Out,
    methods: Annotated[str, typer.Option(help="Methods of that study, with commas between.")] = "grpo,self",
    seeds: Seeds = "0,1,2",
    settings: Annotated[
        str, typer.Option(help="temperature/top-p, with commas between; 1/1 is always among them.")
    ] = "1/1,0.6/1,1.4/1,1/0.95,1/0.8,0.6/0.95",
    jobs: Jobs = 1,
    n: Annotated[int, typer.Option("-n", min=1, help="Samples of each held-out problem at each setting.")] = 256,
    base: Base = "tiny",
    device: Device = "cpu",
    limit: Limit = None,
    only: Only = None,
) -> None:
    """Base and trained policies at several temperatures and nuclei: does the way of sampling fake shrinkage?"""
    from limen.lab import decoding as own
    from limen.lab.policies import Study

    study = Study(out, 0, n, base, device, limit)
    whole = own.DecodingStudy(
        study, trained, tuple(methods.split(",")), tuple(numbers(seeds)), tuple(own.parse(settings))
    )
    if only is not None:
        own.run_one(whole, only)
        return
    print(own.run_decoding(whole, jobs))


def samples(
    study: Annotated[
        Path, typer.Argument(help="A study's folder or digest, such as docs/results/methods.digest.json.")
    ],
    out: Out,
    methods: Annotated[str | None, typer.Option(help="Methods of the study; grpo, self and the control.")] = None,
) -> None:
    """What fewer samples would have shown, in closed form from a study's counts: how the verdict depends on n."""
    from limen.errors import DataError
    from limen.lab import samples as own
    from limen.lab.evidence import load

    found = [e for kind in load([study]).values() for e in kind if e.runs()]
    if not found:
        raise DataError(f"{study} holds no counts of trained policies: give the digest of methods or demo, or a folder")
    print(own.run_samples(found[0], out, methods.split(",") if methods else own.methods_of(found[0])))


def bins(
    study: Annotated[Path, typer.Argument(help="Folder of `limen lab methods` with its trainings.")],
    out: Out,
    base: Base = "tiny",
    device: Device = "cpu",
) -> None:
    """Winners and losers by the base's success rate: log-likelihood of the right answer, signal, outside solutions."""
    from limen.lab.bins import run_bins

    print(run_bins(study, out, base, device))


def variance(
    out: Out,
    seeds: Seeds = "0,1,2",
    jobs: Jobs = 1,
    steps: Steps = 24,
    base: Base = "tiny",
    device: Device = "cpu",
    only: Only = None,
) -> None:
    """W-REINFORCE beside GRPO before it breaks: variance of the gradient over groups, and mass of unlikely tokens."""
    from limen.lab import variance as own
    from limen.lab.policies import Study

    study = Study(out, steps, own.GROUP, base, device)
    if only is not None:
        own.run_one(study, only, numbers(seeds)[0])
        return
    print(own.run_variance(study, numbers(seeds), jobs))
