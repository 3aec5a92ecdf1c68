"""vLLM passes the suite of all engines. Needs vLLM and a CUDA device, or a CPU build of vLLM (LIMEN_VLLM_CPU=1)."""

import os

import pytest
import torch

import engine_conformance as suite
from limen.engines.hf import TransformersEngine
from limen.engines.protocol import SampleRequest, ScoreRequest
from limen.models import LoadedModel
from limen.types import Prompt, SamplingParams, derive_seed
from vllm_model import CONTEXT, TEXTS, probabilities, reference_model, save_model

pytest.importorskip("vllm")
CPU = os.environ.get("LIMEN_VLLM_CPU") == "1"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not CPU and not torch.cuda.device_count(), reason="needs a CUDA device"),
    pytest.mark.timeout(900),
]
DTYPE = os.environ.get("LIMEN_VLLM_DTYPE", "float32")
TOLERANCE, SAME = (0.1, 0.7) if DTYPE != "float32" else (1e-3, 0.98) if CPU else (0.02, 0.9)
"""Log-probabilities agree so far, and so many responses are the same: kernels on a GPU multiply in tf32."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def reference(folder):
    return reference_model(folder)


def open_engine(folder, draws):
    from limen.engines.vllm import VLLMEngine

    options = {"enforce_eager": True, "max_model_len": CONTEXT, "max_num_seqs": 64}
    if not CPU:
        options["gpu_memory_utilization"] = 0.2
    return VLLMEngine.load(str(folder), DTYPE, logprobs=True, draws=draws, **options)


@pytest.fixture(scope="module")
def subject(folder, reference):
    engine = open_engine(folder, "limen")

    return suite.Subject(
        engine,
        engine.tokenizer,
        probabilities(reference),
        engine.tokenizer.eos_token_id,
        TEXTS,
        n=1000,
        long_text="1" * CONTEXT,
        model=str(folder),
        tolerance=TOLERANCE,
    )


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda c: c.__name__)
def test_conformance(subject, check):
    check(subject)


@pytest.mark.parametrize("params", suite.PARAMS, ids=["plain", "temperature", "top_p", "top_k"])
def test_distribution(subject, params):
    suite.check_distribution(subject, params)


def test_resume_and_top_up(subject, tmp_path):
    suite.check_resume_and_top_up(subject, tmp_path)


def test_no_step_waits_for_the_tokens_of_the_last(subject):
    assert subject.engine.llm.collective_rpc("limen_lengths_suffice") == [True]


def asks(tokenizer, n):
    return [
        SampleRequest(
            Prompt(text, text, tuple(tokenizer.encode(text)), ""),
            tuple(range(n)),
            tuple(derive_seed(5, text, i) for i in range(n)),
        )
        for text in TEXTS
    ]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(max_tokens=12),
        SamplingParams(max_tokens=12, temperature=0.7, top_p=0.9),
        SamplingParams(max_tokens=12, top_k=3),
        SamplingParams(max_tokens=12, stop=("7", "12")),
    ],
    ids=["plain", "top_p", "top_k", "stop"],
)
def test_the_same_rollouts_as_the_transformers_engine(subject, reference, params):
    """A response is a function of its seed, whichever engine draws it, but for rounding."""
    tokenizer = subject.tokenizer
    ours = TransformersEngine(LoadedModel(reference, tokenizer, "m"), logprobs=True)
    want = {(s.problem_id, s.sample_index): s for s in ours.sample(asks(tokenizer, 50), params)}
    got = {(s.problem_id, s.sample_index): s for s in subject.engine.sample(asks(tokenizer, 50), params)}
    assert got.keys() == want.keys()
    same = [k for k in got if got[k].token_ids == want[k].token_ids]
    assert len(same) >= SAME * len(got)
    for key in same:
        assert (got[key].text, got[key].finish_reason) == (want[key].text, want[key].finish_reason)
        assert got[key].logprobs == pytest.approx(want[key].logprobs, abs=TOLERANCE)


def test_scores_are_the_transformers_engine_s(subject, reference):
    tokenizer = subject.tokenizer
    ours = TransformersEngine(LoadedModel(reference, tokenizer, "m"))
    samples = list(subject.engine.sample(asks(tokenizer, 5), SamplingParams(max_tokens=12)))
    requests = [ScoreRequest(tuple(tokenizer.encode(s.problem_id)), s.token_ids) for s in samples]
    for got, want in zip(subject.engine.score(requests), ours.score(requests), strict=True):
        assert got == pytest.approx(want, abs=TOLERANCE)


def test_a_kill_in_the_middle_loses_only_what_was_unfinished(subject):
    """Responses come while others still run, and what is given up is given up in vLLM too."""
    stream = subject.engine.sample(asks(subject.tokenizer, 40), SamplingParams(max_tokens=12))
    first = [next(stream) for _ in range(5)]
    stream.close()
    assert not subject.engine.llm.llm_engine.has_unfinished_requests()
    again = {
        (s.problem_id, s.sample_index): s.token_ids
        for s in subject.engine.sample(asks(subject.tokenizer, 40), SamplingParams(max_tokens=12))
    }
    assert len(again) == 120
    same = [again[s.problem_id, s.sample_index] == s.token_ids for s in first]
    assert sum(same) >= 4
