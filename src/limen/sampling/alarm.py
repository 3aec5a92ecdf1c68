"""Identical responses beyond chance: the sign that samples share a random seed.

Identical responses alone say nothing: a sure model repeats itself. What is improbable is a repetition of a response
that was improbable. With q the probability with which a response was drawn, the other n-1 samples of its problem
repeat it (n-1)q times in expectation. Over responses with n*q small, repetitions are nearly Poisson.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict

RARE = 0.1
"""A response counts if it is expected so often, at most, among the n samples of its problem."""
ALARM = 1e-9
LEAST_PAIRS = 3


class RepeatAlarm:
    """Feed it every new response with its log-probability; `message` is None while all is well."""

    def __init__(self) -> None:
        self._seen: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._q: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)

    def add(self, problem_id: str, token_ids: tuple[int, ...], log_q: float | None) -> None:
        if log_q is None or log_q > math.log(RARE):
            return
        key = hash(token_ids)
        self._seen[problem_id][key] += 1
        self._q[problem_id].append((key, math.exp(log_q)))

    def counts(self, samples: dict[str, int]) -> tuple[int, float]:
        """(identical pairs among rare responses, expected number); `samples`: new responses of each problem."""
        pairs, expected = 0, 0.0
        for problem_id, drawn in self._q.items():
            n = samples[problem_id]
            rare = [(key, q) for key, q in drawn if n * q <= RARE]
            expected += sum((n - 1) * q / 2 for _, q in rare)
            for key in {key for key, _ in rare}:
                count = self._seen[problem_id][key]
                pairs += count * (count - 1) // 2
        return pairs, expected

    def message(self, samples: dict[str, int]) -> str | None:
        pairs, expected = self.counts(samples)
        if pairs < LEAST_PAIRS or _poisson_tail(pairs, expected) > ALARM:
            return None
        return (
            f"{pairs} pairs of identical improbable responses, where {expected:.2g} are expected by chance: samples of "
            "one problem share their randomness, so pass@k of this run is too low. Use an engine that honours seeds"
        )


def _poisson_tail(k: int, mean: float) -> float:
    """Chernoff's bound on P(X >= k) for a Poisson X."""
    if k <= mean:
        return 1.0
    if mean == 0:
        return 0.0
    return math.exp(k - mean - k * math.log(k / mean))
