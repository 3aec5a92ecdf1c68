"""Negative sample reinforcement (Zhu et al. 2025, eq. 5): A = -1 on wrong responses, nothing on correct ones.

The mass taken from a wrong answer goes to the others in proportion to what they have, so the prior is kept. RBP
appendix F warns, and the tiny model shows, that without a KL it can collapse.
"""

from __future__ import annotations

from torch import Tensor

from limen.train.algorithms.reinforce import signed_advantages


def nsr_advantages(correct_PG: Tensor) -> tuple[Tensor, Tensor]:
    return signed_advantages(correct_PG, 0.0, 1.0)
