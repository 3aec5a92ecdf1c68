"""SELF's selector (RBP §6, eq. 9): train on the problems that the greedy answer gets wrong.

As printed, eq. 9's indicator keeps the problems that are answered rightly; the text and the released code keep the
others, and so do we. A greedy answer that could not be judged is not known to be wrong: its problem is left out of
this step, and counted.
"""

from __future__ import annotations

import torch
from torch import Tensor


def keep_wrong(greedy_reward_P: Tensor, correct_above: float = 0.0) -> Tensor:
    """Problems to train on, bool (P,). `greedy_reward_P`: reward of each greedy answer, NaN where unjudged;
    an answer is right when its reward is above `correct_above`."""
    return ~torch.isnan(greedy_reward_P) & (greedy_reward_P <= correct_above)


def keep_all(greedy_reward_P: Tensor, correct_above: float = 0.0) -> Tensor:
    """No filter: plain GRPO."""
    return torch.ones_like(greedy_reward_P, dtype=torch.bool)
