"""`limen lab bins`: who wins and who loses, by how well the base did on the problem before.

On the tiny base a problem has one right text, so the chance p that a sample is right is exactly the probability of that
text (and its end), and scoring it once says p of every problem under the base and under every trained policy, with
nothing drawn and so no regression to the mean between bins. From the folder of `limen lab methods` come the models, the
counts of held-out samples and, where the trainings kept their rollouts, the groups of every step.

Rules, written down before the runs (bins of the base's p; *low*: below `LOW`; *high*: at least `HIGH`).
RBP-S4-1: in the highest bin p rises (interval over problems of the seed mean above 0), and in the lowest bin with at
least `FEW` problems the mean change of log π(y⁺) is below 0; opposite where the latter is above 0.
RBP-S5-WTA: over training, the share of groups with a signal (both right and wrong ones) and the success in the groups
of *low* problems fall, and the success of *high* ones rises: last third of the steps minus the first third, of each
beside what the base would give on the same problems, t intervals over seeds. Opposite where signal and success of the
low ones both rise.
IL-T2a to c are judged by `limen.lab.claims_between.traces`: the outside solutions are the right texts, and there is one
of each problem, so that *lost* and *less likely* are near to the same thing here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from limen.errors import DataError
from limen.lab.demo import TEST, TRAIN
from limen.measure.passk import Floats
from limen.provenance import machine_of, provenance
from limen.types import Problem

EDGES = (0.0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
LOW, HIGH, FEW, THIRDS = 0.3, 0.7, 5, 3


def run_bins(study: Path, out: Path, base: str = "tiny", device: str | None = "cpu") -> str:
    """All of it for GRPO and SELF of a study. Returns the page; writes bins.md, .json, .png, .svg, .csv."""
    from limen.lab.bins_page import bins_page, figure
    from limen.lab.evidence import publish

    out.mkdir(parents=True, exist_ok=True)
    return publish(out, "bins", measured(study, base, device), bins_page, figure)


def measured(study: Path, base: str, device: str | None) -> dict[str, Any]:
    """bins.json. Raises `DataError` where the folder is no study of methods, or its models are not there."""
    from limen.problems import load_problems

    file = study / "methods.json"
    if not file.exists():
        raise DataError(f"{study} holds no methods.json: give the folder of `limen lab methods`")
    doc = json.loads(file.read_text(encoding="utf-8"))
    problems, train = load_problems(TEST), load_problems(TRAIN)
    before = log_right(base, problems, device)
    rate = dict(zip((p.id for p in train), np.exp(log_right(base, train, device)[0]).tolist(), strict=True))
    rows, traces, groups = [], [], []
    for method in [m for m in ("grpo", "self") if m in doc["methods"]]:
        for row in doc["methods"][method]:
            seed = int(row["seed"])
            folder = study / f"seed-{seed}" / f"train-{method}"
            if not (folder / "model" / "config.json").exists():
                raise DataError(f"no model at {folder / 'model'}: this needs the study's folder with its trainings")
            after = log_right(str(folder / "model"), problems, device)
            rows += changes(method, seed, before[0], after[0])
            if method == "grpo":
                counts = {q["problem_id"]: (q["base_c"], q["trained_c"]) for q in row["comparison"]["questions"]}
                traces += trace_rows(seed, [counts[p.id] for p in problems], before[1], after[1])
            if (folder / "verdicts").exists():
                groups += group_rows(method, seed, folder, rate)
    return {"provenance": provenance(), "recipe": doc["recipe"], "steps": doc["steps"], "study": _maker(doc),
            "edges": list(EDGES), "changes": rows, "groups": groups, "traces": traces}  # fmt: skip


def _maker(doc: Mapping[str, Any]) -> dict[str, Any]:
    made = doc.get("provenance", {})
    return {"commit": str(made.get("commit"))[:7], "hardware": machine_of(made)}


def log_right(model: str, problems: Sequence[Problem], device: str | None) -> tuple[Floats, Floats]:
    """(log-probability of the right text and its end, perplexity of the text alone), shape (P,) each, in nats."""
    from limen.engines.protocol import ScoreRequest
    from limen.engines.runner import Runner
    from limen.engines.scoring import Scorer
    from limen.models import load_model
    from limen.problems.prompt import render

    loaded = load_model(model, device, "float32")
    end = loaded.tokenizer.eos_token_id
    requests = [
        ScoreRequest(tuple(q.token_ids), (*loaded.tokenizer.encode(p.answer, add_special_tokens=False), end))
        for p, q in zip(problems, render(problems, loaded.tokenizer, "plain"), strict=True)
    ]
    scored = [np.asarray(x, dtype=np.float64) for x in Scorer(Runner(loaded.model)).score(requests)]
    return np.array([x.sum() for x in scored]), np.array([np.exp(-x[:-1].mean()) for x in scored])


def bin_of(rate_P: Any) -> Any:
    """Index of the bin of `EDGES` in which a rate lies; the upper edge belongs to it."""
    return np.clip(np.searchsorted(np.asarray(EDGES), np.asarray(rate_P), side="left") - 1, 0, len(EDGES) - 2)


def changes(method: str, seed: int, before_P: Floats, after_P: Floats) -> list[dict[str, Any]]:
    """A training's changes, bin by bin: of log π(y⁺) (nats) and of p, problem by problem."""
    where_P = bin_of(np.exp(before_P))
    return [
        {"method": method, "seed": seed, "bin": int(b),
         "dlogp": [round(float(x), 5) for x in (after_P - before_P)[where_P == b]],
         "dp": [round(float(x), 5) for x in (np.exp(after_P) - np.exp(before_P))[where_P == b]]}
        for b in np.unique(where_P)
    ]  # fmt: skip


