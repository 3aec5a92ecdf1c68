"""Overtraining gate: leave out a problem whose pass@k can hardly rise any more.

With m of n samples correct and a uniform prior, p has the posterior Beta(m + 1, n - m + 1). The marginal use of a
higher p for pass@k is d/dp (1 - (1-p)^k) = k (1-p)^(k-1); its posterior mean is

    u(m; n, k) = k · Π_{j=1..k-1} (n - m + j) / (n + 1 + j)

A problem is dropped when u(m) < τ(n + 1). τ(n + 1) reads as τ times (n + 1): the bound in units of one sample's
posterior weight. Assumption: a problem's samples are those of this step only.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def use_of_training(m: int, n: int, k: int) -> float:
    """u(m; n, k): from k (nothing solved, n large) down to almost 0 (all solved)."""
    return k * math.prod((n - m + j) / (n + 1 + j) for j in range(1, k))


def keep_useful(correct_PG: Tensor, k: int, tau: float) -> Tensor:
    """Problems (P,) to train on. `correct_PG`: 1 correct, 0 wrong, NaN unjudged (not counted)."""
    n_P = (~torch.isnan(correct_PG)).sum(1).tolist()
    m_P = (correct_PG > 0.5).sum(1).tolist()
    keep = [use_of_training(m, n, k) >= tau * (n + 1) for m, n in zip(m_P, n_P)]
    return torch.tensor(keep, dtype=torch.bool, device=correct_PG.device)
