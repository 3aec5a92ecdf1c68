"""Which samples go into one batch, and how large a batch may be. Pure arithmetic, no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from limen.engines.protocol import SampleRequest

CPU_FLOP_PER_STEP = 2e10
"""About a second of arithmetic on two cores: more rows than that gain nothing and finish later."""
MAX_ROWS = 4096
PREFILL_TOKENS = {"cpu": 16_384, "cuda": 131_072}


@dataclass(frozen=True)
class Batch:
    """Rows that are decoded together: `rows[i]` = (index of the request, position in its sample_indices)."""

    requests: tuple[SampleRequest, ...]
    rows: tuple[tuple[int, int], ...]

    @property
    def longest(self) -> int:
        return max(len(r.prompt.token_ids) for r in self.requests)


def plan(requests: Sequence[SampleRequest], max_rows: int, max_prompt_tokens: int, may_pad: bool = True) -> list[Batch]:
    """Batches of at most `max_rows` rows, longest prompts first, so that memory is known to suffice early.

    A prompt occurs once in a batch however many samples it has; prompts of one batch, padded to the longest, stay
    within `max_prompt_tokens` (one prompt always fits). Without `may_pad` a batch holds prompts of one length.
    """
    batches: list[Batch] = []
    chosen: list[SampleRequest] = []
    rows: list[tuple[int, int]] = []

    def close() -> None:
        if rows:
            batches.append(Batch(tuple(chosen), tuple(rows)))
        chosen.clear()
        rows.clear()

    for request in sorted(requests, key=lambda r: -len(r.prompt.token_ids)):
        length = len(request.prompt.token_ids)
        if chosen:
            first = len(chosen[0].prompt.token_ids)
            if (first != length and not may_pad) or (len(chosen) + 1) * first > max_prompt_tokens:
                close()
        position = 0
        while position < len(request.sample_indices):
            if len(rows) == max_rows:
                close()
            chosen.append(request)
            take = min(max_rows - len(rows), len(request.sample_indices) - position)
            rows.extend((len(chosen) - 1, position + i) for i in range(take))
            position += take
    close()
    return batches


def without(batch: Batch, done: set[tuple[str, int]], max_rows: int) -> list[Batch]:
    """What is left of a batch, as batches of at most `max_rows` rows; `done` holds (problem id, sample index)."""
    left: list[SampleRequest] = []
    for index, request in enumerate(batch.requests):
        positions = [
            p
            for i, p in batch.rows
            if i == index and (request.prompt.problem_id, request.sample_indices[p]) not in done
        ]
        if positions:
            indices = tuple(request.sample_indices[p] for p in positions)
            left.append(SampleRequest(request.prompt, indices, tuple(request.seeds[p] for p in positions)))
    longest = max((len(r.prompt.token_ids) for r in left), default=1)
    return plan(left, max_rows, max(1, max_rows) * longest)


def remaining(requests: Sequence[SampleRequest], done: set[tuple[str, int]]) -> list[SampleRequest]:
    """The requests without the samples in `done`, a set of (problem id, sample index)."""
    left = []
    for request in requests:
        pid = request.prompt.problem_id
        keep = [i for i, index in enumerate(request.sample_indices) if (pid, index) not in done]
        if len(keep) == len(request.sample_indices):
            left.append(request)
        elif keep:
            indices = tuple(request.sample_indices[i] for i in keep)
            left.append(SampleRequest(request.prompt, indices, tuple(request.seeds[i] for i in keep)))
    return left


def cache_bytes_per_token(config: Any, item_size: int) -> int:
    """Bytes that one token of one row takes in the key-value cache (an upper bound where layers are unlike)."""
    text = config.get_text_config(decoder=True)

    def value(*names: str, default: int) -> int:
        return next((int(v) for name in names if (v := getattr(text, name, None))), default)

    heads = value("num_attention_heads", "n_head", default=1)
    layers = value("num_hidden_layers", "n_layer", default=1)
    kv_heads = value("num_key_value_heads", default=heads)
    size = value("head_dim", default=value("hidden_size", "n_embd", default=1024) // heads)
    return 2 * layers * kv_heads * size * item_size


def row_budget(row_bytes: int, available: int, parameters: int, device: str) -> int:
    """Rows of a batch: what memory holds and, on the CPU, what a second of arithmetic does."""
    rows = min(MAX_ROWS, int(available // max(1, row_bytes)))
    if device == "cpu":
        rows = min(rows, max(8, int(CPU_FLOP_PER_STEP / (2 * max(1, parameters)))))
    return max(1, rows)


def available_memory(device: Any) -> int:
    """Bytes that a batch may take: half of what the machine has free, or 0.8 of what the GPU has."""
    if device.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(0.8 * (free + kept))
    import psutil

    return int(0.5 * psutil.virtual_memory().available)
