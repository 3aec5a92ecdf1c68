"""Writes rollouts as they finish and their verdicts as they are judged, beside the sampling.

A verdict becomes visible after its rollout, never before: a run that is killed in between has rollouts without
verdicts, which the next start judges, and never a verdict for a response that will be drawn again.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from limen.store import Run
from limen.store.schema import rollout_row, verdict_row
from limen.types import Problem, Rollout, Verdict
from limen.verify import JudgeItem, VerifierPool, sample_name

JUDGE_AT_ONCE = 256
SHARD_ROWS = 8192
WAITING = 20_000
"""Responses that may wait for their verdict before sampling waits too."""


class Recorder:
    """Context manager: `add` rollouts from one thread; leaving it waits for the verdicts and writes all.

    pool: None stores without judging. guard: called before every write; what it raises ends the recording.
    `outcomes` counts verdicts, `correct` the correct ones of each problem, `truncated` responses cut at max_tokens.
    Leaving by an exception writes what is finished and leaves the rest of the judging to the next start.
    """

    def __init__(
        self,
        run: Run,
        problems: Mapping[str, Problem],
        pool: VerifierPool | None,
        seconds: float,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        self.problems, self.pool, self.seconds, self.guard = problems, pool, seconds, guard
        self.outcomes: Counter[str] = Counter()
        self.correct: Counter[str] = Counter()
        self.truncated = 0
        self._waiting = self._unwritten = 0
        self._rollouts = run.writer("rollouts", rows=sys.maxsize, seconds=float("inf"))
        self._verdicts = run.writer("verdicts", rows=sys.maxsize, seconds=float("inf"))
        self._judged: list[tuple[Rollout, Verdict]] = []
        self._lock = threading.Lock()
        self._flushed = time.monotonic()
        self._queue: queue.Queue[Rollout] = queue.Queue(WAITING)
        self._stop = threading.Event()
        self._end = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="limen-recorder")
        self._work: Future[None] | None = None

    def __enter__(self) -> Self:
        self._work = self._thread.submit(self._judge_all)
        return self

    def add(self, rollout: Rollout, stored: bool = False) -> None:
        """Store a rollout (unless it is `stored` already) and have it judged."""
        self._look_after_judging()
        with self._lock:
            self.truncated += rollout.truncated
            if not stored:
                self._rollouts.append(rollout_row(rollout))
                self._unwritten += 1
        if self.pool is not None:
            with self._lock:
                self._waiting += 1
            self._put(rollout)
        self._flush_when_due()

    def _put(self, rollout: Rollout) -> None:
        """Wait for room, but not for a thread that is gone."""
        while True:
            try:
                self._queue.put(rollout, timeout=1.0)
                return
            except queue.Full:
                self._look_after_judging()

    def _look_after_judging(self) -> None:
        """Raise here what ended the judging."""
        assert self._work is not None
        if self._work.done():
            self._work.result()

    def settle(self) -> None:
        """Wait until everything that was added is judged."""
        while self._waiting:
            self._look_after_judging()
            time.sleep(0.002)

    def flush(self) -> None:
        """Make durable what is finished: rollouts first, then the verdicts on them."""
        with self._lock:
            self._flushed = time.monotonic()
            self.guard()
            self._rollouts.flush()
            self._unwritten = 0
            while self._judged:
                self._verdicts.append(verdict_row(*self._judged[-1]))
                self._judged.pop()
            self._verdicts.flush()

    def _flush_when_due(self) -> None:
        # Written here and not by the writers, which know nothing of the guard.
        if self._unwritten >= SHARD_ROWS or time.monotonic() - self._flushed >= self.seconds:
            self.flush()

    def _judge_all(self) -> None:
        """Judge whatever waits, until told to end and nothing waits, or to stop at once."""
        while not self._stop.is_set():
            batch = self._take()
            if batch:
                self._judge(batch)
            elif self._end.is_set():
                return
            self._flush_when_due()

    def _take(self) -> list[Rollout]:
        batch: list[Rollout] = []
        try:
            batch.append(self._queue.get(timeout=0.2))
            while len(batch) < JUDGE_AT_ONCE:
                batch.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return batch

    def _judge(self, batch: list[Rollout]) -> None:
        assert self.pool is not None
        items = []
        for rollout in batch:
            problem = self.problems[rollout.problem_id]
            name = sample_name(rollout)
            items.append(JudgeItem(problem.answer, rollout.text, problem.metadata, rollout.truncated, name))
        verdicts = self.pool.judge_many(items)
        with self._lock:
            self._judged.extend(zip(batch, verdicts, strict=True))
            self.outcomes.update(v.outcome for v in verdicts)
            self.correct.update(r.problem_id for r, v in zip(batch, verdicts, strict=True) if v.outcome == "correct")
            self._waiting -= len(batch)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        (self._end if kind is None else self._stop).set()
        assert self._work is not None
        try:
            self._work.result()
        finally:
            self._thread.shutdown()
            self.flush()
