"""One token for every slot: the model's forward pass and the draw as one unit that a CUDA graph replays.

`Stepper` holds the static tensors; what it runs reads and writes them only, so that a step needs nothing of the host.
On the CPU, or without graphs, the same unit runs as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from limen.engines.draw import token_logprobs
from limen.engines.kvcache import new_cache
from limen.engines.runner import Runner, pad_right
from limen.engines.slot_draw import draw_static, uniforms_on
from limen.engines.slots import SlotCache, SlotView, slot_attention
from limen.types import SamplingParams

log = logging.getLogger(__name__)

WARM = 2
"""Steps run before a graph is captured, so that libraries have set themselves up."""


@dataclass
class Drawn:
    """What a round of steps drew, on the host: (rows, steps) each; `bad_B`, `short_B`: see `draw_static`."""

    tokens_BK: NDArray[np.int64]
    log_q_BK: NDArray[np.float32]
    logprobs_BK: NDArray[np.float32] | None
    bad_B: NDArray[np.bool_]
    short_B: NDArray[np.bool_]


@dataclass
class Prompts:
    """Prefilled prompts, padded on the right: `cache`, and the logits after each prompt's last token."""

    cache: Any
    logits_PV: torch.Tensor
    lengths: tuple[int, ...]


class Stepper:
    """Slots of one model for one set of sampling parameters.

    rows: slots. capacity: most tokens of prompt and response. steps: tokens drawn between two looks of the host.
    graphs: replay CUDA graphs, one per (rows, length) bucket. compiled: the model's forward pass by torch.compile.
    """

    def __init__(
        self,
        runner: Runner,
        params: SamplingParams,
        rows: int,
        capacity: int,
        steps: int,
        want_logprobs: bool,
        graphs: bool,
        compiled: bool = False,
    ) -> None:
        self.runner, self.params, self.graphs = runner, params, graphs
        self.rows, self.capacity, self.steps, self.want_logprobs = rows, capacity, steps, want_logprobs
        device = runner.device
        with torch.inference_mode():
            self.view = SlotView(rows, capacity, device)
            self.cache = SlotCache(_layers(runner), self.view)
            self.token_B = torch.zeros(rows, dtype=torch.long, device=device)
            self.seed_B = torch.zeros(rows, dtype=torch.long, device=device)
            self.drawn_B = torch.zeros(rows, dtype=torch.long, device=device)
            self.bad_B = torch.zeros(rows, dtype=torch.bool, device=device)
            self.short_B = torch.zeros(rows, dtype=torch.bool, device=device)
            self.tokens_BK = torch.zeros(rows, steps, dtype=torch.long, device=device)
            self.log_q_BK = torch.zeros(rows, steps, device=device)
            self.logprobs_BK = torch.zeros(rows, steps, device=device)
            self.k = torch.zeros(1, dtype=torch.long, device=device)
            self.cell_T = torch.arange(capacity, device=device)
        self._graphs: dict[tuple[int, int], Any] = {}
        self._pool: Any = torch.cuda.graph_pool_handle() if graphs else None
        self._forward = torch.compile(self._plain_forward, dynamic=False) if compiled else self._plain_forward

    # -- prompts -------------------------------------------------------------------------------------------

    def prefill(self, prompts: Sequence[Sequence[int]]) -> Prompts:
        """Run prompts, padded on the right: what is behind a prompt is never looked at before it is overwritten."""
        with torch.inference_mode():
            ids_PT, _ = pad_right(prompts, self.runner.device)
            cache = new_cache(self.runner.model)
            hidden_PTH = self.runner.hidden(ids_PT, cache=cache)
            last_P = torch.tensor([len(p) - 1 for p in prompts], device=self.runner.device)
            row_P = torch.arange(len(prompts), device=self.runner.device)
            logits_PV = self.runner.head(hidden_PTH[row_P, last_P])
            return Prompts(cache, logits_PV, tuple(len(p) for p in prompts))

    def start(self, slots: Sequence[int], prompts: Prompts, rows: Sequence[int], seeds: NDArray[np.uint64]) -> Drawn:
        """Put prompt `rows[i]` into slot `slots[i]` with `seeds[i]`, and draw its first token."""
        with torch.inference_mode():
            device = self.runner.device
            slot_N, row_N = torch.tensor(slots, device=device), torch.tensor(rows, device=device)
            for ours, theirs in zip(self.cache.layers, prompts.cache.layers, strict=True):
                ours.fill(slot_N, theirs.keys, theirs.values, row_N)
            seed_N = torch.from_numpy(seeds.view(np.int64).copy()).to(device)
            logits_NV = prompts.logits_PV[row_N]
            token_N, log_q_N, finite_N, enough_N = draw_static(
                logits_NV, uniforms_on(seed_N, torch.zeros_like(seed_N)), self.params
            )
            self.token_B[slot_N], self.seed_B[slot_N], self.drawn_B[slot_N] = token_N, seed_N, 1
            self.view.position_B[slot_N] = torch.tensor([prompts.lengths[r] for r in rows], device=device)
            self.bad_B[slot_N], self.short_B[slot_N] = ~finite_N, ~enough_N
            raw_N = token_logprobs(logits_NV, token_N) if self.want_logprobs else None
            return Drawn(
                token_N[:, None].cpu().numpy(),
                log_q_N[:, None].cpu().numpy(),
                None if raw_N is None else raw_N[:, None].cpu().numpy(),
                (~finite_N).cpu().numpy(),
                (~enough_N).cpu().numpy(),
            )

    def move(self, slots: Sequence[int]) -> None:
        """Let the first slots hold what `slots` held."""
        with torch.inference_mode():
            from_N = torch.tensor(slots, device=self.runner.device)
            for layer in self.cache.layers:
                layer.move(from_N)
            for tensor in (self.token_B, self.seed_B, self.drawn_B, self.view.position_B, self.bad_B, self.short_B):
                tensor[: len(from_N)] = tensor[from_N]

    # -- steps ---------------------------------------------------------------------------------------------

    def draw(self, rows: int, length: int, steps: int) -> Drawn:
        """`steps` tokens for the first `rows` slots, attention over the first `length` tokens of each."""
        with torch.inference_mode(), slot_attention(self.runner.model):
            self.k.zero_()
            graph = self._graph(rows, length) if self.graphs else None
            for _ in range(steps):
                if graph is None:
                    self._step(rows, length)
                else:
                    graph.replay()
            return Drawn(
                self.tokens_BK[:rows, :steps].cpu().numpy(),
                self.log_q_BK[:rows, :steps].cpu().numpy(),
                self.logprobs_BK[:rows, :steps].cpu().numpy() if self.want_logprobs else None,
                self.bad_B[:rows].cpu().numpy(),
                self.short_B[:rows].cpu().numpy(),
            )

    def logits(self, rows: int, length: int) -> torch.Tensor:
        """Logits (rows, V) of the step that is due, without drawing; it can be repeated."""
        with torch.inference_mode(), slot_attention(self.runner.model):
            self.view.length = length
            return self._plain_forward(rows, length)

    def _plain_forward(self, rows: int, length: int) -> torch.Tensor:
        position_B = self.view.position_B[:rows]
        open_BT = self.cell_T[None, :length] <= position_B[:, None]
        mask = torch.zeros(rows, length, dtype=self.runner.model.dtype, device=position_B.device)
        mask = mask.masked_fill(~open_BT, torch.finfo(mask.dtype).min)[:, None, None, :]
        return self.runner.step(self.token_B[:rows], self.cache, position_B, mask)

    def _step(self, rows: int, length: int) -> None:
        self.view.length = length
        logits_BV = self._forward(rows, length)
        u_B = uniforms_on(self.seed_B[:rows], self.drawn_B[:rows])
        token_B, log_q_B, finite_B, enough_B = draw_static(logits_BV, u_B, self.params)
        self.tokens_BK[:rows].index_copy_(1, self.k, token_B[:, None])
        self.log_q_BK[:rows].index_copy_(1, self.k, log_q_B[:, None])
        if self.want_logprobs:
            self.logprobs_BK[:rows].index_copy_(1, self.k, token_logprobs(logits_BV, token_B)[:, None])
        self.bad_B[:rows] |= ~finite_B
        self.short_B[:rows] |= ~enough_B
        self.token_B[:rows] = token_B
        self.drawn_B[:rows] += 1
        # A response that has ended runs on until the host looks; it must not write beyond its slot.
        self.view.position_B[:rows] = (self.view.position_B[:rows] + 1).clamp(max=self.capacity - 1)
        self.k += 1

    def _graph(self, rows: int, length: int) -> Any:
        """The graph of this bucket; captured at first on a copy of the state, which is put back."""
        if (rows, length) not in self._graphs:
            state = [t.clone() for t in self._state()]
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM):
                    self.k.zero_()
                    self._step(rows, length)
            torch.cuda.current_stream().wait_stream(side)
            self._restore(state)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                self._step(rows, length)
            self._restore(state)
            self._graphs[rows, length] = graph
        return self._graphs[rows, length]

    def _state(self) -> list[torch.Tensor]:
        return [self.token_B, self.drawn_B, self.view.position_B, self.bad_B, self.short_B, self.k]

    def _restore(self, state: list[torch.Tensor]) -> None:
        for tensor, before in zip(self._state(), state, strict=True):
            tensor.copy_(before)


def _layers(runner: Runner) -> int:
    cache = new_cache(runner.model)
    return len(cache.layers) or int(runner.model.config.get_text_config(decoder=True).num_hidden_layers)
