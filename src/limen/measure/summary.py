"""One policy: its pass@k curve and what it was measured on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from limen.measure.align import samples_json, unjudged_note
from limen.measure.counts import CountTable
from limen.measure.curve import PassCurve, pass_curve


@dataclass(frozen=True)
class Summary:
    """What `limen passk` prints of one policy."""

    table: CountTable
    curve: PassCurve
    notes: tuple[str, ...]

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
            "pass_at_k_interval": dict(zip(ks, map(list, zip(low, high)))),
            "interval": {"level": c.level, "resampled": c.resampled},
            "undefined": {str(k): why for k, why in c.undefined.items()},
            "notes": list(self.notes),
        }


def summary(table: CountTable, ks: Iterable[int] | None = None, draws: int = 1000, seed: int = 0) -> Summary:
    """pass@k curve of one policy, with the notes that go with it."""
    notes = list(table.notes)
    if table.unjudged_P.sum():
        notes.append(unjudged_note(table))
    return Summary(table, pass_curve(table, ks, draws, seed), tuple(notes))
