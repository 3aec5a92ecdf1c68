"""Soft gate: SELF's filter without its edge. The advantage of a problem is multiplied by (1 - p̂)^s.

p̂ = share of the group's judged samples that are correct. s = 0 is no gate; large s trains on what is hardly ever
solved. Needs no greedy pass, but pays for the samples of solved problems.
"""

from __future__ import annotations

import torch
from torch import Tensor


def gate(correct_PG: Tensor, strength: float = 1.0) -> Tensor:
    """Weights (P, 1) for the advantages. `correct_PG`: 1 correct, 0 wrong, NaN unjudged. No judged sample: weight 0."""
    n_P = (~torch.isnan(correct_PG)).sum(1)
    p_P = (correct_PG > 0.5).sum(1) / n_P.clamp(min=1)
    return torch.where(n_P > 0, (1 - p_P) ** strength, torch.zeros_like(p_P)).unsqueeze(1)
