"""Scores against the model's own logits, however rows are batched and padded; other ways of scoring."""

import sys
import types

import numpy as np
import pytest
import torch

from engine_models import EOS, FAMILIES, VOCABULARY, random_model
from limen.engines.fused import fused_head
from limen.engines.hf import TransformersEngine
from limen.engines.protocol import ScoreRequest
from limen.engines.runner import Runner
from limen.engines.scoring import Scorer
from limen.errors import ConfigError, MissingExtra, ModelError


def by_hand(model, request):
    """One row, no padding, all logits, in double precision from there on."""
    ids = torch.tensor([[*request.prompt_ids, *request.token_ids]])
    with torch.no_grad():
        logs = torch.log_softmax(model(input_ids=ids, use_cache=False).logits[0].double(), -1)
    start = len(request.prompt_ids) - 1
    return np.array([logs[start + i, t] for i, t in enumerate(request.token_ids)])


def some_requests(count=64, seed=0):
    rng = np.random.default_rng(seed)
    prompts = [tuple(rng.integers(2, VOCABULARY, rng.integers(1, 9)).tolist()) for _ in range(count)]
    prompts[1::3] = prompts[::3][: len(prompts[1::3])]  # some are shared
    return [ScoreRequest(p, tuple(rng.integers(1, VOCABULARY, rng.integers(1, 15)).tolist())) for p in prompts]


@pytest.mark.parametrize("family", list(FAMILIES))
def test_batch_of_one_batch_of_64_and_the_models_own_logits_agree(family):
    noise = 2e-4 if family == "mamba" else 5e-5  # its scan sums in another order
    model = random_model(family).model
    scorer, requests = Scorer(Runner(model)), some_requests()
    together = scorer.score(requests)
    for request, scores in zip(requests, together, strict=True):
        assert scores == pytest.approx(by_hand(model, request), abs=noise)
        assert scores == pytest.approx(scorer.score([request])[0], abs=noise)
    small = Scorer(Runner(model), batch_tokens=20).score(requests)
    assert np.concatenate(small) == pytest.approx(np.concatenate(together), abs=noise)


@pytest.mark.parametrize("family", ["llama", "gpt2", "sliding", "softcap", "bloom"])
def test_padding_on_the_left_gives_the_same(family):
    """The scorer pads on the right (or shares prompts); the same rows padded on the left, with mask and positions."""
    model = random_model(family).model
    requests = some_requests(16, seed=1)
    rows = [[*r.prompt_ids, *r.token_ids] for r in requests]
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(r)) + r for r in rows])
    mask = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows])
    positions = {} if family == "bloom" else {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
    with torch.no_grad():
        logs = torch.log_softmax(model(input_ids=ids, attention_mask=mask, **positions).logits.double(), -1)
    for i, (request, scores) in enumerate(zip(requests, Scorer(Runner(model)).score(requests), strict=True)):
        start = width - len(request.token_ids) - 1
        left = [float(logs[i, start + t, token]) for t, token in enumerate(request.token_ids)]
        assert scores == pytest.approx(left, abs=5e-5)


def test_the_end_of_sequence_token_counts_where_it_was_sampled_and_only_there():
    model = random_model(seed=3).model
    ended, cut = ScoreRequest((2, 3), (4, 5, EOS)), ScoreRequest((2, 3), (4, 5))
    with_eos, without = Scorer(Runner(model)).score([ended, cut])
    assert len(with_eos) == 3
    assert len(without) == 2
    assert with_eos[:2] == pytest.approx(without, abs=1e-6)
    assert with_eos[2] == pytest.approx(by_hand(model, ended)[2], abs=1e-5)


def test_ids_are_scored_as_they_are_stored():
    """A beginning-of-sequence token is scored where the prompt has it, and never put there."""
    model = random_model(seed=4).model
    bos = 1
    bare, begun = ScoreRequest((5, 6), (7,)), ScoreRequest((bos, 5, 6), (7,))
    one, two = Scorer(Runner(model)).score([bare, begun])
    assert one == pytest.approx(by_hand(model, bare), abs=1e-5)
    assert two == pytest.approx(by_hand(model, begun), abs=1e-5)
    assert abs(float(one[0] - two[0])) > 1e-3


def test_a_lora_checkpoint_scores_as_the_adapter_on_its_base(tmp_path):
    peft = pytest.importorskip("peft")
    from limen.models import load_model

    base = load_model("tiny", "cpu")
    requests = [ScoreRequest((5, 6, 7, 8, 9, 10), (3, 4, 5)), ScoreRequest((5, 6, 7, 8, 9, 11), (6, 1))]
    plain = TransformersEngine(base).score(requests)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(base.model, config)
    torch.manual_seed(0)
    for name, p in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=0.05)
    model.peft_config["default"].base_model_name_or_path = "tiny"
    model.save_pretrained(tmp_path)
    base.tokenizer.save_pretrained(tmp_path)
    want = [by_hand(model.eval(), r) for r in requests]
    for merge in (True, False):
        loaded = load_model(tmp_path, "cpu", merge_adapter=merge)
        got = TransformersEngine(loaded).score(requests)
        for a, b, c in zip(got, want, plain, strict=True):
            assert a == pytest.approx(b, abs=1e-4)
            assert np.abs(a - c).max() > 1e-2
    trainable = [n for n, p in loaded.model.named_parameters() if p.requires_grad]
    assert trainable
    assert all("lora_" in n for n in trainable)


