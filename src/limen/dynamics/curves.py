"""What training runs logged about a probe set, as curves over steps; runs of one name are one group."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from limen.dynamics.quantities import Floats, Ints
from limen.errors import DataError
from limen.store import Run


@dataclass(frozen=True)
class RunCurves:
    """Logged quantities of one training run: key -> (step, value), each of shape (points,)."""

    name: str
    path: Path
    curves: Mapping[str, tuple[Ints, Floats]]

    def get(self, key: str) -> tuple[Ints, Floats]:
        """Empty arrays where the run did not log it."""
        return self.curves.get(key, (np.zeros(0, dtype=np.int64), np.zeros(0)))


@dataclass(frozen=True)
class Band:
    """Several runs' values at the steps that all of them logged: mean, lowest and highest, each of shape (points,)."""

    step: Ints
    mean: Floats
    low: Floats
    high: Floats
    runs: int


def read_curves(path: str | Path, need: Sequence[str] = ()) -> RunCurves:
    """The metrics of a training run. Raises `DataError` where one of `need` was not logged."""
    run = Run.open(path)
    found: dict[str, dict[int, float]] = {}
    file = run.path / "metrics.jsonl"
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:  # the line that a killed run was writing
            continue
        for key, value in row.items():
            if key != "step" and isinstance(value, int | float) and not isinstance(value, bool):
                found.setdefault(key, {})[int(row["step"])] = float(value)
    missing = [k for k in need if k not in found]
    if missing:
        raise DataError(
            f"{path} has no {', '.join(missing)} in its metrics: train with a probe (`probe: {{run: ...}}` in the "
            "settings, or the DynamicsProbe callback)"
        )
    curves = {k: (np.array(sorted(v)), np.array([v[s] for s in sorted(v)])) for k, v in found.items()}
    return RunCurves(run.name, run.path, curves)


def groups(runs: Sequence[RunCurves]) -> dict[str, list[RunCurves]]:
    """Runs by name, in order of first appearance."""
    out: dict[str, list[RunCurves]] = {}
    for run in runs:
        out.setdefault(run.name, []).append(run)
    return out


def band(runs: Sequence[RunCurves], key: str, window: int = 1) -> Band | None:
    """Mean and range over runs, after a centred running mean over `window` points. None where nobody logged it."""
    each = [r.get(key) for r in runs if len(r.get(key)[0])]
    if not each:
        return None
    steps = sorted(set.intersection(*(set(s.tolist()) for s, _ in each)))
    values = np.array([[v[s.tolist().index(x)] for x in steps] for s, v in each])
    smooth = np.array([running_mean(v, window) for v in values])
    return Band(np.array(steps), smooth.mean(0), smooth.min(0), smooth.max(0), len(each))


def running_mean(values: Floats, window: int) -> Floats:
    """Centred mean over `window` points, over fewer at the ends."""
    if window <= 1 or not len(values):
        return values
    half = window // 2
    return np.array([np.nanmean(values[max(0, i - half) : i + half + 1]) for i in range(len(values))])
