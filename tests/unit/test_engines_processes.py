"""The two ends of a worker process's socket, without a model: what is given up is passed over."""

import contextlib
import socket
import threading

import pytest

from limen.engines import exact, wire
from limen.engines.process_worker import about, answer
from limen.engines.processes import ProcessWorker
from limen.engines.protocol import SampleRequest, ScoreRequest
from limen.engines.spread import WorkerDied
from limen.errors import ModelError
from limen.types import Prompt, SamplingParams, derive_seed

PARAMS = SamplingParams(max_tokens=4)


def engine():
    return exact.ExactEngine(exact.ResponsesPolicy({"q=": {"ab": 0.5, "a": 0.3, "b": 0.2}}), logprobs=True)


def asks(n, seed=0):
    ids = tuple(engine().tokenizer.encode("q="))
    return [SampleRequest(Prompt("p", "q=", ids, ""), tuple(range(n)), tuple(derive_seed(seed, i) for i in range(n)))]


class Ended:
    pid, returncode = 1, -9

    def wait(self, timeout=None):
        return -9


@pytest.fixture
def worker():
    """A `ProcessWorker` whose process is a thread; `worker.cut()` is its death."""
    ours, theirs = socket.socketpair()
    made = ProcessWorker.__new__(ProcessWorker)
    made._socket, made._file = ours, ours.makefile("rwb")
    made._messages, made._about, made._number, made.process = wire.receive(made._file), None, 0, Ended()
    file = theirs.makefile("rwb")

    def serve():
        wire.send(file, {"about": wire.about_to(about(engine()))})
        with contextlib.suppress(OSError):
            reply_to_all(file)

    def reply_to_all(file):
        for message in wire.receive(file):
            if message["do"] == "score" and not message["requests"]:
                wire.send(file, {"error": "nothing to score", "number": message["number"]})
                continue
            for reply in answer(engine(), message):
                wire.send(file, {**reply, "number": message["number"]})

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    made.cut = lambda: theirs.shutdown(socket.SHUT_RDWR)
    yield made
    made.cut()
    thread.join(timeout=5)


def flat(groups):
    return [sample for group in groups for sample in group]


def test_it_draws_and_scores(worker):
    assert worker.about() == about(engine())
    samples = flat(worker.sample(asks(40), PARAMS))
    assert samples == list(engine().sample(asks(40), PARAMS))
    requests = [ScoreRequest(asks(1)[0].prompt.token_ids, s.token_ids) for s in samples[:5]]
    assert [s.tolist() for s in worker.score(requests)] == [s.tolist() for s in engine().score(requests)]


def test_a_stream_that_was_given_up_is_passed_over(worker):
    stream = worker.sample(asks(600), PARAMS)
    next(stream)
    stream.close()
    assert flat(worker.sample(asks(40, seed=1), PARAMS)) == list(engine().sample(asks(40, seed=1), PARAMS))


def test_an_error_is_the_question_s_own(worker):
    with pytest.raises(ModelError, match="nothing to score"):
        worker.score([])
    assert len(flat(worker.sample(asks(5), PARAMS))) == 5


def test_a_death_is_a_death(worker):
    stream = worker.sample(asks(600), PARAMS)
    next(stream)
    worker.cut()
    with pytest.raises(WorkerDied, match="ended with -9"):
        flat([*stream, *worker.sample(asks(5), PARAMS)])
