"""A process that holds one engine and works for another process: `python -m limen.engines.process_worker FD`.

The first message it reads is the run's settings; it answers with what its engine is, and then does what it is told.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from limen.config import SampleSettings
from limen.engines import wire
from limen.engines.protocol import Engine, Sample
from limen.engines.spread import About
from limen.errors import LimenError

GROUP_SECONDS, GROUP_MOST = 0.2, 256
"""Finished responses are reported together, but none waits longer."""


def grouped(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    """Samples in groups, as they come."""
    group: list[Sample] = []
    since = time.monotonic()
    for sample in samples:
        group.append(sample)
        if len(group) >= GROUP_MOST or time.monotonic() - since >= GROUP_SECONDS:
            yield group
            group, since = [], time.monotonic()
    if group:
        yield group


def about(engine: Engine) -> About:
    """What an engine is, for the other side."""
    vocabulary = getattr(engine, "vocabulary", None) or getattr(getattr(engine, "runner", None), "vocabulary", None)
    return About(engine.name, engine.capabilities, getattr(engine, "context", None), vocabulary)


def answer(engine: Engine, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Messages that answer one."""
    if message["do"] == "sample":
        requests, params = wire.requests_from(message["requests"]), wire.params_from(message["params"])
        for group in grouped(engine.sample(requests, params)):
            yield {"samples": wire.samples_to(group)}
    else:
        yield {"scores": wire.scores_to(engine.score(wire.pairs_from(message["requests"])))}
    yield {"end": True}


def main() -> None:
    """Serve until the other side closes the socket, or is gone. Ctrl-C is the other side's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        _serve()


def _serve() -> None:
    from limen.sampling.engine import local_engine

    with socket.socket(fileno=int(sys.argv[1])) as link, link.makefile("rwb") as file:
        messages = wire.receive(file)
        try:
            engine = local_engine(SampleSettings(**next(messages)["settings"]))
        except LimenError as error:
            wire.send(file, {"error": str(error)})
            return
        wire.send(file, {"about": wire.about_to(about(engine))})
        for message in messages:
            try:
                for reply in answer(engine, message):
                    wire.send(file, {**reply, "number": message["number"]})
            except LimenError as error:
                wire.send(file, {"error": str(error), "number": message["number"]})


if __name__ == "__main__":
    main()
