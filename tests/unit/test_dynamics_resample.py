"""Intervals over problems against what theory and other libraries say."""

import math

import numpy as np
import pytest
from scipy import stats

from limen.dynamics.resample import Estimate, Resampler, correlate, to_json

PROBLEMS = ["a", "b", "c"]


def test_a_mean_over_responses_is_pooled_and_masked():
    r = Resampler(PROBLEMS, draws=200)
    value, problem = [1.0, 2.0, 3.0, 10.0, math.nan], ["a", "a", "b", "c", "c"]
    assert r.mean(value, problem).value == pytest.approx(16 / 4)
    keep = np.array([True, False, True, False, True])
    assert r.mean(value, problem, keep).value == pytest.approx(2.0)
    assert math.isnan(r.mean(value, problem, np.zeros(5, dtype=bool)).value)
    assert r.mean([5.0, 1.0], ["a", "elsewhere"]).value == 5.0


def test_the_interval_is_that_of_a_mean_over_problems():
    """One response a problem: a mean of M numbers, whose standard error is known. Four copies of each response tell
    nothing new, and must not make it narrower."""
    M = 400
    x = np.random.default_rng(1).normal(size=M)
    names = [str(i) for i in range(M)]
    r = Resampler(names, draws=4000, seed=2)
    e = r.mean(x, names)
    half = 1.96 * x.std() / math.sqrt(M)
    assert e.low == pytest.approx(x.mean() - half, abs=0.1 * half)
    assert e.high == pytest.approx(x.mean() + half, abs=0.1 * half)
    again = r.mean(np.repeat(x, 4), np.repeat(names, 4).tolist())
    assert (again.low, again.high) == pytest.approx((e.low, e.high))


def test_correlations_are_scipys():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, 9)), rng.normal(size=(3, 9)).round(1)
    for i in range(3):
        assert correlate(x, y)[i] == pytest.approx(stats.pearsonr(x[i], y[i]).statistic)
        assert correlate(x, y, "spearman")[i] == pytest.approx(stats.spearmanr(x[i], y[i]).statistic)
    assert math.isnan(correlate(np.ones((1, 4)), y[:1, :4])[0])


def test_correlation_over_checkpoint_pairs_resamples_both_sides():
    """Three pairs of checkpoints whose Δ⁺ and Δpass@k are proportional, problem by problem: r is 1 in every draw."""
    r = Resampler(PROBLEMS, draws=300)
    per_problem = np.array([[1.0, 2.0, 3.0], [0.0, -1.0, 0.5], [-2.0, -3.0, -2.5]])
    sums = [(4 * row, np.full(3, 4.0)) for row in per_problem]
    e = r.correlation(sums, 0.1 * per_problem)
    assert (e.value, e.low, e.high) == pytest.approx((1.0, 1.0, 1.0))
    assert r.correlation(sums, -0.1 * per_problem, "spearman").value == pytest.approx(-1.0)
    assert math.isnan(r.correlation(sums[:2], per_problem[:2]).value)
    noisy = r.correlation(sums, np.array([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 0.5]]))
    assert noisy.low < noisy.value < noisy.high


def test_json_has_no_nan():
    assert to_json({"a": Estimate(1.0), "b": [math.nan, "x"]}) == {
        "a": {"value": 1.0, "low": None, "high": None},
        "b": [None, "x"],
    }
