"""`limen train`: from settings to a run folder with rollouts, verdicts, metrics, checkpoints and the trained model."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from limen.errors import ConfigError, DataError
from limen.store import Run
from limen.train.settings import TrainSettings
from limen.types import Problem, Prompt

log = logging.getLogger(__name__)

T = TypeVar("T")

Progress = Callable[[int, int, Mapping[str, float]], None]
"""Called after each step with (step, steps, metrics)."""

TOKENS = ("tokens_generated", "tokens_screened", "tokens_stored")
"""Counters in run.json: tokens of the groups, of the screening, and of the stored base responses."""

FREE = ("steps", "out", "name", "trackers", "keep_checkpoints", "verifier_workers", "verifier_deadline", "probe")
"""Settings that may differ when a run is gone on with; `steps` only where the step size does not depend on it."""


def train(settings: TrainSettings, resume: bool | None = None, progress: Progress | None = None) -> Run:
    """Train, or go on with a run that was stopped; returns the finished run.

    `resume` None: go on if the folder holds a run with the same settings, else start; True: there must be one; False:
    there must be none. A run that was killed goes on from its last whole checkpoint, to the same weights bit for bit
    on the CPU. The trained model is in `RUN/model`; with `weights_share` below 1 that is the mixed one, and the policy
    as trained is in `RUN/model-trained`.

    Raises `ConfigError` where the folder holds a run with other settings, `DataError`, `ModelError`.
    """
    from limen.train.dry_run import resolve

    resolve(settings)
    run, checkpoint = on_main_first(settings, lambda: open_run(settings, resume), lambda: _look(settings))
    if run.info["status"] == "done" and (_spent(settings, run) or int(run.info.get("steps_done", 0)) >= settings.steps):
        return run
    with quiet():
        loaded, problems, prompts = prepare(settings)
    on_main_first(settings, lambda: _begin(settings, run, problems, prompts), lambda: None)
    with quiet():
        trainer = make_trainer(settings, loaded, problems, prompts, run.path)
        if progress is not None:
            trainer.listeners.append(progress)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        save_model(trainer, run.path / _trained(settings), loaded.tokenizer)
    return on_main_first(settings, lambda: _finish(settings, trainer, run.path), lambda: Run.open(run.path))


def _spent(settings: TrainSettings, run: Run) -> bool:
    """Whether the run ended because its tokens were spent."""
    counters = run.info.get("counters", {})
    return settings.token_budget is not None and sum(counters.get(k, 0) for k in TOKENS) >= settings.token_budget


def on_main_first(settings: TrainSettings, main: Callable[[], T], others: Callable[[], T]) -> T:
    """What `main` gives in the main process; the other processes wait for it, then do `others`."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return main()
    import torch
    from accelerate import PartialState

    state = PartialState(cpu=settings.device == "cpu" or not torch.cuda.is_available())
    if state.is_main_process:
        result = main()
        state.wait_for_everyone()
        return result
    state.wait_for_everyone()
    return others()


def _look(settings: TrainSettings) -> tuple[Run, Path | None]:
    from limen.train.setup import last_checkpoint

    return Run.open(settings.out), last_checkpoint(Path(settings.out), settings.iterations)


def _begin(settings: TrainSettings, run: Run, problems: list[Problem], prompts: list[Prompt]) -> None:
    _check_golds(settings, run, problems)
    if not (run.path / "problems.parquet").exists():
        run.write_problems(problems, prompts)


def _trained(settings: TrainSettings) -> str:
    """Folder in the run of the policy as trained."""
    return "model" if settings.weights_share == 1 else "model-trained"


def _finish(settings: TrainSettings, trainer: Any, path: Path) -> Run:
    run = Run.open(path)
    if settings.weights_share < 1:
        from limen.interpolation import interpolate

        shutil.rmtree(path / "model", ignore_errors=True)
        interpolate(settings.model, path / _trained(settings), settings.weights_share, path / "model")
    run.info["steps_done"] = trainer.state.global_step
    run.info["counters"] = dict(trainer.counters)
    run.finish()
    return run


