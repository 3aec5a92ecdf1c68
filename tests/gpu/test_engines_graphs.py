"""Decoding by CUDA graphs: captured on a real GPU, the same rollouts as the plain path, the suite of all engines."""

from functools import cache

import numpy as np
import pytest
import torch

import engine_conformance as suite
from engine_models import EOS, random_model
from limen.engines.hf import TransformersEngine
from limen.engines.protocol import SampleRequest
from limen.models import LoadedModel
from limen.types import Prompt, SamplingParams, derive_seed

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
PROMPTS = ["abc", "abd", "abcdefg", "j", "ce", "ce"]


def on_gpu(family="llama", dtype=torch.float32, **options):
    loaded = random_model(family, seed=4, sharpness=2.0)
    return LoadedModel(loaded.model.to("cuda", dtype).eval(), loaded.tokenizer, loaded.name)


def asks(tokenizer, n):
    return [
        SampleRequest(
            Prompt(f"p{j}", text, tuple(tokenizer.encode(text)), ""),
            tuple(range(n)),
            tuple(derive_seed(0, j, i) for i in range(n)),
        )
        for j, text in enumerate(PROMPTS)
    ]


def by_key(samples):
    return {(s.problem_id, s.sample_index): s for s in samples}


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("decoding", ["graphs", "compile"])
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(max_tokens=40),
        SamplingParams(max_tokens=40, temperature=0.7, top_p=0.9),
        SamplingParams(max_tokens=40, top_k=3),
        SamplingParams(max_tokens=40, stop=("a", "bc")),
    ],
    ids=["plain", "top_p", "top_k", "stop"],
)
def test_graphs_draw_what_the_plain_path_draws(family, decoding, params):
    if decoding == "compile" and (family != "llama" or params.top_p < 1 or params.top_k):
        pytest.skip("compiling takes long: one family is enough")
    loaded = on_gpu(family)
    plain = by_key(
        TransformersEngine(loaded, decoding="plain", logprobs=True).sample(asks(loaded.tokenizer, 40), params)
    )
    engine = TransformersEngine(loaded, batch_size=48, decoding=decoding, logprobs=True)
    for _ in range(2):  # captured, and replayed by another call
        ours = by_key(engine.sample(asks(loaded.tokenizer, 40), params))
        assert ours.keys() == plain.keys()
        same = [k for k in ours if ours[k].token_ids == plain[k].token_ids]
        assert len(same) >= 0.98 * len(ours)
        for key in same:
            assert ours[key].finish_reason == plain[key].finish_reason
            assert ours[key].logprobs == pytest.approx(plain[key].logprobs, abs=1e-3)
    assert engine.fast._stepper._graphs or engine.fast._stepper is not None


def test_auto_takes_graphs_on_a_gpu():
    engine = TransformersEngine(on_gpu())
    list(engine.sample(asks(engine.tokenizer, 3), SamplingParams(max_tokens=10)))
    assert engine.fast.usable
    assert engine.fast._stepper._graphs


@pytest.mark.parametrize("family", ["sliding", "softcap", "bloom", "mamba"])
def test_other_models_give_way(family):
    engine = TransformersEngine(on_gpu(family))
    assert len(list(engine.sample(asks(engine.tokenizer, 3), SamplingParams(max_tokens=10)))) == 3 * len(PROMPTS)
    assert not engine.fast.usable


@pytest.fixture(scope="module")
def subject():
    loaded = on_gpu()
    reference = random_model(seed=4, sharpness=2.0).model

    @cache
    def probs(prompt, prefix):
        with torch.no_grad():
            return torch.softmax(reference(torch.tensor([prompt + prefix])).logits[0, -1].double(), -1).numpy()

    engine = TransformersEngine(loaded, batch_size=256, decoding="graphs", logprobs=True)
    return suite.Subject(
        engine,
        loaded.tokenizer,
        lambda prompt, prefix: np.array(probs(prompt, prefix)),
        EOS,
        ("abc", "d", "aaee"),
        long_text="a" * 64,
        tolerance=1e-3,
    )


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda c: c.__name__)
def test_conformance(subject, check):
    check(subject)


@pytest.mark.parametrize("params", suite.PARAMS, ids=["plain", "temperature", "top_p", "top_k"])
def test_distribution(subject, params):
    suite.check_distribution(subject, params)


def test_resume_and_top_up(subject, tmp_path):
    suite.check_resume_and_top_up(subject, tmp_path)


def test_half_precision_keeps_the_distribution():
    loaded = on_gpu(dtype=torch.bfloat16)
    model = loaded.model

    @cache
    def probs(prompt, prefix):
        with torch.no_grad():
            ids = torch.tensor([prompt + prefix], device="cuda")
            return torch.softmax(model(ids).logits[0, -1].double(), -1).cpu().numpy()

    engine = TransformersEngine(loaded, batch_size=256, decoding="graphs")
    half = suite.Subject(engine, loaded.tokenizer, lambda p, q: np.array(probs(p, q)), EOS, ("abc",))
    suite.check_distribution(half, suite.PARAMS[0])
