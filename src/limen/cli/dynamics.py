"""`limen probe build` and `limen dynamics`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

_DRAW = "Drawing fresh"
_TAKE = "From a run"

probe = typer.Typer(
    name="probe", help="Probe sets: the base's own responses, whose likelihood is followed.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    app.add_typer(probe)


@probe.command("build")
def build(
    out: Annotated[Path, typer.Option(help="Folder of the probe set; one that is there is gone on with.")],
    source: Annotated[
        Path | None, typer.Option("--from", rich_help_panel=_TAKE, help="Run whose stored responses are taken.")
    ] = None,
    policy: Annotated[str | None, typer.Option(rich_help_panel=_TAKE, help="Only this policy's.")] = None,
    step: Annotated[int | None, typer.Option(rich_help_panel=_TAKE, help="Only those of this step.")] = None,
    model: Annotated[str | None, typer.Option(rich_help_panel=_DRAW, help="The base model.")] = None,
    problems: Annotated[str | None, typer.Option(rich_help_panel=_DRAW, help="As in `limen sample`.")] = None,
    size: Annotated[int, typer.Option(min=1, help="Problems.")] = 512,
    responses: Annotated[int, typer.Option("-n", min=1, help="Responses of each.")] = 4,
    temperature: Annotated[float, typer.Option(rich_help_panel=_DRAW, min=0)] = 0.9,
    max_tokens: Annotated[int, typer.Option(rich_help_panel=_DRAW, help="New tokens of a response.")] = 512,
    template: Annotated[str, typer.Option(rich_help_panel=_DRAW, help="As in `limen sample`.")] = "auto",
    verifier: Annotated[str, typer.Option(rich_help_panel=_DRAW, help="As in `limen sample`.")] = "auto",
    column: Annotated[
        list[str] | None, typer.Option(rich_help_panel=_DRAW, help="problem=NAME, as in `limen sample`.")
    ] = None,
    split: Annotated[str | None, typer.Option(rich_help_panel=_DRAW, help="Split of a hub dataset.")] = None,
    seed: Annotated[int, typer.Option(help="Of the draw, or of the choice among stored responses.")] = 0,
    device: Annotated[str | None, typer.Option(rich_help_panel=_DRAW, help="cpu, cuda, cuda:1.")] = None,
    dtype: Annotated[str | None, typer.Option(rich_help_panel=_DRAW, help="float32, bfloat16, float16.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """A probe set: problems x responses of the base, each verified (512 x 4 at temperature 0.9 in the paper)."""
    from limen.errors import ConfigError

    if (source is None) == (model is None or problems is None):
        raise ConfigError("give either --from RUN, or --model and --problems to draw fresh responses")
    if source is not None:
        from limen.dynamics.probe import build_probe

        run = build_probe(source, out, size, responses, seed, policy, step)
    else:
        from limen.cli.sample import _columns, _verifier
        from limen.config import SampleSettings
        from limen.dynamics.probe import draw_probe

        settings = SampleSettings.make(
            model=model, problems=problems, limit=size, n=responses, temperature=temperature, max_tokens=max_tokens,
            template=template, verifier=_verifier(verifier), columns=_columns(column or []), split=split, seed=seed,
            device=device, dtype=dtype,
        )  # fmt: skip
        run = draw_probe(settings, out, seed=seed, progress=not quiet)
    typer.echo(_described(run))


def _described(run: Any) -> str:
    found = run.info["probe"]
    outcomes = ", ".join(f"{k} {v}" for k, v in sorted(found["outcomes"].items()))
    text = f"{run.path}: {found['pairs']} pairs of {found['problems']} problems ({outcomes}), {found['tokens']} tokens"
    if found["dropped"]:
        text += "\n  left out: " + ", ".join(f"{k} {v}" for k, v in found["dropped"].items())
    if found["temperatures"] != [0.9]:
        text += f"\n  drawn at temperature {', '.join(map(str, found['temperatures']))}; the paper draws at 0.9"
    return text
