"""A causal LM of transformers as two operations: next-token logits with a cache, and hidden states for scoring.

What differs between models and between releases of transformers is settled here, once per model: the name of the
cache argument, position ids, how logits are limited to the last token, and what lies between hidden states and
logits.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from limen.engines.kvcache import is_recurrent, new_cache
from limen.errors import ModelError


@dataclass
class Prefix:
    """Prompts that were run through the model, one row each.

    `hidden_BH`: hidden state at each prompt's last token (None where only logits are wanted); `logits_BV`: logits
    there; `mask_BT`: 1 for prompt tokens, 0 for padding on the left, None where nothing is padded; `lengths_B`.
    """

    cache: Any
    lengths_B: torch.Tensor
    mask_BT: torch.Tensor | None
    logits_BV: torch.Tensor | None = None
    hidden_BH: torch.Tensor | None = None


class Runner:
    """Forward passes of one model."""

    def __init__(self, model: Any) -> None:
        self.model = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.device = model.device
        names = inspect.signature(self.model.forward).parameters
        known = [n for n in ("cache", "past_key_values", "cache_params") if n in names]
        if not known:
            raise ModelError(f"{type(self.model).__name__} takes no cache: limen cannot sample from it token by token")
        self._cache_name = known[0]
        self._has_positions = "position_ids" in names
        self._keep_name = next((n for n in ("logits_to_keep", "num_logits_to_keep") if n in names), None)
        self.recurrent = is_recurrent(new_cache(self.model))
        self.can_pad = self._has_positions and not self.recurrent
        """Whether prompts of unequal length may share a batch. If not, batches hold equal lengths only."""
        self._plain_head: bool | None = None

    @property
    def vocabulary(self) -> int:
        return int(self.model.get_input_embeddings().weight.shape[0])

    @property
    def context(self) -> int | None:
        """Most tokens of prompt and response together, where the model states it."""
        config = self.model.config.get_text_config(decoder=True)
        limit = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
        return int(limit) if limit else None

    def eos_ids(self, tokenizer: Any) -> tuple[int, ...]:
        """Every token that ends a response: the model's generation settings and the tokenizer's own."""
        ids: set[int] = set()
        generation = getattr(self.model, "generation_config", None)
        for value in (getattr(generation, "eos_token_id", None), getattr(tokenizer, "eos_token_id", None)):
            ids |= set(value) if isinstance(value, (list, tuple)) else set() if value is None else {int(value)}
        return tuple(sorted(ids))

    def prefill(self, prompts: Sequence[Sequence[int]], hidden: bool = False) -> Prefix:
        """Run prompts, padded on the left to one length, keeping the cache and the last token's logits or state."""
        ids_BT, mask_BT = pad_left(prompts, self.device)
        if mask_BT is not None and not self.can_pad:
            raise ModelError("this model cannot take padded prompts")  # batches are planned so that this is ours
        lengths_B = torch.tensor([len(p) for p in prompts], device=self.device)
        cache = new_cache(self.model)
        options = self._options(cache, mask_BT, _positions(ids_BT, mask_BT))
        if hidden:
            state_BTH = self._backbone(ids_BT, options)
            return Prefix(cache, lengths_B, mask_BT, hidden_BH=state_BTH[:, -1])
        return Prefix(cache, lengths_B, mask_BT, logits_BV=self._last_logits(ids_BT, options))

    def step(
        self, tokens_B: torch.Tensor, cache: Any, positions_B: torch.Tensor, mask_BT: torch.Tensor | None
    ) -> torch.Tensor:
        """Logits (B, V) after one more token per row; `mask_BT` covers that token too."""
        options = self._options(cache, mask_BT, positions_B[:, None])
        return self._last_logits(tokens_B[:, None], options)

    def hidden(
        self,
        ids_BT: torch.Tensor,
        mask_BT: torch.Tensor | None = None,
        positions_BT: torch.Tensor | None = None,
        cache: Any = None,
    ) -> torch.Tensor:
        """Last hidden states (B, T, H), after the final norm: what `head` takes."""
        return self._backbone(ids_BT, self._options(cache, mask_BT, positions_BT))

    def head(self, hidden_NH: torch.Tensor) -> torch.Tensor:
        """Logits (N, V) of hidden states."""
        logits: torch.Tensor = self.model.get_output_embeddings()(hidden_NH)
        return logits

    def full_logits(self, ids_BT: torch.Tensor, mask_BT: torch.Tensor | None = None) -> torch.Tensor:
        """The model's own logits (B, T, V), nothing left out, in the precision of the weights.

        A trainer with mixed precision puts an autocast around `model.forward`, and around that alone: going through it
        here would compare bf16 logits with the float32 ones that `hidden` and `head` give.
        """
        forward = vars(self.model).get("_original_forward", self.model)
        logits: torch.Tensor = forward(input_ids=ids_BT, **self._options(None, mask_BT, None)).logits
        return logits

    def plain_head(self, sample_ids: Sequence[int]) -> bool:
        """Whether logits are the output layer of the hidden states and nothing else (no soft cap, no scale).

        Settled once, by comparing the two on `sample_ids`.
        """
        if self._plain_head is None:
            ids = torch.tensor([list(sample_ids)[:16]], device=self.device)
            if self.model.get_output_embeddings() is None:
                self._plain_head = False
            else:
                ours, own = self.head(self.hidden(ids)[0]).float(), self.full_logits(ids)[0].float()
                scale = float(own.abs().max()) + 1e-6
                tolerance = 1e-4 if own.dtype == torch.float32 and self.model.dtype == torch.float32 else 2e-2
                self._plain_head = ours.shape == own.shape and float((ours - own).abs().max()) <= tolerance * scale
        return self._plain_head

    def _options(self, cache: Any, mask_BT: torch.Tensor | None, positions_BT: torch.Tensor | None) -> dict[str, Any]:
        options: dict[str, Any] = {"use_cache": cache is not None}
        if cache is not None:
            options[self._cache_name] = cache
        if mask_BT is not None:
            options["attention_mask"] = mask_BT
        if positions_BT is not None and self._has_positions:
            options["position_ids"] = positions_BT
        return options

    def _last_logits(self, ids_BT: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        if self._keep_name is not None:
            options[self._keep_name] = 1
        logits: torch.Tensor = self.model(input_ids=ids_BT, **options).logits
        return logits[:, -1]

    def _backbone(self, ids_BT: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        hidden: torch.Tensor = self.model.base_model(input_ids=ids_BT, **options).last_hidden_state
        return hidden


def out_of_memory(error: RuntimeError) -> bool:
    """Whether memory ran out, on a GPU or on the CPU (which has no error class of its own for it)."""
    return (
        isinstance(error, torch.OutOfMemoryError) or "not enough memory" in str(error) or "can't allocate" in str(error)
    )


def pad_left(rows: Sequence[Sequence[int]], device: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(ids, mask) of shape (rows, longest); the mask is None where all rows are equally long."""
    return _pad(rows, device, left=True)


def pad_right(rows: Sequence[Sequence[int]], device: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Like `pad_left`, with the padding at the end."""
    return _pad(rows, device, left=False)


def _pad(rows: Sequence[Sequence[int]], device: Any, left: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    width = max(len(row) for row in rows)
    if all(len(row) == width for row in rows):
        return torch.tensor([list(row) for row in rows], device=device), None
    ids, mask = [], []
    for row in rows:
        blank = [0] * (width - len(row))
        ids.append([*blank, *row] if left else [*row, *blank])
        mask.append([*blank, *[1] * len(row)] if left else [*[1] * len(row), *blank])
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _positions(ids_BT: torch.Tensor, mask_BT: torch.Tensor | None) -> torch.Tensor:
    """Positions that count from each row's first real token; padding gets position 0."""
    if mask_BT is None:
        return torch.arange(ids_BT.shape[1], device=ids_BT.device)[None].expand_as(ids_BT)
    return (mask_BT.cumsum(dim=1) - 1).clamp(min=0)
