"""`score_run`: log-likelihoods of a run's stored responses under a model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds

from limen.engines.needs import require
from limen.engines.protocol import Engine, ScoreRequest
from limen.errors import ConfigError, DataError, StoreError
from limen.model_files import changed, said
from limen.progress import Meter
from limen.store import Run
from limen.store.run import file_lock
from limen.store.schema import score_row
from limen.types import Prompt, Rollout, Score, content_hash

AT_ONCE = 4096
"""Responses that are in memory at one time."""
NOISE_SAMPLE = 64


def score_run(
    path: str | Path,
    engine: Engine,
    scorer: str,
    policy: str | None = None,
    step: int | None = None,
    tokens: bool = False,
    progress: bool = True,
    weights: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Score every stored response of the run (of one policy and step, if given) and append to its `scores`.

    scorer: name under which the scores are kept; what is scored under it already is left out, so that a killed
    scoring goes on. tokens: keep every token's log-probability, not only their sum.
    weights: `limen.model_files.fingerprint` of the engine's model. Scores of one name are all of the same weights.

    Returns what was done: `scored`, `tokens`, `seconds`, `mean_logprob` (mean over the new responses of their
    per-token mean, nats), and the noise floor: `noise_max` and `noise_mean`, the difference of per-token means when
    up to 64 responses are scored one by one instead of in batches.

    Raises `DataError` where a response has no token ids or no stored prompt, `ModelError` for an engine that cannot
    score, `ConfigError` where this name's scores were made with other weights.
    """
    require(engine, {"score": "scoring"})
    run = Run.open(path)
    with ExitStack() as held:
        try:
            held.enter_context(file_lock(run.path / f".score-{content_hash(scorer)}.lock", wait=False))
        except BlockingIOError as error:
            raise StoreError(
                f"{run.path}: another process is scoring this run as '{scorer}': wait for it, or give another name "
                "(--name)"
            ) from error
        if weights:
            _same_weights(run, scorer, weights)
        return _score_run(run, engine, scorer, policy, step, tokens, progress)


def _same_weights(run: Run, scorer: str, weights: Mapping[str, str]) -> None:
    """Keep the weights with the scorer's name, before its first score; refuse others once it has scores."""
    with run.changing() as info:
        kept = info.setdefault("score_weights", {})
        words = changed(kept.get(scorer, weights), weights)
        if words and run.keys("scores", ds.field("scorer") == scorer):
            raise ConfigError(
                f"{run.path}: the scores under '{scorer}' were made with other weights than the model holds now "
                f"({said(words)}): give another name (--name), or bring the weights back"
            )
        kept[scorer] = dict(weights)


def _score_run(
    run: Run, engine: Engine, scorer: str, policy: str | None, step: int | None, tokens: bool, progress: bool
) -> dict[str, Any]:
    where = _filter(policy, step)
    mine = ds.field("scorer") == scorer
    done = run.keys("scores", mine if where is None else mine & where)
    _check_ids(run, where)
    prompts = run.prompts()
    total = run.table("rollouts", ["step"], where).num_rows
    means: list[float] = []
    probe: list[tuple[ScoreRequest, float]] = []
    rollouts = (r for r in run.rollouts(where) if (r.problem_id, r.policy, r.step, r.sample_index) not in done)
    with (
        run.writer("scores", seconds=20.0) as writer,
        Meter(f"scoring {run.name}", total, len(done), progress) as meter,
    ):
        for block in _blocks(rollouts, AT_ONCE):
            requests = [_request(r, prompts, run) for r in block]
            for rollout, request, values in zip(block, requests, engine.score(requests), strict=True):
                score = _score(rollout, scorer, values, tokens)
                writer.append(score_row(score))
                if score.n_tokens:
                    means.append(score.logprob_mean)
                    probe.append((request, score.logprob_mean))
            meter.advance(len(block), sum(len(r.token_ids) for r in requests))
            probe = probe[:NOISE_SAMPLE]
    result = {
        "scorer": scorer,
        "scored": len(means),
        "tokens": meter.tokens,
        "seconds": round(meter.seconds, 3),
        "mean_logprob": float(np.mean(means)) if means else float("nan"),
        **_noise(engine, probe),
    }
    if means:
        with run.changing() as info:
            info.setdefault("scores", {})[scorer] = result
    return result


def _check_ids(run: Run, where: ds.Expression | None) -> None:
    """Refuse responses that are text only, before any is scored."""
    lengths = run.table("rollouts", ["n_tokens"], where)["n_tokens"]
    if lengths.null_count:
        raise DataError(
            f"{run.path}: {lengths.null_count} of {len(lengths)} responses are stored as text only (their engine gave "
            "no token ids), and text tokenised again may not be what was sampled: sample with an engine that returns "
            "token ids (need token_ids)"
        )


def _noise(engine: Engine, probe: Sequence[tuple[ScoreRequest, float]]) -> dict[str, float]:
    """The same responses, alone in their batch."""
    again = [float(engine.score([request])[0].mean(dtype=np.float64)) for request, _ in probe]
    gaps = np.abs(np.array([mean for _, mean in probe]) - np.array(again))
    return {"noise_max": float(gaps.max()), "noise_mean": float(gaps.mean())} if len(gaps) else {}


def _request(rollout: Rollout, prompts: dict[str, Prompt], run: Run) -> ScoreRequest:
    assert rollout.token_ids is not None, "refused before"
    prompt = prompts.get(rollout.problem_id)
    if prompt is None:
        raise DataError(
            f"{run.path}: problem {rollout.problem_id} has no stored prompt, so its responses have no score"
        )
    return ScoreRequest(prompt.token_ids, rollout.token_ids)


def _score(rollout: Rollout, scorer: str, values: Any, tokens: bool) -> Score:
    return Score(
        problem_id=rollout.problem_id,
        policy=rollout.policy,
        step=rollout.step,
        sample_index=rollout.sample_index,
        scorer=scorer,
        logprob_sum=float(values.sum(dtype=np.float64)),
        n_tokens=len(values),
        token_logprobs=tuple(values.tolist()) if tokens else None,
    )


def _filter(policy: str | None, step: int | None) -> ds.Expression | None:
    parts = [ds.field(name) == value for name, value in (("policy", policy), ("step", step)) if value is not None]
    return None if not parts else parts[0] if len(parts) == 1 else parts[0] & parts[1]


def _blocks(rollouts: Iterator[Rollout], size: int) -> Iterator[list[Rollout]]:
    while block := list(itertools.islice(rollouts, size)):
        yield block
