"""`metrics.jsonl`: one JSON object a line, `step` and flat keys; several lines may be of one step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def append_metrics(file: Path, row: Mapping[str, Any]) -> None:
    """Add one line; makes the folder where there is none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(row) + "\n")


def keep_metrics(file: Path, step: int) -> None:
    """Keep the lines of `metrics.jsonl` up to `step`; a half-written last line goes too."""
    if not file.exists():
        return
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if row.get("step", 0) <= step:
            lines.append(line)
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
