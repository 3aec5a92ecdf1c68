"""Forward KL to the base, on stored base responses (RBP eq. 9, second term; the public release has none).

    KL(π_b ‖ π_θ) = E_{y~π_b}[ log π_b(y|x) - log π_θ(y|x) ]

Two losses whose expected gradient over y ~ π_b is that KL's, -E_b[∇ log π_θ]:

* nll: -log π_θ(y|x). Pulls also where π_θ = π_b (there the pull averages out over y, with noise).
* k3: e^d - d - 1, d = log π_θ - log π_b per token. (e^d - 1) ∇ log π_θ: no pull at π_θ = π_b, less noise near it,
  heavy-tailed far from it. E_b[e^d ∇ log π_θ] = E_θ[∇ log π_θ] = 0, so the expectation is the same.

Both are exact per token given its prefix; a response's tokens are summed, and the sum over the batch is divided by
the denominator that the caller gives (the tokens of the batch: a token mean).
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

Estimator = Literal["nll", "k3"]


def nll(logprobs_BT: Tensor, mask_BT: Tensor, denominator: Tensor | float) -> Tensor:
    """Scalar loss. `logprobs_BT`: of π_θ, nats, temperature 1; `mask_BT`: 1 on response tokens."""
    return -(logprobs_BT * mask_BT).sum() / denominator


def k3(logprobs_BT: Tensor, base_logprobs_BT: Tensor, mask_BT: Tensor, denominator: Tensor | float) -> Tensor:
    """Scalar loss. `base_logprobs_BT`: of π_b on the same tokens, nats, temperature 1."""
    d_BT = (logprobs_BT - base_logprobs_BT) * mask_BT
    return ((d_BT.exp() - d_BT - 1) * mask_BT).sum() / denominator
