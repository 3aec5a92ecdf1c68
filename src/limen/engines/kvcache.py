"""Key-value caches: transformers' own, with room to grow in place and rows that can be repeated and dropped.

`DynamicLayer` copies every key and value at every token; over a long response that costs more than the attention.
`GrowingLayer` writes into a buffer and hands out views of it.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

BLOCK = 64
"""A buffer that is full grows by at least so many tokens."""


class GrowingLayer(DynamicLayer):  # type: ignore[misc, unused-ignore]
    """Keys and values (rows, heads, tokens, size) in buffers with spare tokens; `keys` and `values` are views."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: Any
        self.values: Any
        self._keys: torch.Tensor | None = None
        self._values: torch.Tensor | None = None

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Append the new tokens and return views of all."""
        length = self.get_seq_length()
        end = length + key_states.shape[-2]
        self.device = key_states.device
        self.is_initialized = True
        self._keys = _room(self._keys, self.keys, key_states, end)
        self._values = _room(self._values, self.values, value_states, end)
        self._keys[:, :, length:end] = key_states
        self._values[:, :, length:end] = value_states
        self.keys, self.values = self._keys[:, :, :end], self._values[:, :, :end]
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep rows `indices`, in that order, repeated where an index is."""
        if self.get_seq_length() > 0:
            self.keys, self.values = self.keys[indices], self.values[indices]
            self._keys, self._values = self.keys, self.values

    def copy_of_rows(self, indices: torch.Tensor) -> GrowingLayer:
        """Another layer with rows `indices`; this one stays as it is."""
        other = GrowingLayer()
        if self.get_seq_length() > 0:
            other.device, other.is_initialized = self.device, True
            other.keys = other._keys = self.keys[indices]
            other.values = other._values = self.values[indices]
        return other


def _room(buffer: torch.Tensor | None, used: Any, new: torch.Tensor, end: int) -> torch.Tensor:
    if buffer is not None and buffer.shape[-2] >= end:
        return buffer
    if buffer is None:
        return new.new_empty(*new.shape[:-2], end, new.shape[-1])
    grown = new.new_empty(*new.shape[:-2], end + max(BLOCK, end // 4), new.shape[-1])
    grown[:, :, : used.shape[-2]] = used
    return grown


def new_cache(model: Any) -> Cache:
    """An empty cache for the model: growing layers where it has plain attention, transformers' own elsewhere."""
    cache = DynamicCache(config=model.config)
    layers = getattr(cache, "layers", [])
    if all(type(layer) is DynamicLayer for layer in layers):
        cache.layers = [GrowingLayer() for _ in layers]
        if not layers:
            cache.layer_class_to_replicate = GrowingLayer
    return cache


def is_recurrent(cache: Cache) -> bool:
    """Whether some layer keeps a running state, which padding tokens would enter."""
    flags = getattr(cache, "is_linear", [])
    return any(flags)


def keep_rows(cache: Cache, indices: torch.Tensor) -> None:
    """Reduce the cache to rows `indices`."""
    if is_recurrent(cache):
        cache.reorder_cache(indices)
    else:
        cache.batch_select_indices(indices)


def rows_of(cache: Cache, indices: torch.Tensor) -> Cache:
    """A new cache with rows `indices` of this one, which stays as it is."""
    if all(isinstance(layer, GrowingLayer) for layer in cache.layers):
        other = copy.copy(cache)
        other.layers = [layer.copy_of_rows(indices) for layer in cache.layers]
        return other
    other = copy.deepcopy(cache)
    keep_rows(other, indices)
    return other
