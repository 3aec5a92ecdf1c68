"""The bandit as one HTML file that opens offline and answers while a slider is moved."""

from __future__ import annotations

from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined

from limen.lab.bandit import ETA, ROWS, X_NORM2, V, draw_logits, draw_x
from limen.provenance import provenance
from limen.report.page import asset, content_policy
from limen.report.payload import safe_json

SEEDS = 20
"""Starts that the page holds; all seeds of the study would be a megabyte."""


def bandit_page(seed: int = 0, norm2: float = X_NORM2, eta: float = ETA) -> str:
    """The page, opened on the last row of figure 9. `seed`: the start that it shows first, below `SEEDS`."""
    script = f'\n(() => {{\n"use strict";\n{_asset("bandit.js")}}})();\n'
    style = asset("page.css") + _asset("bandit.css")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made = provenance()
    return environment.from_string(_asset("bandit.html.j2")).render(
        policy=content_policy(style, script),
        style=style,
        script=script,
        rows=ROWS,
        actions=V,
        seeds=SEEDS,
        made={"limen": made.get("limen"), "commit": str(made.get("commit") or "")[:7]},
        payload=safe_json(_data(seed, norm2, eta)),
    )


def _data(seed: int, norm2: float, eta: float) -> dict[str, Any]:
    starts = {
        kind: [[round(float(v), 6) for v in draw_logits(kind, s, draw_x(s, norm2))] for s in range(SEEDS)]
        for kind in ("uniform", "peaked")
    }
    rows = [{"start": r.start, "labels": list(map(list, r.labels.items())), "steps": r.steps} for r in ROWS]
    return {"actions": V, "eta": eta, "norm2": norm2, "seed": seed % SEEDS, "starts": starts, "rows": rows}


def _asset(name: str) -> str:
    return resources.files("limen.lab").joinpath("assets", name).read_text(encoding="utf-8")
