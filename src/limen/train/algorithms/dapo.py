"""DAPO (Yu et al. 2025): clip-higher, dynamic sampling, token mean over the batch.

    min( ρ A, clip(ρ, 1 - 0.2, 1 + 0.28) A ),   only groups with 0 < correct < G

Clip-higher is `epsilon_high`, the token mean TRL's `loss_type="dapo"`. Dynamic sampling keeps drawing prompts until
the batch is full of groups that have spread; filtered by spread, not by the mean, so that unjudged responses and
graded rewards are treated rightly.
"""

from __future__ import annotations

from torch import Tensor

from limen.train.algorithms.grpo import has_spread

EPSILON_LOW = 0.2
EPSILON_HIGH = 0.28


def keep_informative(rewards_PG: Tensor) -> Tensor:
    """Groups (P,) that dynamic sampling keeps. `rewards_PG`: NaN where unjudged."""
    return has_spread(rewards_PG)
