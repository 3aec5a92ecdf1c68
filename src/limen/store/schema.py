"""Columns of the tables in a run folder, and records to rows and back.

Every table but `problems` begins with the four columns that name a rollout, so that verdicts and scores are
measured without touching the (much larger) rollouts.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from limen.types import Problem, Prompt, Rollout, SamplingParams, Score, Verdict, rollout_id

SCHEMA_VERSION = 1

_WORD = pa.dictionary(pa.int32(), pa.string())
_KEY = [
    pa.field("problem_id", _WORD),
    pa.field("policy", _WORD),
    pa.field("step", pa.int32()),
    pa.field("sample_index", pa.int32()),
]

PROBLEMS = pa.schema(
    [
        pa.field("problem_id", pa.string()),
        pa.field("problem", pa.string()),
        pa.field("answer", pa.string()),
        pa.field("task", pa.string()),
        pa.field("source", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("prompt_text", pa.string()),
        pa.field("prompt_ids", pa.list_(pa.int32())),
        pa.field("prompt_hash", pa.string()),
    ]
)

ROLLOUTS = pa.schema(
    [
        *_KEY,
        pa.field("rollout_id", pa.string()),
        pa.field("seed", pa.int64()),
        pa.field("token_ids", pa.list_(pa.int32())),
        pa.field("text", pa.string()),
        pa.field("finish_reason", _WORD),
        pa.field("n_tokens", pa.int32()),
        pa.field("n_prompt_tokens", pa.int32()),
        pa.field("prompt_hash", _WORD),
        pa.field("temperature", pa.float64()),
        pa.field("top_p", pa.float64()),
        pa.field("top_k", pa.int32()),
        pa.field("max_tokens", pa.int32()),
        pa.field("stop", pa.list_(pa.string())),
        pa.field("engine", _WORD),
        pa.field("logprobs", pa.list_(pa.float32())),
    ]
)

VERDICTS = pa.schema(
    [
        *_KEY,
        pa.field("rollout_id", pa.string()),
        pa.field("verifier", _WORD),
        pa.field("outcome", _WORD),
        pa.field("answer", pa.string()),
        pa.field("rule", _WORD),
        pa.field("true_outcome", _WORD),
        pa.field("finish_reason", _WORD),
    ]
)

SCORES = pa.schema(
    [
        *_KEY,
        pa.field("rollout_id", pa.string()),
        pa.field("scorer", _WORD),
        pa.field("logprob_sum", pa.float64()),
        pa.field("n_tokens", pa.int32()),
        pa.field("token_logprobs", pa.list_(pa.float32())),
    ]
)

TABLES = {"rollouts": ROLLOUTS, "verdicts": VERDICTS, "scores": SCORES}


def problem_row(problem: Problem, prompt: Prompt | None) -> dict[str, Any]:
    return {
        "problem_id": problem.id,
        "problem": problem.problem,
        "answer": problem.answer,
        "task": problem.task,
        "source": problem.source,
        "metadata": json.dumps(dict(problem.metadata), sort_keys=True),
        "prompt_text": prompt.text if prompt else None,
        "prompt_ids": list(prompt.token_ids) if prompt else None,
        "prompt_hash": prompt.hash if prompt else None,
    }


def row_problem(row: dict[str, Any]) -> Problem:
    return Problem(
        id=row["problem_id"],
        problem=row["problem"],
        answer=row["answer"],
        task=row["task"],
        source=row["source"],
        metadata=json.loads(row["metadata"] or "{}"),
    )


def row_prompt(row: dict[str, Any]) -> Prompt | None:
    if row["prompt_text"] is None:
        return None
    return Prompt(row["problem_id"], row["prompt_text"], tuple(row["prompt_ids"]), row["prompt_hash"])


def rollout_row(r: Rollout) -> dict[str, Any]:
    return {
        **_key(r),
        "seed": r.seed,
        "token_ids": None if r.token_ids is None else list(r.token_ids),
        "text": r.text,
        "finish_reason": r.finish_reason,
        "n_tokens": None if r.token_ids is None else len(r.token_ids),
        "n_prompt_tokens": r.n_prompt_tokens,
        "prompt_hash": r.prompt_hash,
        "temperature": r.params.temperature,
        "top_p": r.params.top_p,
        "top_k": r.params.top_k,
        "max_tokens": r.params.max_tokens,
        "stop": list(r.params.stop),
        "engine": r.engine,
        "logprobs": None if r.logprobs is None else list(r.logprobs),
    }


def row_rollout(row: dict[str, Any]) -> Rollout:
    return Rollout(
        problem_id=row["problem_id"],
        policy=row["policy"],
        step=row["step"],
        sample_index=row["sample_index"],
        seed=row["seed"],
        token_ids=None if row["token_ids"] is None else tuple(row["token_ids"]),
        text=row["text"],
        finish_reason=row["finish_reason"],
        prompt_hash=row["prompt_hash"],
        n_prompt_tokens=row["n_prompt_tokens"],
        params=SamplingParams(
            row["temperature"], row["top_p"], row["top_k"], row["max_tokens"], tuple(row["stop"] or ())
        ),
        engine=row["engine"],
        logprobs=None if row["logprobs"] is None else tuple(row["logprobs"]),
    )


def verdict_row(r: Rollout, v: Verdict) -> dict[str, Any]:
    return {
        **_key(r),
        "verifier": v.verifier,
        "outcome": v.outcome,
        "answer": v.answer,
        "rule": v.rule,
        "true_outcome": v.true_outcome,
        "finish_reason": r.finish_reason,
    }


def score_row(s: Score) -> dict[str, Any]:
    return {
        **_key(s),
        "scorer": s.scorer,
        "logprob_sum": s.logprob_sum,
        "n_tokens": s.n_tokens,
        "token_logprobs": None if s.token_logprobs is None else list(s.token_logprobs),
    }


def _key(r: Rollout | Score) -> dict[str, Any]:
    return {
        "problem_id": r.problem_id,
        "policy": r.policy,
        "step": r.step,
        "sample_index": r.sample_index,
        "rollout_id": rollout_id(r.problem_id, r.policy, r.step, r.sample_index),
    }
