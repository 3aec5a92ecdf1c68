"""Inside vLLM: tokens are drawn by limen's own rule, so that a response is a function of its seed alone.

vLLM's seeded sampling starts one random kernel per request and token, which costs more than a small model's whole step,
and takes the batch's shape into account. Here one batched draw picks every row's token from its (seed, position), as
all engines of limen do, and leaves that token as the only one possible. vLLM then picks it greedily. Raw
log-probabilities are taken by vLLM before.

This module is imported by vLLM's own process, by name, and nowhere else.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from limen.engines.draw import draw, uniforms_at
from limen.engines.slot_draw import draw_static
from limen.engines.vllm import KEY
from limen.types import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

WAY = "LIMEN_VLLM_DRAW"
"""Environment: "kernel" draws by one Triton kernel (`limen.engines.draw_kernel`), anything else by torch."""

Entry = tuple[int, tuple[float, float, int], "Sequence[int]"]


class SeededDraw(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """Leaves one token per request; requests without `KEY` are left alone."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.device, self.pin = device, is_pin_memory
        self.kernel = _kernel(device)
        self.entries: dict[int, Entry] = {}
        self.groups: list[tuple[SamplingParams, torch.Tensor, NDArray[np.uint64], list[Sequence[int]]]] = []

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follow requests as they enter, leave and move in the batch."""
        if process_dict_updates(self.entries, batch_update, _entry):
            kinds: dict[tuple[float, float, int], list[int]] = {}
            for row, (_, kind, _) in sorted(self.entries.items()):
                kinds.setdefault(kind, []).append(row)
            self.groups = [self._group(kind, rows) for kind, rows in kinds.items()]

    def _group(self, kind: tuple[float, float, int], rows: list[int]) -> Any:
        seeds = np.array([self.entries[row][0] for row in rows], dtype=np.uint64)
        temperature, top_p, top_k = kind
        params = SamplingParams(temperature=temperature, top_p=top_p, top_k=top_k)
        return params, self._tensor(np.array(rows)), seeds, [self.entries[row][2] for row in rows]

    def _tensor(self, values: NDArray[Any]) -> torch.Tensor:
        here = torch.from_numpy(values)
        return (here.pin_memory() if self.pin else here).to(self.device, non_blocking=True)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """logits (rows, V), float32: all but the drawn token become impossible."""
        for params, row_N, seeds, outputs in self.groups:
            u_N = self._tensor(uniforms_at(seeds, np.fromiter(map(len, outputs), np.int64, len(outputs))))
            if not self._by_kernel(logits, row_N, u_N, params):
                self._by_torch(logits, row_N, u_N, params)
        return logits

    def _by_kernel(self, logits: torch.Tensor, row_N: torch.Tensor, u_N: torch.Tensor, params: SamplingParams) -> bool:
        if self.kernel is None or params.temperature == 0 or params.top_p < 1 or params.top_k:
            return False
        try:
            self.kernel(logits, row_N, u_N, params.temperature)
        except Exception as error:  # noqa: BLE001  (a compiler raises what it likes; torch can draw)
            log.warning("limen's kernel for the draw does not run here, torch draws: %s", error)
            self.kernel = None
            return False
        return True

    def _by_torch(self, logits: torch.Tensor, row_N: torch.Tensor, u_N: torch.Tensor, params: SamplingParams) -> None:
        whole = len(row_N) == logits.shape[0]
        token_N = self._draw(logits if whole else logits[row_N], u_N, params)
        if whole:
            logits.fill_(float("-inf")).scatter_(1, token_N[:, None], 0.0)
        else:
            logits[row_N] = float("-inf")
            logits[row_N, token_N] = 0.0

    def _draw(self, logits_NV: torch.Tensor, u_N: torch.Tensor, params: SamplingParams) -> torch.Tensor:
        token_N, _, _, enough_N = draw_static(logits_NV, u_N, params)
        if params.top_p < 1 and not params.top_k and not bool(enough_N.all()):
            return draw(logits_NV, u_N, params)[0]
        return token_N


def _kernel(device: torch.device) -> Callable[..., None] | None:
    """One kernel for the whole draw, where it is asked for and Triton is there to compile it."""
    if device.type != "cuda" or os.environ.get(WAY, "torch") != "kernel":
        return None
    try:
        from limen.engines.draw_kernel import leave_drawn
    except ImportError as error:
        log.warning("%s=kernel needs Triton, torch draws: %s", WAY, error)
        return None
    return leave_drawn


class DrawWorker:
    """What limen adds to vLLM's worker (`worker_extension_cls`)."""

    def limen_lengths_suffice(self) -> bool:
        """Tell the worker's batch that nobody reads the tokens drawn so far. Returns whether it could be told.

        vLLM takes it that a logits processor from outside does, and waits in every step for the last step's tokens to
        reach the host, so that no step begins before its predecessor has ended. `SeededDraw` needs their number, which
        is known without them.
        """
        batch: Any = getattr(getattr(self, "model_runner", None), "input_batch", None)
        if not hasattr(batch, "logitsprocs_need_output_token_ids"):
            return False
        batch.logitsprocs_need_output_token_ids = False
        return True


def _entry(params: Any, prompt_ids: Any, output_ids: Sequence[int]) -> Entry | None:
    """State of a new request; `output_ids` is the engine's own growing list, whose length is the position. Its last
    tokens can be placeholders: vLLM schedules a step before it has seen the tokens of the last."""
    given = (params.extra_args or {}).get(KEY)
    if given is None:
        return None
    seed, temperature, top_p, top_k = given
    return int(seed), (float(temperature), float(top_p), int(top_k)), output_ids
