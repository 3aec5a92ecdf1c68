"""The transformers engine: any causal LM, on the CPU or one GPU, in this process."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from limen.engines.batching import (
    PREFILL_TOKENS,
    Batch,
    available_memory,
    cache_bytes_per_token,
    plan,
    row_budget,
    without,
)
from limen.engines.decoding import Decoding
from limen.engines.fast_path import Decoding as Way
from limen.engines.fast_path import FastPath
from limen.engines.protocol import Capabilities, Sample, SampleRequest, ScoreRequest
from limen.engines.requests_check import check_requests
from limen.engines.runner import Runner, out_of_memory
from limen.engines.scoring import Scorer
from limen.engines.stops import StopStrings
from limen.errors import ModelError
from limen.models import LoadedModel, load_model
from limen.types import SamplingParams

log = logging.getLogger(__name__)


class TransformersEngine:
    """Samples and scores with a model of transformers.

    loaded: what `limen.models.load_model` gave. Any causal LM and tokenizer serve: `LoadedModel(model, tokenizer,
        name)`. The model is used as it is (dtype, device, adapters); put it into eval mode before.
    batch_size: rows decoded together; found from the free memory where it is not given, and halved when a GPU runs
        out of it.
    logprobs: also return raw log-probabilities of the sampled tokens.
    decoding: `auto` decodes by CUDA graphs on a GPU where the model allows it (see `limen.engines.fast_path`), and in
        the plain way elsewhere; `plain`, `slots`, `graphs` and `compile` ask for one.
    head: how scoring gets from hidden states to log-probabilities (`limen.engines.scoring.Scorer`).

    The same (seed, prompt) gives the same response whatever the batch, up to rounding of the logits.
    """

    name = "transformers"

    def __init__(
        self,
        loaded: LoadedModel,
        batch_size: int | None = None,
        logprobs: bool = False,
        decoding: Way = "auto",
        head: str = "logits",
    ) -> None:
        if batch_size is not None and batch_size < 1:
            raise ModelError(f"batch size is {batch_size}: give at least 1")
        self.loaded = loaded
        self.runner = Runner(loaded.model)
        self.tokenizer = loaded.tokenizer
        self.batch_size = batch_size
        self.logprobs = logprobs
        self.head = head
        self.eos_ids = self.runner.eos_ids(loaded.tokenizer)
        self.capabilities = Capabilities(token_ids=True, raw_logprobs=True, seeds=True, score=True)
        self.fast = FastPath(self.runner, decoding, logprobs)
        self._scorer: Scorer | None = None
        self._stops: dict[tuple[str, ...], StopStrings] = {}

    @classmethod
    def load(cls, name: str, device: str | None = None, dtype: str | None = None, **options: Any) -> TransformersEngine:
        """Engine for a model by name, as `limen.models.load_model` takes it."""
        return cls(load_model(name, device, dtype), **options)

    @property
    def context(self) -> int | None:
        """Most tokens of prompt and response together, or None where the model does not say."""
        return self.runner.context

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> Iterator[Sample]:
        """Yield each response once, as it finishes; see `limen.engines.protocol.Engine.sample`."""
        check_requests(requests, params, self.context, self.runner.vocabulary)
        return self._sample([r for r in requests if r.sample_indices], params)

    def _sample(self, requests: list[SampleRequest], params: SamplingParams) -> Iterator[Sample]:
        if not requests:
            return
        max_rows = self.batch_size or self._max_rows(requests, params)
        if self.fast.usable:
            requests = yield from self.fast.sample(requests, params, max_rows, self.eos_ids, self._stop(params))
        yield from self._plain(requests, params, max_rows)

    def _plain(self, requests: list[SampleRequest], params: SamplingParams, max_rows: int) -> Iterator[Sample]:
        tokens = PREFILL_TOKENS.get(self.runner.device.type, 16_384)
        queue = deque(plan(requests, max_rows, tokens, self.runner.can_pad))
        while queue:
            batch = queue.popleft()
            done: set[tuple[str, int]] = set()
            error = yield from self._decode(batch, params, done)
            if error is not None:
                rows = len(batch.rows)
                if rows == 1:
                    raise ModelError(
                        f"not enough memory for one response of {params.max_tokens} tokens after a prompt of "
                        f"{batch.longest}: lower max_tokens, or use a smaller model or dtype ({error})"
                    )
                max_rows = rows // 2
                log.warning("out of memory with %d rows: going on with %d", rows, max_rows)
                left = [part for b in (batch, *queue) for part in without(b, done, max_rows)]
                queue = deque(left)

    def _decode(self, batch: Batch, params: SamplingParams, done: set[tuple[str, int]]) -> Any:
        """Yield a batch's samples; return what was said when memory ran out, else None."""
        error = None
        try:
            decoding = Decoding(self.runner, batch, params, self.eos_ids, self._stop(params), self.logprobs)
            while not decoding.done:
                for sample in decoding.step():
                    done.add((sample.problem_id, sample.sample_index))
                    yield sample
        except (torch.OutOfMemoryError, RuntimeError) as raised:
            if not out_of_memory(raised):
                raise
            error = str(raised).splitlines()[0]
        if error is not None and self.runner.device.type == "cuda":
            torch.cuda.empty_cache()
        return error

    def score(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """Per-token log-probabilities of stored responses; see `limen.engines.scoring.Scorer`."""
        if self._scorer is None:
            self._scorer = Scorer(self.runner, head=self.head)  # kept, with the batch that it found to fit
        return self._scorer.score(requests)

    def _stop(self, params: SamplingParams) -> StopStrings:
        if params.stop not in self._stops:
            self._stops[params.stop] = StopStrings(self.tokenizer, params.stop, self.runner.vocabulary)
        return self._stops[params.stop]

    def _max_rows(self, requests: Sequence[SampleRequest], params: SamplingParams) -> int:
        model = self.runner.model
        longest = max(len(r.prompt.token_ids) for r in requests)
        per_token = cache_bytes_per_token(model.config, model.dtype.itemsize)
        # Logits, their softmax and its cumulative sum in double precision: 24 bytes per entry of the vocabulary.
        row = per_token * (longest + params.max_tokens) + 24 * self.runner.vocabulary
        parameters = sum(p.numel() for p in model.parameters())
        return row_budget(row, available_memory(self.runner.device), parameters, self.runner.device.type)
