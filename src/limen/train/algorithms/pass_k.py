"""pass@k training (Chen et al. 2025, Pass@k training for balancing exploration and exploitation, §2.3, analytic form).

Of N samples N⁻ are wrong. The reward of a random k-subset is 1 if any of it is correct:

    R̄ = 1 - C(N⁻, k) / C(N, k),   σ = sqrt(R̄ (1 - R̄))
    A⁺ = (1 - R̄) / σ,   A⁻ = (1 - R̄ - C(N⁻ - 1, k - 1) / C(N - 1, k - 1)) / σ

k = 1 is GRPO with the population std. Where R̄ is 0 or 1 the group is inactive. Unjudged responses are left out of N.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def pass_k_advantages(correct_PG: Tensor, k: int = 4) -> tuple[Tensor, Tensor]:
    """Advantages and active rows, (P, G). `correct_PG`: 1 correct, 0 wrong, NaN unjudged. Needs k <= judged samples:
    a group with fewer is inactive."""
    judged_PG = ~torch.isnan(correct_PG)
    a_PG = torch.zeros_like(correct_PG)
    active_P = torch.zeros(len(correct_PG), dtype=torch.bool, device=correct_PG.device)
    for i, (n, c) in enumerate(zip(judged_PG.sum(1).tolist(), (correct_PG > 0.5).sum(1).tolist())):
        values = group_values(n, n - c, k)
        if values is None:
            continue
        active_P[i] = True
        a_PG[i] = torch.where(correct_PG[i] > 0.5, *(a_PG.new_tensor(v) for v in values))
    active_PG = judged_PG & active_P.unsqueeze(1)
    return a_PG * active_PG, active_PG


def group_values(n: int, wrong: int, k: int) -> tuple[float, float] | None:
    """(A⁺, A⁻) of a group of `n` judged samples, or None where it is inactive."""
    if n < k or n == 0:
        return None
    mean = 1 - math.comb(wrong, k) / math.comb(n, k)
    if mean in (0.0, 1.0):
        return None
    std = math.sqrt(mean * (1 - mean))
    minus = 1 - mean - (math.comb(wrong - 1, k - 1) / math.comb(n - 1, k - 1) if wrong else 0.0)
    return (1 - mean) / std, minus / std
