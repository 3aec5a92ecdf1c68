"""GRPO's group-relative advantage (Shao et al. 2024, DeepSeekMath, eq. 3; RBP eq. 2).

    A_i = (r_i - mean_G r) / (std_G r + eps),   std with G - 1

Assumptions: the G responses of a group are independent draws of one policy. A response that no verifier could judge
(NaN reward) is not part of its group: mean, std and G count the judged ones only, and its own advantage is 0.
A group without spread says nothing and carries no gradient, so it is *inactive*: left out of numerator and
denominator of the loss alike.
"""

from __future__ import annotations

import torch
from torch import Tensor


def group_advantages(rewards_PG: Tensor, eps: float = 1e-6, normalise: bool = True) -> tuple[Tensor, Tensor]:
    """Advantages and which rows are active, both of shape (P, G).

    `rewards_PG`: float, NaN where unjudged. `normalise` False leaves out the division by std (see `dr_grpo`).
    """
    judged_PG = ~torch.isnan(rewards_PG)
    n_P1 = judged_PG.sum(1, keepdim=True)
    r_PG = torch.nan_to_num(rewards_PG, nan=0.0)
    mean_P1 = r_PG.sum(1, keepdim=True) / n_P1.clamp(min=1)
    centred_PG = (r_PG - mean_P1) * judged_PG
    spread_P1 = has_spread(rewards_PG).unsqueeze(1)
    if normalise:
        std_P1 = (centred_PG.square().sum(1, keepdim=True) / (n_P1 - 1).clamp(min=1)).sqrt()
        centred_PG = centred_PG / (std_P1 + eps)
    active_PG = judged_PG & spread_P1
    return torch.where(active_PG, centred_PG, torch.zeros_like(centred_PG)), active_PG


def has_spread(rewards_PG: Tensor) -> Tensor:
    """Groups (P,) whose judged rewards differ. By comparison, not by a std that rounding can make non-zero."""
    high_P = torch.nan_to_num(rewards_PG, nan=-torch.inf).amax(1)
    low_P = torch.nan_to_num(rewards_PG, nan=torch.inf).amin(1)
    return high_P > low_P
