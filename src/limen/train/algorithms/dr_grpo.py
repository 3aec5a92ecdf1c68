"""Dr. GRPO (Liu et al. 2025, Understanding R1-Zero-like training, eq. 3): no std, constant denominator.

    A_i = r_i - mean_G r,   loss = sum over tokens / (rows x max_new_tokens)

The constant denominator is TRL's `loss_type="dr_grpo"`; the advantage is here. Dividing by the std weighs problems
near 0 and 1 up, dividing by the length weighs long wrong answers down; both are biases that this variant removes.
"""

from __future__ import annotations

from torch import Tensor

from limen.train.algorithms.grpo import group_advantages


def centred_advantages(rewards_PG: Tensor) -> tuple[Tensor, Tensor]:
    """Advantages and active rows, (P, G). Unjudged (NaN) rows as in `group_advantages`."""
    return group_advantages(rewards_PG, normalise=False)
