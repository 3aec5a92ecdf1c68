"""Direction reweighting: weigh tokens that the policy found unlikely up.

    Ã = (1 + α (1 - π_old(y_t | x, y_<t))) A

π_old is the sampling policy's probability of the token, as a constant. With α = 0 nothing changes; with α > 0 rare
tokens of good answers gain more than sure ones (and rare tokens of bad answers lose more).
"""

from __future__ import annotations

from torch import Tensor


def reweight(advantages_BT: Tensor, old_logprobs_BT: Tensor, alpha: float) -> Tensor:
    """Token advantages (B, T) from (B, T) or (B, 1) ones; `old_logprobs_BT` in nats."""
    return (1 + alpha * (1 - old_logprobs_BT.detach().exp())) * advantages_BT
