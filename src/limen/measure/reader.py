"""Reading a run folder's verdicts in bounded memory: one policy, one step, one verifier, each sample once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb

from limen.errors import DataError, StoreError
from limen.measure.counts import StopRule
from limen.store import Run

_GROUPS = """
SELECT policy::VARCHAR AS policy, step, verifier::VARCHAR AS verifier, count(*) AS rows,
       min(sample_index) AS least, max(sample_index) AS most
FROM read_parquet($files) GROUP BY ALL ORDER BY ALL
"""
_ROWS = "FROM read_parquet($files) WHERE policy = $policy AND step = $step"

# One bit a sample tells repeated samples apart without holding them.
_BITS = "bit_count(bitstring_agg(sample_index, {least}, {most}))"

# Slower: each sample once. A verdict that was written twice with one outcome counts once; contradicting ones raise.
_ONCE = """(
    SELECT problem_id, sample_index, min(outcome::VARCHAR) AS outcome, max(outcome::VARCHAR) AS other,
           min(answer) AS answer, max(finish_reason::VARCHAR) AS finish_reason
    {rows} GROUP BY problem_id, sample_index)"""

# Under adaptive stopping only the samples up to the r-th success count, in the order of their index.
_CUT = """(
    SELECT * FROM {source} QUALIFY coalesce(sum(CASE WHEN outcome = 'correct' THEN 1 ELSE 0 END) OVER (
        PARTITION BY problem_id ORDER BY sample_index ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < {r})"""


@dataclass(frozen=True)
class Group:
    """The verdicts of one policy at one step by one verifier; least and most: range of their sample indices."""

    policy: str
    step: int
    verifier: str
    rows: int
    least: int
    most: int


class RunReader:
    """Verdicts of one (policy, step, verifier); any of them may be left out where the run holds only one.

    A context manager. `query` runs SQL in which {source} stands for the verdict rows: problem_id, sample_index,
    outcome, answer, finish_reason; each sample once, and under adaptive stopping only those up to the r-th
    success. Raises `StoreError` without verdicts, `DataError` (listing what is there) where the choice is open or
    empty, and for contradicting verdicts.
    """

    def __init__(
        self,
        path: str | Path,
        policy: str | None = None,
        step: int | None = None,
        verifier: str | None = None,
        memory: str = "1GB",
    ) -> None:
        self.run = Run.open(path)
        self.files = [str(f) for f in self.run.shards("verdicts")]
        if not self.files:
            raise StoreError(f"{self.run.path} holds no verdicts: judge it first (`limen verify {self.run.path}`)")
        self.wanted = (policy, step, verifier)
        self.memory = memory
        self.stop = stop_rule(self.run)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="limen-"))
            self.db = stack.enter_context(duckdb.connect())
            self.db.execute(f"SET memory_limit = '{self.memory}'")
            self.db.execute("SET temp_directory = ?", [folder])
            self.db.execute("SET preserve_insertion_order = false")
            self.group = self._pick()
            self.source = self._source()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def query(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        """Rows of `sql`, in which {source} stands for the verdicts."""
        found: list[tuple[Any, ...]] = self.db.execute(
            sql.replace("{source}", self.source), {**self._values(), **values}
        ).fetchall()
        return found

    def problem_ids(self, judged: Iterable[str]) -> list[str]:
        """Problems that the numbers are about, in the order of the run: of a sampling run all that were not
        left out, of a training run those with verdicts or samples at this step."""
        known = self.run.problem_table().column("problem_id").to_pylist()
        have = set(judged)
        every = self.run.info.get("kind") != "train"
        out = self.run.info.get("left_out", {}).keys() - have
        return [i for i in known if i not in out and (every or i in have)] + sorted(have - set(known))

    def sampled(self) -> dict[str, int]:
        """Stored rollouts of each problem; empty where the run keeps none (imported verdicts)."""
        files = [str(f) for f in self.run.shards("rollouts")]
        if not files:
            return {}
        values = {"files": files, "policy": self.group.policy, "step": self.group.step}
        ends = self.db.execute(f"SELECT count(*), min(sample_index), max(sample_index) {_ROWS}", values).fetchone()
        if ends is None or not ends[0]:
            return {}
        rows, least, most = ends
        self._refuse_mixed_prompts(values)
        here = replace(self.group, rows=rows, least=least, most=most)
        distinct = "count(DISTINCT sample_index)" if self._repeats(_ROWS, values, here) else "count(*)"
        return dict(self.db.execute(f"SELECT problem_id::VARCHAR, {distinct} {_ROWS} GROUP BY 1", values).fetchall())

    def _refuse_mixed_prompts(self, values: dict[str, Any]) -> None:
        """Samples of one problem under two rendered prompts are not of one distribution."""
        per_problem = (
            f"SELECT min(prompt_hash::VARCHAR) <> max(prompt_hash::VARCHAR) AS mixed {_ROWS} GROUP BY problem_id"
        )
        found = self.db.execute(f"SELECT count(*) FROM ({per_problem}) WHERE mixed", values).fetchone()
        if found and found[0]:
            raise DataError(
                f"{self.run.path}: {found[0]} problems have samples of more than one rendered prompt (mixed "
                "templates), which are not of one distribution: sample them into runs of their own"
            )

    def _values(self) -> dict[str, Any]:
        g = self.group
        return {"files": self.files, "policy": g.policy, "step": g.step, "verifier": g.verifier}

    def _pick(self) -> Group:
        groups = [Group(*g) for g in self.db.execute(_GROUPS, {"files": self.files}).fetchall()]
        policy, step, verifier = self.wanted
        fits = [
            g
            for g in groups
            if policy in (None, g.policy) and step in (None, g.step)
            if verifier in (None, g.verifier, g.verifier.split("@")[0])
        ]
        if len(fits) == 1:
            return fits[0]
        what = [f"policy {g.policy!r} step {g.step} verifier {g.verifier} ({g.rows} verdicts)" for g in groups]
        listed = "; ".join(what[:12]) + (f"; and {len(what) - 12} more" if len(what) > 12 else "")
        problem = "holds several" if fits else "holds none that fits"
        raise DataError(f"{self.run.path} {problem}: give policy, step and verifier. It holds: {listed}")

    def _source(self) -> str:
        rows = f"{_ROWS} AND verifier = $verifier"
        source = f"(SELECT problem_id, sample_index, outcome, answer, finish_reason {rows})"
        if self._repeats(rows, self._values(), self.group):
            source = _ONCE.format(rows=rows)
            both = self.db.execute(f"SELECT count(*) FROM {source} WHERE outcome <> other", self._values()).fetchone()
            if both and both[0]:
                raise DataError(
                    f"{self.run.path}: {both[0]} samples have contradicting verdicts of {self.group.verifier}: "
                    "judge the run anew"
                )
        return _CUT.format(source=source, r=self.stop.r) if self.stop else source

    def _repeats(self, rows: str, values: dict[str, Any], group: Group) -> bool:
        """Whether a sample has more than one row: one bit a sample, or exactly where indices are far apart."""
        wide = group.most - group.least > 64 * max(group.rows, 1024)
        distinct = "count(DISTINCT sample_index)" if wide else _BITS.format(least=group.least, most=group.most)
        per_problem = f"SELECT count(*) - {distinct} AS repeats {rows} GROUP BY problem_id"
        found = self.db.execute(f"SELECT max(repeats) FROM ({per_problem})", values).fetchone()
        return bool(found and found[0])


def groups(path: str | Path) -> list[Group]:
    """Every (policy, step, verifier) that the run holds verdicts of, sorted."""
    run = Run.open(path)
    files = [str(f) for f in run.shards("verdicts")]
    if not files:
        return []
    with duckdb.connect() as db:
        return [Group(*g) for g in db.execute(_GROUPS, {"files": files}).fetchall()]


def stop_rule(run: Run) -> StopRule | None:
    """The rule of an adaptive run: settings `stop_after_successes` and `max_samples` (or `n`)."""
    r = run.settings.get("stop_after_successes")
    if not r:
        return None
    most = run.settings.get("max_samples") or run.settings.get("n")
    if not most:
        raise StoreError(f"{run.path} stops after {r} successes but does not say its largest number of samples")
    return StopRule(int(r), int(most))


def text_of(rows: Sequence[dict[str, Any]], key: str) -> dict[str, str]:
    """Column of the problem table by problem id, "" where missing."""
    return {r["problem_id"]: str(r.get(key) or "") for r in rows}
