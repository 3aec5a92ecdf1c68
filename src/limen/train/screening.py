"""Greedy answers of the current policy, before any group is sampled. Each process screens its own prompts."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from limen.train.algorithms.greedy_filter import keep_wrong
from limen.train.base_responses import _pad
from limen.types import derive_seed

Row = dict[str, Any]


@dataclass
class Screened:
    """What a step's screening found. `rows`, `reward` and `ids` are this process's; counts are of all processes."""

    survivors: list[Row] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    ids: list[list[int]] = field(default_factory=list)
    left_out_rewards: list[float] = field(default_factory=list)
    screened: int = 0
    solved: int = 0
    unjudged: int = 0
    tokens: int = 0
    verdicts: list[Any] = field(default_factory=list)


def screen(trainer: Any, rows: Sequence[Row], nominal: int, refill: bool, limit: int) -> Screened:
    """Screen this process's prompts, and with `refill` further ones until `nominal` survive among all processes.

    At most `limit` times `nominal` prompts are screened. Survivors come back in the order of all processes, the same
    list everywhere, at most `nominal`.
    """
    found = Screened()
    _screen_some(trainer, list(rows), found)
    if refill:
        fresh = _fresh_indices(trainer, {trainer.problem_id(r) for r in trainer.gather_rows(rows)})
        world = trainer.accelerator.num_processes
        while len(found.survivors) < nominal and found.screened < limit * nominal:
            rate = max(len(found.survivors), 1) / found.screened
            want = math.ceil((nominal - len(found.survivors)) / rate)
            want = min(want, nominal, limit * nominal - found.screened)
            here = [next(fresh, None) for _ in range(math.ceil(want / world) * world)]
            if None in here:
                break
            mine = here[trainer.accelerator.process_index :: world]
            _screen_some(trainer, [trainer.train_dataset[int(i)] for i in mine if i is not None], found)
    found.survivors = found.survivors[:nominal]
    return found


def _fresh_indices(trainer: Any, seen: set[str]) -> Iterator[int]:
    """Indices of training problems that were not in this step's batch, in an order given by (seed, step)."""
    seed = derive_seed(trainer.args.seed, "refill", trainer.state.global_step)
    for i in np.random.default_rng(seed).permutation(len(trainer.train_dataset)):
        if trainer.problem_id(trainer.train_dataset[int(i)]) not in seen:
            yield int(i)


def _screen_some(trainer: Any, rows: list[Row], found: Screened) -> None:
    ids = greedy(trainer, [trainer.prompt_token_ids(r["prompt"]) for r in rows])
    texts = trainer.processing_class.batch_decode(ids, skip_special_tokens=True)
    chat = bool(rows) and not isinstance(rows[0]["prompt"], str)
    completions = [[{"role": "assistant", "content": t}] for t in texts] if chat else texts
    reward_P = trainer.judge_rows(rows, completions, ids)
    keep_P = keep_wrong(reward_P, trainer.args.correct_above)
    found.verdicts += trainer.local_verdicts(reward_P)
    found.rows += rows
    found.ids += ids
    kept = [r for r, keep in zip(rows, keep_P.tolist(), strict=True) if keep]
    rest = [x for x, keep in zip(reward_P.tolist(), keep_P.tolist(), strict=True) if not keep and not math.isnan(x)]
    unjudged = int(torch.isnan(reward_P).sum())
    shares = trainer.gather_rows([(kept, rest, len(rows), unjudged, sum(map(len, ids)))])
    for kept_i, rest_i, n, bad, tokens in shares:
        found.survivors += kept_i
        found.left_out_rewards += rest_i
        found.screened += n
        found.solved += len(rest_i)
        found.unjudged += bad
        found.tokens += tokens


def greedy(trainer: Any, prompt_ids: Sequence[Sequence[int]]) -> list[list[int]]:
    """Greedy response ids of the current policy, the end-of-sequence token included where it was reached."""
    if not prompt_ids:
        return []
    draw = _greedy_vllm if trainer.args.use_vllm else _greedy_transformers
    ids = draw(trainer, prompt_ids)
    return [trainer.cut_response(r) for r in ids]


def _greedy_vllm(trainer: Any, prompt_ids: Sequence[Sequence[int]]) -> list[list[int]]:
    engine = trainer.vllm_generation
    if trainer.state.global_step != trainer._last_loaded_step:
        engine.sync_weights()
        trainer._last_loaded_step = trainer.state.global_step
    changed = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": None}
    before = {k: getattr(engine, k) for k in changed}
    try:
        for key, value in changed.items():
            setattr(engine, key, value)
        out = engine.generate(prompts=[list(p) for p in prompt_ids], images=None, num_generations=1)
    finally:
        for key, value in before.items():
            setattr(engine, key, value)
    return [list(ids) for ids in out[1]]


def _greedy_transformers(trainer: Any, prompt_ids: Sequence[Sequence[int]]) -> list[list[int]]:
    config = copy.deepcopy(trainer.generation_config)
    config.do_sample = False
    config.temperature = config.top_p = config.top_k = config.min_p = None
    ids, mask = _pad(prompt_ids, trainer.pad_id, left=True)
    device = trainer.accelerator.device
    with unwrapped(trainer) as model, torch.no_grad(), without_dropout(model):
        out = model.generate(input_ids=ids.to(device), attention_mask=mask.to(device), generation_config=config)
    return cut_at_eos(out[:, ids.shape[1] :], trainer.eos_ids)


@contextlib.contextmanager
def without_dropout(model: Any) -> Iterator[None]:
    """Eval mode: a greedy answer is the policy's own only without dropout (LoRA's too)."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextlib.contextmanager
def unwrapped(trainer: Any) -> Iterator[Any]:
    """The policy ready for `generate`, under DDP, FSDP and DeepSpeed, with its own generation config left alone."""
    from trl.models import unwrap_model_for_generation

    with contextlib.ExitStack() as stack:
        if trainer.is_fsdp_enabled:
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

            if isinstance(trainer.model_wrapped, FSDP):
                stack.enter_context(FSDP.summon_full_params(trainer.model_wrapped, recurse=False))
        yield stack.enter_context(
            unwrap_model_for_generation(
                trainer.model_wrapped,
                trainer.accelerator,
                gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
            )
        )


def cut_at_eos(ids_BT: Tensor, eos_ids: Sequence[int]) -> list[list[int]]:
    """Rows up to and with their first end-of-sequence token."""
    ends_BT = torch.isin(ids_BT, torch.tensor(list(eos_ids), device=ids_BT.device))
    length_B = torch.where(ends_BT.any(1), ends_BT.int().argmax(1) + 1, ids_BT.shape[1])
    return [row[:n] for row, n in zip(ids_BT.tolist(), length_B.tolist(), strict=True)]
