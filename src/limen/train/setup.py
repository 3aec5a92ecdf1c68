"""What `SELFTrainer` checks and prepares before its first step."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from limen.errors import ConfigError, DataError
from limen.store import Run
from limen.train import base_draw, extra_losses
from limen.train.callbacks import REFERENCE_FILE, STATE_FILE
from limen.train.config import SELFConfig
from limen.train.recorder import Recorder, forget_after
from limen.train.rewards import VerifierReward, completion_text, cut_at_stop, guarded
from limen.train.shared_prompts import SharedPrompts
from limen.types import Problem, SamplingParams, Verdict, content_hash

log = logging.getLogger(__name__)


def checked_args(args: Any, model: Any) -> SELFConfig:
    if args is None:
        name = model if isinstance(model, str) else getattr(model.config, "_name_or_path", "") or "model"
        return SELFConfig(output_dir=f"{Path(str(name)).name}-SELF")
    if not isinstance(args, SELFConfig):
        raise ConfigError(
            f"args is a {type(args).__name__}: SELFTrainer needs a limen.train.SELFConfig, which takes the same "
            'arguments (algorithm="grpo" makes it plain GRPO)'
        )
    return args


def reward_functions(
    verifier: str | Mapping[str, Any] | None, kind: str, functions: Any, args: SELFConfig
) -> tuple[VerifierReward | None, list[Any]]:
    """The verifier's reward first, then the user's functions, guarded."""
    others = [] if functions is None else list(functions) if isinstance(functions, (list, tuple)) else [functions]
    judge = next((f for f in others if isinstance(f, VerifierReward)), None)
    if judge is not None and others[0] is not judge:
        raise ConfigError("the verifier's reward must come first among reward_funcs: it decides what is right")
    if verifier is not None:
        if judge is not None:
            raise ConfigError("both verifier= and a VerifierReward among reward_funcs are given: give one")
        from limen.verify import VerifierPool

        spec = verifier if isinstance(verifier, str) else dict(verifier)
        judge = VerifierReward(VerifierPool(spec), kind, args.stop_strings or ())
        others = [judge, *others]
    if not others:
        raise ConfigError("no reward: give reward_funcs, or verifier= by name")
    return judge, [guarded(f) for f in others]


def eos_ids(t: Any) -> list[int]:
    ids = getattr(t, "eos_token_ids", None)
    if ids is None:
        ids = [t.eos_token_id] if hasattr(t, "eos_token_id") else [t.processing_class.eos_token_id]
    return [int(i) for i in ids]


def pad_id(t: Any) -> int:
    tokenizer = getattr(t.processing_class, "tokenizer", t.processing_class)
    return int(tokenizer.pad_token_id)


def check_trainer(t: Any) -> None:
    """Contradictions that only show once TRL is set up. Sets `can_measure_gradients`, `fingerprint`, `listeners`."""
    args = t.args
    states = t.algorithm.states()
    local = args.per_device_train_batch_size * args.steps_per_generation
    ours = any(a.selector != "all" or a.dynamic_sampling or a.forward_kl_beta for a in states)
    if ours and local % t.num_generations:
        raise ConfigError(
            f"per_device_train_batch_size x steps_per_generation = {local} must be a multiple of num_generations = "
            f"{t.num_generations}: screening needs whole groups in each process"
        )
    if ours and (getattr(t, "tools", None) or getattr(t, "environments", None)):
        raise ConfigError("tools and environments are not supported with screening or a forward KL; use algorithm grpo")
    if any(a.refill or a.dynamic_sampling for a in states) and not hasattr(t.train_dataset, "__getitem__"):
        raise ConfigError("refill and dynamic_sampling pick fresh prompts: give a map-style training set, not a stream")
    if any(a.kl_responses == "correct" for a in states) and t.judge_reward is None and not args.base_responses:
        raise ConfigError("kl_responses: correct needs a verifier (verifier=), or base_responses that were judged")
    sharded = t.is_fsdp_enabled or t.is_deepspeed_enabled
    if sharded and _ever(args, "reverse_kl_beta"):
        raise ConfigError("reverse_kl_beta is not supported with FSDP or DeepSpeed; use TRL's beta")
    t.can_measure_gradients = not sharded and not args.fp16
    t.fingerprint = content_hash(
        [[n, list(p.shape)] for n, p in t.accelerator.unwrap_model(t.model).named_parameters()]
    )
    t.listeners = []
    t._prepare_seconds, t._batch_trains = 0.0, False
    t._prompt_cache = {}
    _check_lengths(t)
    if args.share_prompts:
        t.shared_prompts = _shared_prompts(t)


def _shared_prompts(t: Any) -> SharedPrompts:
    """Raises `ConfigError` where a training cannot share prompts whatever its model is."""
    several = t.accelerator.num_processes > 1 or t.is_fsdp_enabled or t.is_deepspeed_enabled
    if several or t.args.gradient_checkpointing:
        why = "several processes, FSDP or DeepSpeed" if several else "gradient_checkpointing"
        raise ConfigError(f"share_prompts is not supported with {why}: switch one of them off")
    shared = SharedPrompts(t.accelerator.unwrap_model(t.model), t.temperature, t.accelerator.autocast)
    if shared.reason:
        log.warning("share_prompts: not with this model: %s", shared.reason)
    return shared


def _ever(args: SELFConfig, key: str) -> bool:
    """Whether a weight is above 0 now or in some phase of the schedule."""
    return any(bool(getattr(a, key)) for a in args.resolved().states())


def _check_lengths(t: Any) -> None:
    """Every prompt with its response must fit the context; and the training set must fill a batch."""
    prompts = t.args.generation_batch_size // t.num_generations
    size = len(t.train_dataset) if hasattr(t.train_dataset, "__len__") else None
    if size is not None and size < prompts:
        raise ConfigError(f"the training set has {size} problems, but a step takes {prompts}: lower the batch size")
    config = t.accelerator.unwrap_model(t.model).config
    context = getattr(config.get_text_config(), "max_position_embeddings", None)
    if context is None or size is None or getattr(t, "_is_vlm", False):
        return
    column = t.train_dataset["prompt"]
    for start in range(0, size, 1000):
        chunk = column[start : start + 1000]
        for i, ids in enumerate(t._tokenize_prompts(list(chunk))[0]):
            if len(ids) + t.max_completion_length > context:
                raise ConfigError(
                    f"problem {problem_id(t.train_dataset[start + i])}: its prompt of {len(ids)} tokens and "
                    f"{t.max_completion_length} new ones do not fit the model's context of {context}: drop it, or "
                    "lower max_completion_length"
                )


def problem_id(row: Mapping[str, Any]) -> str:
    for key in ("problem_id", "id"):
        if row.get(key) is not None:
            return str(row[key])
    return content_hash(row["prompt"])


def cut_response(t: Any, ids: list[int]) -> list[int]:
    """Response ids up to the token with which a stop string is complete."""
    stop = t.args.stop_strings
    if not stop:
        return ids
    decode = t.processing_class.decode
    if not cut_at_stop(decode(ids, skip_special_tokens=True), stop)[1]:
        return ids
    low, high = 1, len(ids)
    while low < high:
        middle = (low + high) // 2
        if cut_at_stop(decode(ids[:middle], skip_special_tokens=True), stop)[1]:
            high = middle
        else:
            low = middle + 1
    return ids[:low]


def verdicts(t: Any, reward_B: Tensor) -> list[Verdict]:
    if t.judge_reward is not None:
        return list(t.judge_reward.last_verdicts)
    name = t.reward_func_names[0]
    done = []
    for r in reward_B.tolist():
        outcome = "unjudged" if r != r else "correct" if r > t.args.correct_above else "wrong"
        done.append(Verdict(outcome, rule="reward", verifier=f"{name}@trl"))  # type: ignore[arg-type]
    return done


# -- the run folder and resuming -------------------------------------------------------------------------------------


def begin(t: Any, resume: Any) -> str | None:
    """Open the run folder, read our state back, draw base responses. Returns the checkpoint to go on from."""
    checkpoint = _checkpoint(t, resume)
    state: dict[str, Any] = {}
    if checkpoint is not None:
        state = _read_state(t, Path(checkpoint))
        t.counters.update(state["counters"])
        t.begun_phases, t.last_metrics = list(state["begun_phases"]), dict(state["last_metrics"])
    t.run_path = Path(t.gather_rows([str(_run_path(t, checkpoint is not None))])[0])  # the main process chooses
    if t.accelerator.is_main_process:
        _open_run(t, int(state["step"]) if state else 0)
    t.accelerator.wait_for_everyone()
    if _ever(t.args, "forward_kl_beta"):
        t.base = base_draw.prepare(t)
        t.counters["tokens_stored"] = sum(len(r.token_ids) for rs in t.base.by_problem.values() for r in rs)
    if _ever(t.args, "reverse_kl_beta"):
        t.reference = _reference(t, checkpoint)
    return checkpoint


def close(t: Any) -> None:
    if t.judge_reward is not None and hasattr(t.judge_reward.judge, "close"):
        t.judge_reward.judge.close()


def last_checkpoint(folder: Path, cycle: int = 1) -> Path | None:
    """The last checkpoint that was finished and does not fall inside a generation cycle of so many steps: Trainer saves
    a last one wherever a run ends."""
    found = [(int(m[1]), p) for p in folder.glob("checkpoint-*") if (m := re.fullmatch(r"checkpoint-(\d+)", p.name))]
    whole = [(n, p) for n, p in found if (p / STATE_FILE).exists() and n % cycle == 0]
    return max(whole)[1] if whole else None


def _checkpoint(t: Any, resume: Any) -> str | None:
    if resume in (None, False):
        return None
    folder = Path(t.args.output_dir)
    if resume is True:
        found = last_checkpoint(folder, t.args.cycle)
        if found is None:
            raise ConfigError(f"nothing to resume: no finished checkpoint in {folder}")
        return str(found)
    if not (Path(resume) / STATE_FILE).exists():
        raise ConfigError(f"{resume} is not a checkpoint of SELFTrainer, or was not finished (no {STATE_FILE} in it)")
    return str(resume)


def _read_state(t: Any, checkpoint: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((checkpoint / STATE_FILE).read_text(encoding="utf-8"))
    if state["parameters"] != t.fingerprint:
        raise ConfigError(
            f"{checkpoint} belongs to another model: its parameters have other names or shapes than the one given"
        )
    now = [t.args.generation_batch_size, t.num_generations, t.args.steps_per_generation, t.num_iterations]
    if state["generation"] != now or state["seed"] != t.args.seed:
        raise ConfigError(
            f"{checkpoint} was made with generation batch, group, steps_per_generation, num_iterations = "
            f"{state['generation']} and seed {state['seed']}; now they are {now} and {t.args.seed}: the run would not "
            "go on where it stopped"
        )
    if state["step"] % t.args.cycle:
        raise ConfigError(
            f"{checkpoint} lies inside a generation cycle of {t.args.cycle} optimizer steps, so it cannot be gone on "
            "with exactly: take an earlier one"
        )
    return state


def _run_path(t: Any, resuming: bool) -> Path:
    """The run folder. In a script that is run again without resuming, the next free one beside the old."""
    if t.args.run_dir:
        return Path(t.args.run_dir)
    base = Path(t.args.output_dir) / "limen"
    names = [base, *(base.with_name(f"limen-{i}") for i in range(2, 1000))]
    if resuming:
        return [n for n in names if (n / "run.json").exists()][-1] if (base / "run.json").exists() else base
    return next(n for n in names if not n.exists())


def _open_run(t: Any, step: int) -> None:
    name = t.args.run_name_in_store or Path(t.args.output_dir).name or "train"
    settings = json.loads(json.dumps(t.args.to_dict(), default=str))
    there = (t.run_path / "run.json").exists()
    run = Run.open(t.run_path) if there else Run.create(t.run_path, "train", name, settings)
    forget_after(run, step)
    if t.run_path == Path(t.args.output_dir):  # else other trainers' checkpoints may lie there: they are not ours
        for folder in t.run_path.glob("checkpoint-*"):
            if not (folder / STATE_FILE).exists():
                shutil.rmtree(folder)
    if not (t.run_path / "problems.parquet").exists() and hasattr(t.train_dataset, "__getitem__"):
        run.write_problems([_problem(row) for row in t.train_dataset])
    if not t.args.record_rollouts:
        return
    args = t.args
    params = SamplingParams(
        args.temperature, args.top_p, args.top_k or 0, args.max_completion_length, tuple(args.stop_strings or ())
    )
    engine = "trl-vllm" if args.use_vllm else "trl-transformers"
    t.recorder = Recorder(run, name, args.seed, params, engine)


def _problem(row: Mapping[str, Any]) -> Problem:
    text = row["prompt"] if isinstance(row["prompt"], str) else completion_text(row["prompt"])
    return Problem(problem_id(row), text, str(row.get("answer", "")), source="trl")


def _reference(t: Any, checkpoint: str | None) -> dict[str, Tensor]:
    policy = t.accelerator.unwrap_model(t.model)
    now = extra_losses.snapshot(policy)
    if checkpoint is None:
        return now
    from safetensors.torch import load_file

    file = Path(checkpoint) / REFERENCE_FILE
    if not file.exists():
        raise DataError(f"{checkpoint} has no {REFERENCE_FILE}: the reverse KL's reference is lost, start anew")
    return {k: v.to(now[k].device) for k, v in load_file(file).items()}


def prompt_of(t: Any, row: Mapping[str, Any]) -> tuple[str, int]:
    """(prompt text as the model sees it, its tokens)."""
    key = problem_id(row)
    if key not in t._prompt_cache:
        ids: Sequence[int] = t.prompt_token_ids(row["prompt"])
        text = row["prompt"] if isinstance(row["prompt"], str) else t.processing_class.decode(ids)
        t._prompt_cache[key] = (text, len(ids))
    return t._prompt_cache[key]  # type: ignore[no-any-return]


def finish(t: Any, ids: Sequence[int], text: str) -> tuple[str, str]:
    """(stored text, finish reason) of a response."""
    cut, stopped = cut_at_stop(text, t.args.stop_strings or ())
    if stopped:
        return cut, "stop"
    return text, "eos" if ids and ids[-1] in t.eos_ids else "length"
