"""One generation batch: select prompts, let TRL sample and reward their groups, turn rewards into advantages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from limen.train import batches, setup
from limen.train.algorithms import schedule
from limen.train.algorithms.compose import advantages
from limen.train.algorithms.dapo import keep_informative
from limen.train.algorithms.self_ import batch_reward, survivor_scale
from limen.train.base_responses import KLBatch, make_batch
from limen.train.recorder import Response
from limen.train.screening import Row, Screened, _fresh_indices, screen

Sample = Callable[[list[Row]], dict[str, Any]]
TOKEN_MEAN = ("dapo", "bnpo", "cispo", "vespo")
"""Loss types whose denominator counts tokens; the others' counts rows."""


@dataclass
class Part:
    """Groups that were sampled together. Local: rows of this process; `_N`: rows of all processes."""

    rows: list[Row]
    out: dict[str, Any]
    reward_N: Tensor
    correct_N: Tensor
    length_N: Tensor
    filler_N: Tensor
    verdicts: list[Any]


@dataclass
class Tally:
    """What a step's metrics are made of, over all processes."""

    kept: int = 0
    screened: int = 0
    active_rows: float = 0
    active_tokens: float = 0
    unjudged: int = 0
    sampled_tokens: int = 0


def training_batch(t: Any, inputs: list[Row], sample: Sample) -> dict[str, Any]:
    """TRL's generation batch for the loss, of this process."""
    t.algorithm = _algorithm_now(t)
    group = t.num_generations
    nominal = t.args.generation_batch_size // group
    batch_rows = inputs[::group]
    screened, mine, filler = _select(t, inputs, nominal)
    found = screened if screened is not None else Screened(screened=nominal)
    tally = Tally(kept=min(len(found.survivors), nominal) if screened is not None else nominal, screened=found.screened)
    if screened is not None:
        _record_greedy(t, screened)
        _count_screening(t, screened)
    t._batch_trains = bool(mine)
    if not mine:
        t.counters["no_survivors"] += 1
        t._metrics["train"]["reward_batch"].append(batch_reward(0.0, 0, found.left_out_rewards))
        out = _nothing(t, batch_rows[0])
        t._kl_batch = _kl_batch(t, batch_rows, [])
    else:
        parts = _sample_parts(t, mine, filler, nominal, sample, tally)
        out = _finish(t, parts, nominal, tally)
        own = [r for r, fills in zip(mine[::group], filler[::group].tolist(), strict=True) if not fills]
        t._kl_batch = _kl_batch(t, batch_rows, own)
        _log_batch(t, parts, found, tally)
    t._batch_trains = t._batch_trains or (t._kl_batch is not None and t._kl_batch.tokens > 0)
    metrics = t._metrics["train"]
    metrics["kept"].append(float(tally.kept))
    metrics["screened"].append(float(tally.screened))
    metrics["no_survivors"].append(float(t.counters["no_survivors"]))
    return out


def _algorithm_now(t: Any) -> Any:
    base = t.args.resolved()
    if not base.schedule:
        return base
    t.begun_phases = schedule.begin_phases(base.schedule, t.begun_phases, t.state.global_step, t.last_metrics)
    t._metrics["train"]["phase"].append(float(max(t.begun_phases, default=-1) + 1))
    return base.with_overrides(schedule.overrides(base.schedule, t.begun_phases))


def _select(t: Any, inputs: list[Row], nominal: int) -> tuple[Screened | None, list[Row], Tensor]:
    """Rows to sample (each prompt G times) in this process, and which of them only fill up. Without a filter: all."""
    a, group = t.algorithm, t.num_generations
    if a.selector == "all":
        return None, inputs, torch.zeros(len(inputs), dtype=torch.bool)
    start = t.clock()
    found = screen(t, inputs[::group], nominal, a.refill, a.refill_limit)
    t.count("seconds/screen", t.clock() - start)
    mine, filler = share_out(found.survivors, t.accelerator.num_processes, t.accelerator.process_index)
    rows = [dict(r) for r in mine for _ in range(group)]
    return found, rows, torch.tensor(filler, dtype=torch.bool).repeat_interleave(group)


