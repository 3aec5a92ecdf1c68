"""Judging responses that are stored: `limen verify` and `limen regrade`. Samples are read, never touched; verdicts
are added, never replaced, so that every number can be traced to the verifier that it is of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import duckdb
import pyarrow.dataset as ds

from limen.errors import DataError, StoreError
from limen.store import Run
from limen.store.schema import verdict_row
from limen.types import Problem, Rollout
from limen.verify.pool import JudgeItem, VerifierPool, sample_name

_BATCH = 1024

_CHANGES = """
WITH v AS (SELECT rollout_id, verifier::VARCHAR AS verifier, outcome::VARCHAR AS outcome, rule::VARCHAR AS rule, answer
           FROM read_parquet($files)),
     a AS (SELECT rollout_id, any_value(outcome) AS outcome, any_value(rule) AS rule, any_value(answer) AS answer
           FROM v WHERE verifier = $old GROUP BY rollout_id),
     b AS (SELECT rollout_id, any_value(outcome) AS outcome, any_value(rule) AS rule, any_value(answer) AS answer
           FROM v WHERE verifier = $new GROUP BY rollout_id)
SELECT {columns} FROM a JOIN b USING (rollout_id) {rest}
"""


@dataclass(frozen=True, slots=True)
class Judged:
    """What one pass over a run did: new verdicts by outcome, and how many were there before."""

    verifier: str
    judged: int
    before: int
    outcomes: Mapping[str, int]
    unjudged_rules: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Change:
    """How many verdicts went from one outcome to another, by the rules that decided, with some to read."""

    old: str
    new: str
    old_rule: str
    new_rule: str
    count: int
    samples: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Regrade:
    """Two verifiers on the same responses."""

    old: str
    new: str
    compared: int
    changed: int
    changes: list[Change]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def judge_run(run: Run, pool: VerifierPool, progress: Callable[[int, int], None] | None = None) -> Judged:
    """Judge every stored response that has no verdict of this verifier yet. Can be killed and started again.

    Raises `StoreError` for a run without responses, `DataError` for a response to a problem that is not stored.
    """
    data = run.dataset("rollouts")
    if data is None:
        raise StoreError(f"{run.path} holds no responses to judge: sample first (`limen sample --out {run.path}`)")
    problems = {p.id: p for p in run.problems()}
    done = run.keys("verdicts", ds.field("verifier") == pool.version)
    total = data.count_rows()
    outcomes: Counter[str] = Counter()
    rules: Counter[str] = Counter()
    with run.writer("verdicts") as writer:
        for batch in _batches(run.rollouts(), done):
            items = [_item(r, problems, run) for r in batch]
            for rollout, verdict in zip(batch, pool.judge_many(items), strict=True):
                writer.append(verdict_row(rollout, verdict))
                outcomes[verdict.outcome] += 1
                if verdict.outcome == "unjudged":
                    rules[verdict.rule] += 1
            if progress:
                progress(len(done) + sum(outcomes.values()), total)
    return Judged(pool.version, sum(outcomes.values()), len(done), dict(outcomes), dict(rules))


def _batches(rollouts: Iterator[Rollout], done: set[tuple[str, str, int, int]]) -> Iterator[list[Rollout]]:
    batch: list[Rollout] = []
    for r in rollouts:
        if (r.problem_id, r.policy, r.step, r.sample_index) not in done:
            batch.append(r)
            if len(batch) == _BATCH:
                yield batch
                batch = []
    if batch:
        yield batch


def _item(rollout: Rollout, problems: Mapping[str, Problem], run: Run) -> JudgeItem:
    problem = problems.get(rollout.problem_id)
    if problem is None:
        raise DataError(
            f"{run.path} holds a response to problem {rollout.problem_id!r}, which is not in its problems.parquet: "
            "restore that file"
        )
    return JudgeItem(problem.answer, rollout.text, problem.metadata, rollout.truncated, sample_name(rollout))


def verifiers_of(run: Run) -> list[str]:
    """Versions of the verifiers that have judged this run, the latest first."""
    files = [str(f) for f in run.shards("verdicts")]
    if not files:
        return []
    query = """SELECT verifier::VARCHAR, max(filename) AS latest FROM read_parquet($files, filename = true)
               GROUP BY 1 ORDER BY latest DESC, 1"""
    with duckdb.connect() as db:
        return [str(row[0]) for row in db.execute(query, {"files": files}).fetchall()]


def choose_old(run: Run, new: str, wanted: str | None) -> str:
    """The verifier to compare with: the one asked for (by version or name), else the latest other one."""
    known = verifiers_of(run)
    if wanted is not None:
        fits = [v for v in known if v == wanted or v.split("@")[0] == wanted]
        if len(fits) != 1:
            raise DataError(
                f"{run.path} has no single verifier {wanted!r}: it was judged by {', '.join(known) or 'none'}"
            )
        return fits[0]
    others = [v for v in known if v != new]
    if not others:
        raise DataError(
            f"{run.path} was judged by {', '.join(known) or 'no verifier'} only: there is nothing to compare {new} with"
        )
    return others[0]


def compare_verdicts(run: Run, old: str, new: str, samples: int = 3) -> Regrade:
    """What changed from one verifier's verdicts to another's, largest groups first, with `samples` of each."""
    files = [str(f) for f in run.shards("verdicts")]
    values = {"files": files, "old": old, "new": new}
    with duckdb.connect() as db:
        counts = db.execute(
            _CHANGES.format(columns="count(*), count(*) FILTER (a.outcome <> b.outcome)", rest=""), values
        ).fetchall()[0]
        groups = db.execute(
            _CHANGES.format(
                columns="a.outcome, b.outcome, a.rule, b.rule, count(*) AS n, "
                f"list(rollout_id ORDER BY rollout_id)[1:{int(samples)}], "
                f"list(a.answer ORDER BY rollout_id)[1:{int(samples)}], "
                f"list(b.answer ORDER BY rollout_id)[1:{int(samples)}]",
                rest="WHERE a.outcome <> b.outcome GROUP BY ALL ORDER BY n DESC, 1, 2, 3, 4",
            ).replace("GROUP BY ALL", "GROUP BY a.outcome, b.outcome, a.rule, b.rule"),
            values,
        ).fetchall()
    shown = {rollout for g in groups for rollout in g[5]}
    texts = _texts(run, shown)
    changes = []
    for o, n, old_rule, new_rule, count, ids, before, after in groups:
        picked = [
            {**texts.get(i, {}), "rollout_id": i, "old_answer": x or "", "new_answer": y or ""}
            for i, x, y in zip(ids, before, after, strict=True)
        ]
        changes.append(Change(o, n, old_rule, new_rule, count, picked))
    return Regrade(old, new, counts[0], counts[1], changes)


def _texts(run: Run, rollout_ids: set[str]) -> dict[str, dict[str, str]]:
    """Problem id, gold answer and the end of the response, for the samples that are shown."""
    if not rollout_ids:
        return {}
    table = run.table("rollouts", ["rollout_id", "problem_id", "text"], ds.field("rollout_id").isin(list(rollout_ids)))
    golds = {p.id: p.answer for p in run.problems()}
    return {
        row["rollout_id"]: {
            "problem_id": row["problem_id"],
            "gold": golds.get(row["problem_id"], ""),
            "response_end": row["text"][-300:],
        }
        for row in table.to_pylist()
    }
