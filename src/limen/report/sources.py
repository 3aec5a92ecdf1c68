"""What a report is made of: count tables from run folders and count files, with names that are each used once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from limen.errors import DataError
from limen.measure import CountTable, counts_from_run, read_counts
from limen.store import Run

MOST = 16
"""More policies than this are no longer told apart on one page."""


@dataclass(frozen=True, slots=True)
class Source:
    """Counts of one policy; `run` is the folder they are from, None for a count file.

    control: a second draw of the base. last: no later checkpoint of the same policy is in the report.
    """

    table: CountTable
    path: Path
    run: Run | None
    control: bool = False
    last: bool = True


def load_sources(paths: Sequence[Path | str], verifier: str | None = None) -> list[Source]:
    """All policies of all paths, in order. Raises `DataError` for a path that holds none, or too many."""
    found: list[Source] = []
    for path in map(Path, paths):
        if path.is_dir() or not path.exists():
            found += _from_run(Run.open(path), verifier)
        else:
            found += [Source(table, path, None) for table in read_counts(path).values()]
    if not found:
        raise DataError("a report needs at least one run folder or count file")
    if len(found) > MOST:
        raise DataError(f"{len(found)} policies are too many for one report (at most {MOST}): give fewer runs")
    return _distinct(found)


def arrange(sources: Sequence[Source], base: str | None, controls: Sequence[str]) -> list[Source]:
    """The base first; second draws of the base marked as controls, and last.

    base: a policy's name, else the first source. A source is a control if named in `controls`, or if it is a
    sampling run of the same model as the base's.
    """
    names = [s.table.name for s in sources]
    for name in [*controls, *([base] if base else [])]:
        if name not in names:
            raise DataError(f"no policy is called {name!r}: there are {', '.join(map(repr, names))}")
    first = sources[names.index(base) if base else 0]
    rest = [s for s in sources if s is not first]
    marked = [replace(s, control=s.table.name in controls or _same_model(first, s)) for s in rest]
    trained = [s for s in marked if not s.control]
    return [first, *[replace(s, last=_is_last(s, trained)) for s in trained], *[s for s in marked if s.control]]


def _is_last(source: Source, others: Sequence[Source]) -> bool:
    table = source.table
    same = [s.table.step for s in others if s.table.policy and s.table.policy == table.policy]
    return table.step is None or table.step >= max([x for x in same if x is not None], default=table.step)


def finished_part(sources: Sequence[Source]) -> tuple[list[Source], str]:
    """While a run goes on: only the problems that every policy has finished (or begun, if none is finished), and a
    sentence that says so. Else the sources as they are, and "".

    Problems that are half sampled would cut every curve at their own count.
    """
    if all(s.run is None or s.run.info.get("status") != "running" for s in sources):
        return list(sources), ""
    wanted = [_wanted(s) for s in sources]
    for least in (wanted, [1] * len(sources)):
        ready = set.intersection(*[_with_samples(s, n) for s, n in zip(sources, least, strict=True)])
        if ready:
            break
    else:
        raise DataError("no problem has samples of every policy yet")
    every = max(s.table.M for s in sources)
    cut = [
        replace(s, table=s.table.select(i for i, p in enumerate(s.table.problem_ids) if p in ready)) for s in sources
    ]
    few = f"Still running: only the {len(ready)} of {every} problems sampled so far."
    return cut, "" if len(ready) == every else few


def _wanted(source: Source) -> int:
    n = source.run.settings.get("n") if source.run is not None else None
    return n if isinstance(n, int) and n > 0 else 1


def _with_samples(source: Source, least: int) -> set[str]:
    have = source.table.n_P + source.table.unjudged_P
    enough = have >= least
    if source.table.stop is not None:
        enough |= source.table.c_P >= source.table.stop.r
    return {p for p, e, m in zip(source.table.problem_ids, enough, source.table.n_P, strict=True) if e and m > 0}


def _from_run(run: Run, verifier: str | None) -> list[Source]:
    if run.info.get("kind") == "train":
        raise DataError(
            f"{run.path} is a training run: give it with --train, and sampling runs of its checkpoints here"
        )
    groups = _groups(run)
    if verifier is None and len(verifiers := sorted({v for _, _, v in groups})) > 1:
        raise DataError(f"{run.path} has verdicts of {', '.join(verifiers)}: say which one to use (--verifier)")
    places = sorted({(p, s) for p, s, v in groups if verifier in (None, v, _stem(v))})
    if len(places) <= 1:
        return [Source(counts_from_run(run.path, verifier=verifier), run.path, run)]
    sources = []
    for policy, step in places:
        counts = counts_from_run(run.path, policy=policy, step=step, verifier=verifier)
        alone = sum(p == policy for p, _ in places) == 1
        sources.append(Source(replace(counts, name=policy if alone else f"{policy} step {step}"), run.path, run))
    return sources


def _stem(verifier: str) -> str:
    return verifier.split("@")[0]


def _same_model(base: Source, other: Source) -> bool:
    if base.run is None or other.run is None:
        return False
    a, b = base.run.settings.get("model"), other.run.settings.get("model")
    return a is not None and a == b and base.table.step == other.table.step and _one(base) and _one(other)


def _one(source: Source) -> bool:
    """The run holds a single policy, so that its `model` setting speaks of this table."""
    assert source.run is not None
    return len({p for p, _, _ in _groups(source.run)}) == 1


def _groups(run: Run) -> list[tuple[str, int, str]]:
    """(policy, step, verifier) of the stored verdicts."""
    files = [str(f) for f in run.shards("verdicts")]
    if not files:
        return []
    with duckdb.connect() as db:
        query = "SELECT DISTINCT policy::VARCHAR, step, verifier::VARCHAR FROM read_parquet($files)"
        return [(str(p), int(s), str(v)) for p, s, v in db.execute(query, {"files": files}).fetchall()]


def _distinct(sources: list[Source]) -> list[Source]:
    seen: dict[str, int] = {}
    out = []
    for s in sources:
        name = s.table.name or s.path.stem
        if name in seen and s.path.stem != name and s.path.stem not in seen:
            name = s.path.stem
        while name in seen:
            seen[name] += 1
            name = f"{name} ({seen[name]})"
        seen[name] = 1
        out.append(replace(s, table=replace(s.table, name=name)))
    return out
