"""SELF (RBP eq. 9): GRPO on the survivors of the greedy filter, and a forward KL that keeps the base's answers likely.

    J(θ) = E_x[ 1{greedy answer wrong} · J_GRPO(x) ] - β · E_x E_{y~π_b}[ -log π_θ(y|x) ]

The pieces are `greedy_filter`, `grpo` and `forward_kl`; what is particular to SELF is how the first expectation is
scaled. "nominal": the indicator sits inside the mean over the whole batch, so the survivors' mean is multiplied by
the share that survived. "survivors": the mean over the survivors as it is. With refill the batch is full, and both
are the same.
"""

from __future__ import annotations

from typing import Literal

Scale = Literal["nominal", "survivors"]


def survivor_scale(kept: int, nominal: int, scale: Scale) -> float:
    """Factor on the policy loss of a batch of `nominal` prompts of which `kept` are trained on."""
    if scale == "survivors" or nominal == 0:
        return 1.0
    return min(kept, nominal) / nominal


def batch_reward(mean_kept: float, kept: int, greedy_left_out: list[float]) -> float:
    """Reward over the whole screened batch: survivors by their samples, the others by their greedy answer.

    The reward over survivors alone falls as the filter removes what is solved; this one can be compared with GRPO's.
    """
    total = kept + len(greedy_left_out)
    return (mean_kept * kept + sum(greedy_left_out)) / total if total else float("nan")
