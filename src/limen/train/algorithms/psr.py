"""Positive sample reinforcement (Zhu et al. 2025, eq. 4): A = +1 on correct responses, nothing on wrong ones.

Maximum likelihood of the policy's own correct answers: raises pass@1, and narrows.
"""

from __future__ import annotations

from torch import Tensor

from limen.train.algorithms.reinforce import signed_advantages


def psr_advantages(correct_PG: Tensor) -> tuple[Tensor, Tensor]:
    return signed_advantages(correct_PG, 1.0, 0.0)