def trace_rows(seed: int, counts_P: Sequence[tuple[int, int]], base_P: Floats, trained_P: Floats) -> list[Any]:
    """Perplexity of the right texts by who solves the question, as `limen dynamics between --traces` has it."""
    from limen.dynamics.traces import GROUPS, support_groups

    group_P = np.array(support_groups([b for b, _ in counts_P], [t for _, t in counts_P]))
    return [
        {"source": f"right text, seed {seed}", "group": g, "policy": name, "traces": int((group_P == g).sum()),
         "ppl": {"value": float(x[group_P == g].mean())}}
        for g in GROUPS if (group_P == g).any()
        for name, x in (("base", base_P), ("grpo", trained_P))
    ]  # fmt: skip


def group_rows(method: str, seed: int, folder: Path, rate: Mapping[str, float]) -> list[dict[str, Any]]:
    """Groups of a training by third of its steps and bin of the base's rate: how many, the share with a signal, the
    success, and what the base would give on the same problems (`base_signal`, `base_success`)."""
    from limen.store import Run

    columns = ["problem_id", "step", "sample_index", "outcome"]
    found = Run.open(folder).table("verdicts", columns).to_pydict()
    groups: dict[tuple[int, str], list[bool]] = defaultdict(list)
    for problem, step, outcome in zip(found["problem_id"], found["step"], found["outcome"], strict=True):
        if outcome != "unjudged":
            groups[int(step), problem].append(outcome == "correct")
    return binned(method, seed, groups, rate, max(found["step"]) + 1)


def binned(
    method: str, seed: int, groups: Mapping[tuple[int, str], Sequence[bool]], rate: Mapping[str, float], steps: int
) -> list[dict[str, Any]]:
    """`group_rows` from groups by (step, problem)."""
    cells: dict[tuple[int, int], list[tuple[bool, float, float, float]]] = defaultdict(list)
    for (step, problem), right in groups.items():
        p, n = rate[problem], len(right)
        third = min(THIRDS - 1, step * THIRDS // steps)
        expected = 1 - p**n - (1 - p) ** n
        cells[third, int(bin_of(p))].append((0 < sum(right) < n, sum(right) / n, expected, p))
    rows = []
    for (third, b), x in sorted(cells.items()):
        signal, success, base_signal, base_success = (round(float(v), 5) for v in np.mean(np.array(x, float), axis=0))
        rows.append({"method": method, "seed": seed, "third": third, "bin": b, "groups": len(x), "signal": signal,
                     "success": success, "base_signal": base_signal, "base_success": base_success})  # fmt: skip
    return rows
