"""Log-probabilities of the shown responses, under the policy that drew them and under any scorer, token by token."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from limen.report.model import Response
from limen.store import Run

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_TOKENS = 1024
"""Tokens that are coloured; of a longer response its beginning."""
COLOURED = 2
"""Responses per problem and policy that carry one number per token."""

_CHOSEN = """FROM read_parquet($files) r
JOIN chosen c ON r.problem_id = c.problem_id AND r.sample_index = c.sample_index
WHERE r.policy = $policy AND r.step = $step"""
_SCORES = f"""SELECT r.problem_id::VARCHAR, r.sample_index, scorer::VARCHAR, logprob_sum, n_tokens, token_logprobs
{_CHOSEN}"""
_TOKENS = f"SELECT r.problem_id::VARCHAR, r.sample_index, r.token_ids, r.logprobs {_CHOSEN}"


def add_likelihoods(
    run: Run, policy: str, step: int, responses: dict[str, list[Response]]
) -> dict[str, list[Response]]:
    """The responses with `scores` (nats per token, by scorer) and, for the first ones, one number per token."""
    scores, rollouts = run.shards("scores"), run.shards("rollouts")
    own = bool(run.settings.get("logprobs")) and bool(rollouts)
    if not responses or not (scores or own):
        return responses
    keys = [(p, r.sample_index) for p, rs in responses.items() for r in rs]
    chosen = pa.table({"problem_id": [k[0] for k in keys], "sample_index": [k[1] for k in keys]})
    found: dict[tuple[str, int], dict[str, tuple[float, Sequence[float]]]] = {k: {} for k in keys}
    ids: dict[tuple[str, int], Sequence[int]] = {}
    with duckdb.connect() as db:
        db.register("chosen", chosen)
        base = {"policy": policy, "step": step}
        if scores:
            for p, j, name, total, n, each in db.execute(_SCORES, {**base, "files": _names(scores)}).fetchall():
                found[p, j][name] = (total / n if n else math.nan, each or ())
        if rollouts:
            for p, j, tokens, logprobs in db.execute(_TOKENS, {**base, "files": _names(rollouts)}).fetchall():
                ids[p, j] = tokens or ()
                if logprobs:
                    found[p, j].setdefault(policy, (math.fsum(logprobs) / len(logprobs), logprobs))
    tokenizer = find_tokenizer(run)
    out: dict[str, list[Response]] = {}
    for p, rs in responses.items():
        own_ids = [ids.get((p, r.sample_index), ()) for r in rs]
        out[p] = [
            _with(r, found[p, r.sample_index], tokens, tokenizer, i < COLOURED)
            for i, (r, tokens) in enumerate(zip(rs, own_ids, strict=True))
        ]
    return out


def _with(
    r: Response,
    found: Mapping[str, tuple[float, Sequence[float]]],
    ids: Sequence[int],
    tokenizer: Tokenizer | None,
    coloured: bool,
) -> Response:
    means = {name: mean for name, (mean, _) in found.items()}
    whole = {name: tokens for name, (_, tokens) in found.items() if tokens and len(tokens) == len(ids)}
    each = {name: list(tokens[:MAX_TOKENS]) for name, tokens in whole.items()}
    if not coloured or not each:
        return replace(r, scores=means)
    return replace(r, scores=means, token_scores=each, pieces=split_tokens(tokenizer, ids[:MAX_TOKENS]))


def find_tokenizer(run: Run) -> Tokenizer | None:
    """The tokenizer of the run's model, if the model is a folder that is still there. Reads JSON, runs nothing."""
    model = run.settings.get("model")
    file = Path(str(model)) / "tokenizer.json"
    if not isinstance(model, str) or not file.is_file():
        return None
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(file))
    except Exception:  # noqa: BLE001 (the library raises bare Exception for every fault of the file)
        return None


def split_tokens(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Text of each token, with the spaces that a decoder puts between it and the one before.

    Without a tokenizer the ids themselves, in brackets.
    """
    if tokenizer is None:
        return [f"[{i}]" for i in ids]

    def text(*tokens: int) -> str:
        return str(tokenizer.decode(list(tokens), skip_special_tokens=False))

    pieces = [text(token) for token in ids[:1]]
    for last, token in pairwise(ids):
        before, both = text(last), text(last, token)
        pieces.append(both[len(before) :] if both.startswith(before) else text(token))
    return pieces


def _names(files: Sequence[Path]) -> list[str]:
    return [str(f) for f in files]
