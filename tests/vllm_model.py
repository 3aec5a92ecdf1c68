"""A small random model that vLLM runs everywhere (heads of 64), with the shipped tokenizer; and its distribution."""

from functools import cache

import numpy as np
import torch

from limen.models import load_tokenizer

TEXTS = ("38+57=", "12*07=", "1+1=")
CONTEXT = 64


def save_model(path):
    """The next token depends strongly on what came before, but no response is sure."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = load_tokenizer("tiny")
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.copy_(torch.randn_like(parameter) * 1.3 / parameter.shape[1] ** 0.5)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def reference_model(path):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def probabilities(model):
    """(prompt, prefix) -> distribution of the next token."""

    @cache
    def probs(prompt, prefix):
        with torch.no_grad():
            return torch.softmax(model(torch.tensor([prompt + prefix])).logits[0, -1].double(), -1).numpy()

    return lambda prompt, prefix: np.array(probs(prompt, prefix))
