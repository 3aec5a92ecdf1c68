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
    """Keys and values (rows, heads, tokens, size) in buffers with spare tokens; `keys` and `values` are views.

    room: tokens that are expected after those of the first update; a buffer that is full grows by a block.
    """

    def __init__(self, room: int = 0) -> None:
        super().__init__()
        self.keys: Any
        self.values: Any
        self.room = room
        self._keys: torch.Tensor | None = None
        self._values: torch.Tensor | None = None

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Append the new tokens and return views of all."""
        length = self.get_seq_length()
        end = length + key_states.shape[-2]
        if self._keys is None or self._values is None or self._keys.shape[-2] < end:
            spare = self.room if self._keys is None else max(BLOCK, end // 4)
            self._reserve(key_states, value_states, length, end + spare)
        assert self._keys is not None
        assert self._values is not None
        self._keys[:, :, length:end] = key_states
        self._values[:, :, length:end] = value_states
        self._show(end)
        return self.keys, self.values

    def _show(self, end: int) -> None:
        assert self._keys is not None
        assert self._values is not None
        self.keys, self.values = self._keys[:, :, :end], self._values[:, :, :end]

    def _reserve(self, key_states: torch.Tensor, value_states: torch.Tensor, length: int, capacity: int) -> None:
        self.device, self.dtype, self.is_initialized = key_states.device, key_states.dtype, True
        keys = key_states.new_empty(*key_states.shape[:-2], capacity, key_states.shape[-1])
        values = value_states.new_empty(*value_states.shape[:-2], capacity, value_states.shape[-1])
        if length:
            keys[:, :, :length], values[:, :, :length] = self.keys, self.values
        self._keys, self._values = keys, values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep rows `indices`, in that order, repeated where an index is; spare tokens stay spare."""
        other = self.copy_of_rows(indices, 0 if self._keys is None else self._keys.shape[-2] - self.get_seq_length())
        self._keys, self._values, self.keys, self.values = other._keys, other._values, other.keys, other.values

    def copy_of_rows(self, indices: torch.Tensor, room: int) -> GrowingLayer:
        """Another layer with rows `indices` and spare tokens; this one stays as it is."""
        other = GrowingLayer(room)
        length = self.get_seq_length()
        if length:
            other._reserve(
                self.keys[:1].expand(len(indices), -1, -1, -1),
                self.values[:1].expand(len(indices), -1, -1, -1),
                0,
                length + room,
            )
            assert other._keys is not None
            assert other._values is not None
            torch.index_select(self.keys, 0, indices, out=other._keys[:, :, :length])
            torch.index_select(self.values, 0, indices, out=other._values[:, :, :length])
            other._show(length)
        return other


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


def rows_of(cache: Cache, indices: torch.Tensor, room: int = 0) -> Cache:
    """A new cache with rows `indices` of this one, which stays as it is; `room`: tokens that are to follow."""
    if all(isinstance(layer, GrowingLayer) for layer in cache.layers):
        other = copy.copy(cache)
        other.layers = [layer.copy_of_rows(indices, room) for layer in cache.layers]
        return other
    other = copy.deepcopy(cache)
    keep_rows(other, indices)
    return other
