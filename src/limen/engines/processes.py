"""Workers of `limen.engines.spread` as processes of this machine: one for each GPU."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.config import SampleSettings
from limen.engines import wire
from limen.engines.protocol import Sample, SampleRequest, ScoreRequest
from limen.engines.spread import About, SpreadEngine, WorkerDied
from limen.errors import ConfigError, ModelError
from limen.types import SamplingParams


class ProcessWorker:
    """An engine for `settings` in a process of its own, started with `env` on top of this process's environment."""

    def __init__(self, settings: SampleSettings, env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        paths = os.pathsep.join(p for p in sys.path if p)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "limen.engines.process_worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths, **env},
        )
        theirs.close()
        self._socket = ours
        self._file = ours.makefile("rwb")
        self._messages = wire.receive(self._file)
        self._about: About | None = None
        self._number = 0
        self._say({"settings": settings.model_dump(mode="json")})

    def about(self) -> About:
        if self._about is None:
            self._about = wire.about_from(self._hear()["about"])
        return self._about

    def sample(self, requests: list[SampleRequest], params: SamplingParams) -> Iterator[list[Sample]]:
        self.about()
        self._ask({"do": "sample", "requests": wire.requests_to(requests), "params": wire.params_to(params)})
        while "samples" in (reply := self._answer()):
            yield wire.samples_from(reply["samples"])

    def score(self, requests: list[ScoreRequest]) -> list[NDArray[np.float32]]:
        self.about()
        self._ask({"do": "score", "requests": wire.pairs_to(requests)})
        scores = wire.scores_from(self._answer()["scores"])
        self._answer()
        return scores

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self._socket.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _ask(self, message: dict[str, Any]) -> None:
        self._number += 1
        self._say({**message, "number": self._number})

    def _answer(self) -> dict[str, Any]:
        """The next reply to the last question; what is left of one that was given up is passed over."""
        number = self._number
        while (reply := self._hear()).get("number") != number:
            pass
        if "error" in reply:
            raise ModelError(reply["error"])
        return reply

    def _say(self, message: dict[str, Any]) -> None:
        try:
            wire.send(self._file, message)
        except OSError as error:
            raise self._died() from error

    def _hear(self) -> dict[str, Any]:
        try:
            message = next(self._messages, None)
        except OSError:
            message = None
        if message is None:
            raise self._died()
        if "error" in message and "number" not in message:
            raise ModelError(message["error"])
        return message

    def _died(self) -> WorkerDied:
        self.close()
        return WorkerDied(f"process {self.process.pid} ended with {self.process.returncode}")


def spread_over_gpus(settings: SampleSettings, count: int) -> SpreadEngine:
    """An engine in a process for each of the first `count` visible GPUs. `ConfigError` for more than there are."""
    import torch

    from limen.models import load_tokenizer

    seen = torch.cuda.device_count()
    if count > seen:
        raise ConfigError(f"gpus is {count}, but {seen} are visible: give at most as many")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",") if visible else [str(i) for i in range(count)]
    one = settings.model_copy(update={"gpus": 1})

    def open_worker(slot: int) -> ProcessWorker:
        return ProcessWorker(one, {"CUDA_VISIBLE_DEVICES": gpus[slot]})

    return SpreadEngine(open_worker, count, load_tokenizer(settings.model, settings.trust_remote_code))
