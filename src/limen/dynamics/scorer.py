"""Scoring with entropies: limen's scorer, asked for the full-vocabulary entropy of every step as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from limen.dynamics.quantities import Scored
from limen.engines.protocol import ScoreRequest
from limen.engines.runner import Runner
from limen.engines.scoring import Scorer


class EntropyScorer(Scorer):
    """`Scorer` whose arrays have shape (tokens, 2): log-probability and entropy of the step (nats, float32)."""

    def _values(self, logits_NV: torch.Tensor, targets_N: torch.Tensor) -> torch.Tensor:
        return both(logits_NV, targets_N)


def both(logits_NV: torch.Tensor, targets_N: torch.Tensor) -> torch.Tensor:
    """(log-probability of the target, entropy) of each row of logits, float32, shape (N, 2)."""
    log_NV = torch.log_softmax(logits_NV, dim=-1, dtype=torch.float32)
    chosen_N = log_NV.gather(1, targets_N[:, None])[:, 0].clamp(max=0.0)
    entropy_N = torch.special.entr(log_NV.exp_()).sum(-1)
    return torch.stack([chosen_N, entropy_N], dim=1)


def score(runner: Runner, requests: Sequence[ScoreRequest], entropies: bool = False, **options: Any) -> Scored:
    """Log-probabilities (and entropies) of stored responses under the model of `runner`, as it is now."""
    if not entropies:
        return Scored.of(Scorer(runner, **options).score(requests))
    rows = EntropyScorer(runner, **options).score(requests)
    pairs = [r.reshape(-1, 2) for r in rows]
    return Scored.of([p[:, 0] for p in pairs], [p[:, 1] for p in pairs])
