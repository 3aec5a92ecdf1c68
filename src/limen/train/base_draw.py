"""Drawing the base responses before training, from the model as it was given to the trainer (π_b)."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from limen.engines.hf import TransformersEngine
from limen.engines.protocol import SampleRequest
from limen.errors import ConfigError, DataError
from limen.models import LoadedModel
from limen.problems.prompt import text_hash
from limen.store import Run
from limen.store.schema import rollout_row, verdict_row
from limen.train import extra_losses, setup
from limen.train.base_responses import BaseResponse, BaseResponses, _pad, load_base
from limen.types import Prompt, Rollout, SamplingParams, Verdict, derive_seed

POLICY = "base"
CHUNK = 2048
"""Prompts of one process between two writes."""


def prepare(t: Any) -> BaseResponses:
    """The stored base responses: those given, those of an earlier start of this run, or drawn now.

    Called before TRL loads any checkpoint, so that the model is still the base, also when a run is resumed.
    """
    rows = {setup.problem_id(r): r for r in t.train_dataset}
    if len(rows) < len(t.train_dataset):
        raise ConfigError("problem ids occur twice in the training set: base responses are kept by id")
    if t.args.base_responses:
        hashes = {pid: text_hash(r["prompt"]) if isinstance(r["prompt"], str) else "" for pid, r in rows.items()}
        base = load_base(t.args.base_responses, hashes)
    else:
        folder = t.run_path / "base"
        if not (folder / "run.json").exists() or Run.open(folder).info["status"] != "done":
            _draw(t, folder, list(rows.values()))
        base = load_base(folder, dict.fromkeys(rows, ""))
    _check_ids(t, base)
    if any(a.kl_estimator == "k3" for a in t.algorithm.states()):
        base = _with_logprobs(t, base, rows)
    return base


def _check_ids(t: Any, base: BaseResponses) -> None:
    """Token ids of another tokenizer that this model has no embedding for would end in an indexing error."""
    known = int(t.accelerator.unwrap_model(t.model).get_input_embeddings().weight.shape[0])
    most = max((int(r.token_ids.max()) for rs in base.by_problem.values() for r in rs if len(r.token_ids)), default=0)
    if most >= known:
        raise DataError(
            f"the base responses hold token {most}, but the model knows {known}: they were drawn by another model; "
            "sample them with the one that is trained"
        )


def _draw(t: Any, folder: Path, rows: list[Any]) -> None:
    """Sample `base_n` responses of every prompt with limen's engine, each process its share; a kill loses a chunk."""
    if t.is_fsdp_enabled or t.is_deepspeed_enabled:
        raise ConfigError(
            "base responses cannot be drawn under FSDP or DeepSpeed: draw them with `limen sample` (base_responses)"
        )
    world, rank = t.accelerator.num_processes, t.accelerator.process_index
    run = writers = None
    if t.accelerator.is_main_process:
        settings = {"n": t.args.base_n, "temperature": 1.0, "by": "SELFTrainer"}
        run = Run.create(folder, "sample", POLICY, settings)
        writers = run.writer("rollouts"), run.writer("verdicts")
    t.accelerator.wait_for_everyone()
    stored = {pid for pid, _, _, i in Run.open(folder).keys("verdicts") if i == t.args.base_n - 1}
    todo = [r for r in rows if setup.problem_id(r) not in stored]
    policy = t.accelerator.unwrap_model(t.model)
    policy.eval()
    engine = TransformersEngine(LoadedModel(policy, t.processing_class, POLICY))
    for start in range(0, len(todo), CHUNK * world):
        mine = todo[start : start + CHUNK * world][rank::world]
        done = t.gather_rows(_responses(t, engine, mine))
        if writers is not None:
            for rollout, verdict in done:
                writers[0].append(rollout_row(rollout))
                writers[1].append(verdict_row(rollout, verdict))
            writers[0].flush()
            writers[1].flush()
    del engine
    gc.collect()  # its slots refer to themselves, and training needs their memory
    if policy.device.type == "cuda":
        torch.cuda.empty_cache()
    policy.train()
    if run is not None:
        run.finish()
    t.accelerator.wait_for_everyone()


