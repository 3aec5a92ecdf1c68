"""What a run of sampling holds, in numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from limen.store import Run


def summarize(run: Run) -> dict[str, Any]:
    """JSON-able: problems, samples, outcomes (of the run's verifier), truncated, tokens, alarms, last session."""
    rollouts = run.table("rollouts", ["finish_reason", "n_tokens"])
    version = run.info.get("verifier")
    verdicts = run.table("verdicts", ["outcome", "verifier"]).to_pylist()
    reasons = Counter(rollouts["finish_reason"].to_pylist())
    return {
        "run": str(run.path),
        "name": run.name,
        "model": run.settings.get("model"),
        "verifier": version,
        "problems": run.problem_table().num_rows,
        "samples": rollouts.num_rows,
        "tokens": sum(t or 0 for t in rollouts["n_tokens"].to_pylist()),
        "outcomes": dict(sorted(Counter(v["outcome"] for v in verdicts if v["verifier"] == version).items())),
        "finish_reasons": dict(sorted(reasons.items())),
        "truncated": reasons["length"],
        "left_out": run.info.get("left_out", {}),
        "alarms": run.info.get("alarms", []),
        "last": run.info.get("last", {}),
    }
