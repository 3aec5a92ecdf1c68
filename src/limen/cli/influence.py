"""`limen influence`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limen.cli.options import print_json

if TYPE_CHECKING:
    from limen.dynamics.influence import Influence, Options

_WHAT, _HOW = "What", "How"


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    app.command()(influence)


def influence(
    run: Annotated[Path, typer.Argument(help="Training run, or any run with rollouts (then with --model).")],
    probe: Annotated[Path, typer.Option(help="Run with verdicts whose responses are the probe pairs.")],
    out: Annotated[Path, typer.Option(help="Folder for influence.json, attribution.csv, kernel.npz and the figure.")],
    model: Annotated[str | None, typer.Option(rich_help_panel=_WHAT, help="Take gradients of this model.")] = None,
    step: Annotated[list[int] | None, typer.Option(rich_help_panel=_WHAT, help="Only these checkpoints.")] = None,
    form: Annotated[
        str, typer.Option(rich_help_panel=_WHAT, help="sgd (RBP's kernel), adam (preconditioned), or both.")
    ] = "both",
    reduce: Annotated[str, typer.Option(rich_help_panel=_WHAT, help="log π per token: mean; or sum.")] = "mean",
    train: Annotated[int, typer.Option(rich_help_panel=_WHAT, help="Training samples, whole groups; 0: all.")] = 128,
    pairs: Annotated[int, typer.Option(rich_help_panel=_WHAT, help="Probe pairs; 0: all.")] = 256,
    each: Annotated[int, typer.Option(rich_help_panel=_WHAT, help="Responses of a probe problem.")] = 4,
    probe_policy: Annotated[str | None, typer.Option(rich_help_panel=_WHAT, help="Policy in the probe run.")] = None,
    probe_step: Annotated[int | None, typer.Option(rich_help_panel=_WHAT, help="Step in the probe run.")] = None,
    verifier: Annotated[str | None, typer.Option(rich_help_panel=_WHAT, help="Whose verdicts count.")] = None,
    lr: Annotated[
        float | None, typer.Option(rich_help_panel=_HOW, help="Step size; the next step's own otherwise.")
    ] = None,
    sketch: Annotated[
        int | None, typer.Option(rich_help_panel=_HOW, help="Width of the random projection; 0: exact.")
    ] = None,
    seed: Annotated[int, typer.Option(rich_help_panel=_HOW, help="Of the choice of pairs, and the sketch.")] = 0,
    device: Annotated[str | None, typer.Option(rich_help_panel=_HOW, help="cpu, cuda, cuda:1.")] = None,
    dtype: Annotated[str, typer.Option(rich_help_panel=_HOW, help="Of weights and gradients.")] = "float32",
    rows: Annotated[int, typer.Option(help="Rows of the attribution table shown.")] = 12,
    as_json: Annotated[bool, typer.Option("--json", help="Print influence.json.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """What each training sample's step does to other problems: the kernel <∇log π, ∇log π'>, tested and attributed."""
    from limen.dynamics.influence import find_places, influence_run
    from limen.dynamics.influence_show import result_json, show, write_outputs

    places = find_places(run, model, step)
    options, advantages = run_options(run, form, model is not None)
    options = dataclasses.replace(
        options, reduce=_choice("reduce", reduce, ("mean", "sum")), train=train or None, pairs=pairs or None, each=each,
        lr=lr, sketch=sketch, seed=seed, device=device, dtype=dtype,
    )  # fmt: skip

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    found: Influence = influence_run(
        run, probe, advantages, options, places, probe_policy, probe_step, verifier, progress=say
    )
    result = result_json(found, options, str(run), str(probe))
    files = write_outputs(found, result, out)
    if as_json:
        print_json(result)
        return
    show(found, rows)
    names = dict.fromkeys("kernel-*.npz" if f.suffix == ".npz" else f.name for f in files)
    typer.echo(f"wrote {', '.join(names)} into {out}")


def run_options(path: Path, form: str = "both", other_model: bool = False) -> tuple[Options, Any]:
    """Options and advantages as the run was trained: its algorithm, reward, loss, optimizer; GRPO where it was not."""
    from limen.dynamics.influence import Options
    from limen.store import Run
    from limen.train.algorithms.compose import FIELDS, Algorithm, advantages, named
    from limen.train.rewards import REWARDS

    info = Run.open(path)
    forms: dict[str, Any] = {"both": ("sgd", "adam"), "sgd": ("sgd",), "adam": ("adam",)}
    _choice("form", form, tuple(forms))
    if info.info.get("kind") != "train":
        plain = Algorithm()
        return Options(forms=forms[form]), lambda r, c: advantages(plain, r, c)
    s = info.settings
    given = {k: v for k, v in dict(s.get("algorithm") or {}).items() if v is not None}
    values = {**named(str(given.get("name", "grpo"))), **given}
    algorithm = Algorithm(**{k: v for k, v in values.items() if k in FIELDS and k != "schedule"})
    loss, optimiser = values.get("loss_type") or "dapo", dict(s.get("optimiser") or {})
    options = Options(
        forms=forms[form],
        normaliser={"dapo": "tokens", "grpo": "responses"}.get(loss) or int(s.get("max_new_tokens", 512)),  # type: ignore[arg-type]
        clip=float(optimiser.get("grad_clip", 1.0)),
        base_lr=float(optimiser.get("lr", 1e-6)),
        betas=tuple(optimiser.get("betas", (0.9, 0.999))),
        eps=float(optimiser.get("eps", 1e-8)),
        weight_decay=float(optimiser.get("weight_decay", 0.0)),
        reward=REWARDS[str(s.get("reward", "binary"))],
    )
    return options, lambda r, c: advantages(algorithm, r, c)


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> Any:
    from limen.errors import ConfigError

    if value not in allowed:
        raise ConfigError(f"--{name} {value}: expected one of {', '.join(allowed)}")
    return value
