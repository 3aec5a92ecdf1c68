"""`limen train --dry-run`: everything that can go wrong before the first step, and what a step will cost."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from limen.errors import ConfigError, MissingExtra
from limen.train.algorithms.compose import FIELDS, Algorithm, check_group, named
from limen.train.memory import GIB, batch_width, estimate
from limen.train.settings import TrainSettings
from limen.types import Problem

SHOWN = 5


def dry_run(settings: TrainSettings) -> str:
    """Load problems and tokenizer (not the weights), check them, and return a report to print.

    Raises the same errors as training would: `ConfigError`, `DataError`, `ModelError`.
    """
    from limen.models import load_tokenizer
    from limen.problems import load_problems
    from limen.problems.prompt import render
    from limen.sampling.golds import failing_golds
    from limen.train.run import fitting, make_pool

    algorithm = resolve(settings)
    problems = load_problems(settings.problems, settings.limit, settings.columns, settings.split)
    if len(problems) < settings.prompts_per_step:
        raise ConfigError(f"{len(problems)} problems, but prompts_per_step is {settings.prompts_per_step}: lower it")
    problems, prompts = fitting(settings, problems, render(problems, load_tokenizer(settings.model), settings.template))
    lengths = sorted(len(p.token_ids) for p in prompts)
    config, parameters = model_size(settings.model)
    context = getattr(config.get_text_config(), "max_position_embeddings", None)
    if context and lengths[-1] + settings.max_new_tokens > context:
        raise ConfigError(
            f"the longest prompt has {lengths[-1]} tokens: with {settings.max_new_tokens} new ones it does not fit the "
            f"context of {context}; lower max_new_tokens or drop long problems"
        )
    if settings.probe is not None:
        from limen.dynamics.probe import load_probe

        load_probe(settings.probe.run)
    with make_pool(settings, problems, noise=False) as pool:
        bad = failing_golds(problems, pool)
        version = pool.version
    shown = {"algorithm": {k: getattr(algorithm, k) for k in FIELDS}, **settings.model_dump(exclude={"algorithm"})}
    sections = [
        "settings\n" + yaml.safe_dump(_plain(shown), sort_keys=False).rstrip(),
        "checks\n" + "\n".join(_checks(settings, problems, prompts, lengths, context, bad, version)),
        "estimates\n" + "\n".join(_estimates(settings, algorithm, config, parameters, lengths)),
    ]
    return "\n\n".join(sections)


def resolve(settings: TrainSettings) -> Algorithm:
    """The algorithm with every default filled in; contradictions raise `ConfigError`."""
    given = settings.algorithm.config_fields()
    values = {k: v for k, v in named(given.pop("algorithm")).items() if k in FIELDS}
    values |= given
    if "schedule" in values:
        values["schedule"] = tuple(values["schedule"])
    algorithm = Algorithm(**values)
    check_group(algorithm, settings.group_size)
    for tracker in settings.trackers:
        if find_spec(tracker) is None:
            raise MissingExtra(tracker, "track", f"trackers: {tracker}")
    if settings.base_responses and not (Path(settings.base_responses) / "run.json").exists():
        raise ConfigError(f"base_responses: {settings.base_responses} is not a run folder (limen sample makes one)")
    if settings.base_responses and not any(a.forward_kl_beta for a in algorithm.states()):
        raise ConfigError("base_responses is given but forward_kl_beta is 0, so they would never be used")
    return algorithm


def model_size(name: str) -> tuple[Any, int]:
    """Config and number of parameters, without loading weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from limen.models import resolve_model

    config = AutoConfig.from_pretrained(resolve_model(name))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return config, sum(p.numel() for p in model.parameters())


def _checks(
    settings: TrainSettings, problems: Sequence[Problem], prompts: Sequence[Any], lengths: Sequence[int], context: Any,
    bad: Sequence[Problem], version: str,
) -> list[str]:  # fmt: skip
    lines = [
        f"  problems   {len(problems)}, {len({p.id for p in problems})} ids, {len({p.task for p in problems})} tasks",
        f"  prompts    {lengths[0]} to {lengths[-1]} tokens (median {lengths[len(lengths) // 2]}), context {context}",
        f"  template   {settings.template}, first prompt: {prompts[0].text[-120:]!r}",
        f"  golds      {len(problems) - len(bad)} of {len(problems)} are right under {version}",
    ]
    lines += [f"    not: {p.id} {p.answer!r}" for p in bad[:SHOWN]]
    if len(bad) > SHOWN:
        lines.append(f"    and {len(bad) - SHOWN} more")
    return lines


def _estimates(
    settings: TrainSettings, a: Algorithm, config: Any, parameters: int, lengths: Sequence[int]
) -> list[str]:
    text = config.get_text_config()
    rows = settings.prompts_per_step * settings.group_size
    width = batch_width(lengths, settings.prompts_per_step) + settings.max_new_tokens
    on_cpu, bf16 = _precision(settings)
    m = estimate(settings, a, text, parameters, lengths, bf16)
    kl = a.kl_samples or settings.base_n
    tokens = rows * settings.max_new_tokens
    kl_rows = settings.prompts_per_step * kl if a.forward_kl_beta else 0
    screen = settings.prompts_per_step * settings.max_new_tokens if a.selector != "all" else 0
    flops = 2 * parameters * (tokens + screen) + 6 * parameters * (rows + kl_rows) * width
    where = f"{'bf16 autocast' if bf16 else 'float32'} on {'the CPU' if on_cpu else 'a GPU'}"
    of_kl = f" and of {m.kl_rows} rows of the KL term {_gib(m.kl)}" if m.kl_rows else ""
    lines = [
        f"  parameters   {parameters / 1e6:.1f} M, {where}",
        f"  memory       about {_gib(m.peak)} GiB at its highest: {_gib(m.states)} weights, gradients and AdamW states"
        f", {_gib(m.copies)} other copies of the weights; activations of {m.rows} rows {_gib(m.policy)}{of_kl}, logits"
        f" at most {_gib(m.logits)}; in the place of these key-value cache {_gib(m.cache)} while generating",
        "               PyTorch keeps freed blocks, so the process can hold half as much again; accumulation "
        f"(now {settings.accumulation}) divides activations and logits, and leaves the gradient as it is",
        f"  step         at most {tokens} sampled tokens, {screen} screened, {kl_rows * settings.max_new_tokens} in "
        f"the KL term; {flops / 1e12:.3g} TFLOP",
        f"  run          {settings.steps} steps, {flops * settings.steps / 1e15:.3g} PFLOP, to be divided by what your "
        "device does (an H200 about 0.1 PFLOP/s in forward and backward passes, a CPU core about 0.00003)",
    ]
    if a.forward_kl_beta and not settings.base_responses:
        lines.append(f"  before       {settings.base_n} base responses of every problem are drawn and stored once")
    return lines


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}"


def _precision(settings: TrainSettings) -> tuple[bool, bool]:
    """(on the CPU, bf16): as training would choose them on this machine."""
    import torch

    device = settings.device or ("cuda" if torch.cuda.is_available() else "cpu")
    on_cpu = device.startswith("cpu")
    return on_cpu, (settings.precision or ("float32" if on_cpu else "bf16")) == "bf16"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value