def share_out(rows: Sequence[Row], processes: int, index: int) -> tuple[list[Row], list[bool]]:
    """An equal share of `rows` for process `index`, and which rows are repeats that only make the shares equal."""
    if not rows:
        return [], []
    each = -(-len(rows) // processes)
    padded = [rows[i % len(rows)] for i in range(each * processes)]
    span = range(index * each, (index + 1) * each)
    return [padded[i] for i in span], [i >= len(rows) for i in span]


def _sample_parts(t: Any, rows: list[Row], filler: Tensor, nominal: int, sample: Sample, tally: Tally) -> list[Part]:
    """Sample groups; with dynamic sampling go on with fresh prompts until enough groups have spread."""
    parts = [_sample_part(t, rows, filler, sample, tally)]
    a, group, world = t.algorithm, t.num_generations, t.accelerator.num_processes
    if not a.dynamic_sampling:
        return parts
    fresh = _fresh_indices(t, {t.problem_id(r) for r in t.gather_rows(rows)})
    drawn = len(parts[0].reward_N) // group
    while True:
        good = sum(int(keep_informative(p.reward_N.view(-1, group)).sum()) for p in parts)
        want = min(nominal - good, a.refill_limit * nominal - drawn)
        indices = [i for _, i in zip(range(math.ceil(max(want, 0) / world) * world), fresh)]
        if want <= 0 or not indices or len(indices) % world:
            return parts
        drawn += len(indices)
        mine = [t.train_dataset[i] for i in indices[t.accelerator.process_index :: world]]
        if a.selector != "all":
            found = screen(t, mine, len(indices), False, 1)
            mine, fill = share_out(found.survivors, world, t.accelerator.process_index)
            if not mine:
                continue
        else:
            fill = [False] * len(mine)
        more = [dict(r) for r in mine for _ in range(group)]
        parts.append(_sample_part(t, more, torch.tensor(fill).repeat_interleave(group), sample, tally))


def _sample_part(t: Any, rows: list[Row], filler: Tensor, sample: Sample, tally: Tally) -> Part:
    start, verify = t.clock(), t._sums.get("seconds/verify", 0.0)
    out = sample(rows)
    t.count("seconds/generate", t.clock() - start - (t._sums.get("seconds/verify", 0.0) - verify))
    mask = out["completion_mask"] * out["tool_mask"] if "tool_mask" in out else out["completion_mask"]
    length_N = t.accelerator.gather(mask.sum(1)).cpu()
    filler_N = t.accelerator.gather(filler.to(t.accelerator.device)).cpu()
    reward_N, correct_N = combine_rewards(t, t._rewards_all.float().cpu())
    tally.unjudged += int((torch.isnan(reward_N) & ~filler_N).sum())
    tally.sampled_tokens += int(length_N.sum())
    start_row = t.accelerator.process_index * len(rows)
    verdicts = t.local_verdicts(t._rewards_all[start_row : start_row + len(rows), 0].float().cpu())
    _record(t, rows, out, verdicts, filler)
    reward_N[filler_N], correct_N[filler_N] = torch.nan, torch.nan
    return Part(rows, out, reward_N, correct_N, length_N, filler_N, verdicts)


def combine_rewards(t: Any, rewards_NF: Tensor) -> tuple[Tensor, Tensor]:
    """Total reward (N,) and correctness (N,: 1, 0, NaN) from the reward functions' columns.

    A response is unjudged when every function says so, or the verifier does: then it has neither."""
    judged_NF = ~torch.isnan(rewards_NF)
    weights = t.reward_weights.float().cpu()
    total_N = (torch.nan_to_num(rewards_NF) * weights).sum(1)
    unjudged_N = ~judged_NF.any(1)
    if t.judge_reward is not None:
        unjudged_N |= ~judged_NF[:, 0]
    total_N[unjudged_N] = torch.nan
    correct_N = (rewards_NF[:, 0] > t.args.correct_above).float()
    correct_N[unjudged_N | ~judged_NF[:, 0]] = torch.nan
    return total_N, correct_N


def _finish(t: Any, parts: list[Part], nominal: int, tally: Tally) -> dict[str, Any]:
    """Advantages, the factor for the denominator, and blank rows where the batch cannot be cut evenly."""
    a, group, world = t.algorithm, t.num_generations, t.accelerator.num_processes
    outs = []
    kept_tokens = 0.0
    for part in parts:
        a_PG, active_PG = advantages(a, part.reward_N.view(-1, group), part.correct_N.view(-1, group))
        keep_N = torch.ones(len(part.reward_N), dtype=torch.bool)
        if a.dynamic_sampling:
            keep_N = keep_informative(part.reward_N.view(-1, group)).repeat_interleave(group)
        judged_N = ~torch.isnan(part.reward_N) & keep_N
        kept_tokens += float(part.length_N[keep_N].sum())
        counted_N = active_PG.flatten() & keep_N if a.denominator == "active" else judged_N
        tally.active_rows += float(counted_N.sum())
        tally.active_tokens += float(part.length_N[counted_N].sum())
        here = slice(t.accelerator.process_index * len(part.rows), (t.accelerator.process_index + 1) * len(part.rows))
        values = a_PG.flatten()[here].to(part.out["advantages"])
        out = {**part.out, "advantages": values}
        if a.skip_inactive:
            keep_N = keep_N & counted_N
        outs.append(batches.take(out, keep_N[here]) if a.dynamic_sampling or a.skip_inactive else out)
    out = batches.join(outs, t.pad_id)
    if a.dynamic_sampling:  # groups that are left out count in no denominator, TRL's neither
        out["num_items_in_batch"] = torch.full_like(torch.as_tensor(out["num_items_in_batch"]), max(kept_tokens, 1.0))
    if not len(out["completion_ids"]):
        out = {**batches.blank_rows(parts[0].out, 1), "num_items_in_batch": out["num_items_in_batch"]}
    most = max(t.gather_rows([len(out["completion_ids"])]))
    out, _ = batches.fill_up_to(out, -(-most // t.args.steps_per_generation) * t.args.steps_per_generation, t.pad_id)
    if t.args.loss_type in TOKEN_MEAN:
        share = float(out["num_items_in_batch"]) / tally.active_tokens if tally.active_tokens else 0.0
    else:
        share = len(out["completion_ids"]) * world / tally.active_rows if tally.active_rows else 0.0
    out["advantages"] = out["advantages"] * (share * survivor_scale(tally.kept, nominal, a.scale))
    return out


def _nothing(t: Any, row: Row) -> dict[str, Any]:
    args = t.args
    extra = []
    correction = args.use_vllm and args.vllm_importance_sampling_correction
    if args.gradient_accumulation_steps % (args.steps_per_generation * t.num_iterations) or correction:
        extra.append("old_per_token_logps")
    if correction:
        extra += ["importance_sampling_ratio", "sampling_per_token_logps"]
    if t.beta != 0.0:
        extra.append("ref_per_token_logps")
    prompt = t.prompt_token_ids(row["prompt"])
    return batches.empty_batch(prompt, t.eos_ids[0], args.steps_per_generation, extra, t.accelerator.device)


def _kl_batch(t: Any, batch_rows: list[Row], survivors: list[Row]) -> KLBatch | None:
    """Stored base responses of this step's prompts, with the token count of all processes."""
    a = t.algorithm
    if a.forward_kl_beta == 0 or t.base is None:
        return None
    rows = {t.problem_id(r): r for r in (batch_rows if a.kl_prompts == "batch" else survivors)}
    picked = t.base.pick(t.state.global_step, rows, t.args.seed, a.kl_samples, a.kl_responses == "correct")
    prompts = {p.problem_id: t.prompt_token_ids(rows[p.problem_id]["prompt"]) for p in picked}
    sizes = t.gather_rows([len(picked)])
    per_part = t.args.steps_per_generation
    batch = make_batch(picked, prompts, t.pad_id, max(1, -(-max(sizes) // per_part)) * per_part, t.accelerator.device)
    tokens = sum(t.gather_rows([batch.tokens]))
    t._metrics["train"]["kl_responses"].append(float(sum(sizes)))
    t.count("tokens/kl", float(tokens))
    return KLBatch(
        batch.prompt_ids_BT,
        batch.prompt_mask_BT,
        batch.response_ids_BT,
        batch.response_mask_BT,
        batch.base_logprobs_BT,
        tokens,
    )


def _log_batch(t: Any, parts: list[Part], found: Screened, tally: Tally) -> None:
    metrics = t._metrics["train"]
    reward_N = torch.cat([p.reward_N for p in parts])
    correct_N = torch.cat([p.correct_N for p in parts])
    kept = int(sum((~p.filler_N).sum() for p in parts)) // t.num_generations
    mean = float(reward_N.nanmean())
    metrics["reward_batch"].append(batch_reward(mean, kept, found.left_out_rewards))
    metrics["correct_share"].append(float(correct_N.nanmean()))
    metrics["active_rows"].append(tally.active_rows)
    metrics["unjudged"].append(float(tally.unjudged))
    true = t.gather_rows([v.true_outcome for p in parts for v in p.verdicts])
    if any(x is not None for x in true):
        metrics["reward_true"].append(sum(x == "correct" for x in true) / len(true))
    t.counters["unjudged"] += tally.unjudged
    t.count("tokens/generate", float(tally.sampled_tokens))
    t.counters["tokens_generated"] += tally.sampled_tokens


def _count_screening(t: Any, found: Screened) -> None:
    metrics = t._metrics["train"]
    metrics["greedy_solved"].append(found.solved / found.screened if found.screened else 0.0)
    metrics["screen_unjudged"].append(float(found.unjudged))
    t.counters["screen_unjudged"] += found.unjudged
    t.count("tokens/screen", float(found.tokens))
    t.counters["tokens_screened"] += found.tokens


def _record(t: Any, rows: list[Row], out: dict[str, Any], verdicts: list[Any], filler: Tensor) -> None:
    if not t.args.record_rollouts:
        return
    lengths_B = out["completion_mask"].sum(1)
    if t.args.mask_truncated_completions:  # a truncated response is masked as a whole
        lengths_B = torch.where(lengths_B > 0, lengths_B, (out["completion_ids"] != t.pad_id).sum(1))
    lengths = lengths_B.tolist()
    ids = [row[:n] for row, n in zip(out["completion_ids"].tolist(), lengths, strict=True)]
    keep = [i for i, f in enumerate(filler.tolist()) if not f and ids[i]]
    _store(t, [rows[i] for i in keep], [ids[i] for i in keep], [verdicts[i] for i in keep], greedy=False)


def _record_greedy(t: Any, found: Screened) -> None:
    if t.args.record_rollouts:
        _store(t, found.rows, found.ids, found.verdicts, greedy=True)


def _store(t: Any, rows: list[Row], ids: list[list[int]], verdicts: list[Any], greedy: bool) -> None:
    texts = t.processing_class.batch_decode(ids, skip_special_tokens=True)
    seen: Counter[str] = Counter()
    local = []
    for row, row_ids, text, verdict in zip(rows, ids, texts, verdicts, strict=True):
        local.append((t.problem_id(row), row_ids, *setup.finish(t, row_ids, text), *setup.prompt_of(t, row), verdict))
    responses = []
    for pid, row_ids, text, reason, prompt, n, verdict in t.gather_rows(local):
        index = seen[pid]
        seen[pid] += 1
        responses.append(Response(pid, index, tuple(row_ids), text, reason, prompt, n, verdict))
    if t.recorder is not None:
        t.recorder.add(t.state.global_step, responses, greedy)
