"""`share_prompts`: the same log-probabilities, gradients and weights as TRL's own way, in fewer tokens."""

import contextlib
import logging

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import train_helpers as helpers
from limen.errors import ConfigError
from limen.train.shared_prompts import SharedPrompts


def batch(groups=3, size=4, keep=5, seed=0):
    """Prompts of unequal length, each with `size` responses, in mixed order: ids, mask, keep."""
    generator = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(2, 12, (12 + 3 * i,), generator=generator) for i in range(groups)]
    longest = max(map(len, prompts))
    ids, mask = [], []
    for p in prompts:
        for _ in range(size):
            response = torch.randint(2, 12, (keep,), generator=generator)
            length = int(torch.randint(1, keep + 1, (1,), generator=generator))
            response[length:] = 0
            blank = torch.zeros(longest - len(p), dtype=torch.long)
            ids.append(torch.cat([blank, p, response]))
            mask.append(torch.cat([blank, torch.ones(len(p), dtype=torch.long), (torch.arange(keep) < length).long()]))
    order = torch.randperm(groups * size, generator=generator)
    return torch.stack(ids)[order], torch.stack(mask)[order], keep


def plain(model, ids, mask, keep, temperature):
    """(log-probabilities, entropies) of the last `keep` tokens in one pass over whole rows."""
    logits = model(input_ids=ids, attention_mask=mask).logits[:, -keep - 1 : -1].float() / temperature
    log = torch.log_softmax(logits, -1)
    return log.gather(-1, ids[:, -keep:, None])[..., 0], -(log.exp() * log).sum(-1)


@pytest.mark.parametrize("keep", [1, 5])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_entropies_and_gradients_are_those_of_whole_rows(keep, temperature):
    model = helpers.tiny_model()
    ids, mask, keep = batch(keep=keep)
    real = mask[:, -keep:].bool()
    weight = torch.randn(real.shape, generator=torch.Generator().manual_seed(1)) * real
    want, entropy = plain(model, ids, mask, keep, temperature)
    (want * weight + 0.5 * entropy * real).sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    found = SharedPrompts(model, temperature, contextlib.nullcontext)(ids, mask, keep, True)
    assert found is not None
    (found[0] * weight + 0.5 * found[1] * real).sum().backward()
    assert torch.allclose(found[0][real], want[real], atol=1e-5)
    assert torch.allclose(found[1][real], entropy[real], atol=1e-5)
    for p, g in zip(model.parameters(), gradients, strict=True):
        assert torch.allclose(p.grad, g, atol=1e-5), float((p.grad - g).abs().max())
    assert max(float(g.abs().max()) for g in gradients) > 0.1


def test_prompts_that_differ_are_not_worth_it():
    model = helpers.tiny_model()
    ids, mask, keep = batch(groups=4, size=1)
    assert SharedPrompts(model, 1.0, contextlib.nullcontext)(ids, mask, keep, False) is None


def test_padding_tells_prompts_apart():
    """A prompt that begins with the padding token is not its shorter twin."""
    model = helpers.tiny_model()
    prompt = torch.tensor([0, 3, 4, 5, 6, 7, 8, 9])
    ids = torch.cat([prompt, torch.tensor([2, 3])]).repeat(8, 1)
    mask = torch.ones_like(ids)
    mask[::2, 0] = 0
    got = SharedPrompts(model, 1.0, contextlib.nullcontext)(ids, mask, 2, False)[0]
    want = plain(model, ids, mask, 2, 1.0)[0]
    assert torch.allclose(got, want, atol=1e-5)
    assert not torch.allclose(got[0], got[1], atol=1e-4)


def test_a_model_with_dropout_goes_the_plain_way():
    config = GPT2Config(vocab_size=len(helpers.CHARS), n_positions=64, n_embd=16, n_layer=1, n_head=2)
    ids, mask, keep = batch()
    shared = SharedPrompts(GPT2LMHeadModel(config), 1.0, contextlib.nullcontext)
    assert "dropout" in shared.reason
    assert shared(ids, mask, keep, False) is None
    still = GPT2Config(
        vocab_size=len(helpers.CHARS),
        n_positions=64,
        n_embd=16,
        n_layer=1,
        n_head=2,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
    )
    model = GPT2LMHeadModel(still)
    got = SharedPrompts(model, 1.0, contextlib.nullcontext)(ids, mask, keep, False)
    real = mask[:, -keep:].bool()
    assert torch.allclose(got[0][real], plain(model, ids, mask, keep, 1.0)[0][real], atol=1e-5)


