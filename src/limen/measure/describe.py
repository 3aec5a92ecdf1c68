"""One run beyond pass@k: votes, diversity, length, modes, entropy; each a mean over problems with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from limen.measure.bootstrap import problem_weights, t_tail
from limen.measure.counts import CountTable
from limen.measure.curve import default_ks
from limen.measure.passk import Floats
from limen.measure.responses import CODE, responses_from_run
from limen.measure.runs import counts_from_run
from limen.measure.votes import Merge, answers_from_run, diversity_table, maj_table

BUDGET = 32
"""Samples at which answer entropy is compared (Invisible Leash)."""

_UNDER_STOPPING = frozenset({"tokens", "tokens_correct", "tokens_not_correct", "truncated", "token_entropy"})
"""What an adaptive run says of its responses all the same (of the samples up to the last success)."""


@dataclass(frozen=True)
class Measure:
    """Mean over the `problems` that have the quantity (the others are NaN), with an interval over problems."""

    value: float
    low: float
    high: float
    problems: int


@dataclass(frozen=True)
class Description:
    """Measures by name; `maj@k` ones by k. per_problem holds what the means are of, shape (P,) each."""

    table: CountTable
    budget: int
    measures: dict[str, Measure]
    per_problem: dict[str, Floats]
    why: dict[str, str] = field(default_factory=dict)
    resampled: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON values; NaN is null with its reason under `undefined`."""
        rows = {name: measure_json(m) for name, m in self.measures.items()}
        return {
            "name": self.table.name,
            "problems": self.table.M,
            "budget": self.budget,
            "unjudged": int(self.table.unjudged_P.sum()),
            "measures": rows,
            "interval": self.resampled,
            "undefined": self.why,
            "notes": list(self.table.notes),
        }


def describe(
    path: str | Path,
    policy: str | None = None,
    step: int | None = None,
    verifier: str | None = None,
    *,
    budget: int = BUDGET,
    pattern: str = CODE,
    merge: Merge | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Description:
    """Everything but pass@k that a run folder says of one policy.

    budget: samples at which answer entropy and distinct answers are taken (fewer where the run has fewer, which
    `budget` of the result says). pattern: regular expression that marks a response as code. merge: joins
    equivalent wrong answers.
    """
    table = counts_from_run(path, policy, step, verifier)
    key = (table.policy, table.step, table.verifier)
    answers = answers_from_run(path, *key, merge=merge)
    at = max(1, min(budget, int(answers.n_P.min(initial=budget))))
    per_problem = diversity_table(answers, at)
    k_K = vote_ks(table)
    per_problem |= {f"maj@{k}": column for k, column in zip(k_K, maj_table(answers, k_K).T)}
    responses = responses_from_run(path, *key, pattern=pattern)
    why = {} if responses is None else dict(responses.why)
    if responses is None:
        why["responses"] = "the run keeps no responses: length, modes and token entropy are not known"
    else:
        per_problem |= responses.columns
    if table.stop is not None:
        per_problem = {name: values for name, values in per_problem.items() if name in _UNDER_STOPPING}
        why["votes, diversity and accuracy by mode"] = (
            "adaptive run: samples end with a success, so what counts answers is biased; sample a fixed n for these"
        )
    measures = summarise(per_problem, draws, seed)
    how = f"problems ({table.M}) with replacement, {draws} draws, seed {seed}, 95% interval"
    return Description(table, at, measures, per_problem, why, how)


def describe_difference(
    first: Description, second: Description, draws: int = 1000, seed: int = 0
) -> dict[str, Measure]:
    """Second minus first on the problems that both have, paired; only measures that both took at one budget."""
    at = {p: i for i, p in enumerate(second.table.problem_ids)}
    pairs = [(i, at[p]) for i, p in enumerate(first.table.problem_ids) if p in at]
    if not pairs:
        return {}
    left, right = np.array(pairs).T
    at_budget = {"answer_entropy", "distinct_answers", "unseen_mass", "answers_chao1"}
    names = [
        n
        for n in first.per_problem
        if n in second.per_problem and (first.budget == second.budget or n not in at_budget)
    ]
    gaps = {n: second.per_problem[n][right] - first.per_problem[n][left] for n in names}
    return summarise(gaps, draws, seed)


def vote_ks(table: CountTable) -> list[int]:
    """Budgets of maj@k: powers of two up to the smallest n, fewer where exact votes would take minutes."""
    ks = [int(k) for k in default_ks(table)]
    cheap = table.M * int(table.n_P.max(initial=0)) <= 100_000
    return ks if cheap else [k for k in ks if k in (1, 8) or k == ks[-1]]


def summarise(per_problem: dict[str, Floats], draws: int, seed: int) -> dict[str, Measure]:
    """Means over the problems that have a value, all resampled together."""
    out: dict[str, Measure] = {}
    if not per_problem:
        return out
    M = next(iter(per_problem.values())).size
    weights = problem_weights(M, draws, np.random.default_rng(seed)) if draws and M > 1 else None
    for name, values in per_problem.items():
        has = ~np.isnan(values)
        count = int(has.sum())
        low = high = math.nan
        if weights is not None and count > 1:
            mass = weights @ has
            means = (weights @ np.where(has, values, 0.0))[mass > 0] / mass[mass > 0]
            tail = float(t_tail(count - 1, 0.95, math.sqrt(count / (count - 1))))
            low, high = (float(x) for x in np.quantile(means, [tail, 1 - tail]))
        out[name] = Measure(float(values[has].mean()) if count else math.nan, low, high, count)
    return out


def measure_json(m: Measure) -> dict[str, Any]:
    """value, low, high, problems; NaN is null."""
    return {"value": _plain(m.value), "low": _plain(m.low), "high": _plain(m.high), "problems": m.problems}


def _plain(x: float) -> float | None:
    return None if math.isnan(x) else x
