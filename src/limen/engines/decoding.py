"""One batch of responses, decoded token by token; rows that are finished leave the batch."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from limen.engines.batching import Batch
from limen.engines.draw import draw, token_logprobs, uniforms
from limen.engines.kvcache import keep_rows, rows_of
from limen.engines.protocol import Sample
from limen.engines.runner import Runner
from limen.engines.stops import StopStrings
from limen.types import FinishReason, SamplingParams

U_BLOCK = 64
"""Uniform numbers are made for so many tokens at once."""
ROOM = 128
"""Tokens that the cache reserves at first for a response."""
DROP_COST = 0.25
"""Dropping finished rows copies the cache of the others, which costs about so much of a step. They are dropped when
carrying them has cost as much."""


class Decoding:
    """State of a batch: the prompts are run once, their cache is repeated for their samples, then `step` by `step`
    every row gets one token. Rows keep their number; `alive_B` says which rows the tensors hold."""

    def __init__(
        self,
        runner: Runner,
        batch: Batch,
        params: SamplingParams,
        eos_ids: tuple[int, ...],
        stops: StopStrings,
        want_logprobs: bool,
    ) -> None:
        self.runner, self.batch, self.params, self.stops = runner, batch, params, stops
        self.want_logprobs = want_logprobs
        self.eos = np.asarray(eos_ids, dtype=np.int64)
        rows = len(batch.rows)
        self.seeds_B = np.array([batch.requests[i].seeds[p] for i, p in batch.rows], dtype=np.uint64)
        self.length = 0
        self.tokens_BT: NDArray[np.int64] = np.zeros((rows, min(params.max_tokens, 256)), dtype=np.int64)
        self.logprobs_BT = np.zeros(self.tokens_BT.shape, dtype=np.float32) if want_logprobs else None
        self.log_q_B = np.zeros(rows)
        self.alive_B: NDArray[np.int64] = np.arange(rows)
        self._open_B = np.ones(rows, dtype=bool)
        with torch.inference_mode():
            self._start()

    def _start(self) -> None:
        device = self.runner.device
        prefix = self.runner.prefill([r.prompt.token_ids for r in self.batch.requests])
        prompt_B = torch.tensor([i for i, _ in self.batch.rows], device=device)
        self.cache = rows_of(prefix.cache, prompt_B, min(self.params.max_tokens, ROOM))
        self._carried = 0.0
        assert prefix.logits_BV is not None
        self.logits_BV = prefix.logits_BV[prompt_B]
        self.positions_B = prefix.lengths_B[prompt_B]
        self.mask_BT = None if prefix.mask_BT is None else prefix.mask_BT[prompt_B]

    @property
    def done(self) -> bool:
        return not self._open_B.any()

    def step(self) -> list[Sample]:
        """Draw one token for every row, run the model on them, and return the responses that ended."""
        with torch.inference_mode():
            return self._step()

    def _step(self) -> list[Sample]:
        if self.length == self.tokens_BT.shape[1]:
            self._widen()
        tokens_B = self._draw()
        drawn_B = tokens_B.cpu().numpy()
        self.tokens_BT[self.alive_B, self.length] = drawn_B
        self.length += 1
        ended = self._ended(drawn_B)
        samples = self._samples(ended)
        for row, _ in ended:
            self._open_B[row] = False
        if not self.done:
            tokens_B = self._drop_closed(tokens_B)
            self._advance(tokens_B)
        return samples

    def _draw(self) -> torch.Tensor:
        at = self.length % U_BLOCK
        if at == 0:
            self._u_BT = uniforms(self.seeds_B, self.length, U_BLOCK)
        u_B = torch.from_numpy(self._u_BT[self.alive_B, at]).to(self.runner.device)
        tokens_B, log_q_B = draw(self.logits_BV, u_B, self.params)
        self.log_q_B[self.alive_B] += log_q_B.cpu().numpy()
        if self.logprobs_BT is not None:
            raw_B = token_logprobs(self.logits_BV, tokens_B).cpu().numpy()
            self.logprobs_BT[self.alive_B, self.length] = raw_B
        return tokens_B

    def _widen(self) -> None:
        more = min(self.tokens_BT.shape[1], self.params.max_tokens - self.tokens_BT.shape[1])
        self.tokens_BT = np.pad(self.tokens_BT, ((0, 0), (0, more)))
        if self.logprobs_BT is not None:
            self.logprobs_BT = np.pad(self.logprobs_BT, ((0, 0), (0, more)))

    def _ended(self, drawn_B: NDArray[np.int64]) -> list[tuple[int, FinishReason]]:
        """Open rows that just ended, each with its reason. EOS comes before a stop string before the length."""
        open_B = self._open_B[self.alive_B]
        eos_B = np.isin(drawn_B, self.eos)
        ended: list[tuple[int, FinishReason]] = []
        last = self.length == self.params.max_tokens
        look_B = open_B & (eos_B | self.stops.may_complete[drawn_B] | last)
        for i in np.flatnonzero(look_B):
            row = int(self.alive_B[i])
            if eos_B[i]:
                ended.append((row, "eos"))
            elif self.stops.may_complete[drawn_B[i]] and self.stops.found(self.tokens_BT[row, : self.length].tolist()):
                ended.append((row, "stop"))
            elif last:
                ended.append((row, "length"))
        return ended

    def _samples(self, ended: list[tuple[int, FinishReason]]) -> list[Sample]:
        rows_T = [self.tokens_BT[row, : self.length].tolist() for row, _ in ended]
        texts = self.stops.decode_many(rows_T)
        return [self._sample(row, reason, ids, text) for (row, reason), ids, text in zip(ended, rows_T, texts)]

    def _sample(self, row: int, reason: FinishReason, token_ids: list[int], text: str) -> Sample:
        index, position = self.batch.rows[row]
        request = self.batch.requests[index]
        if reason == "stop":
            text = self.stops.cut(text) or ""
        logprobs = None if self.logprobs_BT is None else tuple(self.logprobs_BT[row, : self.length].tolist())
        return Sample(
            problem_id=request.prompt.problem_id,
            sample_index=request.sample_indices[position],
            seed=request.seeds[position],
            token_ids=tuple(token_ids),
            text=text,
            finish_reason=reason,
            logprobs=logprobs,
            log_q=float(self.log_q_B[row]),
        )

    def _drop_closed(self, tokens_B: torch.Tensor) -> torch.Tensor:
        open_B = self._open_B[self.alive_B]
        self._carried += len(open_B) - int(open_B.sum())
        if self._carried < DROP_COST * int(open_B.sum()) or open_B.all():
            return tokens_B
        self._carried = 0.0
        keep_B = torch.from_numpy(np.flatnonzero(open_B)).to(self.runner.device)
        self.alive_B = self.alive_B[open_B]
        keep_rows(self.cache, keep_B)
        self.positions_B = self.positions_B[keep_B]
        self.mask_BT = None if self.mask_BT is None else self.mask_BT[keep_B]
        return tokens_B[keep_B]

    def _advance(self, tokens_B: torch.Tensor) -> None:
        if self.mask_BT is not None:
            self.mask_BT = torch.nn.functional.pad(self.mask_BT, (0, 1), value=1)
        self.logits_BV = self.runner.step(tokens_B, self.cache, self.positions_B, self.mask_BT)
        self.positions_B = self.positions_B + 1
