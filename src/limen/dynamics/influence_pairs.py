"""Training samples and probe pairs out of run folders, and the coefficients of a policy-gradient step on the former."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow.dataset as ds
import torch
from torch import Tensor

from limen.dynamics.influence_gradients import Pair, Reduce
from limen.dynamics.influence_step import Batch
from limen.errors import DataError, StoreError
from limen.store import Run
from limen.types import content_hash

Advantages = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(rewards_PG, correct_PG) -> (advantages_PG, active_PG); NaN where a response is unjudged or missing."""

BINARY: Mapping[str, float | None] = {"correct": 1.0, "wrong": 0.0, "no_answer": 0.0, "unjudged": None}

Normaliser = Literal["tokens", "responses"] | int
"""The loss's denominator: all tokens of the batch (`dapo`, the default of training), a mean of per-response means
(`grpo`), or a number of tokens for each response (`dr_grpo`)."""


def read_pairs(
    path: str | Path,
    policy: str | None = None,
    step: int | None = None,
    verifier: str | None = None,
    reward: Mapping[str, float | None] = BINARY,
) -> list[Pair]:
    """Stored responses of one policy and step with their verdicts, ordered by (problem, sample index).

    policy: a training run's own unless given. Raises `StoreError` without rollouts or verdicts, `DataError` where
    policy, step or verifier is open, or a response has no token ids or prompt.
    """
    run = Run.open(path)
    if policy is None and run.info.get("kind") == "train":
        policy = str(run.settings.get("name") or run.name)
    where = _where(policy, step)
    verdicts = _verdicts(run, where, verifier)
    prompts = run.prompts()
    found: dict[str, list[tuple[int, Pair]]] = defaultdict(list)
    origins = set()
    for r in run.rollouts(where):
        origins.add((r.policy, r.step))
        prompt = prompts.get(r.problem_id)
        if r.token_ids is None or prompt is None:
            raise DataError(f"{run.path}: response {r.id} has no token ids or no stored prompt, so it has no gradient")
        outcome = verdicts.get(r.id, "unjudged")
        value = reward.get(outcome)
        pair = Pair(r.id, r.problem_id, tuple(prompt.token_ids), tuple(r.token_ids), r.text,
                    {"correct": True, "wrong": False, "no_answer": False}.get(outcome),
                    float("nan") if value is None else value)  # fmt: skip
        if pair.token_ids:
            found[r.problem_id].append((r.sample_index, pair))
    if not found:
        raise StoreError(f"{run.path} holds no responses of policy {policy!r} at step {step}: sample it first")
    if len(origins) > 1:
        listed = "; ".join(f"policy {p!r} step {s}" for p, s in sorted(origins)[:12])
        raise DataError(f"{run.path} holds several policies or steps: give one of them. It holds: {listed}")
    return [pair for id in sorted(found) for _, pair in sorted(found[id], key=lambda item: item[0])]


def training_steps(path: str | Path) -> list[int]:
    """Steps at which the run's own policy has rollouts, sorted."""
    run = Run.open(path)
    policy = str(run.settings.get("name") or run.name) if run.info.get("kind") == "train" else None
    steps: list[int] = run.table("rollouts", ["step"], _where(policy, None)).column("step").unique().to_pylist()
    return sorted(steps)


def choose_groups(pairs: Sequence[Pair], most: int | None, seed: int = 0) -> list[Pair]:
    """Whole groups (all responses to a problem) of at most `most` responses, groups with differing rewards first.

    A group of equal rewards has no gradient. The order of problems is a hash of (seed, problem).
    """
    groups = _groups(pairs)

    def spread(id: str) -> bool:
        return len({p.reward for p in groups[id] if p.reward == p.reward}) > 1

    chosen: list[Pair] = []
    for id in sorted(groups, key=lambda id: (not spread(id), content_hash([seed, id]))):
        if most is None or len(chosen) + len(groups[id]) <= most:
            chosen += groups[id]
    if not chosen:
        size = min(len(g) for g in groups.values())
        raise DataError(
            f"at most {most} training samples are asked for, but the smallest group has {size}: ask for more"
        )
    return chosen


