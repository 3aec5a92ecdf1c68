"""The exact engine against closed forms worked by hand."""

import numpy as np
import pytest
from scipy import stats

from limen.engines.exact import EOS, ExactEngine, MarkovPolicy, ResponsesPolicy
from limen.engines.protocol import Engine, SampleRequest, ScoreRequest
from limen.errors import ModelError
from limen.types import Prompt, SamplingParams, derive_seed

TABLE = {"q=": {"ab": 0.5, "a": 0.2, "b": 0.2, "": 0.1}}


def ask(engine, text, n, seed=0):
    ids = tuple(engine.tokenizer.encode(text))
    seeds = tuple(derive_seed(seed, text, i) for i in range(n))
    return SampleRequest(Prompt(text, text, ids, ""), tuple(range(n)), seeds)


def test_probabilities_of_responses_and_their_tokens():
    engine = ExactEngine(ResponsesPolicy(TABLE))
    assert isinstance(engine, Engine)
    prompt = tuple(engine.tokenizer.encode("q="))
    a, b = engine.tokenizer.encode("ab")
    assert engine.distribution(prompt, SamplingParams()) == pytest.approx(
        {(a, b, EOS): 0.5, (a, EOS): 0.2, (b, EOS): 0.2, (EOS,): 0.1}
    )
    # By hand: P(a) = 0.7; P(b | a) = 5/7; P(end | ab) = 1.
    (scores,) = engine.score([ScoreRequest(prompt, (a, b, EOS))])
    assert np.exp(scores) == pytest.approx([0.7, 5 / 7, 1.0])
    assert engine.success(prompt, SamplingParams(), lambda text: "b" in text) == pytest.approx(0.7)


def test_samples_follow_the_distribution_and_carry_its_log_probability():
    engine = ExactEngine(ResponsesPolicy(TABLE), logprobs=True)
    samples = list(engine.sample([ask(engine, "q=", 20_000)], SamplingParams()))
    texts = [s.text for s in samples]
    counts = [texts.count(t) for t in TABLE["q="]]
    assert stats.chisquare(counts, [20_000 * p for p in TABLE["q="].values()]).pvalue > 1e-4
    for sample in samples[:50]:
        assert np.exp(sample.log_q) == pytest.approx(TABLE["q="][sample.text])
        assert sum(sample.logprobs) == pytest.approx(sample.log_q)
        assert sample.finish_reason == "eos"
        assert sample.token_ids[-1] == EOS


def test_truncation_temperature_and_stop_strings():
    engine = ExactEngine(ResponsesPolicy(TABLE))
    prompt = tuple(engine.tokenizer.encode("q="))
    a, b = engine.tokenizer.encode("ab")
    assert engine.distribution(prompt, SamplingParams(max_tokens=1)) == pytest.approx(
        {(a,): 0.7, (b,): 0.2, (EOS,): 0.1}
    )
    assert engine.distribution(prompt, SamplingParams(temperature=0)) == {(a, b, EOS): 1.0}
    stop = SamplingParams(stop=("b",))
    assert engine.distribution(prompt, stop) == pytest.approx({(a, b): 0.5, (a, EOS): 0.2, (b,): 0.2, (EOS,): 0.1})
    stopped = [s for s in engine.sample([ask(engine, "q=", 200)], stop) if s.finish_reason == "stop"]
    assert {s.text for s in stopped} == {"a", ""}
    # A response cut by max_tokens is not correct, whatever it holds.
    assert engine.success(prompt, SamplingParams(max_tokens=1), lambda text: True) == pytest.approx(0.1)


def test_markov_chain_scores_and_mass():
    transition = np.zeros((4, 4))
    transition[2] = [0, 0.5, 0.25, 0.25]
    transition[3] = [0, 0.1, 0.9, 0.0]
    engine = ExactEngine(MarkovPolicy("ab", transition))
    prompt = (2,)
    distribution = engine.distribution(prompt, SamplingParams(max_tokens=8))
    assert sum(distribution.values()) == pytest.approx(1.0)
    assert distribution[(3, 2, EOS)] == pytest.approx(0.25 * 0.9 * 0.5)
    (scores,) = engine.score([ScoreRequest(prompt, (3, 2, EOS))])
    assert np.exp(scores) == pytest.approx([0.25, 0.9, 0.5])


def test_seeds_decide_and_the_rest_of_the_request_does_not():
    engine = ExactEngine(ResponsesPolicy(TABLE))
    many = {s.sample_index: s.token_ids for s in engine.sample([ask(engine, "q=", 50)], SamplingParams())}
    request = ask(engine, "q=", 50)
    few = SampleRequest(request.prompt, request.sample_indices[30:33], request.seeds[30:33])
    for sample in engine.sample([few], SamplingParams()):
        assert sample.token_ids == many[sample.sample_index]


def test_what_is_not_a_distribution_is_refused():
    with pytest.raises(ModelError, match="not a distribution"):
        ResponsesPolicy({"q": {"a": 0.5}})
    with pytest.raises(ModelError, match="transition matrix"):
        MarkovPolicy("ab", np.eye(3))
    engine = ExactEngine(ResponsesPolicy(TABLE))
    with pytest.raises(ModelError, match="does not know the prompt"):
        engine.score([ScoreRequest((2,), (EOS,))])
    with pytest.raises(ModelError, match="no token for"):
        engine.tokenizer.encode("z")
