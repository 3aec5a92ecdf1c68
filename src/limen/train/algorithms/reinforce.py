"""What PSR, NSR and W-REINFORCE share (Zhu et al. 2025, The surprising effectiveness of negative reinforcement).

    correct: A = +w_plus,   wrong: A = -w_minus

No baseline and no std, so that every judged row is active: the denominator is that of all samples, correct or not.
"""

from __future__ import annotations

import torch
from torch import Tensor


def signed_advantages(correct_PG: Tensor, w_plus: float, w_minus: float) -> tuple[Tensor, Tensor]:
    """Advantages and active rows, (P, G). `correct_PG`: 1 correct, 0 wrong, NaN unjudged (advantage 0, inactive)."""
    judged_PG = ~torch.isnan(correct_PG)
    plus, minus = (torch.full_like(correct_PG, w) for w in (w_plus, -w_minus))
    a_PG = torch.where(correct_PG > 0.5, plus, minus)
    return torch.where(judged_PG, a_PG, torch.zeros_like(a_PG)), judged_PG
