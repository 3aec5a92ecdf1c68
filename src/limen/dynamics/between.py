"""`limen dynamics`: what lies between checkpoints (RBP §4–5, figures 3, 4 and 14).

Three parts, each from what is given. *Probe*: Δ⁺, ‖Δ‖, log π(y⁺), perplexities and clip violations on a probe set, of
every checkpoint against the base and against the one before. *Interference and coverage* (fig. 3): over all pairs T<T',
Δ⁺(π_T', π_T) on the correct responses of π_T against pass@k(T') − pass@k(T). *Perplexities* (fig. 4, 14): own samples
under the policy and under the base; the base's samples under the policy, all, correct and wrong, and on the problems
whose accuracy rose most (D↑) and fell most (D↓).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from limen.dynamics.checkpoints import Checkpoint, score_all, take_responses
from limen.dynamics.probe import ProbePairs, load_probe
from limen.dynamics.quantities import Floats, Scored, change, clip_violation, movers, ratios
from limen.dynamics.resample import Estimate, Resampler, to_json
from limen.errors import DataError
from limen.measure import CountTable, counts_from_run, pass_at_k

PROBE = "@probe"
K = 128
RESPONSES = 16
SHOWN = 5
"""Problems that an error names."""
TOP, SMALL, TOP_OF_SMALL = 64, 60, 3
"""D↑ and D↓ hold at most 64 problems each, 3 where a benchmark has fewer than 60 problems (the AIME sets have 30)."""


@dataclass
class Data:
    """What the parts are computed from."""

    checkpoints: list[Checkpoint]
    sets: dict[str, ProbePairs]
    scores: dict[tuple[str, int], Scored]
    counts: list[CountTable | None]
    k: int
    draws: int
    seed: int
    notes: list[str] = field(default_factory=list)

    def values(self, name: str, place: int) -> Floats:
        """Per-token mean log-likelihood of a set's responses under a checkpoint."""
        return self.scores[name, place].mean_N


def gather(
    checkpoints: list[Checkpoint],
    out: Path,
    probe: Path | None = None,
    k: int = K,
    responses: int = RESPONSES,
    draws: int = 1000,
    seed: int = 0,
    device: str | None = None,
    dtype: str | None = None,
    batch_tokens: int | None = None,
    say: Any = None,
) -> Data:
    """Read the samples, and score each set of responses under each policy that is asked about it.

    Raises `DataError` where there is neither a probe set nor samples, or where the samples are of other problems.
    """
    sets: dict[str, ProbePairs] = {}
    if probe is not None:
        sets[PROBE] = load_probe(probe)
    counts = [None if c.samples is None else counts_from_run(c.samples) for c in checkpoints]
    sampled = [i for i, t in enumerate(counts) if t is not None]
    if not sampled and probe is None:
        raise DataError("nothing to look at: give a probe set (--probe), or runs of `limen sample`, or --problems")
    notes = []
    if sampled:
        if counts[0] is None:
            raise DataError("the checkpoints have samples but the base has none: sample the base on the same problems")
        _check(checkpoints, counts)
        for i in sampled:
            samples = checkpoints[i].samples
            assert samples is not None
            sets[checkpoints[i].name] = take_responses(samples, responses, seed)
        least = min(t.n_min for t in counts if t is not None)
        if least < k:
            notes.append(f"pass@{least} stands for pass@{k}: some problem has only {least} judged samples")
            k = least
    wanted = [(PROBE, i) for i in range(len(checkpoints)) if probe is not None]
    for i in sampled:
        # Its own policy, the base, and every later policy.
        wanted += [(checkpoints[i].name, j) for j in range(len(checkpoints)) if j >= i or j == 0]
    scores = score_all(checkpoints, sets, wanted, out, device, dtype, batch_tokens, say)
    return Data(checkpoints, sets, scores, counts, k, draws, seed, notes)


def _check(checkpoints: Sequence[Checkpoint], counts: Sequence[CountTable | None]) -> None:
    base = counts[0]
    assert base is not None
    for c, t in zip(checkpoints, counts, strict=True):
        if t is not None and set(t.problem_ids) != set(base.problem_ids):
            raise DataError(f"{c.name} was sampled on other problems than {checkpoints[0].name}: sample both alike")
        if t is not None and dict(zip(t.problem_ids, t.prompt_hash_P)) != dict(
            zip(base.problem_ids, base.prompt_hash_P)
        ):
            raise DataError(
                f"{c.name} was given other prompts than {checkpoints[0].name}: sample both with one template"
            )
        if t is not None:
            _check_judged(c, t)


