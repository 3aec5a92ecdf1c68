"""The rules by which a trend of the paper appears, on curves whose answer is known."""

import math
from pathlib import Path

import numpy as np
import pytest

from limen.dynamics.curves import RunCurves, band, running_mean
from limen.lab.trends import Trend, find, find_milder, points, t_interval, thirds

FALLS, GROWS, STAYS = Trend("x", "falls", -1), Trend("x", "grows", 1), Trend("x", "stays", 0)


def run(values, key="x", steps=None, **more):
    steps = np.array(steps if steps is not None else range(2, len(values) + 2))
    curves = {key: (steps, np.asarray(values, dtype=float))}
    curves |= {k: (steps, np.asarray(v, dtype=float)) for k, v in more.items()}
    return RunCurves("r", Path("."), curves)


def test_change_is_last_third_minus_first_third():
    assert thirds(np.array([1.0, 2, 3, 4, 5, 6])) == (1.5, 5.5)
    assert thirds(np.array([7.0])) == (7.0, 7.0)
    found = find(FALLS, [run([6.0, 5, 4, 3, 2, 1]), run([6.5, 5.5, 4, 3, 2, 1]), run([6.0, 5, 4, 3, 1.5, 0.5])])
    assert found.changes == pytest.approx((-4.0, -4.5, -4.5))
    assert found.start == pytest.approx((5.5 + 6 + 5.5) / 3)
    assert found.verdict == "appears"
    assert find(GROWS, [run([6.0, 5, 4, 3, 2, 1])] * 3).verdict == "opposite"


def test_the_interval_is_students():
    """Three numbers 1, 2, 3: mean 2, standard error 1/sqrt(3), t(0.975, 2) = 4.302653."""
    mean, low, high = t_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert high - 2 == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert 2 - low == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


def test_seeds_that_disagree_and_single_seeds_are_unclear():
    assert find(FALLS, [run([1.0, 1, 0]), run([1.0, 1, 2.5]), run([1.0, 1, 0.5])]).verdict == "unclear"
    one = find(FALLS, [run([3.0, 2, 1])])
    assert one.verdict == "unclear"
    assert one.mean == -2.0


def test_stable_allows_a_quarter():
    assert find(STAYS, [run([1.0, 1, 1.2]), run([1.0, 1, 1.21]), run([1.0, 1, 1.22])]).verdict == "appears"
    assert find(STAYS, [run([1.0, 1, 1.4]), run([1.0, 1, 1.41]), run([1.0, 1, 1.42])]).verdict == "opposite"


def test_the_first_step_is_left_out_and_rates_are_divided_out():
    r = run([100.0, 4.0, 1.0], steps=[1, 5, 10], **{"probe/lr": [1.0, 2.0, 1.0]})
    assert points(r, GROWS).tolist() == [4.0, 1.0]
    assert points(r, Trend("x", "per rate squared", 1, 2)).tolist() == [1.0, 1.0]


def test_milder_is_paired_by_seed():
    pairs = [(run([1.0, 2, 3]), run([0.5, 1, 1.5])), (run([11.0, 12, 13]), run([10.1, 11.1, 12.1])),
             (run([5.0, 6, 7]), run([4.0, 5.1, 6]))]  # fmt: skip
    found = find_milder(FALLS, pairs)
    assert found.changes == pytest.approx((-1.0, -0.9, -2.9 / 3))
    assert found.verdict == "appears"  # though the runs themselves lie far apart
    assert found.start == pytest.approx((2 + 12 + 6) / 3)
    assert find_milder(GROWS, pairs).verdict == "opposite"


def test_bands_take_the_steps_that_all_runs_have():
    b = band([run([1.0, 2, 3], steps=[1, 2, 3]), run([3.0, 6], steps=[2, 3])], "x")
    assert b is not None
    assert b.step.tolist() == [2, 3]
    assert b.mean.tolist() == [2.5, 4.5]
    assert (b.low.tolist(), b.high.tolist()) == ([2.0, 3.0], [3.0, 6.0])
    assert band([run([1.0])], "y") is None
    assert running_mean(np.array([0.0, 3, 6, 9]), 3).tolist() == [1.5, 3.0, 6.0, 7.5]
