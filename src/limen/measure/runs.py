"""Counts from a run folder: reads the verdict columns that are needed, never a response."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from limen.errors import DataError, StoreError
from limen.measure.counts import CountTable, StopRule
from limen.store import Run

_GROUPS = """
SELECT policy::VARCHAR AS policy, step, verifier::VARCHAR AS verifier, count(*) AS rows,
       min(sample_index) AS least, max(sample_index) AS most
FROM read_parquet($files) GROUP BY ALL ORDER BY ALL
"""
_WHERE = "FROM read_parquet($files) WHERE policy = $policy AND step = $step"
_COUNTS = """
SELECT problem_id::VARCHAR AS problem_id,
       count(*) FILTER (outcome <> 'unjudged') AS n,
       count(*) FILTER (outcome = 'correct') AS c,
       count(*) FILTER (outcome = 'unjudged') AS unjudged,
       count(*) FILTER (outcome = 'no_answer') AS no_answer,
       count(*) FILTER (finish_reason = 'length' AND outcome <> 'unjudged') AS truncated
FROM {source} GROUP BY problem_id
"""
_REPEATS = "SELECT problem_id::VARCHAR AS problem_id, count(*) - {distinct} AS repeats {where} GROUP BY problem_id"
_BITS = "bit_count(bitstring_agg(sample_index, {least}, {most}))"

# Slower: each sample once. A verdict that was written twice with one outcome counts once; contradicting ones raise.
_ONCE = """(
    SELECT problem_id, sample_index, min(outcome::VARCHAR) AS outcome, max(outcome::VARCHAR) AS other,
           max(finish_reason::VARCHAR) AS finish_reason
    {where} GROUP BY problem_id, sample_index)"""

# Under adaptive stopping only the samples up to the r-th success count, in the order of their index.
_CUT = """(
    SELECT * FROM {source} QUALIFY coalesce(sum(CASE WHEN outcome = 'correct' THEN 1 ELSE 0 END) OVER (
        PARTITION BY problem_id ORDER BY sample_index ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < {r})"""


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
    with database() as db:
        group = _pick(db, files, run, policy, step, verifier)
        stop = _stop_rule(run)
        rows = _counts(db, files, run, group, stop)
        sampled = {} if stop else _sampled(db, run, group)
    table = _count_table(run, group.policy, group.step, group.verifier, rows, sampled)
    return replace(table, stop=stop)


@contextmanager
def database(memory: str = "1GB") -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB in memory, spilling to a temporary folder beyond `memory`."""
    with tempfile.TemporaryDirectory(prefix="limen-") as folder, duckdb.connect() as db:
        db.execute(f"SET memory_limit = '{memory}'")
        db.execute("SET temp_directory = ?", [folder])
        db.execute("SET preserve_insertion_order = false")
        yield db


@dataclass(frozen=True)
class Group:
    """The verdicts of one policy at one step by one verifier; least and most: range of their sample indices."""

    policy: str
    step: int
    verifier: str
    rows: int
    least: int
    most: int

    @property
    def key(self) -> dict[str, Any]:
        return {"policy": self.policy, "step": self.step}


def _counts(
    db: duckdb.DuckDBPyConnection, files: list[str], run: Run, group: Group, stop: StopRule | None
) -> dict[str, Sequence[int]]:
    """(n, c, unjudged, no_answer, truncated) of each problem that has verdicts."""
    values = {"files": files, **group.key, "verifier": group.verifier}
    where = f"{_WHERE} AND verifier = $verifier"
    source = f"(SELECT * {where})"
    if _repeats(db, where, values, group):
        source = _ONCE.format(where=where)
        both = db.execute(f"SELECT count(*) FROM {source} WHERE outcome <> other", values).fetchone()
        if both and both[0]:
            raise DataError(
                f"{run.path}: {both[0]} samples have contradicting verdicts of {group.verifier}: judge the run anew"
            )
    if stop:
        source = _CUT.format(source=source, r=stop.r)
    return {row[0]: row[1:] for row in db.execute(_COUNTS.format(source=source), values).fetchall()}


def _repeats(db: duckdb.DuckDBPyConnection, where: str, values: dict[str, Any], group: Group) -> bool:
    """Whether a sample has more than one row: one bit a sample, or exactly where the indices are far apart."""
    wide = group.most - group.least > 64 * max(group.rows, 1024)
    distinct = "count(DISTINCT sample_index)" if wide else _BITS.format(least=group.least, most=group.most)
    query = _REPEATS.format(distinct=distinct, where=where)
    found = db.execute(f"SELECT max(repeats) FROM ({query})", values).fetchone()
    return bool(found and found[0])


def _pick(
    db: duckdb.DuckDBPyConnection,
    files: Sequence[str],
    run: Run,
    policy: str | None,
    step: int | None,
    verifier: str | None,
) -> Group:
    """The one (policy, step, verifier) that fits, or an error that lists what is there."""
    groups = db.execute(_GROUPS, {"files": list(files)}).fetchall()
    fits = [
        g
        for g in groups
        if policy in (None, g[0]) and step in (None, g[1]) and verifier in (None, g[2], str(g[2]).split("@")[0])
    ]
    if len(fits) == 1:
        return Group(*fits[0])
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


def _sampled(db: duckdb.DuckDBPyConnection, run: Run, group: Group) -> dict[str, int]:
    """Stored rollouts of each problem; empty where the run keeps none (imported verdicts)."""
    files = [str(f) for f in run.shards("rollouts")]
    if not files:
        return {}
    values = {"files": files, **group.key}
    ends = db.execute(f"SELECT min(sample_index), max(sample_index), count(*) {_WHERE}", values).fetchone()
    if ends is None or not ends[2]:
        return {}
    here = replace(group, rows=ends[2], least=ends[0], most=ends[1])
    distinct = "count(DISTINCT sample_index)" if _repeats(db, _WHERE, values, here) else "count(*)"
    query = f"SELECT problem_id::VARCHAR, {distinct} {_WHERE} GROUP BY problem_id"
    return dict(db.execute(query, values).fetchall())


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
