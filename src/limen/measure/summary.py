"""One policy: its pass@k curve and what it was measured on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from limen.measure.align import samples_json, table_notes
from limen.measure.counts import CountTable
from limen.measure.curve import PassCurve, pass_curve
from limen.measure.describe import Measure, summarise, vote_ks
from limen.measure.resample import Over
from limen.measure.votes import AnswerTable, maj_table


@dataclass(frozen=True)
class Summary:
    """What `limen passk` prints of one policy. maj: majority votes by k, where the answers are known."""

    table: CountTable
    curve: PassCurve
    notes: tuple[str, ...]
    maj: dict[int, Measure] = field(default_factory=dict)

    @property
    def avg(self) -> float | None:
        """avg@n: mean over problems of c/n; None under adaptive stopping, where c/n is biased (see pass@1)."""
        t = self.table
        if t.stop is not None or (t.n_P == 0).any():
            return None
        return float((t.c_P / t.n_P).mean())

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON values (NaN is null and has its reason under `undefined`)."""
        c = self.curve
        value, low, high = ([None if math.isnan(x) else x for x in a.tolist()] for a in (c.value_K, c.low_K, c.high_K))
        ks = [str(k) for k in c.k_K.tolist()]
        return {
            "name": self.table.name,
            "problems": self.table.M,
            "samples": samples_json(self.table),
            "pass_at_k": dict(zip(ks, value)),
            "avg": self.avg,
            "maj_at_k": {str(k): m.value for k, m in self.maj.items()},
            "maj_at_k_interval": {str(k): [m.low, m.high] for k, m in self.maj.items()},
            "pass_at_k_interval": dict(zip(ks, map(list, zip(low, high)))),
            "interval": {"level": c.level, "resampled": c.resampled},
            "undefined": {str(k): why for k, why in c.undefined.items()},
            "notes": list(self.notes),
        }


def summary(
    table: CountTable,
    ks: Iterable[int] | None = None,
    draws: int = 1000,
    seed: int = 0,
    over: Over = "problems",
    answers: AnswerTable | None = None,
) -> Summary:
    """pass@k curve of one policy, and maj@k where `answers` are given, with the notes that go with them."""
    notes = table_notes(table)
    curve = pass_curve(table, ks, draws, seed, over=over)
    if answers is None or table.stop is not None:
        return Summary(table, curve, tuple(notes))
    k_K = [k for k in (vote_ks(table) if ks is None else curve.k_K.tolist()) if k <= table.n_min]
    votes = summarise({str(k): column for k, column in zip(k_K, maj_table(answers, k_K).T)}, draws, seed)
    return Summary(table, curve, tuple(notes), {int(k): m for k, m in votes.items()})
