"""How far the verdicts can be trusted: reasons for giving up, deliberate noise, and other verifiers' opinions."""

from __future__ import annotations

import duckdb

from limen.report.model import Opinion, VerdictHealth
from limen.store import Run

_MINE = "FROM read_parquet($files) WHERE policy = $policy AND step = $step"
_RULES = f"""SELECT outcome::VARCHAR = 'unjudged' AS lost, rule::VARCHAR AS rule, count(*) AS n
{_MINE} AND verifier = $verifier GROUP BY 1, 2 ORDER BY n DESC, rule"""
_NOISE = f"""SELECT count(*) FILTER (outcome = 'correct'), count(*) FILTER (true_outcome = 'correct')
{_MINE} AND verifier = $verifier AND true_outcome IS NOT NULL
AND (outcome = 'correct') <> (true_outcome = 'correct')"""
_OTHERS = f"""
WITH a AS (SELECT problem_id::VARCHAR AS p, sample_index AS j, verifier::VARCHAR AS v, any_value(outcome::VARCHAR) AS o
           {_MINE} GROUP BY 1, 2, 3)
SELECT y.v, count(*), count(*) FILTER (x.o = 'correct' AND y.o <> 'correct'),
       count(*) FILTER (x.o <> 'correct' AND y.o = 'correct')
FROM a x JOIN a y ON x.p = y.p AND x.j = y.j AND x.v = $verifier AND y.v <> $verifier
WHERE x.o <> 'unjudged' AND y.o <> 'unjudged' GROUP BY 1 ORDER BY 1"""


def read_health(run: Run, policy: str, step: int, verifier: str) -> VerdictHealth:
    """Of one (policy, step) under `verifier`. Reads verdict columns only."""
    files = [str(f) for f in run.shards("verdicts")]
    if not files:
        return VerdictHealth()
    key = {"files": files, "policy": policy, "step": step}
    with duckdb.connect() as db:
        rows = db.execute(_RULES, {**key, "verifier": verifier}).fetchall()
        positives, negatives = db.execute(_NOISE, {**key, "verifier": verifier}).fetchall()[0]
        others = db.execute(_OTHERS, {**key, "verifier": verifier}).fetchall()
    return VerdictHealth(
        rules={rule or "no rule": n for lost, rule, n in rows if not lost},
        reasons={rule or "no reason": n for lost, rule, n in rows if lost},
        false_positives=int(positives),
        false_negatives=int(negatives),
        opinions=tuple(Opinion(*row) for row in others),
    )
