"""The alarm for identical responses: silent about chance, loud about shared seeds."""

import math

import numpy as np
import pytest

from limen.sampling.alarm import RepeatAlarm


def drawn(rng, probs, n):
    tokens = rng.choice(len(probs), size=n, p=probs)
    return [((int(t),), math.log(probs[t])) for t in tokens]


def alarm_of(samples):
    alarm = RepeatAlarm()
    for problem, rows in samples.items():
        for ids, log_q in rows:
            alarm.add(problem, ids, log_q)
    return alarm, {problem: len(rows) for problem, rows in samples.items()}


def test_silent_where_repetitions_are_chance():
    rng = np.random.default_rng(0)
    for size in (3, 50, 3_000, 100_000):
        weights = rng.dirichlet(np.full(size, 0.5)) + 1e-12
        probs = weights / weights.sum()
        alarm, n = alarm_of({f"p{i}": drawn(rng, probs, 256) for i in range(30)})
        assert alarm.message(n) is None


def test_expected_pairs_are_the_observed_ones_on_average():
    rng = np.random.default_rng(1)
    probs = np.full(20_000, 1 / 20_000)
    alarm, n = alarm_of({f"p{i}": drawn(rng, probs, 1_000) for i in range(40)})
    pairs, expected = alarm.counts(n)
    assert expected == pytest.approx(40 * 1_000 * 999 / 2 / 20_000)
    assert abs(pairs - expected) < 5 * math.sqrt(expected)


def test_loud_where_two_workers_share_their_seeds():
    rng = np.random.default_rng(2)
    probs = np.full(10**6, 1e-6)
    rows = drawn(rng, probs, 8)
    alarm, n = alarm_of({"p": rows + rows})
    assert "share their randomness" in alarm.message(n)


def test_a_sure_model_may_repeat_itself():
    alarm, n = alarm_of({"p": [((1,), math.log(0.999))] * 500})
    assert alarm.message(n) is None
    alarm, n = alarm_of({"p": [((1,), None)] * 500})
    assert alarm.message(n) is None
