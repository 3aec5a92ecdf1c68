"""Families of problems by what training did to them (Invisible Leash, figures 2 to 4): the rule, and the table.

shrinkage     ahead at one attempt, behind at n_max (paired interval below 0)
expansion     ahead at n_max (paired interval above 0), E above chance in every run
preservation  both reach 0.99 at n_max, or neither side's lead there excludes 0, and training needs fewer attempts to
              reach 0.9 of the base's coverage
none          anything else
"""

from __future__ import annotations

from collections.abc import Sequence

from limen.lab.claims_rules import change, n_max, tables, values
from limen.lab.evidence import Trained


def classify(runs: Sequence[Trained], family: str) -> str:
    """shrinkage, expansion, preservation or none, of the seed mean."""
    k, only = n_max(runs), (family,)
    first, last = change(runs, 1, only), change(runs, k, only)
    if first[0] > 0 and last[2] < 0:
        return "shrinkage"
    if last[1] > 0 and all(s.E_p < 0.05 for s in tables(runs, only)):
        return "expansion"
    if first[0] > 0 and last[1] <= 0 <= last[2] and _needed(runs, family, "trained") < _needed(runs, family, "base"):
        return "preservation"
    return "none"


def _needed(runs: Sequence[Trained], family: str, side: str) -> int:
    """Smallest power of two at which 0.9 of the base's coverage at n_max is reached (beyond n_max where it is not)."""
    k = n_max(runs)
    goal = 0.9 * float(values(runs, k, "base", (family,)).mean())
    at = 1
    while at <= k and float(values(runs, at, side, (family,)).mean()) < goal:
        at *= 2
    return at
