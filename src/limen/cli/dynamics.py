"""`limen probe build` and `limen dynamics`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

_DRAW = "Drawing fresh"
_TAKE = "From a run"

probe = typer.Typer(
    name="probe", help="Probe sets: the base's own responses, whose likelihood is followed.", no_args_is_help=True
)


class _BetweenFirst(TyperGroup):
    """`limen dynamics BASE CKPT...` is `limen dynamics between BASE CKPT...`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = ["between", *args]
        return super().resolve_command(ctx, args)


dynamics = typer.Typer(
    name="dynamics", cls=_BetweenFirst, no_args_is_help=True,
    help="What changed between checkpoints (`limen dynamics BASE CKPT...`), and the paper's figures.",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    app.add_typer(probe)
    app.add_typer(dynamics)


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
        from limen.cli.options import columns, verifier_of
        from limen.config import SampleSettings
        from limen.dynamics.probe import draw_probe

        settings = SampleSettings.make(
            model=model, problems=problems, limit=size, n=responses, temperature=temperature, max_tokens=max_tokens,
            template=template, verifier=verifier_of(verifier), columns=columns(column or []), split=split, seed=seed,
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


@dynamics.command("between")
def between(
    checkpoints: Annotated[
        list[str], typer.Argument(help="The base first: RUN of `limen sample`, MODEL, or MODEL@RUN.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for dynamics.json and the scores.")] = Path("dynamics"),
    probe_set: Annotated[Path | None, typer.Option("--probe", help="Probe set of `limen probe build`.")] = None,
    traces: Annotated[
        Path | None, typer.Option(help="JSON lines (problem_id, response, source): others' solutions to score.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Of the change of pass@k.")] = 128,
    responses: Annotated[int, typer.Option(min=1, help="Responses of each problem that are scored.")] = 16,
    problems: Annotated[
        str | None, typer.Option(rich_help_panel=_DRAW, help="Sample checkpoints that have no samples on these.")
    ] = None,
    n: Annotated[int, typer.Option("-n", min=1, rich_help_panel=_DRAW, help="Samples of each problem.")] = 128,
    limit: Annotated[int | None, typer.Option(rich_help_panel=_DRAW, help="Only the first so many problems.")] = None,
    temperature: Annotated[float, typer.Option(rich_help_panel=_DRAW)] = 1.0,
    max_tokens: Annotated[int, typer.Option(rich_help_panel=_DRAW, help="New tokens of a response.")] = 512,
    template: Annotated[str, typer.Option(rich_help_panel=_DRAW, help="As in `limen sample`.")] = "auto",
    verifier: Annotated[str, typer.Option(rich_help_panel=_DRAW, help="As in `limen sample`.")] = "auto",
    draws: Annotated[int, typer.Option(min=0, help="Bootstrap draws over problems; 0 for no intervals.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the choice of responses and of the bootstrap.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1.")] = None,
    dtype: Annotated[str, typer.Option(help="Precision of scoring: float32, bfloat16, float16.")] = "float32",
    batch_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of one forward pass.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON instead of tables.")] = False,
) -> None:
    """Interference, perplexities and their relation to pass@k between checkpoints."""
    from limen.dynamics import between as found
    from limen.dynamics.between_show import show
    from limen.dynamics.checkpoints import read_checkpoints, sample_missing
    from limen.dynamics.traces import read_traces, trace_table

    policies, others = read_checkpoints(checkpoints), read_traces(traces) if traces else []
    if problems is not None:
        values = {"problems": problems, "n": n, "limit": limit, "temperature": temperature, "max_tokens": max_tokens,
                  "template": template, "verifier": _verifier_of(verifier), "device": device}  # fmt: skip
        policies = sample_missing(policies, values, out)

    def say(text: str) -> None:
        typer.echo(text, err=True)

    data = found.gather(policies, out, probe_set, k, responses, draws, seed, device, dtype, batch_tokens, say)
    more = {"traces": trace_table(data, others, out, device, dtype, say)} if others else {}
    result = found.write(data, out, more)
    if as_json:
        typer.echo((out / "dynamics.json").read_text(encoding="utf-8"))
        return
    show(result)
    typer.echo(f"\n{out / 'dynamics.json'}; next: limen dynamics figure 4 {out} --out {out}")


def _verifier_of(text: str) -> Any:
    from limen.cli.options import verifier_of

    return verifier_of(text)


@dynamics.command("figure")
def figure(
    number: Annotated[int, typer.Argument(help="2, 7, 8, 10: from training runs; 3, 4, 14: from `limen dynamics`.")],
    runs: Annotated[list[Path], typer.Argument(help="Training runs with a probe, or the folder of `limen dynamics`.")],
    out: Annotated[Path, typer.Option(help="Folder for PNG, SVG and CSV.")] = Path("figures"),
    samples: Annotated[
        list[Path] | None, typer.Option(help="Figure 2, panel A: run of a sampled checkpoint (repeatable).")
    ] = None,
) -> None:
    """One figure of the paper, from runs."""
    from limen.errors import ConfigError

    if number in (3, 4, 14):
        from limen.dynamics.between_figures import between_figure

        if len(runs) != 1:
            raise ConfigError(f"figure {number} is made from one folder of `limen dynamics`, not from {len(runs)}")
        made = between_figure(number, runs[0], out)
    elif number == 10:
        from limen.dynamics.influence_figure10 import model_figure

        made = model_figure(runs, out)
    else:
        from limen.dynamics.figures import pass_points, training_figure

        made = training_figure(number, runs, out, pass_points(samples) if samples else None)
    for file in made:
        typer.echo(str(file))
