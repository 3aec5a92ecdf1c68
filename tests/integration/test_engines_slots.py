"""Decoding in slots: the same rollouts as the plain path, refilled and moved slots included; and how it gives way."""

import contextlib
import logging
import weakref

import numpy as np
import pytest
import torch

from engine_models import random_model
from limen.engines import fast_path
from limen.engines.draw import draw, uniforms
from limen.engines.fast_path import FastPath
from limen.engines.hf import TransformersEngine
from limen.engines.protocol import SampleRequest
from limen.engines.runner import Runner
from limen.engines.slot_decoding import SlotDecoding, length_bucket, rows_bucket, steps_between
from limen.engines.slot_draw import draw_static, invert_blocks, uniforms_on
from limen.engines.slots import slot_attention
from limen.engines.stepper import Stepper
from limen.errors import ModelError
from limen.types import Prompt, SamplingParams, derive_seed

PROMPTS = ["abc", "abd", "abcdefg", "j", "ce", "ce"]
PLAIN = SamplingParams(max_tokens=9)


def asks(counts, texts=PROMPTS):
    tokenizer = random_model().tokenizer
    counts = [counts] * len(texts) if isinstance(counts, int) else counts
    return [
        SampleRequest(
            Prompt(f"p{j}", text, tuple(tokenizer.encode(text)), ""),
            tuple(range(n)),
            tuple(derive_seed(0, j, i) for i in range(n)),
        )
        for j, (text, n) in enumerate(zip(texts, counts))
    ]


def by_key(samples):
    found = {}
    for s in samples:
        assert (s.problem_id, s.sample_index) not in found
        found[s.problem_id, s.sample_index] = s
    return found


def both(family, params, counts, rows, **options):
    model = random_model(family)
    requests = asks(counts)
    plain = by_key(TransformersEngine(model, decoding="plain", **options).sample(requests, params))
    engine = TransformersEngine(model, batch_size=rows, decoding="slots", **options)
    ours = by_key(engine.sample(requests, params))
    assert engine.fast.usable
    return plain, ours


@pytest.mark.parametrize(("family", "rows"), [("llama", 3), ("llama", 16), ("llama", 64), ("qwen2", 16), ("gpt2", 5)])
def test_slots_draw_what_the_plain_path_draws(family, rows):
    plain, ours = both(family, PLAIN, [5, 1, 9, 2, 0, 7], rows, logprobs=True)
    assert ours.keys() == plain.keys()
    for key, s in ours.items():
        p = plain[key]
        assert (s.token_ids, s.text, s.finish_reason, s.seed) == (p.token_ids, p.text, p.finish_reason, p.seed)
        assert s.logprobs == pytest.approx(p.logprobs, abs=1e-4)
        assert s.log_q == pytest.approx(p.log_q, abs=1e-3)
    assert {s.finish_reason for s in ours.values()} == {"eos", "length"}


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(max_tokens=20, temperature=0.7, top_p=0.9),
        SamplingParams(max_tokens=20, top_k=3),
        SamplingParams(max_tokens=20, top_k=5, top_p=0.8),
        SamplingParams(max_tokens=20, stop=("a", "bc")),
        SamplingParams(max_tokens=40),
        SamplingParams(max_tokens=1),
    ],
    ids=["top_p", "top_k", "both", "stop", "long", "one"],
)
def test_every_option_as_in_the_plain_path(params):
    plain, ours = both("llama", params, 6, 10)
    assert {k: (s.token_ids, s.text, s.finish_reason) for k, s in ours.items()} == {
        k: (s.token_ids, s.text, s.finish_reason) for k, s in plain.items()
    }


def test_greedy_in_slots():
    plain, ours = both("llama", SamplingParams(temperature=0, max_tokens=9), 1, 4)
    assert {k: s.token_ids for k, s in ours.items()} == {k: s.token_ids for k, s in plain.items()}


def test_slots_are_used_again_by_the_next_call():
    engine = TransformersEngine(random_model(), batch_size=8, decoding="slots")
    first = by_key(engine.sample(asks(4), PLAIN))
    stepper = engine.fast._stepper
    again = by_key(engine.sample(asks(4), PLAIN))
    assert engine.fast._stepper is stepper
    assert {k: s.token_ids for k, s in again.items()} == {k: s.token_ids for k, s in first.items()}


