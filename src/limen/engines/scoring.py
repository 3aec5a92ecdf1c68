"""Log-probabilities of stored token ids: exact, at temperature 1, and without ever holding all logits.

Four things make it cheap. The output layer sees response tokens only. Its logits live for one chunk of tokens at
a time, in float32. Prompts that several responses share are run once, and the responses read their cache. Identical
responses are scored once.
"""

from __future__ import annotations

import gc
import itertools
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from limen.engines.fused import fused_head
from limen.engines.kvcache import rows_of
from limen.engines.protocol import ScoreRequest
from limen.engines.runner import Runner, out_of_memory, pad_right
from limen.errors import ModelError

log = logging.getLogger(__name__)

LOGIT_BYTES = {"cpu": 32 << 20, "cuda": 512 << 20}
"""Logits that exist at one time."""
BATCH_TOKENS = {"cpu": 4096, "cuda": 65_536}
"""Tokens of one forward pass, padding included."""


LEAST_CHUNK = 16
"""Tokens whose logits exist at one time, at the least."""


Item = TypeVar("Item")


@dataclass(frozen=True)
class _Row:
    place: int
    prompt: tuple[int, ...]
    response: tuple[int, ...]


Part = tuple[Sequence[_Row], torch.Tensor]
"""Responses, and the values of all their tokens, one after the other, on the model's device."""


