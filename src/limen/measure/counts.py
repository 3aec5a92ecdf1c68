"""Counts of one policy on a set of problems: all that pass@k and support need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from limen.errors import DataError
from limen.measure.passk import Ints, check_counts
from limen.store.jsonl import json_rows


@dataclass(frozen=True)
class StopRule:
    """Adaptive stopping: a problem is sampled until its `r`-th success, or up to `n_max` samples."""

    r: int
    n_max: int


@dataclass(frozen=True)
class CountTable:
    """Success counts of one policy. Every array has one entry per problem, in the order of `problem_ids`.

    n_P: judged samples; c_P: correct ones among them; unjudged_P: samples that the verifier could not judge (or
    has not judged yet). They are in neither n nor c, and every table says how many there are.
    no_answer_P, truncated_P: judged samples without an answer, and cut off at the token limit (these two overlap).
    task_P: group of each problem. prompt_hash_P: hash of its rendered prompt ("" where unknown).
    verifier, policy, step: where the counts are from. stop: the rule of an adaptive run; then n_P counts up to
    the r-th success only. notes: what a reader of any number made from these counts should be told.
    """

    name: str
    problem_ids: tuple[str, ...]
    n_P: Ints
    c_P: Ints
    unjudged_P: Ints
    no_answer_P: Ints
    truncated_P: Ints
    task_P: tuple[str, ...]
    prompt_hash_P: tuple[str, ...] = ()
    policy: str = ""
    step: int | None = None
    verifier: str = ""
    stop: StopRule | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        problem_ids: Iterable[str],
        n: Any,
        c: Any,
        *,
        unjudged: Any = 0,
        no_answer: Any = 0,
        truncated: Any = 0,
        task: Iterable[str] | None = None,
        **more: Any,
    ) -> CountTable:
        """From ids and counts; single numbers stand for all problems. Raises `DataError` on repeated ids or c > n."""
        ids = tuple(problem_ids)
        _refuse_repeats(ids, name)
        n_, c_ = check_counts(n, c)
        n_P, c_P, u_P, no_P, cut_P = (
            np.broadcast_to(np.asarray(v, dtype=np.int64), (len(ids),)).copy()
            for v in (n_, c_, unjudged, no_answer, truncated)
        )
        tasks = ("",) * len(ids) if task is None else tuple(task)
        return cls(name, ids, n_P, c_P, u_P, no_P, cut_P, tasks, **more)

    @property
    def M(self) -> int:
        """Number of problems."""
        return len(self.problem_ids)

    @property
    def n_min(self) -> int:
        """Largest k at which pass@k is defined for every problem."""
        if self.stop is not None:
            return int(np.where(self.c_P < self.stop.r, self.n_P, self.stop.n_max).min()) if self.M else 0
        return int(self.n_P.min()) if self.M else 0

    def select(self, keep: Iterable[int]) -> CountTable:
        """The problems at these positions, in this order."""
        at = np.fromiter(keep, dtype=np.int64)
        rows = {f: getattr(self, f)[at] for f in ("n_P", "c_P", "unjudged_P", "no_answer_P", "truncated_P")}
        hashes = tuple(self.prompt_hash_P[i] for i in at) if self.prompt_hash_P else ()
        return replace(
            self,
            problem_ids=tuple(self.problem_ids[i] for i in at),
            task_P=tuple(self.task_P[i] for i in at),
            prompt_hash_P=hashes,
            **rows,
        )

    def by_task(self) -> dict[str, CountTable]:
        """One table per task, in order of first appearance."""
        tasks = dict.fromkeys(self.task_P)
        return {t: self.select(i for i, own in enumerate(self.task_P) if own == t) for t in tasks}


def read_counts(path: str | Path) -> dict[str, CountTable]:
    """Count file (JSONL: `problem_id`, `model`, `n`, `c`) to one table per model, in order of first appearance.

    Optional keys: `task`, `unjudged`, `no_answer`, `truncated`, `prompt_hash`. Without `model`, the file's name
    stands for it. Raises `DataError` naming the line for anything else: cut-off JSON, repeated problems, c > n.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} is not a file: give a count file (JSONL with problem_id, model, n, c) or a run folder")
    models: dict[str, list[dict[str, Any]]] = {}
    for where, row in json_rows(path):
        row = _count_row(where, row, path.stem)
        models.setdefault(row["model"], []).append(row)
    if not models:
        raise DataError(
            f"{path} is empty: expected lines such as " + '{"problem_id": "p1", "model": "base", "n": 64, "c": 3}'
        )
    return {name: _table(name, rows, path) for name, rows in models.items()}


def _count_row(where: str, row: dict[str, Any], stem: str) -> dict[str, Any]:
    missing = [key for key in ("problem_id", "n", "c") if row.get(key) is None]
    if missing:
        raise DataError(
            f"{where} has no {', '.join(missing)} (it has: {', '.join(row) or 'nothing'}): a count file needs "
            "problem_id, n and c on every line, and model where it holds several"
        )
    out: dict[str, Any] = {"where": where, "problem_id": str(row["problem_id"]), "model": str(row.get("model") or stem)}
    out["task"] = str(row.get("task") or "")
    out["prompt_hash"] = str(row.get("prompt_hash") or "")
    for key in ("n", "c", "unjudged", "no_answer", "truncated"):
        value = row.get(key, 0)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise DataError(f"{where}: {key} is {value!r}, expected a whole number of at least 0")
        out[key] = value
    if out["c"] > out["n"]:
        raise DataError(f"{where}: c={out['c']} correct of n={out['n']} samples; counts are per problem")
    return out


def _table(name: str, rows: list[dict[str, Any]], path: Path) -> CountTable:
    seen: dict[str, str] = {}
    for row in rows:
        if row["problem_id"] in seen:
            raise DataError(
                f"{row['where']}: problem {row['problem_id']!r} of model {name!r} was already on "
                f"{seen[row['problem_id']].removeprefix(f'{path} ')}; keep one (or sum n and c if they are "
                "different samples)"
            )
        seen[row["problem_id"]] = row["where"]
    column = {k: [r[k] for r in rows] for k in ("n", "c", "unjudged", "no_answer", "truncated", "task")}
    hashes = tuple(r["prompt_hash"] for r in rows)
    return CountTable.of(name, seen, **column, prompt_hash_P=hashes if any(hashes) else ())


def _refuse_repeats(ids: tuple[str, ...], name: str) -> None:
    if len(set(ids)) != len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise DataError(f"problem {twice!r} occurs more than once in {name!r}: ids name problems, each once")
