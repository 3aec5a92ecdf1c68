"""Judging many responses: cheap cases here and now, everything else in killable processes."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import LifoQueue
from types import TracebackType
from typing import Any, Self

from limen.types import Rollout, Verdict, content_hash
from limen.verify.base import MAX_STORED_ANSWER, Decision, Verifier
from limen.verify.extract import JOIN
from limen.verify.processes import Worker, Zygote
from limen.verify.registry import resolve, split_noise

_LONG_TEXT = 1 << 18
"""Responses of more characters are read in a worker, so that no text can hold up the caller."""
_CHUNK = 32
_CHUNK_BYTES = 1 << 15
_REMEMBERED = 200_000


@dataclass(frozen=True, slots=True)
class JudgeItem:
    """One response to be judged. `metadata` is the problem's (choices, a Reasoning Gym entry, unit tests).
    A `truncated` response has no answer, whatever it says. `sample` names this very sample among equal responses; only
    noise that is drawn per sample looks at it."""

    gold: str
    response: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    truncated: bool = False
    sample: str = ""


def sample_name(rollout: Rollout) -> str:
    """`JudgeItem.sample` of a stored rollout: its key in the run."""
    return f"{rollout.problem_id}/{rollout.policy}/{rollout.step}/{rollout.sample_index}"


_Key = tuple[str, str, str]


class VerifierPool:
    """A verifier with its worker processes. Use it from any thread; close it, or use it as a context manager.

    `verifier`: a name, or a mapping with `name`, its settings, and optionally `noise`. `workers`: processes, by
    default one per core up to 8; none is started before one is needed. `deadline`: wall-clock seconds for one
    answer, after which it is `unjudged` (rule `timeout`) and its process is killed and replaced. `memory_mb`: what
    one worker may map on top of its own code (rule `memory`). Equal (gold, answer, metadata) are judged once.

    Raises `ConfigError` for an unknown verifier or setting.
    """

    def __init__(
        self,
        verifier: str | Mapping[str, Any] = "math",
        workers: int | None = None,
        deadline: float = 5.0,
        memory_mb: int = 1024,
    ) -> None:
        spec = {"name": verifier} if isinstance(verifier, str) else dict(verifier)
        self._spec, self._noise = split_noise(spec)
        self._verifier: Verifier = resolve(self._spec)
        self._version = self._verifier.version
        self.workers = workers or min(8, os.cpu_count() or 1)
        self.deadline = deadline
        self.memory_mb = memory_mb
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, Decision] = OrderedDict()
        self._processes: _Processes | None = None

    @property
    def version(self) -> str:
        """Name and revision of what judges, "math@1"; it changes whenever judging does."""
        return self._version + (self._noise.suffix if self._noise else "")

    def judge_many(self, items: Iterable[JudgeItem]) -> list[Verdict]:
        """One verdict per item, in the same order. Never raises for what a response holds."""
        items = list(items)
        verdicts: list[Verdict | None] = [None] * len(items)
        waiting: OrderedDict[_Key, tuple[dict[str, Any], list[int], str]] = OrderedDict()
        for i, item in enumerate(items):
            verdicts[i] = self._judge_here(i, item, waiting)
        if waiting:
            jobs = [job for job, _, _ in waiting.values()]
            for (key, (_, places, answer)), decision in zip(waiting.items(), self._judge_there(jobs), strict=True):
                self._remember(key, decision)
                for i in places:
                    verdicts[i] = self._verdict(decision, answer)
        done = [v for v in verdicts if v is not None]
        assert len(done) == len(items)
        if self._noise:
            return [self._noise.apply(item, verdict) for item, verdict in zip(items, done, strict=True)]
        return done

    def judge(self, gold: str, response: str, metadata: Mapping[str, Any] | None = None) -> Verdict:
        """Verdict on one response."""
        return self.judge_many([JudgeItem(gold, response, metadata or {})])[0]

    def understands(self, gold: str) -> bool:
        """False for a gold answer that the verifier can match as text only (or through another library)."""
        return self._verifier.understands(gold)

    def _judge_here(
        self, i: int, item: JudgeItem, waiting: OrderedDict[_Key, tuple[dict[str, Any], list[int], str]]
    ) -> Verdict | None:
        """The verdict, or None after the item was put with those that wait for a worker."""
        if item.truncated:
            return self._verdict(Decision("no_answer", "truncated"), "")
        answer: str | None = None
        if len(item.response) <= _LONG_TEXT:
            answer, rule = self._verifier.extract(item.response, item.metadata)
            if answer is None:
                return self._verdict(Decision("no_answer", rule), "")
            decision = self._verifier.quick(item.gold, answer, item.metadata)
            if decision is not None:
                return self._verdict(decision, answer)
        key = (item.gold, "\0" + item.response if answer is None else answer, _hash(item.metadata))
        with self._lock:
            known = self._known.get(key)
        if known is not None:
            return self._verdict(known, answer or "")
        if key in waiting:
            waiting[key][1].append(i)
        else:
            job = {"g": item.gold, "a": answer, "m": dict(item.metadata)}
            if answer is None:
                job["t"] = item.response
            waiting[key] = (job, [i], answer or "")
        return None

    def _verdict(self, decision: Decision, answer: str) -> Verdict:
        shown = answer.replace(JOIN, ", ") if decision.answer is None else decision.answer
        return Verdict(decision.outcome, shown[:MAX_STORED_ANSWER], decision.rule, self._version)

    def _remember(self, key: _Key, decision: Decision) -> None:
        with self._lock:
            self._known[key] = decision
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    def _judge_there(self, jobs: Sequence[Mapping[str, Any]]) -> list[Decision]:
        with self._lock:
            if self._processes is None or self._processes.owner != os.getpid():
                self._processes = _Processes(self._spec, self.workers, self.deadline, self.memory_mb)
            processes = self._processes
        return [Decision(r["o"], r["r"], r.get("a")) for r in processes.judge(jobs)]

    def close(self) -> None:
        """End all processes. The pool starts new ones if it is used again."""
        with self._lock:
            processes, self._processes = self._processes, None
        if processes is not None and processes.owner == os.getpid():
            processes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Processes:
    """Threads of the caller, each of which drives one worker process. Belongs to the process that made it."""

    def __init__(self, spec: Mapping[str, Any], workers: int, deadline: float, memory_mb: int) -> None:
        self.owner = os.getpid()
        self._zygote = Zygote(spec, memory_mb)
        self._idle: LifoQueue[Worker] = LifoQueue()
        self._workers = [Worker(self._zygote, deadline) for _ in range(workers)]
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="limen-verify")

    def judge(self, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        futures: list[Future[list[dict[str, Any]]]] = [self._threads.submit(self._run, c) for c in _chunks(jobs)]
        try:
            return [reply for future in futures for reply in future.result()]
        finally:
            for future in futures:
                future.cancel()

    def _run(self, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        worker = self._idle.get()
        try:
            return worker.judge(jobs)
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.discard()
        self._zygote.close()


def _chunks(jobs: Sequence[Mapping[str, Any]]) -> Iterable[Sequence[Mapping[str, Any]]]:
    """Runs of jobs that are few and small enough to be sent at once."""
    start, size = 0, 0
    for i, job in enumerate(jobs):
        cost = len(job["g"]) + len(job["a"] or job.get("t", "")) + (1000 if job["m"] else 0)
        if i > start and (i - start >= _CHUNK or size + cost > _CHUNK_BYTES):
            yield jobs[start:i]
            start, size = i, 0
        size += cost
    if start < len(jobs):
        yield jobs[start:]


def _hash(metadata: Mapping[str, Any]) -> str:
    return content_hash(dict(metadata)) if metadata else ""


_shared: dict[str, VerifierPool] = {}
_shared_lock = threading.Lock()


def judge(
    gold: str,
    response: str,
    verifier: str | Mapping[str, Any] = "math",
    metadata: Mapping[str, Any] | None = None,
) -> Verdict:
    """Verdict on one response: `.outcome` ("correct", "wrong", "no_answer", "unjudged"), `.answer`, `.rule`.

    Uses a pool that lives as long as the process, with one worker, a deadline of 5 s and 1 GiB. For many responses
    use `VerifierPool`. Raises `ConfigError` for an unknown verifier or setting.
    """
    name = verifier if isinstance(verifier, str) else content_hash(dict(verifier))
    with _shared_lock:
        pool = _shared.get(name)
        if pool is None:
            pool = _shared[name] = VerifierPool(verifier, workers=1)
    return pool.judge(gold, response, metadata)
