"""Training curves and costs of a study's runs, thinned to what figures and claims need."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

CURVES = ("correct_share", "reward_batch", "reward", "entropy", "kept", "screened", "grad_norm",
          "completions/mean_length")  # fmt: skip
COSTS = ("seconds/screen", "seconds/generate", "seconds/forward", "seconds/backward", "seconds/verify",
         "tokens/screen", "tokens/generate", "tokens/forward", "tokens/kl", "step_time")  # fmt: skip
BLOCK, COST_STEPS = 10, 100
"""Curves are means over so many steps; costs are those of the first so many (figure 13)."""


def training_digest(folder: Path) -> dict[str, dict[str, Any]]:
    """name → {curves, cost, tokens} of each training run two levels down (`seed-S/train-NAME`, `base-B-seed-S/...`).

    `tokens`: all tokens generated (screening among them) up to the end of each block.
    """
    found = {}
    for file in sorted(folder.glob("*/train-*/metrics.jsonl")):
        lines = [json.loads(x) for x in file.read_text(encoding="utf-8").splitlines() if x.strip()]
        if lines:
            name = f"{file.parent.parent.name}/{file.parent.name.removeprefix('train-')}"
            found[name] = _one(lines)
    return found


def _one(lines: list[dict[str, Any]]) -> dict[str, Any]:
    blocks = [lines[i : i + BLOCK] for i in range(0, len(lines), BLOCK)]
    curves = {k: [_mean(b, k) for b in blocks] for k in CURVES if any(k in x for x in lines)}
    first = lines[:COST_STEPS]
    cost = {k: round(sum(float(x.get(k) or 0) for x in first) / len(first), 6) for k in COSTS}
    spent = np.cumsum([sum(float(x.get(k) or 0) for k in ("tokens/screen", "tokens/generate")) for x in lines])
    ends = [min(i + BLOCK, len(lines)) for i in range(0, len(lines), BLOCK)]
    return {
        "steps": ends,
        "curves": curves,
        "cost": {**cost, "steps": len(first)},
        "tokens": [int(spent[i - 1]) for i in ends],
    }


def _mean(block: list[dict[str, Any]], key: str) -> float | None:
    values = [float(x[key]) for x in block if isinstance(x.get(key), int | float) and math.isfinite(x[key])]
    return round(float(np.mean(values)), 5) if values else None


def by_method(training: Mapping[str, Mapping[str, Any]], method: str) -> list[Mapping[str, Any]]:
    """Digests of the runs of one method, in order of their folders."""
    return [v for k, v in sorted(training.items()) if k.rpartition("/")[2] == method]
