"""Counts from a run folder: reads the verdict columns that are needed, never a response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from limen.errors import DataError, StoreError
from limen.measure.counts import CountTable, StopRule
from limen.store import Run

_GROUPS = """
SELECT policy::VARCHAR AS policy, step, verifier::VARCHAR AS verifier, count(*) AS rows
FROM read_parquet(?) GROUP BY ALL ORDER BY ALL
"""

# A verdict that was written twice with the same outcome counts once; contradicting ones are an error.
_ONE = """
WITH one AS (
    SELECT problem_id::VARCHAR AS problem_id, sample_index, min(outcome::VARCHAR) AS outcome,
           max(outcome::VARCHAR) AS other, bool_or(finish_reason::VARCHAR = 'length') AS truncated
    FROM read_parquet($files) WHERE policy = $policy AND step = $step AND verifier = $verifier
    GROUP BY problem_id, sample_index
)"""

# Under adaptive stopping only the samples up to the r-th success count, in the order of their index.
_CUT = """, kept AS (
    SELECT * FROM one QUALIFY coalesce(sum(CASE WHEN outcome = 'correct' THEN 1 ELSE 0 END) OVER (
        PARTITION BY problem_id ORDER BY sample_index ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < {r}
)"""

_COUNTS = """
SELECT problem_id,
       count(*) FILTER (outcome <> 'unjudged') AS n,
       count(*) FILTER (outcome = 'correct') AS c,
       count(*) FILTER (outcome = 'unjudged') AS unjudged,
       count(*) FILTER (outcome = 'no_answer') AS no_answer,
       count(*) FILTER (truncated AND outcome <> 'unjudged') AS truncated,
       count(*) FILTER (outcome <> other) AS contradicting
FROM {table} GROUP BY problem_id
"""


def counts_from_run(
    path: str | Path, policy: str | None = None, step: int | None = None, verifier: str | None = None
) -> CountTable:
    """Success counts of one policy at one step under one verifier.

    Each may be left out where the run holds only one of it; else the `DataError` lists what is there. Samples
    without a verdict, and those that the verifier could not judge, count as unjudged. In a sampling run every
    problem of the run has a row (n = 0 where nothing is sampled yet), so that pass@k is of the same problems
    for every k; in a training run the rows are the problems that were sampled at that step.
    """
    run = Run.open(path)
    files = [str(f) for f in run.shards("verdicts")]
    if not files:
        raise StoreError(f"{run.path} holds no verdicts: judge it first (`limen verify {run.path}`)")
    with duckdb.connect() as db:
        policy, step, verifier = _pick(db, files, run, policy, step, verifier)
        stop = _stop_rule(run)
        cut = _CUT.format(r=stop.r) if stop else ""
        query = _ONE + cut + _COUNTS.format(table="kept" if stop else "one")
        rows = db.execute(query, {"files": files, "policy": policy, "step": step, "verifier": verifier}).fetchall()
        sampled = {} if stop else _sampled(db, run, policy, step)
    bad = sum(r[6] for r in rows)
    if bad:
        raise DataError(f"{run.path}: {bad} samples have contradicting verdicts of {verifier}: judge the run anew")
    table = _count_table(run, policy, step, verifier, {r[0]: r[1:6] for r in rows}, sampled)
    return replace(table, stop=stop)


def _pick(
    db: duckdb.DuckDBPyConnection,
    files: Sequence[str],
    run: Run,
    policy: str | None,
    step: int | None,
    verifier: str | None,
) -> tuple[str, int, str]:
    """The one (policy, step, verifier) that fits, or an error that lists what is there."""
    groups = db.execute(_GROUPS, [list(files)]).fetchall()
    fits = [
        g
        for g in groups
        if policy in (None, g[0]) and step in (None, g[1]) and verifier in (None, g[2], str(g[2]).split("@")[0])
    ]
    if len(fits) == 1:
        return str(fits[0][0]), int(fits[0][1]), str(fits[0][2])
    listed = "; ".join(f"policy {g[0]!r} step {g[1]} verifier {g[2]} ({g[3]} verdicts)" for g in groups[:12])
    more = f"; and {len(groups) - 12} more" if len(groups) > 12 else ""
    problem = "holds several" if fits else "holds none that fits"
    raise DataError(f"{run.path} {problem}: give policy, step and verifier. It holds: {listed}{more}")


def _stop_rule(run: Run) -> StopRule | None:
    """The rule of an adaptive run: settings `stop_after_successes` and `max_samples` (or `n`)."""
    r = run.settings.get("stop_after_successes")
    if not r:
        return None
    most = run.settings.get("max_samples") or run.settings.get("n")
    if not most:
        raise StoreError(f"{run.path} stops after {r} successes but does not say its largest number of samples")
    return StopRule(int(r), int(most))


def _sampled(db: duckdb.DuckDBPyConnection, run: Run, policy: str, step: int) -> dict[str, int]:
    """Stored rollouts of each problem; empty where the run keeps none (imported verdicts)."""
    files = [str(f) for f in run.shards("rollouts")]
    if not files:
        return {}
    query = """SELECT problem_id::VARCHAR, count(DISTINCT sample_index) FROM read_parquet($files)
               WHERE policy = $policy AND step = $step GROUP BY 1"""
    return dict(db.execute(query, {"files": files, "policy": policy, "step": step}).fetchall())


def _count_table(
    run: Run, policy: str, step: int, verifier: str, rows: dict[str, Sequence[int]], sampled: dict[str, int]
) -> CountTable:
    problems = run.problem_table().select(["problem_id", "task", "prompt_hash"]).to_pylist()
    known = {p["problem_id"]: p for p in problems}
    every = run.info.get("kind") != "train"
    ids = [i for i in known if every or i in rows or i in sampled]
    ids += sorted((set(rows) | set(sampled)) - set(known))
    counts = np.array([rows.get(i, (0, 0, 0, 0, 0)) for i in ids], dtype=np.int64).reshape(len(ids), 5)
    n, c, unjudged, no_answer, truncated = counts.T
    waiting = np.maximum(np.array([sampled.get(i, 0) for i in ids], dtype=np.int64) - n - unjudged, 0)
    notes = []
    if waiting.sum():
        notes.append(f"{run.name}: {int(waiting.sum())} samples have no verdict of {verifier} yet")
    if (n == 0).any():
        notes.append(f"{run.name}: {int((n == 0).sum())} of {len(ids)} problems have no judged sample")
    return CountTable.of(
        run.name if every else f"{run.name} step {step}",
        ids,
        n,
        c,
        unjudged=unjudged + waiting,
        no_answer=no_answer,
        truncated=truncated,
        task=[_text(known, i, "task") for i in ids],
        prompt_hash_P=tuple(_text(known, i, "prompt_hash") for i in ids),
        policy=policy,
        step=step,
        verifier=verifier,
        sampling=_sampling(run),
        notes=tuple(notes),
    )


def _text(known: dict[str, dict[str, Any]], problem: str, key: str) -> str:
    return str(known.get(problem, {}).get(key) or "")


def _sampling(run: Run) -> dict[str, Any]:
    keep = ("temperature", "top_p", "top_k", "max_tokens")
    return {k: v for k, v in run.settings.items() if k in keep}
