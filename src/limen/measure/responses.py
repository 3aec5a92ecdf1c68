"""Length, truncation, reasoning modes and token entropy of a run's responses, per problem."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from limen.errors import DataError
from limen.measure.passk import Floats
from limen.measure.reader import RunReader

CODE = "python"
"""A response is *code* if this pattern is found in it, else *language* (RBP appendix I)."""

# Rollouts beside their verdicts, by the key that names a sample; text is only looked at, never kept.
_RESPONSES = """
WITH v AS (SELECT problem_id::VARCHAR AS problem_id, sample_index, outcome FROM {source}),
     r AS (SELECT problem_id::VARCHAR AS problem_id, sample_index, n_tokens, finish_reason = 'length' AS cut,
                  regexp_matches(text, $pattern) AS code, list_avg(logprobs) AS mean_logprob,
                  temperature = 1 AND top_p >= 1 AND top_k = 0 AS whole
           FROM read_parquet($rollouts) WHERE policy = $policy AND step = $step)
SELECT problem_id,
       avg(n_tokens), avg(n_tokens) FILTER (outcome = 'correct'), avg(n_tokens) FILTER (outcome <> 'correct'),
       avg(cut::INT), avg(code::INT),
       avg((outcome = 'correct')::INT) FILTER (code), avg((outcome = 'correct')::INT) FILTER (NOT code),
       CASE WHEN bool_and(whole) AND count(mean_logprob) = count(*) THEN -avg(mean_logprob) END,
       bool_and(whole), count(*)
FROM v JOIN r USING (problem_id, sample_index) WHERE outcome <> 'unjudged' GROUP BY problem_id
"""
_NAMES = (
    "tokens",
    "tokens_correct",
    "tokens_not_correct",
    "truncated",
    "code_share",
    "accuracy_code",
    "accuracy_language",
    "token_entropy",
)


@dataclass(frozen=True)
class ResponseTable:
    """Per problem, shape (P,); NaN where a problem has none of it (no correct response, no code response).

    tokens: mean length (also of the correct and of the other responses); truncated: share cut off at the limit;
    code_share: share alpha(x) of responses in code mode; accuracy_code, accuracy_language: success rate in each
    mode; token_entropy: mean over a response's tokens of -log p of the token that was drawn, then over responses.
    why: reasons for columns that are NaN throughout.
    """

    problem_ids: tuple[str, ...]
    columns: dict[str, Floats]
    why: dict[str, str] = field(default_factory=dict)


def responses_from_run(
    path: str | Path,
    policy: str | None = None,
    step: int | None = None,
    verifier: str | None = None,
    pattern: str = CODE,
) -> ResponseTable | None:
    """Judged responses of one policy at one step, as `counts_from_run` picks it; None where the run keeps none.

    Token entropy needs log-probabilities stored at sampling, and sampling at temperature 1 without top-p or
    top-k: the tokens are then drawn from the very distribution whose entropy is meant, so that -log p of a drawn
    token estimates it without the other 100,000 probabilities.
    """
    try:
        re.compile(pattern)
    except re.error as error:
        raise DataError(f"the mode pattern {pattern!r} is not a regular expression: {error}") from error
    with RunReader(path, policy, step, verifier) as reader:
        files = [str(f) for f in reader.run.shards("rollouts")]
        if not files:
            return None
        rows = reader.query(_RESPONSES, rollouts=files, pattern=pattern)
        ids = reader.problem_ids({r[0] for r in rows})
    found = {r[0]: r[1:9] for r in rows}
    blank = (None,) * len(_NAMES)
    table = np.array([found.get(i, blank) for i in ids], dtype=np.float64).reshape(len(ids), len(_NAMES))
    why = {}
    if np.isnan(table[:, 0]).all():
        why["tokens"] = "the run holds text without token ids"
    if np.isnan(table[:, 7]).all():
        whole = all(r[9] for r in rows)
        why["token_entropy"] = (
            "no log-probabilities were stored (sample with logprobs)"
            if whole
            else "not sampled at temperature 1 without top-p and top-k, so drawn tokens do not estimate it"
        )
    return ResponseTable(tuple(ids), dict(zip(_NAMES, table.T)), why)