def _check_judged(c: Checkpoint, table: CountTable) -> None:
    """pass@k needs a judged sample of every problem, whatever k."""
    bare = np.flatnonzero(table.n_P == 0)
    if not len(bare):
        return
    shown = ", ".join(
        f"{table.problem_ids[i]} ({u} unjudged)"
        if (u := table.unjudged_P[i])
        else f"{table.problem_ids[i]} (none drawn)"
        for i in bare[:SHOWN]
    )
    more = f" and {len(bare) - SHOWN} more" if len(bare) > SHOWN else ""
    raise DataError(
        f"{c.samples} ({c.name}) has no judged sample of problem {shown}{more}, and pass@k needs at least one of every "
        f"problem: judge what is stored (`limen verify {c.samples}`), draw more with the command that made the run, or "
        "leave such problems out of every run"
    )


# -- on the probe set ------------------------------------------------------------------------------------------------


def on_probe(d: Data, epsilon: float = 0.2) -> list[dict[str, Any]]:
    """One row per checkpoint: its probe quantities, and its changes against the base and against the one before."""
    pairs = d.sets[PROBE]
    problems, right = pairs.problem_N, pairs.correct_N
    r = Resampler(sorted(set(problems)), d.draws, d.seed)
    rows = []
    for j, c in enumerate(d.checkpoints):
        after = d.scores[PROBE, j]
        row: dict[str, Any] = {
            "name": c.name,
            "step": c.step,
            "logp_plus": r.mean(after.mean_N, problems, right),
            "logp_minus": r.mean(after.mean_N, problems, ~right),
            "ppl": r.mean(np.exp(-after.mean_N), problems),
            "ppl_correct": r.mean(np.exp(-after.mean_N), problems, right),
            "ppl_wrong": r.mean(np.exp(-after.mean_N), problems, ~right),
        }
        if after.entropy_T is not None:
            row["entropy"] = r.mean(after.entropy_N, problems)
        if j:
            row["from_base"] = _changes(r, d.scores[PROBE, 0], after, problems, right, epsilon)
            row["from_previous"] = _changes(r, d.scores[PROBE, j - 1], after, problems, right, epsilon)
        rows.append(row)
    return rows


def _changes(
    r: Resampler, before: Scored, after: Scored, problems: list[str], right: Any, epsilon: float
) -> dict[str, Any]:
    delta = change(before, after)
    return {
        "delta_plus": r.mean(delta, problems, right),
        "delta_minus": r.mean(delta, problems, ~right),
        "influence": r.mean(np.square(delta), problems),
        "clip": clip_violation(ratios(before, after), epsilon),
    }


# -- interference against coverage (figure 3) ------------------------------------------------------------------------


def interference_and_coverage(d: Data) -> dict[str, Any]:
    """All pairs T<T' with samples: Δ⁺ and Δpass@k, and their correlation, for all problems and for each task."""
    base = d.counts[0]
    assert base is not None
    tasks = {"all": list(base.problem_ids)}
    own = dict.fromkeys(base.task_P)
    if len(own) > 1:
        tasks |= {t: [p for p, x in zip(base.problem_ids, base.task_P) if x == t] for t in own}
    return {"k": d.k, "tasks": {t: _correlated(d, problems) for t, problems in tasks.items()}}


def _correlated(d: Data, problems: list[str]) -> dict[str, Any]:
    r = Resampler(problems, d.draws, d.seed)
    pass_P = {i: _passes(t, problems, d.k) for i, t in enumerate(d.counts) if t is not None}
    rows, sums, changes = [], [], []
    for i, j in combinations(pass_P, 2):
        pairs = d.sets[d.checkpoints[i].name]
        delta = d.values(pairs_name(d, i), j) - d.values(pairs_name(d, i), i)
        sum_M, count_M = r.sums(delta, pairs.problem_N, pairs.correct_N)
        step_P = pass_P[j] - pass_P[i]
        rows.append({
            "from": d.checkpoints[i].name, "to": d.checkpoints[j].name, "delta_plus": r.ratio(sum_M, count_M),
            "pairs": int(count_M.sum()), "delta_pass": r.ratio(step_P, np.ones(len(problems))),
        })  # fmt: skip
        if count_M.sum():
            sums.append((sum_M, count_M))
            changes.append(step_P)
    change_JM = np.array(changes).reshape(len(changes), len(problems))
    return {
        "problems": len(problems),
        "pairs": rows,
        "pearson": r.correlation(sums, change_JM, "pearson"),
        "spearman": r.correlation(sums, change_JM, "spearman"),
    }


