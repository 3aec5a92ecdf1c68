"""The transformers engine's fast path: decoding in slots, by CUDA graphs on a GPU; gives way by itself.

It is used where the model allows it, its first step is held against the plain path's, and whatever fails (a model that
cannot be captured, a graph that does not fit) leaves the rest of the responses to the plain path, with a warning.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Generator, Sequence
from typing import Literal

import numpy as np
import torch

from limen.engines.batching import PREFILL_TOKENS, remaining
from limen.engines.protocol import Sample, SampleRequest
from limen.engines.runner import Runner
from limen.engines.slot_decoding import Job, SlotDecoding, length_bucket, rows_bucket, steps_between
from limen.engines.slots import why_not
from limen.engines.stepper import Stepper
from limen.engines.stops import StopStrings
from limen.errors import ModelError
from limen.types import SamplingParams

log = logging.getLogger(__name__)

Decoding = Literal["auto", "plain", "slots", "graphs", "compile"]
DECODINGS: tuple[Decoding, ...] = ("auto", "plain", "slots", "graphs", "compile")
LEAST_ROWS = 8
TOLERANCE = {torch.float32: 1e-3}
"""Largest difference from the plain path's logits, as a share of the largest logit; 0.05 in half precision."""


class FastPath:
    """decoding: `auto` takes graphs on a GPU and the plain path elsewhere; `slots` runs the same without graphs;
    `graphs` and `compile` (graphs of a model that torch.compile has fused) are refused where they cannot be had."""

    def __init__(self, runner: Runner, decoding: Decoding, logprobs: bool) -> None:
        if decoding not in DECODINGS:
            raise ModelError(f"decoding is '{decoding}', expected one of {', '.join(DECODINGS)}")
        self.runner, self.decoding, self.logprobs = runner, decoding, logprobs
        self.graphs = decoding in ("graphs", "compile") or (decoding == "auto" and runner.device.type == "cuda")
        self.reason: str | None = None
        """Why the path is not used, once that is known."""
        if decoding == "plain" or (decoding == "auto" and not self.graphs):
            self.reason = "plain decoding is asked for" if decoding == "plain" else "there is no GPU"
        elif self.graphs and runner.device.type != "cuda":
            raise ModelError(f"decoding '{decoding}' needs a CUDA device, but the model is on {runner.device}")
        else:
            self._give_up(why_not(runner))
        self._stepper: Stepper | None = None

    @property
    def usable(self) -> bool:
        return self.reason is None

    def _give_up(self, why: str | None) -> None:
        """Leave it to the plain path from now on, or raise where this path was asked for by name."""
        if why is None:
            return
        if self.decoding in ("graphs", "compile", "slots"):
            raise ModelError(f"decoding '{self.decoding}' is not possible with this model: {why}. Use auto or plain")
        self.reason, self._stepper = why, None
        log.warning("decoding in the plain way: %s", why)

    def sample(
        self, requests: list[SampleRequest], params: SamplingParams, rows: int, eos: tuple[int, ...], stops: StopStrings
    ) -> Generator[Sample, None, list[SampleRequest]]:
        """Yield samples; return the requests that are left for the plain path."""
        done: set[tuple[str, int]] = set()
        redo: list[Job] = []
        left = requests
        while left and self.usable:
            error = yield from self._attempt(left, params, rows, eos, stops, done, redo)
            again = {(job.request.prompt.problem_id, job.request.sample_indices[job.at]) for job in redo}
            left = remaining(requests, done | again)
            if error is None:
                break
            self._stepper = None
            gc.collect()  # slots refer to themselves; their memory is needed now
            if self.runner.device.type == "cuda":
                torch.cuda.empty_cache()
            if isinstance(error, torch.OutOfMemoryError) and rows // 2 >= LEAST_ROWS:
                log.warning("out of memory with %d slots: going on with %d", rows, rows // 2)
                rows //= 2
            else:
                self._give_up(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        return remaining(requests, done)

    def _attempt(
        self,
        requests: list[SampleRequest],
        params: SamplingParams,
        rows: int,
        eos: tuple[int, ...],
        stops: StopStrings,
        done: set[tuple[str, int]],
        redo: list[Job],
    ) -> Generator[Sample, None, RuntimeError | None]:
        try:
            stepper = self._ready(requests, params, rows)
            if stepper is None:
                return None
            tokens = PREFILL_TOKENS.get(self.runner.device.type, 16_384)
            decoding = SlotDecoding(stepper, requests, eos, stops, tokens)
            for sample in decoding.run():
                done.add((sample.problem_id, sample.sample_index))
                yield sample
            redo.extend(decoding.redo)
        except RuntimeError as error:
            return error.with_traceback(None)  # its frames would keep the slots' memory
        return None

    def _ready(self, requests: list[SampleRequest], params: SamplingParams, rows: int) -> Stepper | None:
        """The slots of the last call where they fit, or new ones; None where they do not do what they should."""
        wanted = rows_bucket(min(rows, sum(len(r.sample_indices) for r in requests)), rows)
        longest = max(len(r.prompt.token_ids) for r in requests)
        capacity = length_bucket(longest + params.max_tokens, 2**62)
        old = self._stepper
        # Its memory is taken already, so that it serves also where less is free than when it was made.
        if old is not None and old.params == params and wanted <= old.rows and capacity <= old.capacity:
            return old
        old = self._stepper = None
        stepper = Stepper(
            self.runner,
            params,
            wanted,
            capacity,
            steps_between(params.max_tokens),
            self.logprobs,
            self.graphs,
            self.decoding == "compile",
        )
        why = self._check(stepper, requests)
        self._give_up(why)
        self._stepper = stepper if why is None else None
        return self._stepper

    def _check(self, stepper: Stepper, requests: Sequence[SampleRequest]) -> str | None:
        """Compare the first step's logits after the shortest and the longest prompt with the plain path's."""
        ids = sorted((r.prompt.token_ids for r in requests), key=len)
        pair = [ids[0], ids[-1]][: stepper.rows]
        with torch.inference_mode():
            if not self.runner.plain_head(ids[-1]):
                return "its logits are more than the output layer of its hidden states"
        prompts = stepper.prefill(pair)
        drawn = stepper.start(range(len(pair)), prompts, range(len(pair)), np.zeros(len(pair), dtype=np.uint64))
        ours_BV = stepper.logits(len(pair), length_bucket(len(ids[-1]) + 1, stepper.capacity)).float()
        for row, prompt in enumerate(pair):
            with torch.inference_mode():
                prefix = self.runner.prefill([prompt])
                token_B = torch.tensor([int(drawn.tokens_BK[row, 0])], device=self.runner.device)
                theirs_V = self.runner.step(token_B, prefix.cache, prefix.lengths_B, None)[0].float()
            share = float((ours_BV[row] - theirs_V).abs().max()) / (float(theirs_V.abs().max()) + 1e-6)
            if not share <= TOLERANCE.get(self.runner.model.dtype, 0.05):
                return f"its logits in slots differ from the plain ones by {share:.2g} of the largest"
        return None