class Limits:
    """What bounds the memory of a forward pass: `batch_tokens`, and `chunk` tokens whose logits exist at one time.

    batch_tokens, logit_bytes: by default what suits the device.
    """

    def __init__(self, runner: Runner, batch_tokens: int | None = None, logit_bytes: int | None = None) -> None:
        self.runner = runner
        kind = runner.device.type
        self.batch_tokens = batch_tokens or BATCH_TOKENS.get(kind, 4096)
        chunk = (logit_bytes or LOGIT_BYTES.get(kind, 32 << 20)) // (4 * runner.vocabulary)
        self.chunk = max(LEAST_CHUNK, chunk)

    def halve(self, lengths: Sequence[int], error: str) -> None:
        """After memory ran out on sequences of these lengths: free what is unused, and take smaller batches and chunks.
        Raises `ModelError` where they hold one response and few tokens already."""
        gc.collect()
        if self.runner.device.type == "cuda":
            torch.cuda.empty_cache()
        longest = max(lengths)
        if self.batch_tokens < longest and self.chunk <= LEAST_CHUNK:
            raise ModelError(
                f"not enough memory to score one response of {longest} tokens with its prompt: use a smaller dtype "
                f"(--dtype bfloat16), a GPU with more memory free, or leave out the longest responses ({error})"
            )
        was = min(self.batch_tokens, longest * len(lengths))  # a limit beyond all there is says nothing
        self.batch_tokens = max(1, was // 2)
        log.warning("out of memory with batches of %d tokens: going on with %d", was, self.batch_tokens)
        self.chunk = max(LEAST_CHUNK, self.chunk // 2)


def said(error: RuntimeError) -> str:
    """The first line of an error that says memory ran out (not the error: its frames hold the batch). Raises any other
    error again."""
    if not out_of_memory(error):
        raise error
    return next(iter(str(error).splitlines()), "out of memory")


class Scorer(Limits):
    """Scores responses under one model. `batch_tokens` and `logit_bytes` bound the memory of one forward pass.

    head: `logits`, the model's output layer chunk by chunk, or `cce`, the kernel of cut-cross-entropy (a GPU; extra
    `fused`), which makes no logits at all. The two round differently: score what is compared with one of them.
    """

    def __init__(
        self,
        runner: Runner,
        batch_tokens: int | None = None,
        logit_bytes: int | None = None,
        head: str = "logits",
    ) -> None:
        super().__init__(runner, batch_tokens, logit_bytes)
        self.head = fused_head(runner, head) or self._logits_head

    def score(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """Per-token log-probabilities (nats, float32, <= 0), one array of shape (tokens,) per request, in order.

        Where memory runs out, batches are halved from then on; what was scored stays. Raises `ModelError` where one
        response does not fit, and for an empty prompt: the first response token would have nothing to follow.
        """
        result: list[NDArray[np.float32]] = [np.zeros(0, dtype=np.float32)] * len(requests)
        rows = []
        twins: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        same: dict[int, int] = {}
        for place, request in enumerate(requests):
            if not request.prompt_ids:
                raise ModelError("cannot score a response to an empty prompt: put a BOS token into the template")
            if not request.token_ids:
                continue
            pair = tuple(request.prompt_ids), tuple(request.token_ids)
            first = twins.setdefault(pair, place)
            if first == place:
                rows.append(_Row(place, *pair))
            else:
                same[place] = first  # a sure model repeats itself: once is enough
        if not rows:
            return result
        with torch.inference_mode():
            for batch, values in self._parts(rows):
                cut = np.cumsum([len(row.response) for row in batch])[:-1]
                for row, own in zip(batch, np.split(values.cpu().numpy(), cut), strict=True):
                    result[row.place] = own.copy()
        for place, first in same.items():
            result[place] = result[first].copy()
        return result

    def _parts(self, rows: list[_Row]) -> list[Part]:
        """All rows' parts: a GPU still works on these while the next are prepared."""
        parts: list[Part] = []
        while True:
            done = {row.place for batch, _ in parts for row in batch}
            left = [row for row in rows if row.place not in done]
            error = self._gather(left, parts) if left else None
            if error is None:
                return parts
            self.halve([len(row.prompt) + len(row.response) for row in left], error)

    def _gather(self, rows: list[_Row], parts: list[Part]) -> str | None:
        """Append the rows' parts; what was said when memory ran out, else None."""
        try:
            for part in self._score(rows):
                parts.append(part)
        except RuntimeError as error:
            return said(error)
        return None

    def _score(self, rows: list[_Row]) -> Iterator[Part]:
        if not self.runner.plain_head(rows[0].prompt + rows[0].response):
            return self._whole(rows)
        if self.runner.recurrent:  # a running state takes one token at a time, or a whole sequence
            return self._single(rows)
        shared, single = _by_prompt(rows)
        return itertools.chain(self._shared(shared), self._single(single))

    def _single(self, rows: list[_Row]) -> Iterator[Part]:
        """Prompt and response in one pass, padded on the right."""
        for batch in _cut(rows, lambda r: len(r.prompt) + len(r.response), self.batch_tokens):
            # No mask: padding stands after every real token, where a causal model never looks.
            hidden_BTH = self.runner.hidden(self._padded([(r.prompt + r.response)[:-1] for r in batch]))
            yield self._project(hidden_BTH, batch, [len(r.prompt) - 1 for r in batch])

    def _shared(self, groups: list[list[_Row]]) -> Iterator[Part]:
        """Prompts once, padded on the left; then the responses on copies of the prompts' cache."""
        groups = sorted(groups, key=lambda g: -len(g[0].prompt))
        start = 0
        while start < len(groups):
            width, end = len(groups[start][0].prompt), start
            while end < len(groups) and (end == start or self._fits(groups[end], width, end - start + 1)):
                end += 1
            yield from self._shared_pack(groups[start:end])
            start = end

    def _fits(self, group: list[_Row], width: int, count: int) -> bool:
        return count * width <= self.batch_tokens and (self.runner.can_pad or len(group[0].prompt) == width)

    def _shared_pack(self, groups: list[list[_Row]]) -> Iterator[Part]:
        prefix = self.runner.prefill([g[0].prompt for g in groups], hidden=True)
        width = int(prefix.lengths_B.max())
        rows = [(row, i) for i, group in enumerate(groups) for row in group]
        # The cache of the prompt counts too: rows of a long prompt are few, however short their responses.
        for batch in _cut(rows, lambda pair: len(pair[0].response) + width // 4, self.batch_tokens):
            prompt_B = self._moved(torch.tensor([i for _, i in batch]))
            assert prefix.hidden_BH is not None
            hidden_BTH = prefix.hidden_BH[prompt_B][:, None]
            if max(len(row.response) for row, _ in batch) > 1:
                ids_BT = self._padded([row.response[:-1] or (0,) for row, _ in batch])
                positions_BT = prefix.lengths_B[prompt_B][:, None] + torch.arange(ids_BT.shape[1], device=ids_BT.device)
                mask_BT = None
                if prefix.mask_BT is not None:  # prompts are padded on the left, and that must be told
                    mask_BT = torch.cat([prefix.mask_BT[prompt_B], torch.ones_like(ids_BT)], dim=1)
                cache = rows_of(prefix.cache, prompt_B, ids_BT.shape[1])
                rest_BTH = self.runner.hidden(ids_BT, mask_BT, positions_BT, cache)
                hidden_BTH = torch.cat([hidden_BTH, rest_BTH], dim=1)
            yield self._project(hidden_BTH, [row for row, _ in batch], [0] * len(batch))

    def _whole(self, rows: list[_Row]) -> Iterator[Part]:
        """For models that do more to logits than an output layer: their own logits, in small batches."""
        for batch in _cut(rows, lambda r: len(r.prompt) + len(r.response), self.chunk):
            ids_BT, mask_BT = pad_right([(r.prompt + r.response)[:-1] for r in batch], self.runner.device)
            logits_BTV = self.runner.full_logits(ids_BT, mask_BT)
            for i, row in enumerate(batch):
                start = len(row.prompt) - 1
                own_TV = logits_BTV[i, start : start + len(row.response)]
                yield [row], self._values(own_TV, torch.tensor(row.response, device=own_TV.device))

    def _project(self, hidden_BTH: torch.Tensor, rows: Sequence[_Row], starts: Sequence[int]) -> Part:
        """Log-probabilities of the responses whose states begin at `starts`."""
        width = hidden_BTH.shape[1]
        places = [
            np.arange(i * width + s, i * width + s + len(r.response)) for i, (r, s) in enumerate(zip(rows, starts))
        ]
        hidden_NH = hidden_BTH.flatten(0, 1)[self._moved(torch.from_numpy(np.concatenate(places)))]
        return rows, self.head(hidden_NH, self._moved(torch.tensor([t for r in rows for t in r.response])))

    def _padded(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        """Token ids (B, T) on the model's device, zeros on the right."""
        ids_BT = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
        for own_T, row in zip(ids_BT, rows, strict=True):
            own_T[: len(row)] = row
        return self._moved(torch.from_numpy(ids_BT))

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """On the model's device. A plain copy to a GPU waits for all that it still has to do; one of pinned memory
        does not."""
        if self.runner.device.type != "cuda":
            return tensor.to(self.runner.device)
        return tensor.pin_memory().to(self.runner.device, non_blocking=True)

    def _logits_head(self, hidden_NH: torch.Tensor, targets_N: torch.Tensor) -> torch.Tensor:
        """The model's own output layer, one chunk of tokens at a time."""
        parts = [
            self._values(self.runner.head(hidden_NH[i : i + self.chunk]), targets_N[i : i + self.chunk])
            for i in range(0, len(targets_N), self.chunk)
        ]
        return torch.cat(parts)

    def _values(self, logits_NV: torch.Tensor, targets_N: torch.Tensor) -> torch.Tensor:
        """What is kept of each row of logits."""
        return _chosen(logits_NV, targets_N)


def _by_prompt(rows: list[_Row]) -> tuple[list[list[_Row]], list[_Row]]:
    """Groups of responses that share a prompt worth running once, and the rows that stand alone."""
    groups: dict[tuple[int, ...], list[_Row]] = defaultdict(list)
    for row in rows:
        groups[row.prompt].append(row)
    shared = [g for g in groups.values() if len(g) > 1]
    return shared, [g[0] for g in groups.values() if len(g) == 1]


def _cut(items: Iterable[Item], size: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """Batches of items of like size, largest first, each of at most `limit` when padded (or of one item)."""
    batch: list[Item] = []
    widest = 0
    for item in sorted(items, key=size, reverse=True):
        if batch and (len(batch) + 1) * widest > limit:
            yield batch
            batch = []
        if not batch:
            widest = size(item)
        batch.append(item)
    if batch:
        yield batch


def _chosen(logits_NV: torch.Tensor, targets_N: torch.Tensor) -> torch.Tensor:
    # One fused pass in float32, whatever the logits are in; logsumexp by itself is several.
    logs_NV = torch.log_softmax(logits_NV, dim=-1, dtype=torch.float32)
    return (-torch.nn.functional.nll_loss(logs_NV, targets_N, reduction="none")).clamp(max=0.0)
