"""Entropy bonus (Williams & Peng 1991): subtract c times the policy's mean token entropy from the loss.

H = -Σ_v π(v) log π(v),  full vocabulary, temperature 1, mean over the response tokens of the batch
"""

from __future__ import annotations

import torch
from torch import Tensor


def token_entropy(logits_BTV: Tensor) -> Tensor:
    """Entropy (B, T) in nats, in float32."""
    logp_BTV = torch.log_softmax(logits_BTV.float(), dim=-1)
    return -(logp_BTV.exp() * logp_BTV).sum(-1)


def entropy_bonus(entropy_BT: Tensor, mask_BT: Tensor, denominator: Tensor | float) -> Tensor:
    """Scalar loss: minus the entropy summed over response tokens, over the denominator."""
    return -(entropy_BT * mask_BT).sum() / denominator
