"""The transformers engine on small random models: the distribution, finish reasons, batching, scores."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from engine_models import EOS, FAMILIES, VOCABULARY, random_model
from limen.engines.batching import Batch
from limen.engines.decoding import Decoding
from limen.engines.hf import TransformersEngine
from limen.engines.protocol import Engine, SampleRequest, ScoreRequest
from limen.errors import ModelError
from limen.types import Prompt, SamplingParams, derive_seed

PROMPTS = ["abc", "abd", "abcdefg", "j", "ce", "ce"]


def asks(n, texts=PROMPTS, seed=0):
    tokenizer = random_model().tokenizer
    return [
        SampleRequest(
            Prompt(f"p{j}", text, tuple(tokenizer.encode(text)), ""),
            tuple(range(n)),
            tuple(derive_seed(seed, j, i) for i in range(n)),
        )
        for j, text in enumerate(texts)
    ]


def by_key(samples):
    found = {}
    for s in samples:
        assert (s.problem_id, s.sample_index) not in found
        found[(s.problem_id, s.sample_index)] = s
    return found


def full_logprobs(model, prompt, response):
    """Log-probabilities from one plain forward pass over the whole sequence."""
    with torch.no_grad():
        logs = torch.log_softmax(model(torch.tensor([prompt + response])).logits[0].double(), -1)
    return [float(logs[len(prompt) - 1 + t, token]) for t, token in enumerate(response)]


@pytest.mark.parametrize("family", FAMILIES)
def test_any_batching_gives_the_same_samples_and_exact_logprobs(family):
    engine = TransformersEngine(random_model(family), logprobs=True)
    assert isinstance(engine, Engine)
    requests, params, first = asks(4), SamplingParams(max_tokens=9), None
    for batch_size in (24, 5):
        engine.batch_size = batch_size
        samples = by_key(engine.sample(requests, params))
        first = first or samples
        assert {k: s.token_ids for k, s in samples.items()} == {k: s.token_ids for k, s in first.items()}
        for request, i in itertools.product(requests, range(4)):
            s = samples[(request.prompt.problem_id, i)]
            want = full_logprobs(engine.loaded.model, request.prompt.token_ids, s.token_ids)
            assert s.logprobs == pytest.approx(want, abs=1e-4)
            assert s.log_q == pytest.approx(sum(want), abs=1e-3)
    scores = engine.score(
        [
            ScoreRequest(r.prompt.token_ids, first[(r.prompt.problem_id, i)].token_ids)
            for r in requests
            for i in range(4)
        ]
    )
    want = [first[(r.prompt.problem_id, i)].logprobs for r in requests for i in range(4)]
    for ours, theirs in zip(scores, want, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)
        assert ours.dtype == np.float32
        assert (ours <= 0).all()


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(max_tokens=3),
        SamplingParams(max_tokens=3, temperature=0.6, top_p=0.95),
        SamplingParams(max_tokens=3, temperature=1.5, top_k=3),
    ],
)
def test_samples_follow_the_models_own_distribution(params):
    """Chi-square of 12,000 samples against probabilities multiplied up from plain forward passes."""
    loaded = random_model(seed=3)
    engine = TransformersEngine(loaded)
    prompt = tuple(loaded.tokenizer.encode("abc"))
    n = 12_000
    seeds = tuple(derive_seed(11, i) for i in range(n))
    request = SampleRequest(Prompt("p", "abc", prompt, ""), tuple(range(n)), seeds)
    counts = {}
    for s in engine.sample([request], params):
        counts[s.token_ids] = counts.get(s.token_ids, 0) + 1
    exact = enumerate_responses(loaded.model, prompt, params)
    assert sum(exact.values()) == pytest.approx(1.0, abs=1e-6)
    assert set(counts) <= set(exact)
    often = [ids for ids, p in exact.items() if n * p >= 5]
    observed = [counts.get(ids, 0) for ids in often]
    expected = [n * exact[ids] for ids in often]
    if n - sum(expected) >= 5:
        observed.append(n - sum(observed))
        expected.append(n - sum(expected))
    assert stats.chisquare(observed, np.array(expected) * sum(observed) / sum(expected)).pvalue > 1e-4


def enumerate_responses(model, prompt, params):
    """Probability of every response, token distributions shaped by the textbook definition of each option."""
    found, stack = {}, [((), 1.0)]
    while stack:
        prefix, q = stack.pop()
        with torch.no_grad():
            logits = model(torch.tensor([prompt + prefix])).logits[0, -1].double().numpy() / params.temperature
        probs = np.exp(logits - logits.max())
        order = np.argsort(-probs)
        if params.top_k:
            probs[order[params.top_k :]] = 0
        probs /= probs.sum()
        if params.top_p < 1:
            keep = int(np.searchsorted(np.cumsum(probs[order]), params.top_p)) + 1
            probs[order[keep:]] = 0
            probs /= probs.sum()
        for token in np.flatnonzero(probs):
            ids = (*prefix, int(token))
            if token == EOS or len(ids) == params.max_tokens:
                found[ids] = q * probs[token]
            else:
                stack.append((ids, q * probs[token]))
    return found


def test_finish_reasons_and_texts():
    engine = TransformersEngine(random_model())
    for s in engine.sample(asks(30), SamplingParams(max_tokens=5, stop=("ab", "c"))):
        text = engine.tokenizer.decode(s.token_ids)
        if s.finish_reason == "eos":
            assert s.token_ids.index(EOS) == len(s.token_ids) - 1
            assert s.text == text
        elif s.finish_reason == "stop":
            ends = [text.find(x) for x in ("ab", "c") if x in text]
            assert s.text == text[: min(ends)]
            assert len(s.token_ids) <= 5
        else:
            assert len(s.token_ids) == 5
            assert EOS not in s.token_ids
        assert "ab" not in s.text
        assert "c" not in s.text


def test_every_stop_token_ends_a_response_and_none_is_taken_for_truncation():
    loaded = random_model()
    loaded.model.generation_config.eos_token_id = [EOS, 4]
    engine = TransformersEngine(loaded)
    assert engine.eos_ids == (EOS, 4)
    samples = list(engine.sample(asks(30), SamplingParams(max_tokens=8)))
    ended = [s for s in samples if s.token_ids[-1] == 4]
    assert ended
    assert all(s.finish_reason == "eos" for s in ended)
    assert not any({EOS, 4} & set(s.token_ids[:-1]) for s in samples)


def test_greedy_is_generate():
    loaded = random_model(seed=5)
    engine = TransformersEngine(loaded)
    (s,) = engine.sample(asks(1, ["abcdefg"]), SamplingParams(temperature=0, max_tokens=20))
    prompt = torch.tensor([loaded.tokenizer.encode("abcdefg")])
    out = loaded.model.generate(prompt, do_sample=False, max_new_tokens=20, eos_token_id=EOS, pad_token_id=0)
    assert list(s.token_ids) == out[0, prompt.shape[1] :].tolist()


def test_seeds_are_distinct_and_samples_vary():
    engine = TransformersEngine(random_model(sharpness=1.0))
    samples = by_key(engine.sample(asks(40), SamplingParams(max_tokens=12)))
    assert len({s.seed for s in samples.values()}) == 240
    assert len({s.token_ids for s in samples.values()}) > 100
    # The same prompt under another id and other seeds is another draw.
    assert [samples[("p4", i)].token_ids for i in range(40)] != [samples[("p5", i)].token_ids for i in range(40)]


def test_a_part_of_a_request_draws_the_same():
    engine = TransformersEngine(random_model())
    params = SamplingParams(max_tokens=10)
    whole = by_key(engine.sample(asks(9), params))
    parts = [SampleRequest(r.prompt, r.sample_indices[5:7], r.seeds[5:7]) for r in asks(9)[::2]]
    for key, s in by_key(engine.sample(parts, params)).items():
        assert s.token_ids == whole[key].token_ids


def test_out_of_memory_halves_the_batch_and_loses_nothing(monkeypatch, caplog):
    engine = TransformersEngine(random_model(), batch_size=48)
    params = SamplingParams(max_tokens=10)
    want = by_key(engine.sample(asks(8), params))
    step = Decoding.step
    calls = itertools.count()

    def failing(self):
        if len(self.batch.rows) > 12 and next(calls) % 3 == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return step(self)

    monkeypatch.setattr(Decoding, "step", failing)
    assert by_key(engine.sample(asks(8), params)).keys() == want.keys()
    assert "going on with 24" in caplog.text
    assert "going on with 12" in caplog.text

    monkeypatch.setattr(Decoding, "step", lambda self: (_ for _ in ()).throw(torch.OutOfMemoryError("no more")))
    with pytest.raises(ModelError, match="not enough memory for one response"):
        list(engine.sample(asks(2), params))


def test_finished_rows_leave_the_batch():
    engine = TransformersEngine(random_model())
    request = asks(64, ["abc"])[0]
    batch = Batch((request,), tuple((0, i) for i in range(64)))
    params = SamplingParams(max_tokens=30)
    decoding = Decoding(engine.runner, batch, params, engine.eos_ids, engine._stop(params), False)
    sizes = []
    while not decoding.done:
        decoding.step()
        sizes.append(decoding.logits_BV.shape[0])
    assert sizes[0] <= 64
    assert sizes[-1] < 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_tokens": 60}, "do not fit the model's context of 64"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"top_p": 0.0}, "top_p"),
        ({"stop": ("",)}, "empty stop string"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_drawn(change, message):
    engine = TransformersEngine(random_model())
    params = SamplingParams(**{"max_tokens": 5, **change})
    with pytest.raises(ModelError, match=message):
        engine.sample(asks(1), params)


def test_odd_prompts_are_refused():
    engine = TransformersEngine(random_model())
    for ids, message in (((), "no tokens"), ((VOCABULARY,), "vocabulary")):
        request = SampleRequest(Prompt("p", "", ids, ""), (0,), (1,))
        with pytest.raises(ModelError, match=message):
            engine.sample([request], SamplingParams(max_tokens=1))
    with pytest.raises(ModelError, match="empty prompt"):
        engine.score([ScoreRequest((), (2,))])


def test_scores_do_not_depend_on_batching_beyond_the_noise_of_float32():
    engine = TransformersEngine(random_model(seed=2))
    rng = np.random.default_rng(0)
    requests = [
        ScoreRequest(
            tuple(rng.integers(2, VOCABULARY, size=rng.integers(1, 12)).tolist()),
            tuple(rng.integers(1, VOCABULARY, size=rng.integers(0, 20)).tolist()),
        )
        for _ in range(40)
    ]
    requests += [ScoreRequest(requests[0].prompt_ids, r.token_ids) for r in requests]  # one prompt shared by many
    together = engine.score(requests)
    for request, scores in zip(requests, together, strict=True):
        assert scores.shape == (len(request.token_ids),)
        (alone,) = engine.score([request])
        assert scores == pytest.approx(alone, abs=2e-5)
        want = full_logprobs(engine.loaded.model, request.prompt_ids, request.token_ids)
        assert scores == pytest.approx(want, abs=2e-5)


def test_the_output_layer_sees_a_bounded_number_of_tokens(monkeypatch):
    from limen.engines.scoring import Scorer

    engine = TransformersEngine(random_model())
    seen = []
    head = engine.runner.head
    monkeypatch.setattr(engine.runner, "head", lambda h: seen.append(len(h)) or head(h))
    scorer = Scorer(engine.runner, logit_bytes=4 * VOCABULARY * 20)
    requests = [ScoreRequest((2, 3), (2 + i % 10, 2 + i // 10, *(4,) * 28)) for i in range(20)]
    scorer.score(requests[:1])
    seen.clear()
    scores = scorer.score([*requests, requests[3]])  # the last is a repetition, and costs nothing
    assert scores[-1].tolist() == scores[3].tolist()
    assert max(seen) <= 20
    assert sum(seen) == 600
    assert math.isclose(sum(seen) / len(seen), 20, rel_tol=0.2)
