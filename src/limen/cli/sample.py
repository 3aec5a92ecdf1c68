"""`limen sample` and `limen score`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from limen.cli.options import columns, print_json, verifier_of
from limen.errors import ConfigError

_SAMPLE = "Sampling"
_RUN = "Running"


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    app.command()(sample)
    app.command()(score)
    app.command()(fetch)


def sample(
    model: Annotated[str, typer.Option(help="Folder, hub name, `tiny` or `smollm2`.")],
    problems: Annotated[str, typer.Option(help="FILE, reasoning_gym:TASK?..., arithmetic:FAMILY, owner/dataset.")],
    out: Annotated[Path, typer.Option(help="Run folder; one that is there is gone on with.")],
    n: Annotated[int, typer.Option("-n", "--n", help="Samples of each problem; more than before tops up.")] = 1,
    limit: Annotated[int | None, typer.Option(help="Only the first so many problems.")] = None,
    stop_after_successes: Annotated[
        int | None, typer.Option(help="Stop a problem at so many successes; it has at most --max-samples.")
    ] = None,
    max_samples: Annotated[int | None, typer.Option(help="Most samples of a problem that does not stop.")] = None,
    temperature: Annotated[float, typer.Option(rich_help_panel=_SAMPLE, help="0 is greedy.")] = 1.0,
    top_p: Annotated[float, typer.Option(rich_help_panel=_SAMPLE)] = 1.0,
    top_k: Annotated[int, typer.Option(rich_help_panel=_SAMPLE, help="0 switches it off.")] = 0,
    max_tokens: Annotated[int, typer.Option(rich_help_panel=_SAMPLE, help="New tokens of a response.")] = 512,
    stop: Annotated[
        list[str] | None, typer.Option(rich_help_panel=_SAMPLE, help="Stop string (\\n is a newline).")
    ] = None,
    seed: Annotated[int, typer.Option(rich_help_panel=_SAMPLE)] = 0,
    template: Annotated[
        str, typer.Option(rich_help_panel=_SAMPLE, help="auto, chat, plain, arithmetic, chain_sum, or a YAML file.")
    ] = "auto",
    verifier: Annotated[str, typer.Option(help="auto, none, or a verifier's name, or its settings as JSON.")] = "auto",
    column: Annotated[
        list[str] | None, typer.Option(help="problem=NAME: which column holds id, problem, answer or task.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of a hub dataset.")] = None,
    policy: Annotated[str | None, typer.Option(help="Name of the policy in tables.")] = None,
    step: Annotated[int, typer.Option(help="Training step that the policy stands at.")] = 0,
    logprobs: Annotated[bool, typer.Option("--logprobs", help="Store raw log-probabilities.")] = False,
    engine: Annotated[
        str, typer.Option(rich_help_panel=_RUN, help="transformers, vllm, or http for servers.")
    ] = "transformers",
    decoding: Annotated[
        str, typer.Option(rich_help_panel=_RUN, help="transformers: auto, plain, slots, graphs, compile.")
    ] = "auto",
    gpus: Annotated[
        int | None, typer.Option(rich_help_panel=_RUN, help="GPUs; otherwise all for vllm, or one.")
    ] = None,
    ray: Annotated[
        bool, typer.Option("--ray", rich_help_panel=_RUN, help="Spread the work over a Ray cluster.")
    ] = False,
    ray_address: Annotated[
        str | None, typer.Option(rich_help_panel=_RUN, help="Cluster to join, such as auto; a local one otherwise.")
    ] = None,
    workers: Annotated[int | None, typer.Option(rich_help_panel=_RUN, help="Workers of the Ray cluster.")] = None,
    need: Annotated[
        list[str] | None,
        typer.Option(rich_help_panel=_RUN, help="token_ids, raw_logprobs or seeds: sample only if the engine has it."),
    ] = None,
    url: Annotated[
        list[str] | None, typer.Option(rich_help_panel=_RUN, help="Server, such as http://host:8000/v1; repeatable.")
    ] = None,
    api: Annotated[str, typer.Option(rich_help_panel=_RUN, help="completions or chat.")] = "completions",
    tokenizer: Annotated[str | None, typer.Option(rich_help_panel=_RUN, help="The served model's tokenizer.")] = None,
    concurrency: Annotated[int, typer.Option(rich_help_panel=_RUN, help="Most requests to servers at once.")] = 64,
    device: Annotated[str | None, typer.Option(rich_help_panel=_RUN, help="cpu, cuda, cuda:1.")] = None,
    dtype: Annotated[str | None, typer.Option(rich_help_panel=_RUN, help="float32, bfloat16, float16.")] = None,
    batch_size: Annotated[int | None, typer.Option(rich_help_panel=_RUN, help="Rows; found from memory.")] = None,
    share: Annotated[
        bool, typer.Option("--share", rich_help_panel=_RUN, help="One of several processes that fill this folder.")
    ] = False,
    verify_workers: Annotated[int | None, typer.Option(rich_help_panel=_RUN, help="Processes that judge.")] = None,
    mirror: Annotated[
        str | None, typer.Option(rich_help_panel=_RUN, help="Copy the folder to s3://... or any fsspec address.")
    ] = None,
    keep_bad_golds: Annotated[
        bool, typer.Option("--keep-bad-golds", rich_help_panel=_RUN, help="Sample also where the gold fails.")
    ] = False,
    leave_out_long: Annotated[
        bool, typer.Option("--leave-out-long", rich_help_panel=_RUN, help="Leave out problems that do not fit.")
    ] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", rich_help_panel=_RUN, help="Run code that comes with the model.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Sample a model on problems, judge the responses and store them.

    Can be killed at any moment: the same command goes on from there. A larger -n or --limit tops up.
    """
    given = {k: v for k, v in locals().items() if k not in ("out", "as_json", "quiet", "column", "max_samples")}
    from limen.config import SampleSettings
    from limen.sampling import sample_run

    # The other options are settings of the same name.
    given |= {"n": _most(n, stop_after_successes, max_samples), "columns": columns(column or [])}
    given |= {"stop": tuple(s.replace("\\n", "\n") for s in stop or []), "verifier": verifier_of(verifier)}
    given |= {"need": tuple(need or ()), "url": tuple(url or ())}
    run = sample_run(SampleSettings.make(**given), out, progress=not quiet)
    _print(run, as_json)


