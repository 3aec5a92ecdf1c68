"""From count tables and run folders to `ReportData`. All statistics are `limen.measure`'s."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import limen
from limen.measure import (
    Comparison,
    CountTable,
    PassCurve,
    QuestionVerdicts,
    answers_from_run,
    compare,
    maj_table,
    pass_curve,
    responses_from_run,
    series,
    split_half,
)
from limen.measure.describe import BUDGET as DIVERSITY_BUDGET
from limen.measure.describe import summarise
from limen.measure.votes import diversity_table
from limen.provenance import provenance
from limen.report.health import read_health
from limen.report.model import (
    Change,
    Contrast,
    Curve,
    Health,
    Measure,
    Policy,
    ProblemItem,
    ReportData,
    Role,
    SplitHalf,
    VerdictHealth,
)
from limen.report.notes import find_notes
from limen.report.samples import Samples, read_samples
from limen.report.sources import Source
from limen.report.training import read_training
from limen.report.words import p_number
from limen.store import Run
from limen.types import Problem


def collect(
    sources: Sequence[Source],
    train_runs: Sequence[Path | str] = (),
    title: str | None = None,
    max_responses: int = 4,
    draws: int = 1000,
    seed: int = 0,
    force: bool = False,
) -> ReportData:
    """Everything a report shows; `sources` as `arrange` returns them."""
    samples = [_samples(s, i, max_responses) for i, s in enumerate(sources)]
    ids = list(sources[0].table.problem_ids)
    place = {p: i for i, p in enumerate(ids)}
    policies = [_policy(s, place, samples[i], draws, seed, i) for i, s in enumerate(sources)]
    contrasts = []
    for i, s in enumerate(sources[1:], start=1):
        found = compare(sources[0].table, s.table, draws=draws, seed=seed, force=force)
        if found.support is not None:
            contrasts.append(_contrast(i, found, ids))
    notes = find_notes(sources, policies, contrasts, [x.repeated_seeds for x in samples])
    training = [read_training(Path(path), sources, notes) for path in train_runs]
    return ReportData(
        title=title or _title(sources),
        policies=policies,
        contrasts=contrasts,
        problems=_problems(sources, ids, samples),
        split_half=_split_half(sources[0].table, seed),
        training=[t for t in training if t.series],
        notes=notes,
        families=_families(sources),
        provenance=[(s.table.name, _origin(s)) for s in sources],
        made={"limen": limen.__version__, **{k: provenance()[k] for k in ("commit", "time", "command")}},
        live=any(s.run is not None and s.run.info.get("status") == "running" for s in sources),
    )


def _title(sources: Sequence[Source]) -> str:
    names = [s.table.name for s in sources if not s.control]
    return names[0] if len(names) == 1 else f"{names[0]} against {', '.join(names[1:])}"


def _samples(source: Source, index: int, most: int) -> Samples:
    table = source.table
    if source.run is None or table.step is None:
        return Samples({}, {})
    return read_samples(source.run, index, table.policy, table.step, table.verifier, most)


def _policy(source: Source, place: dict[str, int], samples: Samples, draws: int, seed: int, index: int) -> Policy:
    table = source.table
    n_P, c_P = [0] * len(place), [0] * len(place)
    for p, n, c in zip(table.problem_ids, table.n_P.tolist(), table.c_P.tolist(), strict=True):
        if p in place:
            n_P[place[p]], c_P[place[p]] = n, c
    curve = _curve(pass_curve(table, draws=draws, seed=seed)) if table.n_min > 0 else Curve((), (), (), ())
    role: Role = "base" if index == 0 else "control" if source.control else "trained"
    return Policy(
        name=table.name,
        role=role,
        source=str(source.path),
        curve=curve,
        avg=curve.value[0] if curve.k else math.nan,
        n_P=n_P,
        correct_P=c_P,
        health=_health(source, samples),
        family=table.policy or table.name,
        step=table.step,
        last=source.last,
        **_described(source, draws, seed),
    )


def _described(source: Source, draws: int, seed: int) -> dict[str, Any]:
    """Votes, diversity, modes and entropies, where there is a run to describe."""
    table = source.table
    if source.run is None or table.step is None:
        return {}
    key = (table.policy, table.step, table.verifier)
    answers = answers_from_run(source.path, *key)
    least = int(answers.n_P.min(initial=DIVERSITY_BUDGET))
    budget = max(1, min(DIVERSITY_BUDGET, least))
    per_problem = diversity_table(answers, budget)
    if table.n_min > 0:  # the vote of all samples is cheap; votes of fewer are not
        per_problem["vote"] = maj_table(answers, [table.n_min])[:, 0]
    responses = responses_from_run(source.path, *key)
    found = summarise(per_problem | (responses.columns if responses is not None else {}), draws, seed)
    return {"measures": {k: Measure(m.value, m.low, m.high, m.problems) for k, m in found.items()}, "budget": budget}


def _health(source: Source, samples: Samples) -> Health:
    table = source.table
    judged = int(table.n_P.sum())
    known = source.run is not None and judged > 0
    return Health(
        samples=judged,
        no_answer=float(table.no_answer_P.sum()) / judged if known else math.nan,
        truncated=float(table.truncated_P.sum()) / judged if known else math.nan,
        unjudged=int(table.unjudged_P.sum()),
        verifier=table.verifier,
        verdicts=_verdicts(source),
        lengths=samples.lengths,
    )


def _verdicts(source: Source) -> VerdictHealth:
    table = source.table
    if source.run is None or table.step is None:
        return VerdictHealth()
    return read_health(source.run, table.policy, table.step, table.verifier)


def _curve(curve: PassCurve) -> Curve:
    return Curve(curve.k_K.tolist(), curve.value_K.tolist(), curve.low_K.tolist(), curve.high_K.tolist())


def _contrast(index: int, found: Comparison, ids: Sequence[str]) -> Contrast:
    s = found.support
    assert s is not None
    both = zip(found.base.problem_ids, (found.base.c_P > 0).tolist(), (found.trained.c_P > 0).tolist(), strict=True)
    words: dict[tuple[bool, bool], Change] = {
        (True, True): "kept",
        (False, True): "gained",
        (True, False): "lost",
        (False, False): "never",
    }
    change = {p: words[b, t] for p, b, t in both}
    gap = (found.difference_K, found.difference_low_K, found.difference_high_K)
    return Contrast(
        policy=index,
        budget=int(min(found.base.n_P.min(), found.trained.n_P.min())),
        kept=s.P,
        gained=s.E,
        lost=s.S,
        never=s.O,
        chance_gained=s.chance_E,
        chance_lost=s.chance_S,
        p_value=s.mcnemar_p,
        rates={"SRR": s.SRR, "NDR": s.NDR, "SDS": s.SDS, "NSCR": s.NSCR},
        difference=Curve(found.k_K.tolist(), *[x.tolist() for x in gap]),
        change_P=[change.get(p, "") for p in ids],
        **_questions(found, ids),
        by_budget=[(k, r["E"], r["S"], r["chance_each_way"]) for k, r in found.support_by_k.items()],
        notes=_own_notes(found),
    )


def _questions(found: Comparison, ids: Sequence[str]) -> dict[str, Any]:
    """Verdicts per problem, in the order of `ids`, with their evidence in words."""
    q, at = found.questions, {p: i for i, p in enumerate(found.base.problem_ids)}
    if q is None:
        return {"verdict_P": [""] * len(ids)}
    verdicts = q.verdict_P.tolist()
    if isinstance(q, QuestionVerdicts):
        words = [f"p = {p_number(x)}" for x in q.p_flip_P.tolist()]
        rates = q.rate_P.tolist()
    else:
        words = [f"probability {x:.3f}" for x in q.probability_P.tolist()]
        rates = [""] * len(verdicts)
    flips = {"shrunk", "expanded", "undetermined"}
    evidence = [w if v in flips else "" for v, w in zip(verdicts, words, strict=True)]
    columns = {"verdict_P": verdicts, "evidence_P": evidence, "rate_P": rates}
    return {"fdr": q.q, **{k: [v[at[p]] if p in at else "" for p in ids] for k, v in columns.items()}}


def _split_half(table: CountTable, seed: int) -> SplitHalf | None:
    if table.stop is not None or table.n_min < 2:
        return None
    s = split_half(table.n_P, table.c_P, seed)
    rates = {"SRR": s.SRR, "NDR": s.NDR, "SDS": s.SDS, "NSCR": s.NSCR}
    return SplitHalf(table.n_min // 2, s.P, s.E, s.S, s.O, s.chance_each_way, s.mcnemar_p, rates)


def _families(sources: Sequence[Source]) -> list[tuple[str, Sequence[str]]]:
    """Of each policy with several checkpoints: what became of its questions, in words."""
    several = dict.fromkeys(s.table.policy for s in sources if not s.last)
    found: list[tuple[str, Sequence[str]]] = []
    for policy in several:
        steps = [s.table for s in sources[1:] if s.table.policy == policy and not s.control]
        tables = [sources[0].table, *sorted(steps, key=lambda t: t.step or 0)]
        if all(t.stop is None and t.n_min > 0 for t in tables):
            found.append((policy, series(tables, draws=0, force=True).sentences()))
    return found


def _own_notes(found: Comparison) -> list[str]:
    """Notes of the comparison that are not already said of one of its sides."""
    said = {*found.base.notes, *found.trained.notes}
    return [n for n in found.notes if n not in said and " are unjudged " not in n]


def _problems(sources: Sequence[Source], ids: Sequence[str], samples: Sequence[Samples]) -> list[ProblemItem]:
    known: dict[str, Problem] = {}
    for path in dict.fromkeys(s.path for s in sources if s.run is not None):
        for p in Run.open(path).problems():
            known.setdefault(p.id, p)
    tasks = dict(zip(sources[0].table.problem_ids, sources[0].table.task_P, strict=True))
    items = []
    for i in ids:
        p = known.get(i) or Problem(i, "", "", task=tasks.get(i, ""))
        responses = [r for s in samples for r in s.responses.get(i, ())]
        answers = [s.answers.get(i, []) for s in samples]
        items.append(ProblemItem(i, p.task or tasks.get(i, ""), p.problem, p.answer, responses, answers))
    return items


def _origin(source: Source) -> dict[str, Any]:
    if source.run is None:
        return {"file": str(source.path)}
    info = source.run.info
    origin = info.get("provenance", {})
    flat: dict[str, Any] = {
        "folder": str(source.path),
        "status": info.get("status"),
        "starts": 1 + len(info.get("sessions", [])),
    }
    flat |= {
        k: origin.get(k) for k in ("time", "command", "limen", "commit", "dirty", "python") if origin.get(k) is not None
    }
    flat |= {"packages": ", ".join(f"{k} {v}" for k, v in origin.get("packages", {}).items())}
    flat |= {f"hardware {k}": v for k, v in origin.get("hardware", {}).items()}
    flat |= {f"setting {k}": json.dumps(v, ensure_ascii=False) for k, v in source.run.settings.items()}
    return {k: v for k, v in flat.items() if v not in (None, "", [])}
