"""How far a run is, read from its folder alone: shard sizes, verdict counts, the last logged steps."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from limen.store import Run
from limen.types import OUTCOMES

TAIL_BYTES = 262_144


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a run folder. `total` is None where the run does not say how much it wants; `age` in seconds since
    something was last written."""

    name: str
    kind: str
    status: str
    unit: str
    done: int
    total: int | None
    age: float
    outcomes: Mapping[str, int]
    metrics: Mapping[str, float] = field(default_factory=dict)
    trend: tuple[float, ...] = ()
    trend_of: str = ""


def read_progress(path: Path | str) -> Progress:
    """Raises `StoreError` where there is no run."""
    run = Run.open(path)
    kind = str(run.info.get("kind", ""))
    rows = _metrics(run.path / "metrics.jsonl")
    training = kind == "train"
    if training:
        done, total, unit = (
            int(rows[-1].get("step", 0)) if rows else 0,
            _whole(run.settings, "steps", "max_steps"),
            "steps",
        )
    else:
        done, unit = _rows(run, "rollouts"), "samples"
        n, problems = _whole(run.settings, "n"), run.problem_table().num_rows
        total = n * problems if n and problems else None
    key = next((k for k in ("reward_batch", "reward", "loss") if any(k in r for r in rows[-2:])), "")
    return Progress(
        name=run.name,
        kind=kind,
        status=str(run.info.get("status", "")),
        unit=unit,
        done=done,
        total=total,
        age=time.time() - _last_write(run.path),
        outcomes=_outcomes(run),
        metrics=_latest(rows),
        trend=tuple(float(r[key]) for r in rows if _number(r.get(key))) if key else (),
        trend_of=key,
    )


def _latest(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The last line's numbers, and the last of each that is not measured at every step (the probes)."""
    found: dict[str, float] = {}
    for row in rows[:-1]:
        found.update({k: float(v) for k, v in row.items() if k.startswith("probe/") and _number(v)})
    return {**found, **{k: float(v) for k, v in rows[-1].items() if _number(v)}} if rows else {}


def signature(paths: list[Path]) -> str:
    """Changes whenever something is added to one of the runs (or count files)."""
    parts = []
    for path in paths:
        files = (
            [path] if path.is_file() else [path / "run.json", path / "metrics.jsonl", *sorted(path.glob("*/*.parquet"))]
        )
        parts += [f"{f.name}:{s.st_size}:{s.st_mtime_ns}" for f in files if (s := _stat(f)) is not None]
    return str(hash(tuple(parts)) & 0xFFFFFFFFFFFF)


def _rows(run: Run, table: str) -> int:
    return sum(pq.read_metadata(f).num_rows for f in run.shards(table))


def _outcomes(run: Run) -> dict[str, int]:
    files = [str(f) for f in run.shards("verdicts")]
    if not files:
        return {}
    with duckdb.connect() as db:
        query = "SELECT outcome::VARCHAR, count(*) FROM read_parquet($files) GROUP BY 1"
        found = dict(db.execute(query, {"files": files}).fetchall())
    return {o: int(found.get(o, 0)) for o in OUTCOMES}


def _metrics(file: Path) -> list[dict[str, Any]]:
    """The last whole lines of a metrics file; a line that is still being written is passed over."""
    if not file.exists():
        return []
    with file.open("rb") as f:
        f.seek(max(0, file.stat().st_size - TAIL_BYTES))
        lines = deque(f.read().splitlines(), maxlen=400)
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, UnicodeDecodeError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _last_write(path: Path) -> float:
    files = [path / "run.json", path / "metrics.jsonl", *path.glob("*/*.parquet")]
    return max((s.st_mtime for f in files if (s := _stat(f)) is not None), default=time.time())


def _stat(file: Path) -> Any:
    try:
        return file.stat()
    except FileNotFoundError:  # between being listed and being looked at
        return None


def _whole(settings: Mapping[str, Any], *keys: str) -> int | None:
    found = next((settings[k] for k in keys if isinstance(settings.get(k), int)), None)
    return found if found and found > 0 else None


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