def score(
    run: Annotated[Path, typer.Argument(help="Run folder whose responses are scored.")],
    model: Annotated[str, typer.Option(help="Folder, hub name, `tiny` or `smollm2`.")],
    name: Annotated[
        str | None, typer.Option(help="Name that the scores are kept under; the model's otherwise.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Only responses of this policy.")] = None,
    step: Annotated[int | None, typer.Option(help="Only responses of this step.")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Keep every token's log-probability.")] = False,
    device: Annotated[str | None, typer.Option(rich_help_panel=_RUN, help="cpu, cuda, cuda:1.")] = None,
    dtype: Annotated[str | None, typer.Option(rich_help_panel=_RUN, help="float32, bfloat16, float16.")] = None,
    engine: Annotated[
        str, typer.Option(rich_help_panel=_RUN, help="transformers, or vllm (its prompt log-probabilities).")
    ] = "transformers",
    head: Annotated[
        str, typer.Option(rich_help_panel=_RUN, help="logits, or cce: cut-cross-entropy's kernel, on a GPU.")
    ] = "logits",
    ray: Annotated[
        bool, typer.Option("--ray", rich_help_panel=_RUN, help="Spread the work over a Ray cluster.")
    ] = False,
    ray_address: Annotated[str | None, typer.Option(rich_help_panel=_RUN, help="Cluster to join.")] = None,
    workers: Annotated[int | None, typer.Option(rich_help_panel=_RUN, help="Workers of the Ray cluster.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Log-likelihood of a run's stored responses under a model (temperature 1, prompt masked)."""
    from limen.model_files import fingerprint
    from limen.sampling import score_run
    from limen.sampling.engine import closing
    from limen.store import Run

    Run.open(run)
    weights = fingerprint(model)  # before they are read: a training that goes on may change them
    if ray or ray_address or workers:
        scorer = _cluster_engine(engine, model, device, dtype, head, ray, ray_address, workers)
    else:
        scorer = _scoring_engine(engine, model, device, dtype, head)
    with closing(scorer):
        result = score_run(run, scorer, name or model, policy, step, tokens, not quiet, weights)
    if as_json:
        print_json(result)
        return
    if not result["scored"]:
        typer.echo(
            f"{run}: nothing new to score; every response that was asked for has its score under {name or model}"
        )
        return
    typer.echo(
        f"{run}: {result['scored']} responses, {result['tokens']} tokens in {result['seconds']:.1f} s under "
        f"{result['scorer']}; mean log-probability of a token {result['mean_logprob']:.4f} nats"
    )
    if "noise_max" in result:
        typer.echo(
            f"  noise floor (other batching): mean {result['noise_mean']:.1e}, at most {result['noise_max']:.1e} nats"
        )


def fetch(
    url: Annotated[str, typer.Argument(help="s3://... or any fsspec address that `sample --mirror` wrote to.")],
    out: Annotated[Path, typer.Argument(help="Folder that gets the run.")],
) -> None:
    """Get a run from where it was mirrored to, to measure it here."""
    from limen.errors import StoreError
    from limen.store.mirror import Mirror

    if not Mirror(url).pull(out):
        raise StoreError(f"{url} holds no run (no run.json): give the address that `limen sample --mirror` wrote to")
    typer.echo(f"{out}: the run of {url}\nnext: limen passk {out}")


def _most(n: int, stop: int | None, most: int | None) -> int:
    """Samples of each problem: -n, or --max-samples beside a stopping rule."""
    if most is None and stop is None:
        return n
    if most is None or stop is None or n != 1:
        given = f"-n {n}" if n != 1 else "the other alone"
        raise ConfigError(
            f"--stop-after-successes and --max-samples go together and take the place of -n (here: {given}): "
            "give both, such as --stop-after-successes 2 --max-samples 1024"
        )
    return most


def _scoring_engine(engine: str, model: str, device: str | None, dtype: str | None, head: str) -> Any:
    from limen.errors import ConfigError

    if engine == "transformers":
        from limen.engines.hf import TransformersEngine

        return TransformersEngine.load(model, device, dtype, head=head)
    if engine != "vllm":
        raise ConfigError(f"--engine {engine}: expected transformers or vllm")
    if device is not None or head != "logits":
        raise ConfigError("--device and --head are for the engine transformers: leave them out with vllm")
    from limen.engines.vllm import VLLMEngine

    return VLLMEngine.load(model, dtype, draws="vllm")


def _cluster_engine(
    engine: str,
    model: str,
    device: str | None,
    dtype: str | None,
    head: str,
    ray: bool,
    address: str | None,
    workers: int | None,
) -> Any:
    from limen.config import SampleSettings
    from limen.errors import ConfigError
    from limen.sampling.engine import make_engine

    if head != "logits":
        raise ConfigError("--head is for scoring in this process: leave it out with --ray")
    over = {"ray": ray, "ray_address": address, "workers": workers, "engine": engine, "device": device, "dtype": dtype}
    return make_engine(SampleSettings.make(model=model, problems="none", **over))


def _print(run: Any, as_json: bool) -> None:
    from limen.sampling.summary import summarize

    summary = summarize(run)
    if as_json:
        print_json(summary)
        return
    last, outcomes = summary["last"], summary["outcomes"]
    typer.echo(
        f"{run.path}: {summary['samples']} samples of {summary['problems']} problems; "
        f"now {last['samples']} samples, {last['tokens']} tokens in {last['seconds']:.0f} s "
        f"({last['tokens_per_second']:,.0f} tok/s)"
    )
    if outcomes:
        typer.echo("  " + ", ".join(f"{name} {count}" for name, count in outcomes.items()))
    typer.echo(f"  truncated {summary['truncated']}")
    if summary["left_out"]:
        shown = ", ".join(list(summary["left_out"])[:5])
        typer.echo(f"  left out, prompts too long: {len(summary['left_out'])} problems ({shown})")
    for alarm in summary["alarms"]:
        typer.echo(f"  ALARM: {alarm}")
    if outcomes:
        typer.echo(f"next: limen passk {run.path}")
