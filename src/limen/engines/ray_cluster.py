"""An engine spread over a Ray cluster: actors hold engines, samples stream to the driver, which writes the run folder.

No disk is shared and nothing is kept in the cluster. A worker that dies (killed, out of memory, its machine lost) is
opened again, elsewhere if need be, and what it had not reported is drawn again, the same, because seeds decide. If the
cluster itself is lost, the same command goes on from the run folder.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.config import SampleSettings
from limen.engines.process_worker import about, grouped
from limen.engines.protocol import Engine, Sample, SampleRequest, ScoreRequest
from limen.engines.spread import About, SpreadEngine, WorkerDied
from limen.errors import ConfigError, LimenError, MissingExtra, ModelError
from limen.types import SamplingParams

log = logging.getLogger(__name__)

Reply = tuple[str, Any]


class Held:
    """What an actor is: an engine, made at first use by `factory`. Errors go back as text, because a class of errors
    need not be known, or survive a pickle, on the other side."""

    def __init__(self, factory: Callable[[], Engine]) -> None:
        self._factory = factory
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = self._factory()
        return self._engine

    def about(self) -> Reply:
        try:
            return "ok", about(self.engine)
        except LimenError as error:
            return "error", str(error)

    def sample(self, requests: list[SampleRequest], params: SamplingParams) -> Iterator[Reply]:
        try:
            for group in grouped(self.engine.sample(requests, params)):
                yield "ok", group
        except LimenError as error:
            yield "error", str(error)

    def score(self, requests: list[ScoreRequest]) -> Reply:
        try:
            return "ok", self.engine.score(requests)
        except LimenError as error:
            return "error", str(error)

    def pid(self) -> int:
        return os.getpid()


class RayWorker:
    """The driver's side of one actor."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self._about: About | None = None

    def about(self) -> About:
        if self._about is None:
            self._about = self._get(self.actor.about.remote())
        assert self._about is not None
        return self._about

    def sample(self, requests: list[SampleRequest], params: SamplingParams) -> Iterator[list[Sample]]:
        import ray

        replies = self.actor.sample.options(num_returns="streaming").remote(requests, params)
        while True:
            try:
                ref = next(replies)
            except StopIteration:
                return
            except ray.exceptions.RayError as error:
                raise WorkerDied(_line(error)) from error
            yield self._get(ref)

    def score(self, requests: list[ScoreRequest]) -> list[NDArray[np.float32]]:
        scores: list[NDArray[np.float32]] = self._get(self.actor.score.remote(requests))
        return scores

    def close(self) -> None:
        import ray

        if ray.is_initialized():
            ray.kill(self.actor)

    def _get(self, ref: Any) -> Any:
        import ray

        try:
            kind, value = ray.get(ref)
        except ray.exceptions.RayTaskError:
            raise  # a bug in the engine, with the worker's traceback
        except ray.exceptions.RayError as error:
            raise WorkerDied(_line(error)) from error
        if kind == "error":
            raise ModelError(value)
        return value


class RayEngine(SpreadEngine):
    """factory: makes the engine inside a worker; it must pickle. workers: their number; where it is None, one for each
    GPU of the cluster (each core where there is none), more as nodes join. gpus, cpus: what a worker takes."""

    def __init__(
        self,
        factory: Callable[[], Engine],
        tokenizer: Any,
        workers: int | None = None,
        cpus: float = 1,
        gpus: float = 0,
    ) -> None:
        ray = _ray()
        actor = ray.remote(Held).options(
            num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        possible = functools.partial(_possible, "GPU" if gpus else "CPU", gpus or cpus)
        super().__init__(
            lambda slot: RayWorker(actor.remote(factory)),
            workers or max(1, possible()),
            tokenizer,
            None if workers else possible,
        )

    @classmethod
    def start(cls, settings: SampleSettings) -> RayEngine:
        """Join the cluster (or start a local one) and put the engine of these settings into its workers."""
        from limen.models import load_tokenizer

        join(settings.ray_address, settings.workers)
        tokenizer = load_tokenizer(settings.tokenizer or settings.model, settings.trust_remote_code)
        gpus = 1 if _possible("GPU", 1) and settings.device != "cpu" else 0
        return cls(factory_of(settings), tokenizer, settings.workers, gpus=gpus)


def factory_of(settings: SampleSettings) -> Callable[[], Engine]:
    """What makes the engine of these settings in a worker, which has one GPU at most."""
    one: dict[str, Any] = {"ray": False, "ray_address": None, "workers": None}
    if settings.engine == "vllm":
        one |= {"gpus": 1}
    return functools.partial(_make, {**settings.model_dump(mode="json"), **one})


def _make(settings: dict[str, Any]) -> Engine:
    from limen.sampling.engine import local_engine

    return local_engine(SampleSettings.make(**settings))


def join(address: str | None, workers: int | None = None) -> None:
    """Connect to the cluster at `address` ("auto": the one this machine belongs to), or start a local one. Where this
    process is connected already, that is kept. Raises `ConfigError` where there is none."""
    ray = _ray()
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        # Workers of a local cluster import what this process imports.
        paths = os.pathsep.join(p for p in sys.path if p)
        options |= {"runtime_env": {"env_vars": {"PYTHONPATH": paths}}, "num_cpus": max(workers or 1, _cores())}
    else:
        options = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"no Ray cluster at '{address or 'this machine'}': {_line(error)}") from error


def _possible(kind: str, each: float) -> int:
    """Workers that the cluster has room for as it is now."""
    return int(_ray().cluster_resources().get(kind, 0) // each)


def _cores() -> int:
    return os.cpu_count() or 1


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray", "a run over a Ray cluster") from error
    return ray


def _line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


__all__: Sequence[str] = ["Held", "RayEngine", "RayWorker", "factory_of", "join"]