LONG = "1+1=2 " * 4  # what all prompts begin with, as few-shot examples do


def few_shot(n=64):
    return [{**r, "prompt": LONG.replace(" ", "*") + r["prompt"]} for r in helpers.rows(n)]


@pytest.mark.parametrize("algorithm", ["grpo", "self", "lora", "bonus"])
def test_a_training_ends_at_the_same_weights(tmp_path, algorithm):
    def weights(share):
        more = {}
        if algorithm == "lora":
            torch.manual_seed(0)
            peft = pytest.importorskip("peft")
            more["peft_config"] = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
        if algorithm == "bonus":
            more["entropy_bonus"] = 0.3
        name = "grpo" if more else algorithm
        t = helpers.trainer(tmp_path / str(share), data=few_shot(), algorithm=name, share_prompts=share,
                            max_steps=2, learning_rate=1e-2, **more)  # fmt: skip
        caches = []
        start, seen = [p.detach().clone() for p in t.model.parameters()], []
        if share:
            there, original = t.shared_prompts.runner.hidden, t.model.generate
            t.shared_prompts.runner.hidden = lambda *a: (seen.append(a[0].shape), there(*a))[1]
            prefill = t.shared_prompts.prefill
            t.shared_prompts.prefill = lambda *a: (caches.append(prefill(*a)), caches[-1])[1]
        t.train()
        if share:
            assert caches, "generate was given no prompts that had been run"
            assert all(c is not None for c in caches)
            assert t.model.generate == original
        return start, [p.detach().clone() for p in t.model.parameters()], seen

    (start, plainly, _), (_, shared, seen) = weights(False), weights(True)
    assert any(rows < 32 for rows, _ in seen), seen  # distinct prompts alone were run, in a step of 32 rows
    for a, b in zip(plainly, shared, strict=True):
        assert torch.allclose(a, b, atol=2e-4), float((a - b).abs().max())
    assert max(float((a - s).abs().max()) for a, s in zip(plainly, start, strict=True)) > 5e-3


@pytest.mark.parametrize("greedy", [True, False])
def test_generate_gives_the_same_tokens_from_prompts_that_were_run_once(greedy):
    model = helpers.tiny_model(seed=3).eval()
    ids, mask, keep = batch(groups=3, size=5)
    ids, mask = ids[:, :-keep], mask[:, :-keep]
    options = {"max_new_tokens": 6, "do_sample": not greedy, "top_k": 0, "pad_token_id": 0, "eos_token_id": 1}
    torch.manual_seed(0)
    want = model.generate(input_ids=ids, attention_mask=mask, **options)
    cache = SharedPrompts(model, 1.0, contextlib.nullcontext).prefill(ids, mask)
    assert cache.get_seq_length() == ids.shape[1] - 1
    torch.manual_seed(0)
    got = model.generate(input_ids=ids, attention_mask=mask, past_key_values=cache, **options)
    assert torch.equal(got, want)
    assert len({tuple(r) for r in want[:, ids.shape[1] :].tolist()}) > 1


def test_what_excludes_it_is_named(tmp_path):
    with pytest.raises(ConfigError, match="share_prompts is not supported with gradient_checkpointing"):
        helpers.trainer(tmp_path, share_prompts=True, gradient_checkpointing=True)


def test_a_model_it_cannot_serve_is_told_once(tmp_path, caplog):
    config = GPT2Config(
        vocab_size=len(helpers.CHARS), n_positions=64, n_embd=16, n_layer=1, n_head=2, eos_token_id=1, pad_token_id=0
    )
    with caplog.at_level(logging.WARNING):
        t = helpers.trainer(tmp_path, model=GPT2LMHeadModel(config), algorithm="grpo", share_prompts=True, max_steps=1)
        t.train()
    assert sum("share_prompts: not with this model" in r.message for r in caplog.records) == 1
