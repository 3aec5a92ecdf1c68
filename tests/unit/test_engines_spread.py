"""Dealing work to workers that die, fail, come late: every response once, scores in order, errors clear."""

import json
import threading
import time

import numpy as np
import pytest

from limen.engines import exact, wire
from limen.engines.process_worker import about, answer, grouped
from limen.engines.protocol import SampleRequest, ScoreRequest
from limen.engines.spread import SpreadEngine, WorkerDied, deal
from limen.errors import ModelError
from limen.types import Prompt, SamplingParams, derive_seed

TABLE = {"q=": {"ab": 0.5, "a": 0.2, "b": 0.2, "": 0.1}, "r=": {"b": 0.6, "aaa": 0.4}}
PARAMS = SamplingParams(max_tokens=4)


def engine():
    return exact.ExactEngine(exact.ResponsesPolicy(TABLE), logprobs=True)


def asks(n):
    tokenizer = engine().tokenizer
    return [
        SampleRequest(
            Prompt(text, text, tuple(tokenizer.encode(text)), ""),
            tuple(range(n)),
            tuple(derive_seed(0, text, i) for i in range(n)),
        )
        for text in TABLE
    ]


class Here:
    """A worker in this process; `fault(worker, count)` is asked before each response and may raise."""

    def __init__(self, fault=lambda worker, count: None):
        self.engine, self.fault, self.count, self.closed = engine(), fault, 0, False

    def about(self):
        return about(self.engine)

    def sample(self, requests, params):
        for sample in self.engine.sample(requests, params):
            self.fault(self, self.count)
            self.count += 1
            yield [sample]

    def score(self, requests):
        self.fault(self, self.count)
        self.count += 1
        time.sleep(0.01 * (len(requests[0].token_ids) % 3))  # chunks come back in another order
        return self.engine.score(requests)

    def close(self):
        self.closed = True


def collect(spread, n=100):
    found = {}
    for s in spread.sample(asks(n), PARAMS):
        assert (s.problem_id, s.sample_index) not in found
        found[s.problem_id, s.sample_index] = s
    return found


def want(n=100):
    return {(s.problem_id, s.sample_index): s for s in engine().sample(asks(n), PARAMS)}


def test_all_workers_together_draw_what_one_draws():
    opened = []

    def open_worker(slot):
        opened.append(Here(lambda worker, count: time.sleep(0.001)))
        return opened[-1]

    spread = SpreadEngine(open_worker, 3, engine().tokenizer)
    assert collect(spread) == want()
    assert spread.capabilities == engine().capabilities
    assert sum(w.count > 0 for w in opened) == 3
    assert collect(spread, 7) == want(7)
    spread.close()
    assert all(w.closed for w in opened)


def test_a_dead_worker_s_rest_is_drawn_by_others():
    deaths = []

    def fault(worker, count):
        if count == 5 and len(deaths) < 2:
            deaths.append(worker)
            raise WorkerDied("killed")

    spread = SpreadEngine(lambda slot: Here(fault), 2, engine().tokenizer)
    assert collect(spread) == want()
    assert spread.deaths == 2


def test_work_that_kills_every_worker_is_not_tried_for_ever():
    def fault(worker, count):
        raise WorkerDied("out of memory")

    spread = SpreadEngine(lambda slot: Here(fault), 2, engine().tokenizer)
    with pytest.raises(ModelError, match=r"3 workers died one after the other.*out of memory"):
        collect(spread)


def test_a_first_worker_that_cannot_begin_is_one_clear_error():
    class Dead(Here):
        def about(self):
            raise WorkerDied("process 7 ended with -9")

    with pytest.raises(ModelError, match=r"first worker died before it could begin \(process 7 ended with -9\)"):
        SpreadEngine(lambda slot: Dead(), 2, engine().tokenizer)


def test_a_worker_that_reports_a_little_before_every_death_goes_on():
    def fault(worker, count):
        if count == 3:
            raise WorkerDied("flaky machine")

    spread = SpreadEngine(lambda slot: Here(fault), 2, engine().tokenizer)
    assert collect(spread, 20) == want(20)
    assert spread.deaths > 5


def test_an_engine_s_error_ends_it_all():
    def fault(worker, count):
        if count == 3:
            raise ModelError("logits are not finite")

    with pytest.raises(ModelError, match="not finite"):
        collect(SpreadEngine(lambda slot: Here(fault), 2, engine().tokenizer))


def test_a_bug_in_a_thread_is_not_a_hang(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda args: None)

    def fault(worker, count):
        raise ZeroDivisionError

    with pytest.raises(RuntimeError, match="thread of worker"):
        collect(SpreadEngine(lambda slot: Here(fault), 1, engine().tokenizer))