def test_uniforms_bit_for_bit():
    seeds = np.array([0, 1, 2**63 - 1, 12345678901234567], dtype=np.uint64)
    want = uniforms(seeds, 0, 50)
    for t in range(50):
        got = uniforms_on(torch.from_numpy(seeds.view(np.int64)), torch.full((4,), t))
        assert got.tolist() == want[:, t].tolist()


@pytest.mark.parametrize("vocabulary", [3, 128, 129, 5000])
@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(0.8, 0.9), SamplingParams(1.0, 1.0, 2)])
def test_two_levels_of_sums_draw_as_one_does(vocabulary, params):
    torch.manual_seed(0)
    logits = torch.randn(200, vocabulary) * 6
    u = torch.rand(200, dtype=torch.float64)
    tokens, log_q = draw(logits, u, params)
    ours, our_q, finite, enough = draw_static(logits, u, params)
    assert ours.tolist() == tokens.tolist()
    assert torch.allclose(our_q, log_q, atol=1e-5)
    assert finite.all()
    assert enough.all()


def test_entries_of_no_probability_are_never_met():
    probs = torch.zeros(4, 300)
    probs[:, [130, 140]] = 0.5
    for u in (0.0, 0.5 - 2**-53, 0.5, 1 - 2**-53):
        ids, _ = invert_blocks(probs, torch.full((4,), u, dtype=torch.float64))
        assert ids.tolist() == [130 if u < 0.5 else 140] * 4


def test_a_nucleus_beyond_what_is_looked_at_is_said():
    flat = torch.zeros(2, 4000)
    flat[1, 7] = 30.0
    *_, enough = draw_static(flat, torch.tensor([0.3, 0.3], dtype=torch.float64), SamplingParams(top_p=0.9))
    assert enough.tolist() == [False, True]


def test_rows_that_cannot_be_decided_go_to_the_plain_path(monkeypatch):
    plain = by_key(
        TransformersEngine(random_model(), decoding="plain").sample(asks(5), SamplingParams(max_tokens=9, top_p=0.9))
    )
    monkeypatch.setattr("limen.engines.slot_draw.NUCLEUS", 3)
    engine = TransformersEngine(random_model(), batch_size=8, decoding="slots")
    ours = by_key(engine.sample(asks(5), SamplingParams(max_tokens=9, top_p=0.9)))
    assert {k: s.token_ids for k, s in ours.items()} == {k: s.token_ids for k, s in plain.items()}


@pytest.mark.parametrize("family", ["sliding", "softcap", "bloom", "hybrid", "mamba"])
def test_other_models_give_way(family):
    model = random_model(family)
    with pytest.raises(ModelError, match="not possible with this model"):
        list(TransformersEngine(model, decoding="slots").sample(asks(2), PLAIN))
    assert len(list(TransformersEngine(model).sample(asks(2), PLAIN))) == 2 * len(PROMPTS)


def test_a_model_that_processes_share_gives_way(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(ModelError, match="several processes share the model"):
        TransformersEngine(random_model(), decoding="slots")


def auto(model):
    """The engine as it would be on a GPU: the path is taken by itself, here without graphs."""
    engine = TransformersEngine(model, batch_size=8, decoding="slots")
    engine.fast.decoding = "auto"
    return engine


def test_a_failure_in_the_middle_gives_way(monkeypatch, caplog):
    plain = by_key(TransformersEngine(random_model(), decoding="plain").sample(asks(6), PLAIN))
    draw_before, calls = Stepper.draw, []

    def failing(self, *args):
        calls.append(args)
        if len(calls) == 4:
            raise RuntimeError("operation not permitted when stream is capturing")
        return draw_before(self, *args)

    monkeypatch.setattr(Stepper, "draw", failing)
    engine = auto(random_model())
    with caplog.at_level(logging.WARNING):
        ours = by_key(engine.sample(asks(6), PLAIN))
    assert not engine.fast.usable
    assert "stream is capturing" in caplog.text
    assert {k: s.token_ids for k, s in ours.items()} == {k: s.token_ids for k, s in plain.items()}


def test_out_of_memory_takes_fewer_slots(monkeypatch):
    before, seen, alive = Stepper.draw, [], []

    def limited(self, rows, length, steps):
        if not seen or seen[-1] != self.rows:
            alive.append(weakref.ref(self))
            assert [ref().rows for ref in alive if ref() is not None] == [self.rows], "the larger slots are kept"
        seen.append(self.rows)
        if self.rows > 8:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return before(self, rows, length, steps)

    monkeypatch.setattr(Stepper, "draw", limited)
    engine = auto(random_model())
    engine.batch_size = 32
    assert len(by_key(engine.sample(asks(6), PLAIN))) == 36
    assert engine.fast.usable
    assert max(seen) == 32
    assert seen[-1] == 8


def test_wrong_logits_give_way(monkeypatch):
    monkeypatch.setattr(Stepper, "logits", lambda self, rows, length: torch.zeros(rows, 12))
    engine = auto(random_model())
    assert len(by_key(engine.sample(asks(2), PLAIN))) == 12
    assert "differ from the plain" in engine.fast.reason


def test_broken_weights_are_an_error():
    model = random_model()
    engine = auto(model)
    list(engine.sample(asks(1), PLAIN))
    with torch.no_grad():
        model.model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="not finite"):
        list(engine.sample(asks(1), PLAIN))


