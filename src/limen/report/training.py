"""Curves of a training run, from its metrics.jsonl."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from limen.errors import DataError
from limen.report.model import Note, Series, Training
from limen.report.sources import Source
from limen.store import Run


def read_training(path: Path, sources: Sequence[Source], notes: list[Note]) -> Training:
    """metrics.jsonl of a training run. A cut-off last line (the run was killed, or goes on) is left out aloud."""
    run = Run.open(path)
    file = path / "metrics.jsonl"
    if not file.exists():
        notes.append(Note("note", f"{run.name}: no metrics.jsonl, so no training curves."))
        return Training(run.name, str(path), ())
    columns: dict[str, tuple[list[int], list[float]]] = {}
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                notes.append(Note("note", f"{run.name}: the last line of metrics.jsonl is cut off and left out."))
                break
            raise DataError(f"{file} line {number} is not whole JSON ({error}): mend or drop that line") from error
        _add_metrics(columns, row, file, number)
    series = [_series(key, *column) for key, column in columns.items()]
    return Training(run.name, str(path), series, _made_by(path, run.name, sources))


def _series(key: str, step: list[int], value: list[float]) -> Series:
    """With a centred running mean where there are enough points to hide a trend in noise; NaN steps are passed over."""
    if len(value) < 40:
        return Series(key, step, value)
    half = max(2, len(value) // 30)
    good = [math.isfinite(v) for v in value]
    smooth = []
    for i in range(len(value)):
        near = [v for v, ok in zip(value[max(0, i - half) : i + half + 1], good[max(0, i - half) : i + half + 1]) if ok]
        smooth.append(math.fsum(near) / len(near) if near else math.nan)
    return Series(key, step, value, smooth, 2 * half + 1)


def _made_by(path: Path, name: str, sources: Sequence[Source]) -> int | None:
    """Place of the policy whose model lies in the training run's folder, or else that has its name."""
    for i, s in enumerate(sources):
        model = s.run.settings.get("model") if s.run is not None else None
        if isinstance(model, str) and Path(model).resolve().is_relative_to(path.resolve()):
            return i
    return next((i for i, s in enumerate(sources) if s.table.name == name), None)


def _add_metrics(columns: dict[str, tuple[list[int], list[float]]], row: Any, file: Path, number: int) -> None:
    step = row.get("step") if isinstance(row, dict) else None
    if not isinstance(step, int):
        raise DataError(
            f"{file} line {number} has no whole-number step: each line is an object with step and its metrics"
        )
    for key, value in row.items():
        if key != "step" and isinstance(value, int | float) and not isinstance(value, bool):
            steps, values = columns.setdefault(key, ([], []))
            if steps and steps[-1] == step:  # a resumed run wrote this step again
                values[-1] = float(value)
            else:
                steps.append(step)
                values.append(float(value))
