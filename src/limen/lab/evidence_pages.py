"""What a study's folder still says where its samples were left on the machine that ran it: its page, and the JSON files
of `limen dynamics between` beside its checkpoints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

_ARM = re.compile(r"^(grpo|self)-\w+$")


def _cells(line: str) -> list[str]:
    return [c.strip().strip("*") for c in line.strip().strip("|").split("|")]


def series_table(folder: Path) -> dict[str, Any]:
    """Checkpoints of dynamics.md: `base` (pass@1, pass@n), `n`, and `rows` of arm, seed, step, pass@1, pass@n, E, S,
    chance each way, p. Empty where there is no page."""
    file = folder / "dynamics.md"
    if not file.exists():
        return {}
    out: dict[str, Any] = {"rows": []}
    problems = re.search(r"(\d+)\s+held-out", file.read_text(encoding="utf-8"))
    if problems:
        out["problems"] = int(problems.group(1))
    for line in file.read_text(encoding="utf-8").splitlines():
        cells = _cells(line) if line.startswith("|") else []
        if len(cells) != 9:
            continue
        if cells[0] == "run":
            out["n"] = int(cells[4].removeprefix("pass@"))
        elif cells[0] == "base":
            out["base"] = [float(cells[3]), float(cells[4])]
        elif _ARM.match(cells[0]):
            arm, seed, step, *rest = cells
            out["rows"].append([arm, int(seed), int(step), *map(float, rest)])
    return out if out["rows"] else {}


def between_parts(folder: Path, method: str = "grpo") -> dict[str, dict[str, Any]]:
    """arm → seed → `interference` and `perplexity` of the trainings of `method` (dynamics.json in ARM-between), of the
    constant rate if there is one: the paper's."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.glob(f"seed-*/{method}-*-between/dynamics.json")):
        doc = json.loads(file.read_text(encoding="utf-8"))
        arm, seed = file.parent.name.removesuffix("-between"), file.parent.parent.name.removeprefix("seed-")
        found.setdefault(arm, {})[seed] = {k: doc[k] for k in ("interference", "perplexity", "traces") if k in doc}
    one = next((a for a in found if a.endswith("-constant")), next(iter(found), None))
    return {} if one is None else {one: found[one]}


def base_entropies(folder: Path) -> dict[str, float]:
    """Token and answer entropy of the base by methods.md; empty where there is no page."""
    file = folder / "methods.md"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    head = next((_cells(x) for x in lines if x.startswith("| policy |")), [])
    row = next((_cells(x) for x in lines if x.startswith("| base |")), [])
    names = {"token_entropy": "H token", "answer_entropy": "H answer"}
    if not row or not all(n in head for n in names.values()):
        return {}
    return {k: float(row[head.index(n)]) for k, n in names.items()}
