"""Two policies on the same problems: pass@k curves, their paired difference, support, and each question."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from limen.measure.adaptive import PosteriorVerdicts, adaptive_support, budget_P, posterior_verdicts
from limen.measure.align import align, samples_json
from limen.measure.counts import CountTable
from limen.measure.curve import PassCurve, mean_interval, pass_curve, pick_ks, problem_values
from limen.measure.flips import same_policy_flips
from limen.measure.passk import Floats, Ints, log_fail
from limen.measure.resample import Over
from limen.measure.support import SupportResult, matched_support, support
from limen.measure.verdicts import QuestionVerdicts, question_verdicts
from limen.measure.words import crossing_sentence, same_policy_sentence, support_sentences


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    base, trained: the tables compared, restricted to the shared problems in one order. difference_K: trained minus
    base, with an interval paired by problem. support is None where a problem has no judged sample. support_by_k:
    expected P/E/S/O at smaller budgets with the chance flips there (fixed n only). same_policy: the A/A control.
    notes: what every reader of these numbers should be told.
    """

    base: CountTable
    trained: CountTable
    base_curve: PassCurve
    trained_curve: PassCurve
    difference_K: Floats
    difference_low_K: Floats
    difference_high_K: Floats
    support: SupportResult | None
    questions: QuestionVerdicts | PosteriorVerdicts | None
    support_by_k: dict[int, dict[str, float]]
    same_policy: dict[str, Any]
    notes: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()

    @property
    def k_K(self) -> Ints:
        return self.base_curve.k_K

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON values (NaN is null and has its reason beside it)."""
        ks = [str(k) for k in self.k_K.tolist()]
        sides = {"base": (self.base, self.base_curve), "trained": (self.trained, self.trained_curve)}
        rows = zip(self.difference_K.tolist(), self.difference_low_K.tolist(), self.difference_high_K.tolist())
        return {
            "names": {side: table.name for side, (table, _) in sides.items()},
            "problems": self.base.M,
            "samples": {side: samples_json(table) for side, (table, _) in sides.items()},
            "pass_at_k": {side: dict(zip(ks, plain(curve.value_K))) for side, (_, curve) in sides.items()},
            "pass_at_k_interval": {
                side: dict(zip(ks, map(list, zip(plain(curve.low_K), plain(curve.high_K)))))
                for side, (_, curve) in sides.items()
            },
            "pass_at_k_difference": {
                k: dict(zip(("value", "low", "high"), plain(np.array(row)))) for k, row in zip(ks, rows)
            },
            "interval": {"level": self.base_curve.level, "resampled": self.base_curve.resampled},
            "support": None if self.support is None else self.support.to_json(),
            "support_by_k": {str(k): row for k, row in self.support_by_k.items()},
            "same_policy": self.same_policy,
            "verdicts": None if self.questions is None else {"q": self.questions.q, **self.questions.count()},
            "questions": self._questions_json(),
            "undefined": {
                side: {str(k): why for k, why in curve.undefined.items()} for side, (_, curve) in sides.items()
            },
            "notes": list(self.notes),
            "sentences": list(self.sentences),
        }

    def _questions_json(self) -> list[dict[str, Any]]:
        b, t, q = self.base, self.trained, self.questions
        columns: dict[str, list[Any]] = {
            "problem_id": list(b.problem_ids),
            "task": list(b.task_P),
            "base_n": b.n_P.tolist(),
            "base_c": b.c_P.tolist(),
            "trained_n": t.n_P.tolist(),
            "trained_c": t.c_P.tolist(),
        }
        if q is not None:
            columns["verdict"] = q.verdict_P.tolist()
        if isinstance(q, QuestionVerdicts):
            columns |= {"p_flip": q.p_flip_P.tolist(), "rate": q.rate_P.tolist(), "p_rate": q.p_rate_P.tolist()}
        elif q is not None:
            columns["probability"] = q.probability_P.tolist()
        return [dict(zip(columns, row)) for row in zip(*columns.values())]


def compare(
    base: CountTable,
    trained: CountTable,
    *,
    ks: Iterable[int] | None = None,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    over: Over = "problems",
    q: float = 0.05,
    force: bool = False,
) -> Comparison:
    """Compare two policies problem by problem. Raises `DataError` where that would mislead.

    Refused unless `force`: different problem sets (then the shared ones are compared, and the notes say so) and
    different rendered prompts for the same problem. ks, draws, seed, level, over: as in `pass_curve`. q: false
    discovery rate of the verdicts on single questions.
    """
    base, trained, notes = align(base, trained, force)
    k_K = pick_ks(ks, base, trained)
    curves = [
        pass_curve(t, k_K, draws, seed, level, over) if k_K.size else _no_curve(t, level) for t in (base, trained)
    ]
    values = [problem_values(t, k_K) for t in (base, trained)]
    low, high = mean_interval([base, trained], values, k_K, draws, seed, level, over)
    gap_K = (values[1] - values[0]).mean(axis=0)
    found, questions = _support(base, trained, q, notes)
    adaptive = base.stop is not None or trained.stop is not None
    same = {} if found is None or adaptive else _same_policy(base, trained)
    lines: list[str] = []
    if found is not None and questions is not None:
        lines = support_sentences(found, _budget_words(base, trained), questions.count(), q)
        crossing = _crossing(k_K, gap_K, low, high)
        lines += [line for line in [crossing] if line]
        lines += [same_policy_sentence(base.name, same["budget"], same["base"])] if same else []
    return Comparison(
        base=base,
        trained=trained,
        base_curve=curves[0],
        trained_curve=curves[1],
        difference_K=gap_K,
        difference_low_K=low,
        difference_high_K=high,
        support=found,
        questions=questions,
        support_by_k={} if found is None or adaptive else _support_by_k(base, trained, k_K),
        same_policy=same,
        notes=tuple(notes),
        sentences=tuple(lines),
    )


def _support(
    base: CountTable, trained: CountTable, q: float, notes: list[str]
) -> tuple[SupportResult | None, QuestionVerdicts | PosteriorVerdicts | None]:
    """P/E/S/O and verdicts by the method that fits how the tables were sampled."""
    if (base.n_P == 0).any() or (trained.n_P == 0).any():
        notes.append("support not computed: some problems have no judged sample under one policy")
        return None, None
    if base.stop is not None or trained.stop is not None:
        notes.append("adaptive stopping: chance columns and verdicts are from posteriors (see docs/metrics.md)")
        return adaptive_support(base, trained), posterior_verdicts(base, trained, q)
    if not np.array_equal(base.n_P, trained.n_P):
        notes.append(
            "unequal budgets: the policy with more samples solves more by chance; the chance columns and tests allow "
            "for it, and `matched` has the expected counts at equal budgets"
        )
    at_risk = [int(((t.c_P == 0) & (t.unjudged_P > 0)).sum()) for t in (base, trained)]
    if any(at_risk):
        notes.append(
            f"{at_risk[0]} questions without a success of the base, and {at_risk[1]} of the trained policy, have "
            "unjudged samples that could hold one"
        )
    found = support(base.n_P, base.c_P, trained.c_P, trained.n_P)
    return found, question_verdicts(base.n_P, base.c_P, trained.c_P, q, trained.n_P)


def _support_by_k(base: CountTable, trained: CountTable, k_K: Ints) -> dict[int, dict[str, float]]:
    """Expected P/E/S/O at budget k, and the flips each way of two runs of k of one policy (pooled samples)."""
    N, c = base.n_P + trained.n_P, base.c_P + trained.c_P
    out = {}
    for k in k_K.tolist():
        row = matched_support(base.n_P, base.c_P, trained.n_P, trained.c_P, k)
        chance = float((np.exp(log_fail(N, c, k)) - np.exp(log_fail(N, c, 2 * k))).sum())
        cells = {**row, "chance_each_way": chance}
        if not any(math.isnan(v) for v in cells.values()):
            out[k] = cells
    return out


def _same_policy(base: CountTable, trained: CountTable) -> dict[str, Any]:
    """A/A within each policy at half the budget, beside base against trained at that same budget."""
    least = min(base.n_min, trained.n_min)
    if least < 2:
        return {}
    m = least // 2
    between = matched_support(base.n_P, base.c_P, trained.n_P, trained.c_P, m)
    return {
        "budget": m,
        "base": same_policy_flips(base.n_P, base.c_P, m).each_way,
        "trained": same_policy_flips(trained.n_P, trained.c_P, m).each_way,
        "between": {"E": between["E"], "S": between["S"]},
    }


def _crossing(k_K: Ints, gap_K: Floats, low_K: Floats, high_K: Floats) -> str | None:
    """Smallest k from which the sign of the difference is the other one, if both ends are beyond their intervals."""
    if k_K.size < 2 or not (low_K[0] > 0 or high_K[0] < 0) or not (low_K[-1] > 0 or high_K[-1] < 0):
        return None
    up = bool(gap_K[0] > 0)
    if (gap_K[-1] > 0) == up:
        return None
    other = (gap_K < 0) if up else (gap_K > 0)
    return crossing_sentence(int(k_K[np.argmax(other)]), up)


def _budget_words(base: CountTable, trained: CountTable) -> str:
    b, t = budget_P(base), budget_P(trained)
    least, most = int(min(b.min(), t.min())), int(max(b.max(), t.max()))
    return str(most) if least == most else f"{least} to {most}"


def _no_curve(table: CountTable, level: float) -> PassCurve:
    none = np.empty(0)
    return PassCurve(table.name, np.empty(0, dtype=np.int64), none, none, none, level, "nothing")


def plain(values: Floats) -> list[float | None]:
    """Floats for JSON: NaN becomes null."""
    return [None if math.isnan(v) else v for v in values.tolist()]