def choose_probe(pairs: Sequence[Pair], most: int | None, each: int = 4, seed: int = 0) -> list[Pair]:
    """The first `each` responses of every problem (4 in RBP), of as many problems as `most` pairs allow."""
    groups = _groups(pairs)
    chosen: list[Pair] = []
    for id in sorted(groups, key=lambda id: content_hash([seed, id])):
        part = groups[id][:each]
        if most is None or len(chosen) + len(part) <= most:
            chosen += part
    if len(chosen) < 2:
        raise DataError(f"only {len(chosen)} probe pairs are left of {len(pairs)} (at most {most}): ask for more")
    return chosen


def policy_batch(
    pairs: Sequence[Pair],
    advantages: Advantages,
    reduce: Reduce = "mean",
    normaliser: Normaliser = "tokens",
    clip: float = 0.0,
) -> Batch:
    """The policy-gradient step on these responses, on policy (every ratio 1): Σ_i c_i log π(y_i|x_i) is climbed.

    With S_i the sum over the response's tokens: c_i S_i = A_i S_i / Σ_active |y| (`tokens`), A_i S_i / (|y_i| N_active)
    (`responses`) or A_i S_i / (N L) (a number L). Raises `DataError` where no group has differing rewards: such a
    batch has no gradient.
    """
    groups = list(_groups(pairs).values())
    width = max(len(g) for g in groups)
    reward_PG = torch.full((len(groups), width), float("nan"))
    correct_PG = torch.full((len(groups), width), float("nan"))
    for i, group in enumerate(groups):
        reward_PG[i, : len(group)] = torch.tensor([p.reward for p in group])
        known = [float("nan") if p.correct is None else float(p.correct) for p in group]
        correct_PG[i, : len(group)] = torch.tensor(known)
    advantage_PG, active_PG = advantages(reward_PG, correct_PG)
    ordered = [p for g in groups for p in g]
    advantage_N = torch.cat([advantage_PG[i, : len(g)] for i, g in enumerate(groups)]).double()
    active_N = torch.cat([active_PG[i, : len(g)] for i, g in enumerate(groups)])
    tokens_N = torch.tensor([len(p.token_ids) for p in ordered], dtype=torch.float64)
    if not bool((advantage_N[active_N] != 0).any()):
        raise DataError("no group of these training samples has differing rewards: the step has no gradient; take more")
    if normaliser == "tokens":
        per_sum_N = advantage_N * active_N / (tokens_N * active_N).sum()
    elif normaliser == "responses":
        per_sum_N = advantage_N * active_N / tokens_N / active_N.sum()
    else:
        per_sum_N = advantage_N * active_N / (len(ordered) * normaliser)
    return Batch(ordered, per_sum_N * tokens_N if reduce == "mean" else per_sum_N, clip)


def with_reward(pairs: Sequence[Pair], reward_N: Sequence[float]) -> list[Pair]:
    """The same pairs with other rewards."""
    return [replace(p, reward=r) for p, r in zip(pairs, reward_N, strict=True)]


def _groups(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    groups: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[pair.problem_id].append(pair)
    return groups


def _where(policy: str | None, step: int | None) -> ds.Expression | None:
    parts = [ds.field(name) == value for name, value in (("policy", policy), ("step", step)) if value is not None]
    return None if not parts else parts[0] if len(parts) == 1 else parts[0] & parts[1]


def _verdicts(run: Run, where: ds.Expression | None, verifier: str | None) -> dict[str, str]:
    table = run.table("verdicts", ["rollout_id", "verifier", "outcome"], where)
    rows = table.to_pylist()
    names = sorted({r["verifier"] for r in rows if verifier in (None, r["verifier"], r["verifier"].split("@")[0])})
    if not names:
        raise StoreError(f"{run.path} holds no verdicts that fit: judge it first (`limen verify {run.path}`)")
    if len(names) > 1:
        raise DataError(f"{run.path} holds verdicts of {', '.join(names)}: give one of them as the verifier")
    return {r["rollout_id"]: r["outcome"] for r in rows if r["verifier"] == names[0]}
