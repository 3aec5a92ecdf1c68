"""Packed scoring against the model's own logits, one response at a time."""

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from limen.dynamics.packed import PackedScorer
from limen.dynamics.scorer import score
from limen.engines.protocol import ScoreRequest
from limen.engines.runner import Runner
from limen.errors import ModelError
from train_helpers import CHARS, tiny_model


def pairs():
    """Prompts of unequal length, several responses each, twins, an empty one, one-token ones."""
    rng = np.random.default_rng(3)
    out = []
    for i in range(9):
        prompt = tuple(rng.integers(2, len(CHARS), size=2 + i % 4).tolist())
        out += [ScoreRequest(prompt, tuple(rng.integers(1, len(CHARS), size=n).tolist())) for n in (1, 4, 2 + i % 3)]
    return [*out, out[4], ScoreRequest(out[0].prompt_ids, ()), out[0]]


def directly(model, request):
    """(log-probability, entropy) of each response token, from one forward pass in float64."""
    ids = torch.tensor([[*request.prompt_ids, *request.token_ids]])
    with torch.no_grad():
        logs = torch.log_softmax(model(input_ids=ids).logits[0].double(), -1)[len(request.prompt_ids) - 1 : -1]
    chosen = logs.gather(1, ids[0, len(request.prompt_ids) :, None])[:, 0]
    return chosen.numpy(), -(logs.exp() * logs).sum(-1).numpy()


@pytest.fixture(scope="module")
def model():
    return tiny_model(1).eval()


@pytest.mark.parametrize("batch_tokens", [1, 13, 4096])
def test_scores_and_entropies_are_the_models_own(model, batch_tokens):
    requests = pairs()
    found = PackedScorer(Runner(model), requests, batch_tokens)(entropies=True)
    for i, request in enumerate(requests):
        part = slice(found.offset_N[i], found.offset_N[i + 1])
        want, entropy = directly(model, request)
        np.testing.assert_allclose(found.token_T[part], want, atol=2e-5)
        np.testing.assert_allclose(found.entropy_T[part], entropy, atol=2e-5)


@pytest.mark.parametrize("lengths", [(3, 1, 2, 5), (2, 2, 2, 2), (0, 1, 3, 2)])
def test_a_beginning_that_all_prompts_share_is_run_once(model, lengths):
    """Few-shot examples before every question; one question may be nothing but them."""
    rng = np.random.default_rng(5)
    shots = tuple(rng.integers(2, len(CHARS), size=14).tolist())
    prompts = [shots + tuple(rng.integers(2, len(CHARS), size=n).tolist()) for n in lengths]
    requests = [
        ScoreRequest(p, tuple(rng.integers(1, len(CHARS), size=n).tolist())) for p in prompts for n in (1, 3, 5)
    ]
    runner = Runner(model)
    widths = []
    hidden = runner.hidden
    runner.hidden = lambda ids, *rest: widths.append(ids.shape) or hidden(ids, *rest)
    found = PackedScorer(runner, requests)(entropies=True)
    assert widths[-3][0] == 1  # the shared beginning, then what follows it, then the responses
    assert widths[-2][0] == len(prompts)
    assert widths[-2][1] <= max(lengths) + 1
    np.testing.assert_allclose(found.token_T, np.concatenate([directly(model, r)[0] for r in requests]), atol=2e-5)
    np.testing.assert_allclose(found.entropy_T, np.concatenate([directly(model, r)[1] for r in requests]), atol=2e-5)


def test_the_plan_serves_when_the_weights_change(model):
    requests = pairs()
    other = tiny_model(1).eval()
    scorer = PackedScorer(Runner(other), requests)
    before = scorer()
    with torch.no_grad():
        for p in other.parameters():
            p.add_(0.05 * torch.sign(p))
    after = scorer()
    want = np.concatenate([directly(other, r)[0] for r in requests if r.token_ids])
    np.testing.assert_allclose(after.token_T, want, atol=2e-5)
    assert np.abs(after.token_T - before.token_T).max() > 1e-3
    assert before.entropy_T is None


def test_other_architectures_and_the_plain_scorer_agree():
    torch.manual_seed(0)
    gpt = GPT2LMHeadModel(GPT2Config(vocab_size=len(CHARS), n_embd=32, n_layer=2, n_head=2, n_positions=32)).eval()
    runner, requests = Runner(gpt), [r for r in pairs() if r.token_ids]
    packed, plain = PackedScorer(runner, requests)(True), score(runner, requests, True)
    want = np.concatenate([directly(gpt, r)[0] for r in requests])
    np.testing.assert_allclose(packed.token_T, want, atol=2e-5)
    np.testing.assert_allclose(plain.token_T, want, atol=2e-5)
    np.testing.assert_allclose(packed.entropy_T, plain.entropy_T, atol=2e-5)


def test_an_empty_prompt_is_refused(model):
    with pytest.raises(ModelError, match="empty prompt"):
        PackedScorer(Runner(model), [ScoreRequest((), (3,))])


def test_models_that_do_more_than_an_output_layer_are_scored_in_batches_too(model, monkeypatch):
    runner, requests = Runner(model), [r for r in pairs() if r.token_ids]
    want = PackedScorer(Runner(model), requests)(True)
    runner._plain_head = False  # as a soft cap on the logits makes it
    passes = []
    monkeypatch.setattr(runner, "full_logits", lambda *a, **k: passes.append(1) or Runner.full_logits(runner, *a, **k))
    own = PackedScorer(runner, requests)(True)
    np.testing.assert_allclose(own.token_T, want.token_T, atol=2e-5)
    np.testing.assert_allclose(own.entropy_T, want.entropy_T, atol=2e-5)
    assert len(passes) < len(requests) / 2


def narrow(model, most):
    """A runner for which more than `most` tokens at once are out of memory."""
    runner = Runner(model)
    hidden = runner.hidden

    def limited(ids, *rest):
        if ids.numel() > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return hidden(ids, *rest)

    runner.hidden = limited
    return runner


def test_a_probe_that_runs_out_of_memory_goes_on_with_smaller_batches(model, caplog):
    requests = pairs()
    scorer = PackedScorer(narrow(model, 12), requests)
    found = scorer(entropies=True)
    np.testing.assert_allclose(found.token_T, np.concatenate([directly(model, r)[0] for r in requests]), atol=2e-5)
    np.testing.assert_allclose(found.entropy_T, np.concatenate([directly(model, r)[1] for r in requests]), atol=2e-5)
    assert "out of memory with batches of" in caplog.text
    caplog.clear()
    np.testing.assert_array_equal(scorer(entropies=True).token_T, found.token_T)
    assert not caplog.text  # what fits is kept


def test_memory_too_small_for_one_response_is_said(model):
    with pytest.raises(ModelError, match=r"not enough memory to score one response of \d+ tokens .*Tried to allocate"):
        PackedScorer(narrow(model, 1), pairs())()


def test_other_errors_of_the_model_pass_through(model):
    runner = Runner(model)

    def broken(*args):
        raise RuntimeError("device-side assert")

    runner.hidden = broken
    with pytest.raises(RuntimeError, match="device-side assert"):
        PackedScorer(runner, pairs())()