def pairs_name(d: Data, place: int) -> str:
    return d.checkpoints[place].name


def _passes(table: CountTable, problems: list[str], k: int) -> Floats:
    at = {p: i for i, p in enumerate(table.problem_ids)}
    rows = [at[p] for p in problems]
    return np.asarray(pass_at_k(table.n_P[rows], table.c_P[rows], k), dtype=np.float64).reshape(-1)


# -- perplexities (figures 4 and 14) ---------------------------------------------------------------------------------


def perplexities(d: Data) -> dict[str, Any]:
    """For all problems and for each task: one row per checkpoint, and the problems of D↑ and D↓ (by the last one)."""
    base = d.counts[0]
    assert base is not None
    tasks = {"all": list(base.problem_ids)}
    own = dict.fromkeys(base.task_P)
    if len(own) > 1:
        tasks |= {t: [p for p, x in zip(base.problem_ids, base.task_P) if x == t] for t in own}
    return {t: _perplexity_rows(d, problems) for t, problems in tasks.items()}


def _perplexity_rows(d: Data, problems: list[str]) -> dict[str, Any]:
    r = Resampler(problems, d.draws, d.seed)
    sampled = [i for i, t in enumerate(d.counts) if t is not None]
    first, last = d.counts[0], d.counts[sampled[-1]]
    assert first is not None
    assert last is not None
    up, down = movers(_rates(first, problems), _rates(last, problems), TOP if len(problems) >= SMALL else TOP_OF_SMALL)
    rise, fall = {problems[i] for i in up}, {problems[i] for i in down}
    base = d.sets[d.checkpoints[0].name]
    in_rise = np.array([p in rise for p in base.problem_N], dtype=bool)
    in_fall = np.array([p in fall for p in base.problem_N], dtype=bool)
    rows = []
    for j, c in enumerate(d.checkpoints):
        ppl = np.exp(-d.values(d.checkpoints[0].name, j))
        row: dict[str, Any] = {
            "name": c.name,
            "step": c.step,
            "base": r.mean(ppl, base.problem_N),
            "base_correct": r.mean(ppl, base.problem_N, base.correct_N),
            "base_wrong": r.mean(ppl, base.problem_N, ~base.correct_N),
            "rose": r.mean(ppl, base.problem_N, in_rise),
            "rose_correct": r.mean(ppl, base.problem_N, in_rise & base.correct_N),
            "fell": r.mean(ppl, base.problem_N, in_fall),
            "fell_correct": r.mean(ppl, base.problem_N, in_fall & base.correct_N),
        }
        if j in sampled:
            own = d.sets[c.name]
            row["own"] = r.mean(np.exp(-d.values(c.name, j)), own.problem_N)
            row["own_under_base"] = r.mean(np.exp(-d.values(c.name, 0)), own.problem_N)
            table = d.counts[j]
            assert table is not None
            row["pass1"] = r.ratio(_rates(table, problems), np.ones(len(problems)))
            row["passk"] = r.ratio(_passes(table, problems, d.k), np.ones(len(problems)))
        rows.append(row)
    return {"rows": rows, "rose": sorted(rise), "fell": sorted(fall)}


def _rates(table: CountTable, problems: list[str]) -> Floats:
    return _passes(table, problems, 1)


def measure(d: Data) -> dict[str, Any]:
    """Every part that the data has; values are `Estimate`s."""
    out: dict[str, Any] = {
        "checkpoints": [{"name": c.name, "step": c.step, "model": c.model} for c in d.checkpoints],
        "k": d.k,
        "notes": d.notes,
    }
    if PROBE in d.sets:
        out["probe"] = {"name": d.sets[PROBE].name, "pairs": len(d.sets[PROBE]), "rows": on_probe(d)}
    if d.counts[0] is not None:
        out["interference"] = interference_and_coverage(d)
        out["perplexity"] = perplexities(d)
    return out


def write(d: Data, out: Path, more: dict[str, Any] | None = None) -> dict[str, Any]:
    """Measure, write `out/dynamics.json`, and return the result with its `Estimate`s. `more` goes into it too."""
    from limen.provenance import provenance
    from limen.store.writer import write_json

    result = {**measure(d), **(more or {})}
    write_json(out / "dynamics.json", {**to_json(result), "provenance": provenance()})
    return result


__all__ = ["Data", "Estimate", "gather", "interference_and_coverage", "measure", "on_probe", "perplexities", "write"]
