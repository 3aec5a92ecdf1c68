"""A key-value cache of fixed size with a row per slot, each at its own position: what decoding without waiting needs.

All tensors stay where they are, so that a CUDA graph of one step can be replayed; responses come and go in the slots.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin

from limen.engines.kvcache import GrowingLayer, new_cache
from limen.engines.runner import Runner

ATTENTION = "limen_slots"


class SlotLayer(CacheLayerMixin):  # type: ignore[misc, unused-ignore]
    """Keys and values (slots, heads, capacity, size). An update writes one token per row at the row's position."""

    is_compileable = True

    def __init__(self, view: SlotView) -> None:
        super().__init__()
        self.keys: Any
        self.values: Any
        self.view = view

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Reserve the whole buffer, once, from the first keys and values that are seen."""
        rows, capacity = self.view.rows, self.view.capacity
        self.keys = key_states.new_zeros(rows, key_states.shape[1], capacity, key_states.shape[3])
        self.values = value_states.new_zeros(rows, value_states.shape[1], capacity, value_states.shape[3])
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Write one token per row, return the first `view.length` tokens of the rows."""
        view, rows = self.view, key_states.shape[0]
        self.keys[view.row_B[:rows], :, view.position_B[:rows]] = key_states[:, :, 0]
        self.values[view.row_B[:rows], :, view.position_B[:rows]] = value_states[:, :, 0]
        return self.keys[:rows, :, : view.length], self.values[:rows, :, : view.length]

    def fill(self, slots_N: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, rows_N: torch.Tensor) -> None:
        """Put rows `rows_N` of a prefilled cache (rows, heads, tokens, size) into slots."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        self.keys[slots_N, :, : keys.shape[2]] = keys[rows_N]
        self.values[slots_N, :, : values.shape[2]] = values[rows_N]

    def move(self, from_N: torch.Tensor) -> None:
        """Rows `from_N` become the first rows."""
        self.keys[: len(from_N)] = self.keys[from_N]
        self.values[: len(from_N)] = self.values[from_N]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.view.length, 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return self.view.capacity

    get_max_cache_shape = get_max_length


class SlotView:
    """What all layers share: each slot's position, and how many tokens attention looks at."""

    def __init__(self, rows: int, capacity: int, device: Any) -> None:
        self.rows, self.capacity, self.length = rows, capacity, capacity
        self.row_B = torch.arange(rows, device=device)
        self.position_B = torch.zeros(rows, dtype=torch.long, device=device)


class SlotCache(Cache):  # type: ignore[misc, unused-ignore]
    """Transformers' cache over slot layers."""

    def __init__(self, layers: int, view: SlotView) -> None:
        super().__init__(layers=[SlotLayer(view) for _ in range(layers)])


def why_not(runner: Runner) -> str | None:
    """Why this model cannot be decoded in slots; None where nothing speaks against it (its first step is checked)."""
    layers = getattr(new_cache(runner.model), "layers", [])
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return "several processes share the model, and a step may have to wait for the others"
    if runner.recurrent or not runner.can_pad:
        return "it keeps a running state, or takes no position ids"
    if not layers or not all(type(layer) is GrowingLayer for layer in layers):
        return "its layers have windows or states of their own"
    if not getattr(runner.model, "_supports_attention_backend", False):
        return "its attention cannot be exchanged"
    if getattr(runner.model.config, "_attn_implementation", "") not in ("sdpa", "eager"):
        return f"its attention is {runner.model.config._attn_implementation}"
    return None


@contextlib.contextmanager
def slot_attention(model: Any) -> Iterator[None]:
    """Within it, the model attends by `_attend`."""
    AttentionInterface.register(ATTENTION, _attend)
    config = model.config
    before = config._attn_implementation
    config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = before


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of one token per row. Heads that share keys are laid side by side as if they were tokens, so that keys
    and values are neither repeated nor copied. query (B, heads, 1, size), key (B, kv heads, T, size)."""
    if kwargs.get("softcap") is not None or kwargs.get("s_aux") is not None or query.shape[2] != 1:
        raise NotImplementedError("attention with a soft cap, sinks or several tokens")
    rows, heads, _, size = query.shape
    groups = heads // key.shape[1]
    folded = query.reshape(rows, key.shape[1], groups, size)
    mask = None if attention_mask is None else attention_mask.expand(rows, 1, groups, key.shape[2])
    out = torch.nn.functional.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scaling)
    return out.reshape(rows, 1, heads, value.shape[-1]), None
