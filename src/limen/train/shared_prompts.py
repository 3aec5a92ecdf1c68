"""Log-probabilities of responses, every prompt run once for all of its responses.

The G responses of a group follow one prompt, and TRL runs prompt and response of every row. Where prompts are long and
responses short (few-shot prompts, a choice, a number), most of what a step learns from is the same prompt G times. Here
the distinct prompts of a micro-batch are run once, their keys and values are repeated for their rows, and the gradient
flows back through both: the same sums in another order, so results differ by rounding alone. `generate` is given the
prompts' keys and values likewise.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers.cache_utils import DynamicCache, DynamicLayer

from limen.engines.runner import Runner

log = logging.getLogger(__name__)

WORTH = 0.75
"""Prompts are shared where that leaves at most this share of the tokens; repeating the cache costs something too."""
LOGIT_BYTES = 256 << 20
"""Logits that live at a time, in float32; they are made again in the backward pass."""

LogProbs = tuple[Tensor, Tensor | None]


class SharedPrompts:
    """For one policy: (ids (B, P+T), mask (B, P+T), T) -> log π(token) (B, T) at `temperature`, entropies (B, T)."""

    def __init__(self, model: Any, temperature: float, autocast: Callable[[], Any]) -> None:
        self.model, self.temperature, self.autocast = model, temperature, autocast
        self.runner = Runner(model)
        self.reason = _why_not(self.runner)
        self._checked = False

    def __call__(self, ids_BT: Tensor, mask_BT: Tensor, keep: int, entropies: bool) -> LogProbs | None:
        """None where sharing is not worth it for this batch, or not possible with this model."""
        prompt = ids_BT.shape[1] - keep
        if self.reason or prompt < 1 or not self._plain(ids_BT[0]):
            return None
        ids_UP, mask_UP, row_B = _distinct(ids_BT[:, :prompt], mask_BT[:, :prompt])
        if ids_UP.numel() + keep * len(ids_BT) > WORTH * ids_BT.numel():
            return None
        with self.autocast():
            hidden_BTH = self._hidden(ids_UP, mask_UP, row_B, ids_BT[:, prompt:], mask_BT)
            return self._read(hidden_BTH, ids_BT[:, prompt:], entropies)

    def prefill(self, ids_BP: Tensor, mask_BP: Tensor) -> DynamicCache | None:
        """For `generate`: keys and values of all prompt tokens but the last, each distinct prompt run once. None where
        that is not worth it. Positions count from each prompt's first token, as `generate` counts them."""
        if self.reason or ids_BP.shape[1] < 2:
            return None
        ids_UP, mask_UP, row_B = _distinct(ids_BP, mask_BP)
        if len(ids_UP) > WORTH * len(ids_BP):
            return None
        cache, mask_UT = self._cache(), mask_UP[:, :-1]
        with torch.no_grad(), self.autocast():
            self.runner.hidden(ids_UP[:, :-1], mask_UT, (mask_UT.cumsum(1) - 1).clamp(min=0), cache)
        return self._rows(cache, row_B)

    def _plain(self, ids_T: Tensor) -> bool:
        """Once: whether logits are the output layer of the hidden states and nothing else."""
        if not self._checked:
            was, self._checked = self.model.training, True
            self.model.eval()
            with torch.no_grad():
                plain = self.runner.plain_head(ids_T.tolist())
            self.model.train(was)
            self.reason = "" if plain else "its logits are more than an output layer"
            if self.reason:
                log.warning("share_prompts: not with this model: %s", self.reason)
        return not self.reason

    def _hidden(self, ids_UP: Tensor, mask_UP: Tensor, row_B: Tensor, response_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """States (B, T, H) from which each response token is predicted."""
        cache = self._cache()
        last_BH = self.runner.hidden(ids_UP, mask_UP, None, cache)[:, -1].index_select(0, row_B)
        if response_BT.shape[1] == 1:
            return last_BH[:, None]
        rest_BTH = self.runner.hidden(response_BT[:, :-1], mask_BT[:, :-1], None, self._rows(cache, row_B))
        return torch.cat([last_BH[:, None], rest_BTH], 1)

    def _cache(self) -> DynamicCache:
        return DynamicCache(config=self.runner.model.config)

    def _rows(self, cache: DynamicCache, row_B: Tensor) -> DynamicCache:
        """A cache with rows `row_B` of this one; gradients flow back."""
        own = self._cache()
        for i, layer in enumerate(cache.layers):
            own.update(layer.keys.index_select(0, row_B), layer.values.index_select(0, row_B), i)
        return own

    def _read(self, hidden_BTH: Tensor, response_BT: Tensor, entropies: bool) -> LogProbs:
        """Log-probabilities and entropies; logits live for one chunk of tokens at a time."""
        state_NH, token_N = hidden_BTH.flatten(0, 1), response_BT.flatten()
        each = max(16, LOGIT_BYTES // (4 * self.runner.vocabulary))
        parts = [
            checkpoint(self._chunk, state_NH[i : i + each], token_N[i : i + each], entropies, use_reentrant=False)
            for i in range(0, len(token_N), each)
        ]
        logps_BT = torch.cat([p[0] for p in parts]).view_as(response_BT)
        return logps_BT, torch.cat([p[1] for p in parts]).view_as(response_BT) if entropies else None

    def _chunk(self, state_NH: Tensor, token_N: Tensor, entropies: bool) -> tuple[Tensor, Tensor]:
        log_NV = torch.log_softmax(self.runner.head(state_NH).float() / self.temperature, -1)
        chosen_N = log_NV.gather(1, token_N[:, None])[:, 0]
        # With its gradient: an entropy bonus, TRL's or ours, is made of it.
        entropy_N = -(log_NV.exp() * log_NV).sum(-1) if entropies else torch.zeros_like(chosen_N)
        return chosen_N, entropy_N


def shared_logprobs(t: Any, theirs: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `theirs` (TRL's function of the same arguments) returns, by shared prompts; None where that does not serve:
    another model than the policy, images, an auxiliary loss."""
    given = inspect.signature(theirs).bind(*args, **kwargs).arguments
    known = ("model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy")
    if any(given[k] is not None and given[k] is not False for k in given if k not in known):
        return None
    if given["model"] is not t.model and given["model"] is not t.model_wrapped:
        return None
    found = t.shared_prompts(
        given["input_ids"], given["attention_mask"], given["logits_to_keep"], bool(given.get("compute_entropy"))
    )
    if found is None:
        return None
    return (*found, None) if "compute_aux_loss" in inspect.signature(theirs).parameters else found


@contextmanager
def prompts_run_once(t: Any) -> Iterator[None]:
    """While the block runs, the policy's `generate` runs every distinct prompt once. The same tokens up to rounding."""
    shared: SharedPrompts | None = t.shared_prompts
    if shared is None or shared.reason:
        yield
        return
    policy = t.accelerator.unwrap_model(t.model)
    theirs = policy.generate

    def generate(**given: Any) -> Any:
        cache = None
        if given.keys() <= {"input_ids", "attention_mask", "generation_config", "disable_compile"}:
            cache = shared.prefill(given["input_ids"], given["attention_mask"])
        return theirs(**given) if cache is None else theirs(**given, past_key_values=cache)

    policy.generate = generate
    try:
        yield
    finally:
        del policy.generate


def _distinct(ids_BP: Tensor, mask_BP: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct prompts (ids, mask), and which of them each row has; padding is not what the token 0 is."""
    named_UP, row_B = ids_BP.masked_fill(mask_BP == 0, -1).unique(dim=0, return_inverse=True)
    return named_UP.clamp(min=0), (named_UP >= 0).long(), row_B


def _why_not(runner: Runner) -> str:
    """Why prompts cannot be shared with this model; empty where they can."""
    layers = DynamicCache(config=runner.model.config).layers
    if not all(type(layer) is DynamicLayer for layer in layers):
        return "its attention is not full (a window, or a running state)"
    if any(m.p > 0 for m in runner.model.modules() if isinstance(m, torch.nn.Dropout)):
        return "it has dropout, which would be the same for all responses of a prompt"
    if getattr(runner.model.config.get_text_config(decoder=True), "attention_dropout", 0):
        return "it has attention dropout, which would be the same for all responses of a prompt"
    return ""
