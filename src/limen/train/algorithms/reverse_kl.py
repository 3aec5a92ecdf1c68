"""Reverse KL to a reference that can be reset (ProRL, Liu et al. 2025, §2.3), on the policy's own samples.

    KL(π_θ ‖ π_ref) = E_{y~π_θ}[ log π_θ(y|x) - log π_ref(y|x) ]

Differentiating a sampled k1 or k3 through log π_θ does not give this KL's gradient (k1: 0 in expectation; k3: the
forward KL's). ½ d², d = log π_θ - log π_ref, does: its gradient d ∇ log π_θ is the KL's score-function gradient.
Assumptions: y was drawn from π_θ itself (no off-policy correction), and per token, given its prefix; the effect of
a token on later tokens' KL is left out, as in all token-level forms.

Reset: every so many steps the reference becomes the current policy, so that the tether does not hold training back.
"""

from __future__ import annotations

from torch import Tensor


def k2(logprobs_BT: Tensor, ref_logprobs_BT: Tensor, mask_BT: Tensor, denominator: Tensor | float) -> Tensor:
    """Scalar loss. Log-probabilities of policy and reference on the policy's samples, in nats."""
    d_BT = (logprobs_BT - ref_logprobs_BT) * mask_BT
    return 0.5 * d_BT.square().sum() / denominator


def reset_due(step: int, every: int) -> bool:
    """Whether the reference is replaced after optimizer step `step`; `every` 0: never."""
    return every > 0 and step > 0 and step % every == 0