def test_workers_that_cannot_begin_are_an_error():
    started = []

    class Stillborn(Here):
        def about(self):
            started.append(self)
            if len(started) > 1:
                raise WorkerDied("no library")
            return super().about()

    first = Stillborn(lambda worker, count: time.sleep(0.2))
    with pytest.raises(ModelError, match="before they could begin"):
        collect(SpreadEngine(lambda slot: first if slot == 0 and not started else Stillborn(), 2, engine().tokenizer))


def test_one_that_has_no_place_yet_holds_up_nothing():
    """A worker that never comes up (a cluster without room) must not be given work."""

    class Pending(Here):
        def about(self):
            threading.Event().wait(30)

    spread = SpreadEngine(lambda slot: Pending() if slot else Here(), 2, engine().tokenizer)
    started = time.monotonic()
    assert collect(spread) == want()
    assert time.monotonic() - started < 20


def test_workers_that_join_late_work_too(monkeypatch):
    monkeypatch.setattr("limen.engines.spread.EVERY", 0.05)
    room, opened = [1], []

    def open_worker(slot):
        opened.append(slot)
        return Here(lambda worker, count: time.sleep(0.004))

    spread = SpreadEngine(open_worker, 1, engine().tokenizer, grow=lambda: room[0])
    for i, _ in enumerate(spread.sample(asks(300), PARAMS)):
        if i == 10:
            room[0] = 3
    assert sorted(opened) == [0, 1, 2]


def test_scores_in_order_also_after_a_death():
    deaths = []

    def fault(worker, count):
        if not deaths:
            deaths.append(worker)
            raise WorkerDied("killed")

    prompt = tuple(engine().tokenizer.encode("q="))
    requests = [ScoreRequest(prompt, s.token_ids) for s in engine().sample(asks(50)[:1], PARAMS)]
    spread = SpreadEngine(lambda slot: Here(fault), 3, engine().tokenizer)
    assert [s.tolist() for s in spread.score(requests)] == [s.tolist() for s in engine().score(requests)]
    assert len(deaths) == 1
    assert spread.score([]) == []


def test_dealing():
    chunks = deal(asks(10), 8)
    assert [[(r.prompt.text, r.sample_indices) for r in c] for c in chunks] == [
        [("q=", (0, 1, 2, 3, 4, 5, 6, 7))],
        [("q=", (8, 9)), ("r=", (0, 1, 2, 3, 4, 5))],
        [("r=", (6, 7, 8, 9))],
    ]
    assert deal([], 8) == []


def test_the_wire_gives_back_what_was_sent():
    requests, samples = asks(3), list(engine().sample(asks(3), PARAMS))
    through = json.loads(json.dumps(wire.requests_to(requests)))
    assert wire.requests_from(through) == requests
    assert wire.samples_from(json.loads(json.dumps(wire.samples_to(samples)))) == samples
    params = SamplingParams(0.5, 0.9, 3, 7, ("a", "\n"))
    assert wire.params_from(json.loads(json.dumps(wire.params_to(params)))) == params
    pair = [ScoreRequest((1, 2), (3,))]
    assert wire.pairs_from(json.loads(json.dumps(wire.pairs_to(pair)))) == pair
    scores = [np.array([-0.1, -2.3456789], dtype=np.float32)]
    assert wire.scores_from(json.loads(json.dumps(wire.scores_to(scores))))[0].tolist() == scores[0].tolist()
    assert wire.about_from(json.loads(json.dumps(wire.about_to(about(engine()))))) == about(engine())


def test_a_worker_answers_and_ends():
    message = {"do": "sample", "requests": wire.requests_to(asks(3)), "params": wire.params_to(PARAMS)}
    replies = list(answer(engine(), message))
    assert replies[-1] == {"end": True}
    got = [s for r in replies[:-1] for s in wire.samples_from(r["samples"])]
    assert got == list(engine().sample(asks(3), PARAMS))
    assert [len(g) for g in grouped(range(600))] == [256, 256, 88]


def test_what_is_given_up_does_not_mix_with_what_comes_next():
    """Breaking off leaves workers in the middle of answers; the next call gets its own, all of them."""
    busy = threading.Lock()

    class Alone(Here):
        def sample(self, requests, params):
            assert busy.acquire(blocking=False), "two at once talk to one worker"
            try:
                yield from super().sample(requests, params)
            finally:
                busy.release()

    spread = SpreadEngine(lambda slot: Alone(lambda worker, count: time.sleep(0.002)), 1, engine().tokenizer)
    for _ in range(3):
        stream = spread.sample(asks(50), PARAMS)
        next(stream)
        stream.close()
        assert collect(spread, 30) == want(30)


def test_a_worker_that_reports_too_little_is_noticed():
    class Sparse(Here):
        def sample(self, requests, params):
            for samples in super().sample(requests, params):
                if samples[0].sample_index != 3:
                    yield samples

    with pytest.raises(RuntimeError, match="2 responses did not arrive"):
        collect(SpreadEngine(lambda slot: Sparse(), 2, engine().tokenizer))
