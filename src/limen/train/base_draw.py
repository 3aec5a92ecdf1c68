"""Drawing the base responses before training, from the model as it was given to the trainer (π_b)."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from limen.errors import ConfigError
from limen.problems.prompt import text_hash
from limen.store import Run
from limen.store.schema import rollout_row, verdict_row
from limen.train import extra_losses, screening, setup
from limen.train.base_responses import BaseResponse, BaseResponses, _pad, load_base
from limen.types import Rollout, SamplingParams, Verdict, derive_seed

POLICY = "base"


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
    estimators = [t.algorithm.kl_estimator, *(p["set"].get("kl_estimator") for p in t.algorithm.schedule)]
    if "k3" in estimators:
        base = _with_logprobs(t, base, rows)
    return base


def _draw(t: Any, folder: Path, rows: list[Any]) -> None:
    if t.is_fsdp_enabled or t.is_deepspeed_enabled:
        raise ConfigError(
            "base responses cannot be drawn under FSDP or DeepSpeed: draw them with `limen sample` (base_responses)"
        )
    n, main = t.args.base_n, t.accelerator.is_main_process
    world, rank = t.accelerator.num_processes, t.accelerator.process_index
    each = max(1, t.args.per_device_train_batch_size * t.args.steps_per_generation // n)
    if main:
        shutil.rmtree(folder, ignore_errors=True)
        run = Run.create(folder, "sample", POLICY, {"n": n, "temperature": 1.0, "by": "SELFTrainer"})
        writers = run.writer("rollouts"), run.writer("verdicts")
    params = SamplingParams(1.0, 1.0, 0, t.max_completion_length, tuple(t.args.stop_strings or ()))
    devices = [t.accelerator.device] if t.accelerator.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        for start in range(0, len(rows), each * world):
            torch.manual_seed(derive_seed(t.args.seed, "base", start, rank) % 2**63)
            span = range(start + rank * each, start + (rank + 1) * each)
            mine = [rows[i % len(rows)] for i in span]
            real = [i < len(rows) for i in span]
            done = t.gather_rows(_responses(t, mine, real, n))
            if main:
                for pid, index, ids, text, reason, prompt, n_prompt, verdict in done:
                    rollout = Rollout(
                        pid,
                        POLICY,
                        0,
                        index,
                        t.args.seed,
                        tuple(ids),
                        text,
                        reason,
                        text_hash(prompt),
                        n_prompt,
                        params,
                        "trl-transformers",
                    )
                    writers[0].append(rollout_row(rollout))
                    writers[1].append(verdict_row(rollout, verdict))
    if main:
        for writer in writers:
            writer.close()
        run.finish()
    t.accelerator.wait_for_everyone()


def _responses(t: Any, rows: Sequence[Any], real: Sequence[bool], n: int) -> list[tuple[Any, ...]]:
    """n judged samples of each row; rows that are not real only keep the processes in step."""
    config = copy.deepcopy(t.generation_config)
    config.update(do_sample=True, temperature=1.0, top_p=1.0, top_k=0, min_p=None, num_return_sequences=n)
    prompts, mask = _pad([t.prompt_token_ids(r["prompt"]) for r in rows], t.pad_id, left=True)
    device = t.accelerator.device
    with screening.unwrapped(t) as model, torch.no_grad():
        out = model.generate(input_ids=prompts.to(device), attention_mask=mask.to(device), generation_config=config)
    ids = [t.cut_response(r) for r in screening.cut_at_eos(out[:, prompts.shape[1] :], t.eos_ids)]
    texts = t.processing_class.batch_decode(ids, skip_special_tokens=True)
    many = [r for r in rows for _ in range(n)]
    chat = not isinstance(rows[0]["prompt"], str)
    completions = [[{"role": "assistant", "content": x}] for x in texts] if chat else texts
    verdicts: list[Verdict] = t.local_verdicts(t.judge_rows(many, completions, ids))
    return [
        (
            setup.problem_id(row),
            i % n,
            ids[i],
            *setup.finish(t, ids[i], texts[i]),
            *setup.prompt_of(t, row),
            verdicts[i],
        )
        for i, row in enumerate(many)
        if real[i // n]
    ]


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
