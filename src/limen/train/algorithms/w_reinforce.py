"""Weighted REINFORCE (Zhu et al. 2025, eq. 8): A = +λ on correct responses (λ = 0.1), -1 on wrong ones.

λ = 1 is REINFORCE with rewards ±1, λ = 0 is NSR.
"""

from __future__ import annotations

from torch import Tensor

from limen.train.algorithms.reinforce import signed_advantages


def w_reinforce_advantages(correct_PG: Tensor, weight: float = 0.1) -> tuple[Tensor, Tensor]:
    return signed_advantages(correct_PG, weight, 1.0)