def open_run(settings: TrainSettings, resume: bool | None) -> tuple[Run, Path | None]:
    """The run folder, and the checkpoint to go on from, if there is one."""
    path = Path(settings.out)
    there = (path / "run.json").exists()
    if resume and not there:
        raise ConfigError(f"--resume: {path} holds no run to go on with")
    if resume is False and there:
        raise ConfigError(f"{path} already holds a run: give another folder (out), or resume it")
    values = settings.model_dump(mode="json")
    if not there:
        return Run.create(path, "train", settings.policy, values), None
    run = Run.open(path)
    if run.info.get("kind") != "train":
        raise ConfigError(
            f"{path} holds a run of kind '{run.info.get('kind')}', not a training run: choose another out"
        )
    before = run.settings
    free = FREE if settings.optimiser.schedule.startswith("constant") else tuple(k for k in FREE if k != "steps")
    changed = _changed({k: before.get(k) for k in values if k not in free}, values)
    if changed and not _begun(path):  # stopped before anything was made: an error in the settings, now mended
        (path / "problems.parquet").unlink(missing_ok=True)
    elif changed:
        details = "; ".join(f"{k} was {a!r}, is {b!r}" for k, a, b in changed)
        raise ConfigError(f"{path} holds a run with other settings ({details}): choose another out, or take those")
    run = Run.create(path, "train", settings.policy, values)
    run.info["settings"], run.info["status"] = values, run.info["status"]
    run.save()
    from limen.train.setup import last_checkpoint

    return run, last_checkpoint(path, settings.iterations)


def _changed(before: Mapping[str, Any], now: Mapping[str, Any], inside: str = "") -> list[tuple[str, Any, Any]]:
    """(key, value before, value now) of what differs, keys of mappings inside with a dot."""
    found = []
    for key, old in sorted(before.items()):
        new = now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _changed({k: old.get(k) for k in {*old, *new}}, new, f"{inside}{key}.")
        elif old != new:
            found.append((inside + key, old, new))
    return found


def _begun(path: Path) -> bool:
    """Whether the run has made anything that other settings would contradict."""
    made = ("metrics.jsonl", "rollouts", "base", "model", "model-trained")
    return any((path / m).exists() for m in made) or any(path.glob("checkpoint-*"))


def fitting(
    settings: TrainSettings, problems: list[Problem], prompts: list[Prompt]
) -> tuple[list[Problem], list[Prompt]]:
    """Problems whose prompt is not longer than `max_prompt_tokens`; how many are left out is said aloud."""
    most = settings.max_prompt_tokens
    pairs = [(p, q) for p, q in zip(problems, prompts, strict=True) if most is None or len(q.token_ids) <= most]
    if len(pairs) < len(problems):
        log.warning("%d of %d problems left out: their prompts are longer than max_prompt_tokens = %s",
                    len(problems) - len(pairs), len(problems), most)  # fmt: skip
    if not pairs:
        raise DataError(f"every prompt is longer than max_prompt_tokens = {most}: raise it")
    return [p for p, _ in pairs], [q for _, q in pairs]


def prepare(settings: TrainSettings) -> tuple[Any, list[Problem], list[Prompt]]:
    """Model with tokenizer, problems, prompts."""
    from limen.models import load_model
    from limen.problems import load_problems
    from limen.problems.prompt import render

    problems = load_problems(settings.problems, settings.limit, settings.columns, settings.split)
    loaded = load_model(settings.model, device=_own_device(settings), dtype="float32")
    problems, prompts = fitting(settings, problems, render(problems, loaded.tokenizer, settings.template))
    return loaded, problems, prompts


def _own_device(settings: TrainSettings) -> str | None:
    """Each process of a host loads onto its own GPU."""
    import torch

    if settings.device is None and "LOCAL_RANK" in os.environ and torch.cuda.is_available():
        return f"cuda:{os.environ['LOCAL_RANK']}"
    return settings.device