def test_what_must_be_a_gpu_is_refused_without_one():
    with pytest.raises(ModelError, match="CUDA"):
        TransformersEngine(random_model(), decoding="graphs")
    with pytest.raises(ModelError, match="expected one of"):
        TransformersEngine(random_model(), decoding="quick")
    assert not FastPath(TransformersEngine(random_model()).runner, "auto", False).usable


def test_buckets():
    assert [rows_bucket(r, 100) for r in (1, 8, 9, 64, 65, 500)] == [8, 8, 16, 64, 100, 100]
    assert [length_bucket(n, 10_000) for n in (1, 64, 65, 512, 513, 5000)] == [64, 64, 128, 512, 640, 5120]
    assert length_bucket(130, 140) == 140
    assert [steps_between(m) for m in (1, 6, 16, 128, 4096)] == [1, 1, 2, 16, 16]


def test_few_prefills_for_many_samples(monkeypatch):
    """The samples of one prompt that do not fit at once share one prefill."""
    count = []
    before = Stepper.prefill
    monkeypatch.setattr(
        Stepper, "prefill", lambda self, prompts: (count.append(len(prompts)), before(self, prompts))[1]
    )
    engine = TransformersEngine(random_model(), batch_size=8, decoding="slots")
    list(engine.sample(asks(20, ["abc", "ce"]), PLAIN))
    assert sum(count) - 2 <= 4
    assert fast_path.LEAST_ROWS == 8
    assert SlotDecoding


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize(
    "params", [PLAIN, SamplingParams(0.7, 0.9, 0, 9), SamplingParams(1.0, 0.9, 5, 9), SamplingParams(temperature=0)]
)
def test_a_step_asks_nothing_of_the_host(family, params):
    """On tensors without data every look at a value raises: so would a CUDA graph's capture."""
    model = random_model(family).model.to("meta")
    stepper = Stepper(Runner(model), params, 16, 64, 4, want_logprobs=True, graphs=False)
    config = model.config
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = config.hidden_size // config.num_attention_heads
    with torch.inference_mode(), slot_attention(model):
        for layer in stepper.cache.layers:
            layer.lazy_initialization(*[torch.empty(1, heads, 1, size, device="meta")] * 2)
        stepper._step(16, 64)
    with pytest.raises((RuntimeError, NotImplementedError)):
        bool(stepper.bad_B.any())


class Replayed:
    """In the place of a CUDA graph: replaying runs the captured step again."""

    step, last, captures = Stepper._step, None, 0

    def replay(self):
        stepper, rows, length = self.captured
        Replayed.step(stepper, rows, length)


class Stream:
    def wait_stream(self, other):
        pass


@contextlib.contextmanager
def captured(graph, pool=None):
    Replayed.captures += 1
    yield
    graph.captured = Replayed.last


def test_capturing_leaves_no_trace(monkeypatch):
    """Warming up and capturing run the step on live slots: what they draw must not enter any response."""

    def step(self, rows, length):
        Replayed.last = (self, rows, length)
        Replayed.step(self, rows, length)

    monkeypatch.setattr(Stepper, "_step", step)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda s: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Replayed)
    monkeypatch.setattr(torch.cuda, "graph", captured)
    params = SamplingParams(max_tokens=50)
    plain = by_key(TransformersEngine(random_model(), decoding="plain").sample(asks(9), params))
    engine = TransformersEngine(random_model(), batch_size=16, decoding="slots")
    engine.fast.graphs = True
    for _ in range(2):
        ours = by_key(engine.sample(asks(9), params))
        assert {k: s.token_ids for k, s in ours.items()} == {k: s.token_ids for k, s in plain.items()}
    assert Replayed.captures == len(engine.fast._stepper._graphs) >= 2