def _responses(t: Any, engine: Any, rows: Sequence[Any]) -> list[tuple[Rollout, Verdict]]:
    """n judged samples of each row, of this process."""
    params = SamplingParams(1.0, 1.0, 0, t.max_completion_length, tuple(t.args.stop_strings or ()))
    indices = tuple(range(t.args.base_n))
    by_id, requests = {}, []
    for row in rows:
        pid = setup.problem_id(row)
        text, _ = setup.prompt_of(t, row)
        prompt = Prompt(pid, text, tuple(t.prompt_token_ids(row["prompt"])), text_hash(text))
        by_id[pid] = (row, prompt)
        seeds = tuple(derive_seed(t.args.seed, "base", pid, i) for i in indices)
        requests.append(SampleRequest(prompt, indices, seeds))
    drawn = sorted(engine.sample(requests, params), key=lambda s: (s.problem_id, s.sample_index))
    verdicts = _judge(t, [by_id[s.problem_id][0] for s in drawn], drawn)
    return [
        (
            Rollout(
                s.problem_id, POLICY, 0, s.sample_index, s.seed, s.token_ids, s.text, s.finish_reason,
                by_id[s.problem_id][1].hash, len(by_id[s.problem_id][1].token_ids), params, engine.name,
            ),
            v,
        )
        for s, v in zip(drawn, verdicts, strict=True)
    ]  # fmt: skip


def _judge(t: Any, rows: list[Any], samples: Sequence[Any]) -> list[Verdict]:
    """Verdicts by the verifier, or else by the first reward function (which then runs in this process alone)."""
    if not samples:
        return []
    if t.judge_reward is not None:
        chat = bool(rows) and not isinstance(rows[0]["prompt"], str)
        texts = [[{"role": "assistant", "content": s.text}] if chat else s.text for s in samples]
        columns = {k: [r[k] for r in rows] for k in (rows[0] if rows else ()) if k != "prompt"}
        t.judge_reward([r["prompt"] for r in rows], texts, [list(s.token_ids) for s in samples], **columns)
        return list(t.judge_reward.last_verdicts)
    return [Verdict("unjudged", rule="not asked", verifier="reward@trl") for _ in samples]


@torch.no_grad()  # type: ignore[untyped-decorator]
def _with_logprobs(t: Any, base: BaseResponses, rows: dict[str, Any]) -> BaseResponses:
    """log π_b of every token, by the same scorer that the loss uses, where the store has none."""
    todo = [(pid, i) for pid, rs in base.by_problem.items() for i, r in enumerate(rs) if r.logprobs is None]
    done = {pid: list(rs) for pid, rs in base.by_problem.items()}
    size = t.args.per_device_train_batch_size
    for start in range(0, len(todo), size):
        part = todo[start : start + size]
        responses: list[BaseResponse] = [done[pid][i] for pid, i in part]
        p_ids, p_mask = _pad([t.prompt_token_ids(rows[pid]["prompt"]) for pid, _ in part], t.pad_id, left=True)
        y_ids, y_mask = _pad([r.token_ids.tolist() for r in responses], t.pad_id, left=False)
        sequence = torch.cat([p_ids, y_ids], 1).to(t.accelerator.device)
        attention = torch.cat([p_mask, y_mask], 1).to(t.accelerator.device)
        logps = extra_losses.logprobs(t, t.accelerator.unwrap_model(t.model), sequence, attention, y_ids.shape[1])
        for (pid, i), r, row in zip(part, responses, logps.float().cpu().numpy(), strict=True):
            done[pid][i] = replace(r, logprobs=np.minimum(row[: len(r.token_ids)], 0.0))
    return BaseResponses(done)
