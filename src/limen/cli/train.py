"""`limen train` and `limen interpolate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    """Add both, and the studies of training to `limen lab`."""
    from limen.cli import lab, lab_training

    app.command("train")(train)
    app.command("interpolate")(interpolate)
    lab_training.register(lab.lab)


def train(
    config: Annotated[Path, typer.Argument(help="YAML file with the settings (see presets/ and docs/training.md).")],
    out: Annotated[Path | None, typer.Option(help="Run folder, in the place of the file's `out`.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="There must be a run to go on with.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything and estimate; train nothing.")] = False,
    seed: Annotated[int | None, typer.Option(help="In the place of the file's `seed`.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override a setting: --set algorithm.forward_kl_beta=0.1")
    ] = None,
) -> None:
    """Train a model with GRPO, SELF or a relative. The same command goes on where a killed run stopped."""
    import yaml

    from limen.errors import ConfigError
    from limen.train.settings import load_settings

    overrides: dict[str, Any] = {}
    for text in set_ or []:
        key, sign, value = text.partition("=")
        if not sign:
            raise ConfigError(f"--set {text}: expected KEY=VALUE")
        overrides[key] = yaml.safe_load(value)
    if out is not None:
        overrides["out"] = str(out)
    if seed is not None:
        overrides["seed"] = seed
    settings = load_settings(config, overrides)
    if dry_run:
        from limen.train.dry_run import dry_run as check

        typer.echo(check(settings))
        return
    run = _with_progress(settings, resume)
    typer.echo(f"trained {settings.policy}: model in {run.path / 'model'}, metrics in {run.path / 'metrics.jsonl'}")


def interpolate(
    base: Annotated[str, typer.Argument(help="The model that was trained: `tiny`, a folder, a hub name.")],
    policy: Annotated[str, typer.Argument(help="What came out of it, such as RUN/model or a LoRA adapter.")],
    out: Annotated[Path, typer.Option(help="New folder for the model.")],
    share: Annotated[float, typer.Option(help="Of the way from the base (0) to the policy (1).")] = 0.8,
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16; the policy's own if not said.")
    ] = None,
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="Run the models' own code.")] = False,
) -> None:
    """A model whose weights lie part of the way from a base to a policy that was trained from it."""
    from limen.interpolation import interpolate as make

    typer.echo(
        f"wrote {make(base, policy, share, out, dtype, trust_remote_code)}; next: limen sample --model {out} ..."
    )


def _with_progress(settings: Any, resume: bool) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from limen.train.run import train as run_training

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True)) as bar:
        task = bar.add_task(settings.policy, total=settings.steps, note="preparing")

        def show(step: int, total: int, metrics: Any) -> None:
            if "reward_batch" not in metrics:  # a second step on the same responses has none of its own
                bar.update(task, completed=step, total=total)
                return
            note = f"reward {metrics['reward_batch']:.3f}"
            if "kept" in metrics:
                note += f"  kept {metrics['kept']:.0f}/{metrics.get('screened', 0):.0f}"
            bar.update(task, completed=step, total=total, note=note)

        return run_training(settings, resume=True if resume else None, progress=show)
