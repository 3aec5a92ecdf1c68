"""The draw as one Triton kernel, against the same draw in torch. Needs a CUDA device, or TRITON_INTERPRET=1."""

import os

import pytest
import torch

from limen.engines.draw import uniforms
from limen.engines.slot_draw import draw_static
from limen.types import SamplingParams

pytest.importorskip("triton", reason="needs Triton, which comes with torch for CUDA")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not INTERPRETED and not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICE = "cpu" if INTERPRETED else "cuda"
ROWS = 40 if INTERPRETED else 4000


def check(logits_NV, rows, u, temperature):
    """How many of the given rows hold another token than torch draws; all else must be as it was or impossible."""
    from limen.engines.draw_kernel import leave_drawn

    want, *_ = draw_static(logits_NV[rows], u, SamplingParams(temperature=temperature))
    left_NV = logits_NV.clone()
    leave_drawn(left_NV, rows, u, temperature)
    others = torch.ones(len(logits_NV), dtype=torch.bool, device=DEVICE)
    others[rows] = False
    assert torch.equal(left_NV[others], logits_NV[others])
    part = left_NV[rows]
    assert (torch.isfinite(part).sum(dim=1) == 1).all()
    token = part.argmax(dim=1)
    assert (part.gather(1, token[:, None]) == 0).all()
    return int((token != want).sum())


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
@pytest.mark.parametrize("vocabulary", [11, 2048, 49_152])
def test_draws_what_torch_draws(vocabulary, temperature):
    generator = torch.Generator().manual_seed(vocabulary)
    logits = (4 * torch.randn(ROWS, vocabulary, generator=generator)).to(DEVICE)
    rows = torch.arange(0, ROWS, 2, device=DEVICE)
    u = torch.from_numpy(uniforms(list(range(len(rows))), 0, 1)[:, 0]).to(DEVICE)
    assert check(logits, rows, u, temperature) <= len(rows) // 500  # float32 exponentials differ in the last bit


def test_the_ends_of_the_uniform_and_impossible_tokens():
    logits = torch.full((4, 5000), float("-inf"), device=DEVICE)
    logits[:, 2100], logits[:, 4200] = 1.0, 1.0
    rows = torch.arange(4, device=DEVICE)
    u = torch.tensor([0.0, 0.49, 0.51, 1 - 2**-53], dtype=torch.float64, device=DEVICE)
    assert check(logits, rows, u, 1.0) == 0


def test_other_logits_are_refused():
    from limen.engines.draw_kernel import leave_drawn

    rows, u = torch.zeros(1, dtype=torch.long, device=DEVICE), torch.zeros(1, dtype=torch.float64, device=DEVICE)
    for logits in (torch.zeros(1, 8, dtype=torch.bfloat16, device=DEVICE), torch.zeros(8, 2, device=DEVICE).T):
        with pytest.raises(ValueError, match="float32 logits with contiguous rows"):
            leave_drawn(logits, rows, u, 1.0)
