"""Dictionaries of padded tensors that TRL makes of a generation batch: joined, extended, emptied.

Keys as in TRL: `prompt_ids`, `prompt_mask` padded left; everything over response tokens padded right; `advantages`
(B,); `num_items_in_batch` a scalar.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

LEFT = ("prompt_ids", "prompt_mask")
SCALARS = ("num_items_in_batch",)


def pad_to(x_BT: Tensor, width: int, left: bool, value: float = 0) -> Tensor:
    """Widen (B, T) to (B, width) with `value`."""
    missing = width - x_BT.shape[1]
    if missing <= 0:
        return x_BT
    return torch.nn.functional.pad(x_BT, (missing, 0) if left else (0, missing), value=value)


def join(parts: Sequence[dict[str, Any]], pad_id: int) -> dict[str, Any]:
    """One batch out of several, rows in order. All must hold the same keys (one trainer made them)."""
    if len(parts) == 1:
        return parts[0]
    out: dict[str, Any] = {}
    for key in parts[0]:
        values = [p[key] for p in parts]
        if key in SCALARS:
            out[key] = torch.stack([torch.as_tensor(v) for v in values]).sum()
        elif isinstance(values[0], Tensor) and values[0].ndim == 2 and len({v.shape[1] for v in values}) > 1:
            width = max(v.shape[1] for v in values)
            fill = pad_id if key.endswith("_ids") else 0
            out[key] = torch.cat([pad_to(v, width, key in LEFT, fill) for v in values])
        elif isinstance(values[0], Tensor):
            out[key] = torch.cat(values)
        else:
            out[key] = [row for v in values for row in v]
    return out


def take(batch: dict[str, Any], rows_B: Tensor) -> dict[str, Any]:
    """The rows that `rows_B` (bool) keeps. Scalars stay."""
    index = rows_B.nonzero().flatten()
    return {
        key: value
        if key in SCALARS or value is None
        else (value[index.to(value.device)] if isinstance(value, Tensor) else [value[i] for i in index.tolist()])
        for key, value in batch.items()
    }


def blank_rows(batch: dict[str, Any], n: int) -> dict[str, Any]:
    """`n` copies of the first row with every response token masked: no loss, no gradient, no tokens counted."""
    out: dict[str, Any] = {}
    for key, value in batch.items():
        if key in SCALARS or value is None:
            out[key] = value
        elif isinstance(value, Tensor):
            out[key] = value[:1].expand(n, *value.shape[1:]).clone()
        else:
            out[key] = [value[0]] * n
    for key in ("completion_mask", "advantages", "tool_mask"):
        if key in out:
            out[key] = torch.zeros_like(out[key])
    for key in SCALARS:
        out[key] = torch.zeros_like(torch.as_tensor(batch[key]))
    return out


def fill_up_to(batch: dict[str, Any], rows: int, pad_id: int) -> tuple[dict[str, Any], int]:
    """The batch with blank rows added up to `rows`, so that it can be cut evenly; and how many were added.

    TRL's `split_tensor_dict` drops a remainder without a word."""
    missing = rows - len(batch["completion_ids"])
    return (join([batch, blank_rows(batch, missing)], pad_id), missing) if missing > 0 else (batch, 0)


def empty_batch(prompt_ids: Sequence[int], eos_id: int, rows: int, extra: Sequence[str], device: Any) -> dict[str, Any]:
    """A batch that trains on nothing, for a step without survivors: `rows` blank rows of one masked token.

    `extra`: further keys over response tokens that the trainer's loss expects (old_per_token_logps, ...)."""
    prompt = torch.tensor([list(prompt_ids)] * rows, device=device)
    out: dict[str, Any] = {
        "prompt_ids": prompt,
        "prompt_mask": torch.ones_like(prompt),
        "completion_ids": torch.full((rows, 1), eos_id, device=device),
        "completion_mask": torch.zeros((rows, 1), dtype=torch.long, device=device),
        "advantages": torch.zeros(rows, device=device),
        "num_items_in_batch": torch.tensor(1, device=device),
    }
    for key in extra:
        value = 1.0 if key == "importance_sampling_ratio" else 0.0
        out[key] = torch.full((rows, 1), value, device=device)
    return out