def make_trainer(
    settings: TrainSettings, loaded: Any, problems: list[Problem], prompts: list[Prompt], folder: Path
) -> Any:
    """A `SELFTrainer` for these settings. All of TRL's knobs that matter are written out: defaults drift."""
    import json

    from datasets import Dataset
    from transformers import PrinterCallback

    from limen.train.rewards import VerifierReward
    from limen.train.trainer import SELFTrainer

    args = make_config(settings, loaded, folder)
    rows = [
        {"prompt": q.text, "answer": p.answer, "problem_id": p.id, "metadata": json.dumps(dict(p.metadata))}
        for p, q in zip(problems, prompts, strict=True)
    ]
    pool = make_pool(settings, problems)
    tokenizer = loaded.tokenizer
    tokenizer.padding_side = "left"
    extra: dict[str, Any] = {"peft_config": _lora(settings)} if settings.lora else {}
    trainer = SELFTrainer(
        model=loaded.model,
        reward_funcs=VerifierReward(pool, settings.reward, args.stop_strings or ()),
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        prompt_ids={q.text: q.token_ids for q in prompts},
        **extra,
    )
    trainer.remove_callback(PrinterCallback)
    if settings.probe is not None:
        _probe(settings).attach(trainer)
    return trainer


def _probe(settings: TrainSettings) -> Any:
    """The callback that follows the probe set."""
    from limen.dynamics.callback import DynamicsProbe
    from limen.models import load_model

    p = settings.probe
    assert p is not None
    base = load_model(settings.model, device=_own_device(settings), dtype="float32").model if p.base else None
    return DynamicsProbe(
        p.run, p.every, epsilon=settings.algorithm.epsilon or 0.2, entropies=p.entropies, base=base,
        precision=p.precision,
    )  # fmt: skip


def make_pool(settings: TrainSettings, problems: list[Problem], noise: bool = True) -> Any:
    """The verifier's processes; `noise` False: without the errors that the settings put on it."""
    from limen.sampling.golds import auto_verifier
    from limen.verify import VerifierPool

    spec = auto_verifier(problems) if settings.verifier == "auto" else settings.verifier
    if isinstance(spec, dict) and not noise:
        spec = {k: v for k, v in spec.items() if k != "noise"}
    return VerifierPool(spec, workers=settings.verifier_workers, deadline=settings.verifier_deadline)


def _check_golds(settings: TrainSettings, run: Run, problems: list[Problem]) -> None:
    """Problems whose gold answer fails its own verifier give no reward to anybody: listed in run.json, and aloud."""
    from limen.sampling.golds import failing_golds

    with make_pool(settings, problems, noise=False) as pool:
        bad = failing_golds(problems, pool)
        run.info["failing_golds"] = [p.id for p in bad]
        run.save()
        if len(bad) == len(problems):
            raise DataError(f"no gold answer is right under the verifier {pool.version}: choose another verifier")
    if bad:
        log.warning("%d of %d gold answers fail their own verifier (listed in run.json)", len(bad), len(problems))