class Little(Runner):
    """A runner whose memory takes so many tokens of one forward pass."""

    def __init__(self, model, most):
        super().__init__(model)
        self.most, self.refused, self.passed = most, 0, []

    def _room(self, ids_BT):
        if ids_BT.numel() > self.most:
            self.refused += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        self.passed.append(ids_BT.numel())

    def hidden(self, ids_BT, *more):
        self._room(ids_BT)
        return super().hidden(ids_BT, *more)

    def full_logits(self, ids_BT, *more):
        self._room(ids_BT)
        return super().full_logits(ids_BT, *more)

    def prefill(self, prompts, hidden=False):
        self._room(torch.zeros(len(prompts), max(map(len, prompts))))
        return super().prefill(prompts, hidden)


@pytest.mark.parametrize("family", ["llama", "softcap", "mamba"])
def test_memory_that_runs_out_halves_the_batch_and_loses_nothing(family, caplog):
    model = random_model(family).model
    requests = some_requests()
    little = Little(model, 40)
    little.plain_head((2, 3, 4))  # asked once, of one row
    scorer = Scorer(little, batch_tokens=256)
    with caplog.at_level("WARNING"):
        got = scorer.score(requests)
    for request, scores in zip(requests, got, strict=True):
        assert scores == pytest.approx(by_hand(model, request), abs=2e-4)
    assert little.refused > 0
    assert "out of memory with batches of 256 tokens: going on with 128" in caplog.text
    before = little.refused
    assert np.concatenate(scorer.score(requests)) == pytest.approx(np.concatenate(got), abs=2e-4)
    assert little.refused == before  # the batch that fits is kept


def test_one_response_that_does_not_fit_is_an_error_that_says_what_to_lower():
    engine = TransformersEngine(random_model())
    engine.runner = Little(engine.runner.model, 8)
    engine.runner.plain_head((2, 3, 4))
    with pytest.raises(ModelError, match=r"one response of 12 tokens.*--dtype.*Tried to allocate 2.00 GiB"):
        engine.score([ScoreRequest((2, 3), (4,) * 10), ScoreRequest((2, 3), (4, 5))])


