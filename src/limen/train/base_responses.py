"""The base model's responses for the forward KL: drawn once, stored as a run folder, picked anew at every step.

Which of a problem's stored responses are used at a step is a function of (seed, step, problem) alone, so there is no
cursor to lose: a resumed run picks the same ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import torch
from numpy.typing import NDArray
from torch import Tensor

from limen.errors import DataError
from limen.store import Run
from limen.train.recorder import GREEDY
from limen.types import derive_seed

log = logging.getLogger(__name__)

SAMPLER = ("temperature", "top_p", "top_k")
"""Columns of a rollout that say whether it was drawn from the policy as it is (1, 1, 0)."""


@dataclass(frozen=True)
class BaseResponse:
    """One stored response y ~ π_b(.|x). `logprobs`: of π_b, temperature 1, one per token, where they are known."""

    token_ids: NDArray[np.int32]
    correct: bool | None
    logprobs: NDArray[np.float32] | None = None


class BaseResponses:
    """Stored base responses by problem id."""

    def __init__(self, by_problem: Mapping[str, Sequence[BaseResponse]]) -> None:
        self.by_problem = by_problem

    def __len__(self) -> int:
        return sum(len(v) for v in self.by_problem.values())

    def pick(self, step: int, problem_ids: Iterable[str], seed: int, n: int, correct_only: bool) -> list[Picked]:
        """Up to `n` responses (0: all) of each problem, without repetition, the same for the same (seed, step)."""
        picked: list[Picked] = []
        for pid in problem_ids:
            have = [r for r in self.by_problem.get(pid, ()) if r.correct or not correct_only]
            if n and len(have) > n:
                order = np.random.default_rng(derive_seed(seed, "kl", step, pid)).permutation(len(have))[:n]
                have = [have[i] for i in order]
            picked.extend(Picked(pid, r) for r in have)
        return picked


@dataclass(frozen=True)
class Picked:
    problem_id: str
    response: BaseResponse


@dataclass(frozen=True)
class KLBatch:
    """Padded rows of the KL term: prompts left, responses right. `tokens`: response tokens of all processes."""

    prompt_ids_BT: Tensor
    prompt_mask_BT: Tensor
    response_ids_BT: Tensor
    response_mask_BT: Tensor
    base_logprobs_BT: Tensor | None
    tokens: int

    def part(self, i: int, parts: int) -> KLBatch:
        """Rows i, i + parts, ...: the share of one micro-batch."""
        base = None if self.base_logprobs_BT is None else self.base_logprobs_BT[i::parts]
        p, p_mask, y = (x[i::parts] for x in (self.prompt_ids_BT, self.prompt_mask_BT, self.response_ids_BT))
        return KLBatch(p, p_mask, y, self.response_mask_BT[i::parts], base, self.tokens)


def make_batch(
    picked: Sequence[Picked], prompt_ids: Mapping[str, Sequence[int]], pad_id: int, rows: int, device: Any
) -> KLBatch:
    """Pad the picked responses, and fill up with masked rows to a multiple of `rows` (at least `rows`), so that every
    micro-batch of every process has a row. `tokens` counts this process only; the caller adds the others'."""
    prompts = [list(prompt_ids[p.problem_id]) for p in picked]
    answers = [p.response.token_ids.tolist() for p in picked]
    logps = [p.response.logprobs for p in picked]
    missing = max(rows, -(-len(picked) // rows) * rows) - len(picked)
    filler = prompts[0] if prompts else [pad_id]
    prompts += [filler] * missing
    answers += [[pad_id]] * missing
    p_ids, p_mask = _pad(prompts, pad_id, left=True)
    y_ids, y_mask = _pad(answers, pad_id, left=False)
    y_mask[len(picked) :] = 0
    base = None
    if all(x is not None for x in logps):  # also where this process has no rows of its own
        base = torch.zeros(y_ids.shape)
        for i, x in enumerate(logps):
            base[i, : len(x)] = torch.from_numpy(np.asarray(x, dtype=np.float32))  # type: ignore[arg-type]
        base = base.to(device)
    tokens = int(y_mask.sum())
    return KLBatch(p_ids.to(device), p_mask.to(device), y_ids.to(device), y_mask.to(device), base, tokens)


def _pad(rows: Sequence[Sequence[int]], pad_id: int, left: bool) -> tuple[Tensor, Tensor]:
    width = max(len(r) for r in rows)
    ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, row in enumerate(rows):
        span = slice(width - len(row), width) if left else slice(0, len(row))
        ids[i, span] = torch.tensor(row, dtype=torch.long)
        mask[i, span] = 1
    return ids, mask


def load_base(path: str | Path, prompt_hashes: Mapping[str, str], limit: int = 0) -> BaseResponses:
    """Read a run folder that `limen sample` (or a training run before) made with the base model.

    `prompt_hashes`: by training problem id, the hash of the prompt that is trained on ("" if not known). Raises
    `DataError` where no problem is covered, token ids are missing, the prompts were rendered otherwise, or several
    policies are in it. Greedy answers (of a training run's screening) are no samples, and are left out.
    """
    run = Run.open(path)
    data = run.dataset("rollouts")
    if data is None:
        raise DataError(f"{path} holds no rollouts: sample the base model into it first (limen sample --out {path})")
    correct = _verdicts(run)
    found: dict[str, dict[int, BaseResponse]] = {}
    other = 0
    policies, bent = set(), set()
    columns = ["problem_id", "policy", "sample_index", "token_ids", "logprobs", "prompt_hash", *SAMPLER]
    for batch in data.to_batches(columns=columns, filter=ds.field("step") == 0):
        for row in batch.to_pylist():
            pid = row["problem_id"]
            if pid not in prompt_hashes or row["policy"].endswith(GREEDY):
                continue
            policies.add(row["policy"])
            if (drawn := tuple(row[k] for k in SAMPLER)) != (1.0, 1.0, 0):
                bent.add(drawn)
            if row["token_ids"] is None:
                raise DataError(f"{path}: responses without token ids cannot be trained on; sample with another engine")
            if prompt_hashes[pid] not in ("", row["prompt_hash"]):
                other += 1
                continue
            logps = None if row["logprobs"] is None else np.asarray(row["logprobs"], dtype=np.float32)
            verdict = correct.get((pid, row["policy"], row["sample_index"]))
            response = BaseResponse(np.asarray(row["token_ids"], dtype=np.int32), verdict, logps)
            if len(response.token_ids):
                found.setdefault(pid, {})[row["sample_index"]] = response
    if not found:
        why = "their prompts were rendered with another template" if other else "it has other problems"
        raise DataError(f"{path} holds no base responses of the training problems: {why}")
    if len(policies) > 1:
        raise DataError(f"{path} holds several policies ({', '.join(sorted(policies))}): give a run of the base alone")
    if bent:
        log.warning("%s was drawn at temperature, top_p, top_k = %s, not from the base itself: the forward KL is to "
                    "that distribution", path, "; ".join(map(str, sorted(bent))))  # fmt: skip
    ordered = {pid: [rows[i] for i in sorted(rows)] for pid, rows in found.items()}
    return BaseResponses({pid: rows[:limit] if limit else rows for pid, rows in ordered.items()})


def _verdicts(run: Run) -> dict[tuple[str, str, int], bool | None]:
    """Correct or not by (problem, policy, sample); the last verdict counts, unjudged is None."""
    table = run.table("verdicts", ["problem_id", "policy", "sample_index", "outcome"], ds.field("step") == 0)
    rows = zip(*(table.column(i).to_pylist() for i in range(4)), strict=True)
    return {(p, policy, i): None if o == "unjudged" else o == "correct" for p, policy, i, o in rows}