def make_config(settings: TrainSettings, loaded: Any, folder: Path) -> Any:
    """The `SELFConfig` of these settings."""
    import dataclasses

    from limen.train.config import SELFConfig

    s, o, a = settings, settings.optimiser, settings.algorithm
    world = int(os.environ.get("WORLD_SIZE", "1"))
    rows = s.prompts_per_step * s.group_size
    if rows % (s.accumulation * world):
        raise ConfigError(f"{rows} responses a step cannot be cut into {s.accumulation} parts in {world} processes")
    on_cpu = loaded.model.device.type == "cpu"
    precision = s.precision or ("float32" if on_cpu else "bf16")
    values: dict[str, Any] = {
        **a.config_fields(),
        "output_dir": str(folder), "run_dir": str(folder), "run_name_in_store": s.policy, "run_name": s.policy,
        "base_responses": s.base_responses, "base_n": s.base_n, "record_rollouts": s.record_rollouts,
        "grad_ratio_steps": s.grad_ratio_steps, "token_budget": s.token_budget, "share_prompts": s.share_prompts,
        "stop_strings": _stop(s, loaded.tokenizer),
        "per_device_train_batch_size": rows // (s.accumulation * world),
        "gradient_accumulation_steps": s.accumulation, "steps_per_generation": s.accumulation,
        "num_iterations": s.iterations, "num_generations": s.group_size,
        "max_completion_length": s.max_new_tokens,
        "temperature": s.temperature, "top_p": s.top_p, "top_k": s.top_k, "min_p": None, "repetition_penalty": 1.0,
        "beta": 0.0, "epsilon": a.epsilon, "epsilon_high": a.epsilon_high, "delta": a.dual_clip,
        "loss_type": a.loss_type or "dapo", "scale_rewards": "group", "importance_sampling_level": "token",
        "mask_truncated_completions": False, "top_entropy_quantile": 1.0, "disable_dropout": False,
        "learning_rate": o.lr, "adam_beta1": o.betas[0], "adam_beta2": o.betas[1], "adam_epsilon": o.eps,
        "weight_decay": o.weight_decay, "lr_scheduler_type": o.schedule, "warmup_steps": o.warmup_steps,
        "max_grad_norm": o.grad_clip, "optim": "adamw_torch" if on_cpu else "adamw_torch_fused",
        "max_steps": s.steps, "save_strategy": "steps", "save_steps": s.save_steps,
        "save_total_limit": s.keep_checkpoints, "save_only_model": False, "seed": s.seed, "data_seed": s.seed,
        "shuffle_dataset": True, "logging_strategy": "steps", "logging_steps": 1, "logging_first_step": False,
        "report_to": list(s.trackers) or "none", "disable_tqdm": True, "use_cpu": on_cpu, "bf16": precision == "bf16",
        "fp16": False, "gradient_checkpointing": s.gradient_checkpointing, "use_vllm": s.vllm is not None,
        "dataloader_num_workers": 0, "remove_unused_columns": False, "log_completions": False,
        "sync_ref_model": False, "eval_strategy": "no", "push_to_hub": False, "auto_find_batch_size": False,
    }  # fmt: skip
    if s.vllm is not None:
        values |= {
            "vllm_mode": s.vllm.mode, "vllm_gpu_memory_utilization": s.vllm.gpu_memory,
            "vllm_tensor_parallel_size": s.vllm.tensor_parallel, "vllm_server_host": s.vllm.host,
            "vllm_server_port": s.vllm.port, "vllm_enable_sleep_mode": s.vllm.sleep,
            "vllm_importance_sampling_correction": True,
        }  # fmt: skip
        if values["stop_strings"]:
            values["generation_kwargs"] = {"stop": values["stop_strings"], "include_stop_str_in_output": True}
    known = {f.name for f in dataclasses.fields(SELFConfig)}
    assert set(values) <= known, sorted(set(values) - known)
    config = SELFConfig(**values)
    if a.loss_type:  # said, so that an algorithm's own does not go before it
        config.loss_type = a.loss_type
    return config


def _stop(settings: TrainSettings, tokenizer: Any) -> list[str] | None:
    from limen.problems.prompt import load_template

    if settings.stop is not None:
        return settings.stop or None
    return list(load_template(settings.template).resolve(tokenizer).stop) or None


def _lora(settings: TrainSettings) -> Any:
    try:
        from peft import LoraConfig
    except ImportError as error:
        from limen.errors import MissingExtra

        raise MissingExtra("peft", "dev", "lora") from error
    assert settings.lora is not None
    lora = settings.lora
    return LoraConfig(r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=lora.target_modules,
                      task_type="CAUSAL_LM")  # fmt: skip


def save_model(trainer: Any, folder: Path, tokenizer: Any) -> None:
    """The trained policy as a plain model folder (a LoRA adapter merged into its base), whole or not at all."""
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        trainer.save_model(str(folder))
        return
    if not trainer.accelerator.is_main_process:
        return
    policy = trainer.accelerator.unwrap_model(trainer.model)
    if hasattr(policy, "merge_and_unload"):
        policy = policy.merge_and_unload()
    temp = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temp, ignore_errors=True)
    policy.save_pretrained(temp)
    tokenizer.save_pretrained(temp)
    shutil.rmtree(folder, ignore_errors=True)
    temp.rename(folder)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the deprecation notices that TRL and transformers send each other, and without their bars."""
    import warnings

    from transformers.utils import logging as transformers_logging

    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            yield
    finally:
        if bars:
            transformers_logging.enable_progress_bar()
