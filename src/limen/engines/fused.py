"""The output layer and the log-sum-exp in one kernel, where a library has one: cut-cross-entropy (extra `fused`).

It holds no logits, sums in float32, and gives each token's loss. It reads the output matrix in the model's dtype as our
own way does, but rounds elsewhere (the chosen token's logit is a sum of products in that dtype), so its scores differ
from ours by that dtype's noise: compare scores of one head with scores of the same.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from limen.engines.runner import Runner
from limen.errors import ConfigError, MissingExtra, ModelError

HEADS = ("logits", "cce")

Head = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def fused_head(runner: Runner, name: str) -> Head | None:
    """(hidden states (N, H), targets (N,)) -> log-probabilities (N,), float32; None for the head `logits`.

    Raises `ConfigError` for an unknown head, `MissingExtra` without the library, `ModelError` where the model or the
    device does not suit it.
    """
    if name == "logits":
        return None
    if name not in HEADS:
        raise ConfigError(f"head '{name}': expected one of {', '.join(HEADS)}")
    if runner.device.type != "cuda":
        raise ModelError(f"head cce is a GPU kernel, but the model is on {runner.device}: use head logits")
    layer = runner.model.get_output_embeddings()
    if layer is None or getattr(layer, "bias", None) is not None or not isinstance(layer, torch.nn.Linear):
        raise ModelError("head cce needs an output layer that is one matrix without a bias: use head logits")
    try:
        from cut_cross_entropy import linear_cross_entropy
    except ImportError as error:
        raise MissingExtra("cut-cross-entropy", "fused", "head cce") from error
    weight_VH = layer.weight

    def head(hidden_NH: torch.Tensor, targets_N: torch.Tensor) -> torch.Tensor:
        loss_N: torch.Tensor = linear_cross_entropy(hidden_NH, weight_VH, targets_N, reduction="none")
        return (-loss_N.float()).clamp(max=0.0)

    return head
