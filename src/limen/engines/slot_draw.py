"""Drawing tokens without a look back at the host: what a CUDA graph may hold.

The same draw as `limen.engines.draw`, from the same uniform numbers: inverse CDF at a number that depends on (seed,
token position) alone. The cumulative sums are taken in two levels (blocks, then inside the one that is met), which
reads the vocabulary once; results differ from the other draw only where rounding decides.
"""

from __future__ import annotations

import torch

from limen.engines.draw import NUCLEUS
from limen.types import SamplingParams

BLOCK = 128
"""Tokens of a block of the first level."""


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def uniforms_on(seeds_B: torch.Tensor, positions_B: torch.Tensor) -> torch.Tensor:
    """`limen.engines.draw.uniforms` on the tensors' device, bit for bit: float64 (B,) in [0, 1).

    seeds_B, positions_B: int64; 64-bit arithmetic that wraps is the same signed or not.
    """
    z = seeds_B + (positions_B + 1) * _GOLDEN
    z = (z ^ _shift(z, 30)) * _MIX_1
    z = (z ^ _shift(z, 27)) * _MIX_2
    z = z ^ _shift(z, 31)
    return _shift(z, 11).double() * 2.0**-53


def _shift(z: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical shift to the right; torch's own keeps the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def draw_static(
    logits_BV: torch.Tensor, u_B: torch.Tensor, params: SamplingParams
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """One token per row: (ids (B,), log-probability as drawn (B,), finite (B,), enough (B,)).

    finite: the row's logits are. enough: the `NUCLEUS` most probable tokens hold top_p; where they do not, the
    token is not to be used (`limen.engines.draw` sorts the whole vocabulary then, which cannot be decided here).
    """
    logits_BV = logits_BV.float()
    if params.temperature == 0:
        top = logits_BV.max(dim=-1)
        return top.indices, torch.zeros_like(top.values), torch.isfinite(top.values), torch.ones_like(u_B).bool()
    probs_BV = torch.softmax(logits_BV if params.temperature == 1 else logits_BV / params.temperature, dim=-1)
    finite_B = torch.isfinite(probs_BV[:, 0])
    enough_B = torch.ones_like(finite_B)
    if params.top_k == 0 and params.top_p >= 1:
        ids_B, log_q_B = invert_blocks(probs_BV, u_B)
        return ids_B, log_q_B, finite_B, enough_B
    width = min(params.top_k or NUCLEUS, probs_BV.shape[-1])
    top = probs_BV.topk(width, dim=-1)
    kept_BW = top.values
    if params.top_p < 1:
        cumulative_BW = kept_BW.double().cumsum(dim=-1)
        total_B1 = cumulative_BW[:, -1:]
        if not params.top_k and width < probs_BV.shape[-1]:
            enough_B = total_B1[:, 0] >= params.top_p
        limit = params.top_p * total_B1 if params.top_k else params.top_p
        kept_BW = torch.where(cumulative_BW - kept_BW < limit, kept_BW, 0.0)
    place_B, log_q_B = invert_blocks(kept_BW, u_B)
    return top.indices.gather(1, place_B[:, None])[:, 0], log_q_B, finite_B, enough_B


def invert_blocks(probs_BV: torch.Tensor, u_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Index of the first entry whose cumulative probability exceeds u, and the log of its share of the total.

    Entries of probability 0 are never met, whatever is rounded.
    """
    spare = -probs_BV.shape[-1] % BLOCK
    if spare:
        probs_BV = torch.nn.functional.pad(probs_BV, (0, spare))
    blocks_BNW = probs_BV.view(probs_BV.shape[0], -1, BLOCK)
    sums_BN = blocks_BNW.sum(dim=-1, dtype=torch.float64)
    cdf_BN = sums_BN.cumsum(dim=-1)
    total_B1 = cdf_BN[:, -1:]
    target_B1 = u_B.double()[:, None] * total_B1
    n_B1 = _first_above(cdf_BN, target_B1)
    rest_B1 = (target_B1 - (cdf_BN - sums_BN).gather(1, n_B1)).clamp(min=0.0)
    block_BW = blocks_BNW.gather(1, n_B1[:, :, None].expand(-1, 1, BLOCK))[:, 0]
    i_B1 = _first_above(block_BW.double().cumsum(dim=-1), rest_B1)
    log_q_B1 = torch.log(block_BW.gather(1, i_B1).double() / total_B1)
    return (n_B1 * BLOCK + i_B1)[:, 0], log_q_B1[:, 0].float()


def _first_above(cdf_BN: torch.Tensor, target_B1: torch.Tensor) -> torch.Tensor:
    """First index whose cumulative sum exceeds the target, at most the last entry that adds anything; (B, 1)."""
    found_B1 = torch.searchsorted(cdf_BN, target_B1, right=True)
    last_B1 = (cdf_BN < cdf_BN[:, -1:]).sum(dim=-1, keepdim=True)
    return torch.minimum(found_B1, last_B1)
