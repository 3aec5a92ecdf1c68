"""One engine out of many workers: work is dealt in chunks, results stream back, a dead worker's rest is dealt again.

What a worker is (a process for a GPU, an actor of a Ray cluster) is behind `Worker`. Since a response is a function of
its seed, who draws it does not matter, and a chunk that two workers happened to draw is the same twice.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from limen.engines.batching import remaining
from limen.engines.protocol import Capabilities, Sample, SampleRequest, ScoreRequest
from limen.engines.requests_check import check_requests
from limen.errors import LimenError, ModelError
from limen.types import SamplingParams

log = logging.getLogger(__name__)

CHUNKS_PER_WORKER = 4
LEAST, MOST = 32, 16_384
"""Samples of a chunk: few enough that all workers end together, enough to fill an engine's batch."""
EVERY = 5.0
"""Seconds after which it is asked whether more workers could be had."""
PATIENCE = 3
"""So often a chunk may be with a worker that dies before it is taken for the cause."""


class WorkerDied(Exception):
    """The worker is gone (killed, out of memory, its machine lost); what it has not reported is to be done again."""


@dataclass(frozen=True)
class About:
    """What a worker says of its engine."""

    name: str
    capabilities: Capabilities
    context: int | None
    vocabulary: int | None


class Worker(Protocol):
    """An engine elsewhere. Every method may raise `WorkerDied`, or the `LimenError` that the engine raised."""

    def about(self) -> About: ...

    def sample(self, requests: list[SampleRequest], params: SamplingParams) -> Iterator[list[Sample]]:
        """Finished responses in groups, as they come."""
        ...

    def score(self, requests: list[ScoreRequest]) -> list[NDArray[np.float32]]: ...

    def close(self) -> None: ...


@dataclass
class _Chunk:
    number: int
    items: list[Any]
    deaths: int = 0


class _Deal:
    """The chunks of one call: those that wait for a worker, and what the workers' threads say of the others.

    events: ("result", what a chunk yielded), ("done", chunk), ("died", (slot, its chunk or None, error)), ("error", e).
    """

    def __init__(self, chunks: list[_Chunk], work: Callable[[Worker, _Chunk], Iterator[Any]]) -> None:
        self.waiting, self.work = deque(chunks), work
        self.lock, self.stop = threading.Lock(), threading.Event()
        self.events: queue.Queue[tuple[str, Any]] = queue.Queue()

    def serve(self, worker: Worker, held: list[_Chunk]) -> None:
        """Give a worker one chunk after the other until the call ends; `held` has the one that it is at."""
        while not self.stop.is_set():
            with self.lock:
                held[:] = [self.waiting.popleft()] if self.waiting else []
            if not held:
                self.stop.wait(0.05)
                continue
            for result in self.work(worker, held[0]):
                self.events.put(("result", result))
                if self.stop.is_set():
                    return
            self.events.put(("done", held.pop()))


