"""The draw of `limen.engines.slot_draw` as one Triton kernel, for vLLM on a GPU.

In torch one draw starts some fifty small kernels; where the model is small, the host that starts them may be what
everything waits for. Here one program a row reads the row three times: for its maximum, for the sum of its
exponentials, and for the block in which the uniform number falls. Sums over blocks are taken in float64, as everywhere
in limen. Used only where LIMEN_VLLM_DRAW=kernel asks for it. Triton comes with torch for CUDA.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 2048
"""Tokens that a program holds at a time."""


def leave_drawn(logits_NV: torch.Tensor, row_M: torch.Tensor, u_M: torch.Tensor, temperature: float) -> None:
    """In each of the given rows all but the token drawn become impossible (-inf; the token's own logit is 0).

    logits_NV: float32, rows contiguous. row_M: int64, rows to draw. u_M: float64 in [0, 1). temperature: above 0.
    The token is the first whose cumulative probability, softmax(logits / temperature), exceeds u; one of probability
    0 is never taken. Raises `ValueError` for other logits than these.
    """
    if logits_NV.dtype != torch.float32 or logits_NV.stride(1) != 1:
        raise ValueError(f"expected float32 logits with contiguous rows, got {logits_NV.dtype}, {logits_NV.stride()}")
    vocabulary = logits_NV.shape[1]
    _leave_drawn[(row_M.shape[0],)](
        logits_NV, logits_NV.stride(0), row_M, u_M, 1.0 / temperature, vocabulary=vocabulary, BLOCK=BLOCK, num_warps=8
    )


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _leave_drawn(logits, stride, rows, uniforms, inverse, vocabulary: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0)
    start = logits + tl.load(rows + place) * stride
    lane = tl.arange(0, BLOCK)

    top = tl.full([BLOCK], float("-inf"), tl.float32)
    for at in range(0, vocabulary, BLOCK):
        top = tl.maximum(top, tl.load(start + at + lane, mask=at + lane < vocabulary, other=float("-inf")))
    highest = tl.max(top, axis=0)

    total = tl.zeros([], tl.float64)
    for at in range(0, vocabulary, BLOCK):
        x = tl.load(start + at + lane, mask=at + lane < vocabulary, other=float("-inf"))
        total += tl.sum(tl.exp((x - highest) * inverse).to(tl.float64), axis=0)

    # The first block whose end lies beyond the target; where rounding leaves none, the last that adds anything.
    target = tl.load(uniforms + place) * total
    before = tl.zeros([], tl.float64)
    block = tl.zeros([], tl.int32)
    base = tl.zeros([], tl.float64)
    found = tl.zeros([], tl.int32)
    for at in range(0, vocabulary, BLOCK):
        x = tl.load(start + at + lane, mask=at + lane < vocabulary, other=float("-inf"))
        mass = tl.sum(tl.exp((x - highest) * inverse).to(tl.float64), axis=0)
        take = (found == 0) & (mass > 0)
        block = tl.where(take, at, block)
        base = tl.where(take, before, base)
        before += mass
        found = tl.where(before > target, 1, found)

    x = tl.load(start + block + lane, mask=block + lane < vocabulary, other=float("-inf"))
    cdf = tl.cumsum(tl.exp((x - highest) * inverse).to(tl.float64), axis=0)
    whole = tl.max(cdf, axis=0)
    first = tl.sum((cdf <= target - base).to(tl.int32), axis=0)
    last = tl.sum((cdf < whole).to(tl.int32), axis=0)
    token = block + tl.minimum(first, last)

    tl.debug_barrier()
    for at in range(0, vocabulary, BLOCK):
        value = tl.where(at + lane == token, 0.0, float("-inf"))
        tl.store(start + at + lane, value, mask=at + lane < vocabulary)
