"""Algorithms as pure functions, one per file, that import no trainer. `compose` puts them together.

Selectors: `greedy_filter` (SELF's). Advantages: `grpo`, `dr_grpo`, `psr`, `nsr`, `w_reinforce`, `pass_k`; gates on
them: `soft_gate`, `overtraining_gate`, `direction`. Extra losses: `forward_kl`, `reverse_kl`, `entropy_bonus`.
`self_` is their composition as SELF; `dapo` adds dynamic sampling; `schedule` switches any of it while training.
"""

from limen.train.algorithms.compose import ALGORITHMS, Algorithm, advantages, named, token_advantages

__all__ = ["ALGORITHMS", "Algorithm", "advantages", "named", "token_advantages"]
