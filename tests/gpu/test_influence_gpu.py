"""Scoring and the influence kernel on a GPU against the CPU."""

import numpy as np
import pytest
import torch

from limen.dynamics.influence_gradients import Gradients, Pair
from limen.dynamics.influence_kernel import influence_kernel
from limen.engines.protocol import ScoreRequest
from limen.engines.runner import Runner
from limen.engines.scoring import Scorer
from limen.models import load_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def requests(count=200, prompts=40, seed=0):
    rng = np.random.default_rng(seed)
    heads = [tuple(rng.integers(3, 13, 6).tolist()) for _ in range(prompts)]
    return [
        ScoreRequest(heads[i % prompts], tuple(rng.integers(3, 13, rng.integers(1, 6)).tolist())) for i in range(count)
    ]


@pytest.mark.parametrize(("dtype", "noise"), [("float32", 1e-4), ("bfloat16", 0.3)])
def test_scores_on_the_gpu_are_those_of_the_cpu(dtype, noise):
    want = Scorer(Runner(load_model("tiny", "cpu").model)).score(requests())
    got = Scorer(Runner(load_model("tiny", "cuda", dtype).model)).score(requests())
    for a, b in zip(got, want, strict=True):
        assert np.abs(a - b).mean() < noise


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cut_cross_entropy_scores_as_the_logits_do(dtype):
    pytest.importorskip("cut_cross_entropy")
    runner = Runner(load_model("tiny", "cuda", dtype).model)
    want, got = Scorer(runner).score(requests()), Scorer(runner, head="cce").score(requests())
    gaps = np.concatenate([np.abs(a - b) for a, b in zip(got, want, strict=True)])
    assert gaps.mean() < (1e-2 if dtype == "float32" else 5e-2)  # its products are in TF32 at best


def test_the_kernel_on_the_gpu_is_that_of_the_cpu():
    pairs = [Pair(str(i), "p", r.prompt_ids, r.token_ids) for i, r in enumerate(requests(24))]
    both = [
        influence_kernel(Gradients(load_model("tiny", place, "float32").model), pairs[:8], pairs[8:], sketch=width)
        for place in ("cpu", "cuda")
        for width in (0, 8192)
    ]
    for a, b in ((both[0], both[2]), (both[1], both[3])):
        assert torch.allclose(a.k_NM, b.k_NM, rtol=1e-3, atol=1e-3 * float(a.k_NM.abs().max()))
