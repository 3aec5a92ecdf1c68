"""Which responses are shown beside a problem, and what the stored samples look like as a whole.

Texts are never all read at once: the choice is made on the verdicts, and only the chosen texts are fetched.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import duckdb

from limen.report.likelihood import add_likelihoods
from limen.report.model import Lengths, Response
from limen.store import Run

MAX_CHARS = 6000
"""Longer responses are cut in the middle: two thirds from the beginning, one third from the end."""
MAX_ANSWERS = 6

# A verdict that was written twice counts once.
_VERDICTS = """
WITH v AS (
    SELECT problem_id::VARCHAR AS problem_id, sample_index, any_value(outcome::VARCHAR) AS outcome,
           any_value(answer) AS answer, any_value(rule::VARCHAR) AS rule
    FROM read_parquet($verdicts) WHERE policy = $policy AND step = $step AND verifier = $verifier
    GROUP BY problem_id, sample_index
)
"""
# Of right and wrong samples in turn, those with an answer not yet shown first.
_CHOSEN = (
    _VERDICTS
    + """, fresh AS (
    SELECT *, row_number() OVER (PARTITION BY problem_id, outcome, answer ORDER BY sample_index) AS again FROM v
), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY problem_id, outcome = 'correct' ORDER BY again, sample_index) AS turn
    FROM fresh
), chosen AS (
    SELECT * FROM ranked
    QUALIFY row_number() OVER (PARTITION BY problem_id ORDER BY turn, outcome <> 'correct', sample_index) <= $most
)
SELECT c.problem_id, c.sample_index, c.outcome, c.answer, c.rule, r.finish_reason::VARCHAR, r.n_tokens,
       left(r.text, $head) AS head, right(r.text, $tail) AS tail, length(r.text) AS chars
FROM chosen c JOIN read_parquet($rollouts) r
  ON r.problem_id = c.problem_id AND r.sample_index = c.sample_index AND r.policy = $policy AND r.step = $step
ORDER BY c.problem_id, c.turn, c.outcome <> 'correct', c.sample_index
"""
)
_ANSWERS = (
    _VERDICTS
    + """
, counted AS (SELECT problem_id, left(answer, 200) AS said, outcome, count(*) AS n FROM v GROUP BY ALL)
SELECT problem_id, said, outcome, n FROM counted
QUALIFY row_number() OVER (PARTITION BY problem_id ORDER BY n DESC, said, outcome) <= $answers
ORDER BY problem_id, n DESC, said, outcome
"""
)
_SEEDS = """
SELECT count(*) - count(DISTINCT (problem_id, seed)) FROM read_parquet($rollouts)
WHERE policy = $policy AND step = $step
"""
_LENGTHS = (
    _VERDICTS
    + """
SELECT v.outcome = 'correct' AS right, count(*), avg(r.n_tokens),
       quantile_cont(r.n_tokens, [0.05, 0.25, 0.5, 0.75, 0.95])
FROM v JOIN read_parquet($rollouts) r
  ON r.problem_id = v.problem_id AND r.sample_index = v.sample_index AND r.policy = $policy AND r.step = $step
WHERE r.n_tokens IS NOT NULL AND v.outcome <> 'unjudged' GROUP BY 1 ORDER BY 1 DESC
"""
)


@dataclass(frozen=True, slots=True)
class Samples:
    """Of one policy: chosen responses and commonest (answer, outcome, count) by problem id; token lengths."""

    responses: dict[str, list[Response]]
    answers: dict[str, list[tuple[str, str, int]]]
    lengths: tuple[Lengths, ...] = ()
    repeated_seeds: int = 0


def read_samples(run: Run, index: int, policy: str, step: int, verifier: str, most: int) -> Samples:
    """Samples of (policy, step) in a run, judged by `verifier`; `index` is the policy's place in the report."""
    verdicts, rollouts = ([str(f) for f in run.shards(t)] for t in ("verdicts", "rollouts"))
    key = {"policy": policy, "step": step}
    responses: dict[str, list[Response]] = defaultdict(list)
    answers: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
    with duckdb.connect() as db:
        judged = {**key, "verdicts": verdicts, "verifier": verifier}
        if verdicts:
            for problem, answer, outcome, n in db.execute(_ANSWERS, {**judged, "answers": MAX_ANSWERS}).fetchall():
                answers[problem].append((answer or "", outcome, n))
        if not rollouts:
            return Samples({}, dict(answers))
        if verdicts and most > 0:
            head, tail = 2 * MAX_CHARS // 3, MAX_CHARS // 3
            more = {"rollouts": rollouts, "most": most, "head": MAX_CHARS, "tail": tail}
            for row in db.execute(_CHOSEN, {**judged, **more}).fetchall():
                responses[row[0]].append(_response(index, step, head, row))
        repeated = db.execute(_SEEDS, {**key, "rollouts": rollouts}).fetchall()[0][0]
        rows = db.execute(_LENGTHS, {**judged, "rollouts": rollouts}).fetchall() if verdicts else []
    lengths = tuple(Lengths("correct" if right else "not correct", n, mean, *q) for right, n, mean, q in rows)
    scored = add_likelihoods(run, policy, step, dict(responses))
    return Samples(scored, dict(answers), lengths, int(repeated))


def _response(index: int, step: int, head: int, row: tuple[Any, ...]) -> Response:
    _, sample, outcome, answer, rule, finish, tokens, text, end, chars = row
    text, cut = text or "", int(chars or 0) > MAX_CHARS
    return Response(
        policy=index,
        sample_index=sample,
        outcome=outcome,
        answer=(answer or "")[:1000],
        rule=rule or "",
        finish=finish or "",
        tokens=tokens,
        text=text[:head] + end if cut else text,
        left_out=chars - head - len(end) if cut else 0,
        cut_at=head if cut else 0,
        step=step,
    )