class SpreadEngine:
    """An engine whose `count` workers are opened by `open_worker(slot)`, and opened again where they die.

    tokenizer: the model's. grow: asked while work waits, for how many workers there could be by now (a cluster that
    nodes join); never shrinks.
    """

    def __init__(
        self,
        open_worker: Callable[[int], Worker],
        count: int,
        tokenizer: Any,
        grow: Callable[[], int] | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self._open, self._grow = open_worker, grow
        self._threads: list[threading.Thread] = []
        self._locks: dict[int, threading.Lock] = {}
        self._workers: dict[int, Worker | None] = dict.fromkeys(range(count))
        first = self._workers[0] = open_worker(0)
        try:
            about = first.about()
        except WorkerDied as error:
            raise ModelError(
                f"the first worker died before it could begin ({error}): what it printed says why; not enough "
                "memory for the model is the usual cause"
            ) from error
        self.name, self.capabilities = about.name, about.capabilities
        self.context, self.vocabulary = about.context, about.vocabulary
        self.deaths = self._bad_starts = 0

    # -- engine --------------------------------------------------------------------------------------------

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> Iterator[Sample]:
        """Yield each response once, as workers report it; see `limen.engines.protocol.Engine.sample`."""
        check_requests(requests, params, self.context, self.vocabulary)
        return self._sample([r for r in requests if r.sample_indices], params)

    def _sample(self, requests: list[SampleRequest], params: SamplingParams) -> Iterator[Sample]:
        done: set[tuple[str, int]] = set()
        chunks = [_Chunk(i, part) for i, part in enumerate(deal(requests, self._size(requests)))]

        def work(worker: Worker, chunk: _Chunk) -> Iterator[list[Sample]]:
            return worker.sample(chunk.items, params)

        def rest(chunk: _Chunk) -> list[Any]:
            return remaining(chunk.items, done)

        for samples in self._run(chunks, work, rest):
            for sample in samples:
                key = (sample.problem_id, sample.sample_index)
                if key not in done:
                    done.add(key)
                    yield sample
        missing = sum(len(r.sample_indices) for r in remaining(requests, done))
        if missing:
            raise RuntimeError(f"workers reported all their work as done, but {missing} responses did not arrive")

    def score(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """Per-token log-probabilities, in the order of the requests."""
        size = max(1, min(MOST, -(-len(requests) // (CHUNKS_PER_WORKER * len(self._workers)))))
        parts = [list(requests[i : i + size]) for i in range(0, len(requests), size)]
        found: dict[int, list[NDArray[np.float32]]] = {}

        def work(worker: Worker, chunk: _Chunk) -> Iterator[tuple[int, list[NDArray[np.float32]]]]:
            yield chunk.number, worker.score(chunk.items)

        for number, scores in self._run([_Chunk(i, p) for i, p in enumerate(parts)], work, lambda c: c.items):
            found[number] = scores
        return [score for i in range(len(parts)) for score in found[i]]

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers.values():
            if worker is not None:
                worker.close()
        for thread in self._threads:
            thread.join(timeout=5)
        self._workers, self._threads = dict.fromkeys(self._workers), []

    # -- dealing -------------------------------------------------------------------------------------------

    def _size(self, requests: Sequence[SampleRequest]) -> int:
        total = sum(len(r.sample_indices) for r in requests)
        return max(LEAST, min(MOST, -(-total // (CHUNKS_PER_WORKER * len(self._workers)))))

    def _run(
        self,
        chunks: list[_Chunk],
        work: Callable[[Worker, _Chunk], Iterator[Any]],
        rest: Callable[[_Chunk], list[Any]],
    ) -> Iterator[Any]:
        """Yield what `work` yields for every chunk. One thread for each worker, which opens it where there is none."""
        deal = _Deal(chunks, work)
        for slot in list(self._workers):
            self._start(slot, deal)
        left, asked = len(chunks), time.monotonic()
        try:
            while left:
                if time.monotonic() - asked > EVERY:
                    asked = time.monotonic()
                    self._join(deal)
                try:
                    kind, value = deal.events.get(timeout=EVERY)
                except queue.Empty:
                    continue
                if kind == "result":
                    yield value
                elif kind == "done":
                    left -= 1
                elif kind == "died":
                    slot, chunk, error = value
                    if chunk is None:
                        self._count_start(error)
                    else:
                        left -= self._bury(chunk, error, rest, deal)
                    self._start(slot, deal)
                else:
                    raise value
        finally:
            deal.stop.set()

    def _start(self, slot: int, deal: _Deal) -> None:
        """A thread that works for the slot until the call ends or the worker dies."""
        self._workers.setdefault(slot, None)
        self._locks.setdefault(slot, threading.Lock())
        thread = threading.Thread(target=self._serve, args=(slot, deal), name=f"limen-worker-{slot}", daemon=True)
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()

    def _serve(self, slot: int, deal: _Deal) -> None:
        # One that still waits for an answer which nobody wants any more lets go of the worker when it comes.
        while not self._locks[slot].acquire(timeout=0.2):
            if deal.stop.is_set():
                return
        ended = False
        held: list[_Chunk] = []
        try:
            # Opened before it is given anything: one that a cluster has no place for yet must not hold up work.
            worker = self._workers[slot] = self._workers[slot] or self._open(slot)
            worker.about()
            deal.serve(worker, held)
            ended = True
        except WorkerDied as error:
            self._workers[slot], ended = None, True
            deal.events.put(("died", (slot, held[0] if held else None, error)))
        except LimenError as error:
            ended = True
            deal.events.put(("error", error))
        finally:
            self._locks[slot].release()
            if not ended:  # a bug must reach the caller, whatever it is
                failed = RuntimeError(f"the thread of worker {slot} failed; its traceback is above")
                deal.events.put(("error", failed))

    def _join(self, deal: _Deal) -> None:
        """Let workers that could be had since the start work too."""
        if self._grow is not None and deal.waiting:
            for slot in range(len(self._workers), self._grow()):
                self._start(slot, deal)

    def _count_start(self, error: WorkerDied) -> None:
        self.deaths += 1
        self._bad_starts += 1
        log.warning("a worker died without work (%s)", error)
        if self._bad_starts >= PATIENCE * len(self._workers):
            raise ModelError(
                f"{self._bad_starts} workers died before they could begin ({error}): see the log of that machine. What "
                "was reported is stored; the same command goes on"
            )

    def _bury(self, chunk: _Chunk, error: WorkerDied, rest: Callable[[_Chunk], list[Any]], deal: _Deal) -> int:
        """Put what is left of a dead worker's chunk first in line; 1 if nothing is left of it."""
        self.deaths += 1
        items = rest(chunk)
        log.warning("a worker died (%s); %s", error, "its rest is done again" if items else "it had reported all")
        if not items:
            return 1
        deaths = chunk.deaths + 1 if _count(items) == _count(chunk.items) else 1
        if deaths >= PATIENCE:
            raise ModelError(
                f"{deaths} workers died one after the other over the same work without a result ({error}): not enough "
                "memory for the model is the usual cause. What was reported is stored; the same command goes on"
            )
        with deal.lock:
            deal.waiting.appendleft(_Chunk(chunk.number, items, deaths))
        return 0


def _count(items: Sequence[Any]) -> int:
    """Responses that a chunk's items ask for."""
    return sum(len(item.sample_indices) if isinstance(item, SampleRequest) else 1 for item in items)


def deal(requests: Sequence[SampleRequest], size: int) -> list[list[SampleRequest]]:
    """Requests in groups of about `size` samples; the samples of one prompt stay together as far as that allows."""
    chunks: list[list[SampleRequest]] = []
    room = 0
    for request in requests:
        start = 0
        while start < len(request.sample_indices):
            if room == 0:
                chunks.append([])
                room = size
            end = min(len(request.sample_indices), start + room)
            chunks[-1].append(
                SampleRequest(request.prompt, request.sample_indices[start:end], request.seeds[start:end])
            )
            room -= end - start
            start = end
    return chunks
