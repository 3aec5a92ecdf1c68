"""Responses in slots: finished ones are read out every few steps and new ones take their place.

The host decides what has ended, and from it which slots are free; the device only draws (`limen.engines.stepper`).
A response runs on for a few tokens after its end until the host looks, and those are thrown away.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limen.engines.protocol import Sample, SampleRequest
from limen.engines.stepper import Drawn, Prompts, Stepper
from limen.engines.stops import StopStrings
from limen.errors import ModelError
from limen.types import FinishReason

REFILL = 0.125
"""Slots are filled again when this share of them is free: a prefill costs about as much as a step of all."""
LENGTHS = 64
ROWS = (8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)


def rows_bucket(rows: int, most: int) -> int:
    """Rows of the graph that decodes `rows` slots: few different ones, so that few graphs are captured."""
    return min(most, next((b for b in ROWS if b >= rows), most))


def length_bucket(length: int, capacity: int) -> int:
    """Tokens that attention looks at: a multiple of 64 at first, later of about an eighth of the length."""
    step = LENGTHS
    while length > 8 * step:
        step *= 2
    return min(capacity, -(-length // step) * step)


def steps_between(max_tokens: int) -> int:
    """Steps between two looks of the host: few where responses are short, because on average half are wasted."""
    return max(1, min(16, max_tokens // 8))


@dataclass
class Job:
    """One response to be drawn: position `at` of a request."""

    request: SampleRequest
    at: int


class SlotDecoding:
    """Draws the samples of some requests. `redo` holds what has to be drawn by the plain path afterwards."""

    def __init__(
        self,
        stepper: Stepper,
        requests: Sequence[SampleRequest],
        eos_ids: tuple[int, ...],
        stops: StopStrings,
        max_prompt_tokens: int,
    ) -> None:
        self.stepper, self.stops = stepper, stops
        self.max_tokens = stepper.params.max_tokens
        self.max_prompt_tokens = max_prompt_tokens
        self.eos = np.asarray(eos_ids, dtype=np.int64)
        longest = sorted(requests, key=lambda r: -len(r.prompt.token_ids))
        self.waiting = deque(Job(r, at) for r in longest for at in range(len(r.sample_indices)))
        rows = stepper.rows
        self.jobs: list[Job | None] = [None] * rows
        self.rows = 0
        self.have_B = np.zeros(rows, dtype=np.int64)
        self.tokens_BT = np.zeros((rows, self.max_tokens), dtype=np.int32)
        self.logprobs_BT = np.zeros(self.tokens_BT.shape, dtype=np.float32) if stepper.want_logprobs else None
        self.log_q_B = np.zeros(rows)
        self.redo: list[Job] = []
        self._kept: tuple[SampleRequest, Prompts, int] | None = None

    def run(self) -> Iterator[Sample]:
        """Yield each response as it is found to have ended."""
        while self.waiting or self._open():
            if self._refill_due():
                yield from self._refill()
            open_slots = self._open()
            if not open_slots:
                continue
            self._shrink(open_slots)
            yield from self._round()

    def _open(self) -> list[int]:
        return [slot for slot, job in enumerate(self.jobs) if job is not None]

    def _refill_due(self) -> bool:
        free = self.jobs.count(None)
        return bool(self.waiting) and (free == len(self.jobs) or free >= REFILL * len(self.jobs))

    def _refill(self) -> Iterator[Sample]:
        free = [slot for slot, job in enumerate(self.jobs) if job is None][: len(self.waiting)]
        while free:
            jobs, prompts, rows = self._next_prompts(len(free))
            slots, free = free[: len(jobs)], free[len(jobs) :]
            for slot, job in zip(slots, jobs, strict=True):
                self.jobs[slot] = job
                self.have_B[slot], self.log_q_B[slot] = 0, 0.0
            seeds = np.array([job.request.seeds[job.at] for job in jobs], dtype=np.uint64)
            yield from self._take(slots, self.stepper.start(slots, prompts, rows, seeds))
        self.rows = rows_bucket(1 + max(self._open(), default=0), self.stepper.rows)

    def _next_prompts(self, most: int) -> tuple[list[Job], Prompts, list[int]]:
        """Waiting jobs whose prompts fit one prefill, those prompts, and each job's row in them. A prompt that has
        more samples than there is room for is kept for the next time."""
        if self._kept is not None and self.waiting[0].request is self._kept[0]:
            request, prompts, row = self._kept
            jobs = self._pop(most, [request])
            return jobs, prompts, [row] * len(jobs)
        requests: list[SampleRequest] = []
        width = len(self.waiting[0].request.prompt.token_ids)
        for job in itertools.islice(self.waiting, most):
            if not requests or job.request is not requests[-1]:
                if requests and (len(requests) + 1) * width > self.max_prompt_tokens:
                    break
                requests.append(job.request)
        jobs = self._pop(most, requests)
        prompts = self.stepper.prefill([r.prompt.token_ids for r in requests])
        row_of = {id(r): i for i, r in enumerate(requests)}
        self._kept = (requests[-1], prompts, len(requests) - 1)
        return jobs, prompts, [row_of[id(job.request)] for job in jobs]

    def _pop(self, most: int, requests: Sequence[SampleRequest]) -> list[Job]:
        chosen = {id(r) for r in requests}
        jobs: list[Job] = []
        while self.waiting and len(jobs) < most and id(self.waiting[0].request) in chosen:
            jobs.append(self.waiting.popleft())
        return jobs

    def _shrink(self, open_slots: list[int]) -> None:
        """When nothing waits and half of the slots are free, the rest move together."""
        wanted = rows_bucket(len(open_slots), self.stepper.rows)
        if self.waiting or 2 * wanted > self.rows:
            return
        self.stepper.move(open_slots)
        count = len(open_slots)
        self.jobs = [self.jobs[s] for s in open_slots] + [None] * (len(self.jobs) - count)
        for array in (self.have_B, self.log_q_B, self.tokens_BT, self.logprobs_BT):
            if array is not None:
                array[:count] = array[open_slots]
        self.rows = wanted

    def _round(self) -> Iterator[Sample]:
        open_slots = self._open()
        left = max(self.max_tokens - int(self.have_B[slot]) for slot in open_slots)
        steps = min(self.stepper.steps, left)
        longest = max(self._length(slot) for slot in open_slots)
        length = length_bucket(longest + steps, self.stepper.capacity)
        drawn = self.stepper.draw(self.rows, length, steps)
        yield from self._take(list(range(self.rows)), drawn)

    def _length(self, slot: int) -> int:
        job = self.jobs[slot]
        assert job is not None
        return len(job.request.prompt.token_ids) + int(self.have_B[slot])

    def _take(self, slots: Sequence[int], drawn: Drawn) -> Iterator[Sample]:
        """Append what was drawn to the slots' responses; yield those that ended."""
        open_B = np.array([self.jobs[slot] is not None for slot in slots])
        if (drawn.bad_B & open_B).any():
            raise ModelError("the model's logits are not finite: its weights are broken, or the precision is too low")
        slot_B = np.asarray(slots)[open_B]
        new_BK = drawn.tokens_BK[open_B]
        have_B = self.have_B[slot_B]
        take_B, eos_B, stop_B = self._ends(slot_B, have_B, new_BK)
        own_BK = np.arange(new_BK.shape[1]) < take_B[:, None]
        row_N, k_N = np.nonzero(own_BK)
        place = slot_B[row_N], have_B[row_N] + k_N
        self.tokens_BT[place] = new_BK[row_N, k_N]
        if self.logprobs_BT is not None and drawn.logprobs_BK is not None:
            self.logprobs_BT[place] = drawn.logprobs_BK[open_B][row_N, k_N]
        self.log_q_B[slot_B] += np.where(own_BK, drawn.log_q_BK[open_B].astype(np.float64), 0.0).sum(axis=1)
        self.have_B[slot_B] = have_B + take_B
        done_B = eos_B | stop_B | (have_B + take_B == self.max_tokens)
        short_B = drawn.short_B[open_B]
        for slot in slot_B[done_B & short_B]:
            job = self.jobs[slot]
            assert job is not None
            self.redo.append(job)
            self.jobs[slot] = None
        ended: list[tuple[int, FinishReason]] = [
            (int(slot_B[i]), "eos" if eos_B[i] else "stop" if stop_B[i] else "length")
            for i in np.flatnonzero(done_B & ~short_B)
        ]
        yield from self._samples(ended)

    def _ends(
        self, slot_B: NDArray[np.int64], have_B: NDArray[np.int64], new_BK: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
        """How many of the new tokens belong to each response, and whether it ended by EOS or by a stop string."""
        room_B = np.minimum(new_BK.shape[1], self.max_tokens - have_B)
        eos_BK = np.isin(new_BK, self.eos) & (np.arange(new_BK.shape[1]) < room_B[:, None])
        eos_B: NDArray[np.bool_] = np.any(eos_BK, axis=1)
        take_B = np.where(eos_B, eos_BK.argmax(axis=1) + 1, room_B)
        stop_B = np.zeros(len(slot_B), dtype=bool)
        if self.stops.stop:
            look_BK = self.stops.may_complete[new_BK]
            for i in np.flatnonzero(look_BK.any(axis=1)):
                before = self.tokens_BT[slot_B[i], : have_B[i]].tolist()
                for k in np.flatnonzero(look_BK[i, : take_B[i]]):
                    if eos_BK[i, k]:
                        break
                    if self.stops.found([*before, *new_BK[i, : k + 1].tolist()]):
                        take_B[i], stop_B[i], eos_B[i] = k + 1, True, False
                        break
        return take_B, eos_B, stop_B

    def _samples(self, ended: list[tuple[int, FinishReason]]) -> Iterator[Sample]:
        rows_T = [self.tokens_BT[slot, : self.have_B[slot]].tolist() for slot, _ in ended]
        texts = self.stops.decode_many(rows_T)
        samples = []
        for (slot, reason), ids, text in zip(ended, rows_T, texts, strict=True):
            job = self.jobs[slot]
            assert job is not None
            self.jobs[slot] = None
            logprobs = None if self.logprobs_BT is None else tuple(self.logprobs_BT[slot, : len(ids)].tolist())
            samples.append(
                Sample(
                    problem_id=job.request.prompt.problem_id,
                    sample_index=job.request.sample_indices[job.at],
                    seed=job.request.seeds[job.at],
                    token_ids=tuple(ids),
                    text=(self.stops.cut(text) or "") if reason == "stop" else text,
                    finish_reason=reason,
                    logprobs=logprobs,
                    log_q=float(self.log_q_B[slot]),
                )
            )
        yield from samples
