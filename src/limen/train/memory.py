"""How much memory a training step takes, from the model's shape alone. For `limen train --dry-run`.

Counts of what PyTorch keeps for the backward pass of a decoder layer with a gated feed-forward layer (Llama, Qwen,
SmolLM), in bytes a token: hidden size h, query width q = heads x head size, feed-forward width f. Under bf16 autocast
the residual stream and both norms stay float32 (16 h), every linear layer keeps a bf16 copy of its input (10 h),
attention its query, key, value (repeated to all heads, as a padding mask makes it) and output (8 q), the feed-forward
layer gate, activation, up and product (8 f). In float32: 24 h + 16 q + 16 f. These are within 5% of what autograd
keeps (tests allow 10%). Where prompts are shared, each row has a copy of its prompt's keys and values besides; that is
within 16%.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from limen.train.algorithms.compose import Algorithm
from limen.train.settings import TrainSettings

GIB = 1024**3


@dataclass(frozen=True)
class Memory:
    """Bytes. `states`: weights, gradients, AdamW's two moments; `copies`: other copies of the weights (autocast's, the
    reverse KL's reference, the gradient ratio's two gradients, the probe's base); `policy`, `kl`: activations of one
    micro-batch's two terms, which live together until the backward pass; `logits`: at most; `cache`: keys and values
    while a step's responses are generated, when there are no activations."""

    states: int
    copies: int
    policy: int
    kl: int
    logits: int
    cache: int
    rows: int
    kl_rows: int

    @property
    def peak(self) -> int:
        training = self.policy + self.kl + self.logits
        return self.states + self.copies + max(training, self.cache)


def activations(config: Any, tokens: int, bf16: bool, checkpointing: bool = False) -> int:
    """Bytes that a forward pass over `tokens` tokens, padding included, keeps for the backward pass, logits apart."""
    hidden, layers = config.hidden_size, config.num_hidden_layers
    head = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
    query = config.num_attention_heads * head
    wide = getattr(config, "intermediate_size", None) or 4 * hidden
    layer = 26 * hidden + 8 * query + 8 * wide if bf16 else 24 * hidden + 16 * query + 16 * wide
    kept = layer + 4 * hidden * layers if checkpointing else layer * layers
    return int(tokens * (kept + 12 * hidden))


def estimate(
    settings: TrainSettings, a: Algorithm, config: Any, parameters: int, lengths: Sequence[int], bf16: bool
) -> Memory:
    """Memory of one process. `lengths`: of all prompts, sorted; `config`: of the text model."""
    s, rows = settings, settings.prompts_per_step * settings.group_size
    prompt = batch_width(lengths, s.prompts_per_step)
    width = prompt + s.max_new_tokens
    micro = rows // s.accumulation
    kl_rows = 0
    if any(x.forward_kl_beta for x in a.states()):
        each = max(x.kl_samples or s.base_n for x in a.states())
        kl_rows = -(-s.prompts_per_step * each // s.accumulation)
    copies = 2 if bf16 else 0
    copies += 4 if any(x.reverse_kl_beta for x in a.states()) and not s.lora else 0
    copies += 8 if kl_rows and s.grad_ratio_steps and not s.lora else 0
    copies += 4 if s.probe is not None and s.probe.base else 0
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache: int = rows * width * config.num_hidden_layers * 2 * heads * head * (2 if bf16 else 4)
    each_token = cache // (rows * width)
    if s.vllm is not None:
        cache = 0  # in vLLM's own share of the GPU
    logits = (micro + kl_rows) * (s.max_new_tokens + 1) * config.vocab_size * 4

    def term(count: int) -> int:
        tokens = shared_tokens(s, count, prompt) if s.share_prompts and count else None
        if tokens is None:
            return activations(config, count * width, bf16, s.gradient_checkpointing)
        return activations(config, tokens, bf16) + count * width * each_token

    if s.share_prompts and shared_tokens(s, micro, prompt) is not None:
        from limen.train.shared_prompts import LOGIT_BYTES

        logits = min(logits, 4 * LOGIT_BYTES)
    return Memory(
        states=parameters * (4 if s.lora else 16),
        copies=parameters * copies,
        policy=term(micro),
        kl=term(kl_rows),
        logits=logits,
        cache=cache,
        rows=micro,
        kl_rows=kl_rows,
    )


def shared_tokens(s: TrainSettings, count: int, prompt: int) -> int | None:
    """Tokens that a micro-batch of `count` rows runs where prompts are shared: of distinct prompts, as many as chance
    puts into one of the `accumulation` parts, and of all responses. None where sharing them is not worth it."""
    from limen.train.shared_prompts import WORTH

    group = count * s.accumulation / s.prompts_per_step
    distinct = min(count, round(s.prompts_per_step * (1 - (1 - 1 / s.accumulation) ** group)))
    tokens = distinct * prompt + count * s.max_new_tokens
    return tokens if tokens <= WORTH * count * (prompt + s.max_new_tokens) else None


def batch_width(lengths: Sequence[int], prompts: int) -> int:
    """Prompt length that a batch of so many prompts is padded to: about the quantile of its longest."""
    return lengths[min(len(lengths) - 1, len(lengths) * prompts // (prompts + 1))]