def test_an_error_that_is_not_of_memory_is_not_taken_for_one(monkeypatch):
    runner = Runner(random_model().model)
    scorer = Scorer(runner)

    def broken(*args):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(runner, "hidden", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        scorer.score([ScoreRequest((2, 3), (4, 5))])


def test_heads_that_cannot_serve_are_refused():
    runner = Runner(random_model().model)
    assert fused_head(runner, "logits") is None
    with pytest.raises(ConfigError, match="expected one of logits, cce"):
        fused_head(runner, "magic")
    with pytest.raises(ModelError, match="GPU kernel"):
        Scorer(runner, head="cce")


def test_a_fused_head_gives_minus_its_loss_per_token(monkeypatch):
    """With a stand-in of cut-cross-entropy's function: what it is given, and what becomes of its answer."""
    seen = []

    def linear_cross_entropy(e, c, targets, reduction):
        seen.append((tuple(e.shape), tuple(c.shape), reduction))
        return torch.nn.functional.cross_entropy(e @ c.T, targets, reduction=reduction)

    monkeypatch.setitem(
        sys.modules, "cut_cross_entropy", types.SimpleNamespace(linear_cross_entropy=linear_cross_entropy)
    )
    runner = Runner(random_model().model)
    scorer, requests = Scorer(runner), some_requests(8)
    want = scorer.score(requests)
    place, runner.device = runner.device, types.SimpleNamespace(type="cuda")
    scorer.head = fused_head(runner, "cce")
    runner.device = place
    for a, b in zip(scorer.score(requests), want, strict=True):
        assert a == pytest.approx(b, abs=1e-5)
    assert seen[0][0][1] == 32
    assert seen[0][1:] == ((VOCABULARY, 32), "none")


class FakeLLM:
    """Answers as vLLM does, out of a transformers model."""

    def __init__(self, model):
        self.model = model
        config = types.SimpleNamespace(max_model_len=64, get_vocab_size=lambda: VOCABULARY)
        vllm = types.SimpleNamespace(scheduler_config=types.SimpleNamespace(max_num_seqs=8))
        self.llm_engine = types.SimpleNamespace(model_config=config, vllm_config=vllm)

    def generate(self, prompts, params, use_tqdm):
        assert (params.max_tokens, params.prompt_logprobs) == (1, 0)
        for prompt in prompts:
            ids = prompt["prompt_token_ids"]
            values = by_hand(self.model, ScoreRequest(tuple(ids[:1]), tuple(ids[1:])))
            entries = [{t: types.SimpleNamespace(logprob=float(v))} for t, v in zip(ids[1:], values, strict=True)]
            yield types.SimpleNamespace(prompt_logprobs=[None, *entries])


def test_vllm_prompt_logprobs_become_scores_of_the_response(monkeypatch):
    fake = types.SimpleNamespace(LLM=None, SamplingParams=lambda **k: types.SimpleNamespace(**k))
    monkeypatch.setitem(sys.modules, "vllm", fake)
    from limen.engines.vllm import VLLMEngine

    model = random_model(seed=5)
    engine, requests = VLLMEngine(FakeLLM(model.model), model.tokenizer, (EOS,)), some_requests(8)
    got, want = engine.score(requests), Scorer(Runner(model.model)).score(requests)
    for a, b in zip(got, want, strict=True):
        assert a == pytest.approx(b, abs=5e-5)
    with pytest.raises(ModelError, match="do not fit vLLM's context 64"):
        engine.score([ScoreRequest((2,) * 40, (3,) * 24)])


def test_the_command_scores_with_vllm_or_says_what_is_missing(tmp_path, monkeypatch):
    from limen.cli.sample import _scoring_engine

    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingExtra, match=r"limen\[vllm\]"):
        _scoring_engine("vllm", "tiny", None, None, "logits")
    with pytest.raises(ConfigError, match="leave them out with vllm"):
        _scoring_engine("vllm", "tiny", "cpu", None, "logits")
    with pytest.raises(ConfigError, match="expected transformers or vllm"):
        _scoring_engine("llama", "tiny", None, None, "logits")
    assert _scoring_engine("transformers", "tiny", "cpu", None, "logits").name == "transformers"
