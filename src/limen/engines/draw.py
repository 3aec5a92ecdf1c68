"""Tokens from logits by inverse CDF, with uniform numbers that depend on (seed, token position) alone.

So a response is a function of its seed and the model: whatever else is in the batch, on whatever device, and
after whatever interruption, the same seed draws the same tokens (up to rounding of the logits).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from limen.errors import ModelError
from limen.types import SamplingParams

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)

NUCLEUS = 1024
"""Tokens that top-p looks at before it sorts the whole vocabulary."""


def uniforms(seeds: Sequence[int] | NDArray[np.uint64], start: int, count: int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) of shape (rows, count), for token positions start ... start+count-1.

    The splitmix64 sequence of each seed (Steele, Lea, Flood 2014), entered at any position without the ones before.
    """
    seeds_B = np.asarray(seeds, dtype=np.uint64)
    return uniforms_at(seeds_B[:, None], np.arange(start, start + count)[None, :])


def uniforms_at(seeds: NDArray[np.uint64], positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """The uniform number of each (seed, token position); any two shapes that broadcast."""
    with np.errstate(over="ignore"):
        z = seeds + (positions + 1).astype(np.uint64) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
    z = z ^ (z >> np.uint64(31))
    u: NDArray[np.float64] = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return u


def draw(logits_BV: torch.Tensor, u_B: torch.Tensor, params: SamplingParams) -> tuple[torch.Tensor, torch.Tensor]:
    """One token per row: (ids (B,), log-probability under the distribution drawn from (B,)).

    The distribution is softmax(logits / temperature) in float32, cut to the `top_k` most probable tokens, then to
    the fewest that reach `top_p` of what is left. Temperature 0 takes the most probable token. Raises `ModelError`
    where logits are not finite.
    """
    logits_BV = logits_BV.float()
    if params.temperature == 0:
        top = logits_BV.max(dim=-1)
        _check_finite(top.values)
        return top.indices, torch.zeros_like(top.values)
    probs_BV = torch.softmax(logits_BV / params.temperature, dim=-1)
    if params.top_k == 0 and params.top_p >= 1:
        position_B, log_q_B = _invert(probs_BV, u_B)
        return position_B, log_q_B
    kept_BV, ids_BV = _truncate(probs_BV, params)
    position_B, log_q_B = _invert(kept_BV, u_B)
    return ids_BV.gather(1, position_B[:, None])[:, 0], log_q_B


def token_logprobs(logits_BV: torch.Tensor, tokens_B: torch.Tensor) -> torch.Tensor:
    """Log-probability at temperature 1 of one token per row, in float32, never above 0; shape (B,)."""
    logits_BV = logits_BV.float()
    chosen_B = logits_BV.gather(1, tokens_B[:, None])[:, 0]
    return (chosen_B - torch.logsumexp(logits_BV, dim=-1)).clamp(max=0.0)


def _truncate(probs_BV: torch.Tensor, params: SamplingParams) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities in falling order with zeros for what is cut off, and their token ids."""
    vocabulary = probs_BV.shape[-1]
    width = min(params.top_k or NUCLEUS, vocabulary)
    top = probs_BV.topk(width, dim=-1)
    if params.top_p >= 1:
        return top.values, top.indices
    cumulative = top.values.double().cumsum(dim=-1)
    if not params.top_k and width < vocabulary and bool((cumulative[:, -1] < params.top_p).any()):
        top = probs_BV.sort(dim=-1, descending=True)
        cumulative = top.values.double().cumsum(dim=-1)
    total = cumulative[:, -1:] if params.top_k else 1.0
    before = cumulative - top.values
    return torch.where(before < params.top_p * total, top.values, 0.0), top.indices


def _invert(probs_BV: torch.Tensor, u_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Index of the first entry whose cumulative probability exceeds u; entries of probability 0 are never met."""
    cdf_BV = probs_BV.double().cumsum(dim=-1)
    total_B1 = cdf_BV[:, -1:]
    _check_finite(total_B1)
    position_B1 = torch.searchsorted(cdf_BV, u_B.double()[:, None] * total_B1, right=True)
    position_B1 = position_B1.clamp(max=probs_BV.shape[-1] - 1)
    log_q_B1 = torch.log(probs_BV.gather(1, position_B1).double() / total_B1)
    return position_B1[:, 0], log_q_B1[:, 0].float()


def _check_finite(values: torch.Tensor) -> None:
    if not bool(torch.isfinite(values).all()):
        raise ModelError("the model's logits are not finite: its weights are broken, or the precision is too low")
