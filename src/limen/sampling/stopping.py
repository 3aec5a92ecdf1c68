"""Adaptive stopping: sample a problem until its r-th success, or n times.

Problems go forward in rounds of growing blocks, so that an engine's batches stay full. What a block draws beyond the
r-th success is stored too and left out where the run is measured, in the order of the sample index; the estimators
of `limen.measure` know the rule. A block is half of what was drawn before (r samples at first), so at most a third of
a problem's samples, or r - 1, is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence


class Stopping:
    """Which samples come next, problem by problem.

    r: successes to stop after. n: most samples of a problem. stored: (problem, sample) that are there already.
    known: successes among them. `spared` counts the samples that need not be drawn, once nothing is wanted any more.
    """

    def __init__(
        self, r: int, n: int, ids: Sequence[str], stored: set[tuple[str, int]], known: Mapping[str, int]
    ) -> None:
        self.r, self.n, self.known = r, n, known
        have: dict[str, set[int]] = {pid: set() for pid in ids}
        for pid, index in stored:
            if pid in have:
                have[pid].add(index)
        self._top = {pid: max(indices, default=-1) + 1 for pid, indices in have.items()}
        self._holes = {
            pid: tuple(i for i in range(self._top[pid]) if i not in indices) for pid, indices in have.items()
        }
        self.spared = 0

    def wanted(self, correct: Counter[str]) -> dict[str, tuple[int, ...]]:
        """The next block of each problem that is not finished, given the successes since the start; {} at the end.

        Gaps that a killed run left below the last stored sample come first: which success is the r-th depends on them.
        """
        holes = {pid: missing for pid, missing in self._holes.items() if missing}
        self._holes = {}
        if holes:
            return holes
        blocks = {}
        for pid, top in self._top.items():
            if self.known.get(pid, 0) + correct[pid] < self.r and top < self.n:
                end = min(self.n, top + block(top, self.r))
                blocks[pid] = tuple(range(top, end))
                self._top[pid] = end
        if not blocks:
            self.spared = sum(self.n - top for top in self._top.values())
        return blocks


def block(drawn: int, r: int) -> int:
    """How many samples to draw next of a problem that had `drawn` so far and is not finished."""
    return max(r, drawn // 2)
