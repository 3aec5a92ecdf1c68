"""How much of what a policy says is the base's own commonest answer (RBP §5): from the answers that verdicts keep."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from limen.measure.describe import summarise

Answers = dict[str, list[tuple[int, str, bool]]]


def answers(run: Path) -> Answers:
    """problem → (sample index, answer, correct) of each judged sample."""
    from limen.store import Run

    columns = ["problem_id", "sample_index", "answer", "outcome"]
    table = Run.open(run).table("verdicts", columns)
    found: Answers = defaultdict(list)
    for problem, i, answer, outcome in zip(*(table.column(c).to_pylist() for c in columns), strict=True):
        if outcome != "unjudged":
            found[problem].append((int(i), str(answer or ""), outcome == "correct"))
    return found


def modal_shares(base: Answers, trained: Answers) -> dict[str, dict[str, Any]]:
    """Share of samples that give the base's modal answer: of problems whose mode is right, and where it is wrong.

    The mode is that of the base's even samples; the base's own share is measured on its odd ones, so that choosing the
    commonest answer does not flatter it. `change`: trained minus base, mean with its interval over problems.
    """
    rows: dict[str, list[tuple[float, float]]] = {"right": [], "wrong": []}
    for problem, samples in base.items():
        even = Counter(a for i, a, _ in samples if i % 2 == 0 and a)
        odd = [a for i, a, _ in samples if i % 2]
        other = [a for _, a, _ in trained.get(problem, [])]
        if not even or not odd or not other:
            continue
        mode = min(even, key=lambda a: (-even[a], a))
        right = any(c for _, a, c in samples if a == mode)
        share = (float(np.mean([a == mode for a in odd])), float(np.mean([a == mode for a in other])))
        rows["right" if right else "wrong"].append(share)
    return {kind: _summary(pairs) for kind, pairs in rows.items() if pairs}


def _summary(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    before, after = np.array(pairs).T
    m = summarise({"x": after - before}, 1000, 0)["x"]
    ends = [None if x != x else round(x, 5) for x in (m.value, m.low, m.high)]
    return {"problems": len(pairs), "base": round(float(before.mean()), 5), "trained": round(float(after.mean()), 5),
            "change": ends}  # fmt: skip


def modal_digest(pairs: dict[str, tuple[Path, Path]]) -> dict[str, dict[str, Any]]:
    """Shares by the name of the run; runs whose folders are not there are left out. Each base is read once."""
    bases: dict[Path, Answers] = {}
    found = {}
    for name, (base, trained) in pairs.items():
        if (base / "run.json").exists() and (trained / "run.json").exists():
            if base not in bases:
                bases[base] = answers(base)
            found[name] = modal_shares(bases[base], answers(trained))
    return found
