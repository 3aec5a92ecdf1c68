"""All wrong, all right, one problem, one sample: every number is there or has a reason, and nothing raises."""

import json

import numpy as np
import pytest

from limen.errors import DataError
from limen.measure import CountTable, StopRule, compare, cover, extrapolate, fit_prior, summary, zero_bound

SHAPES = {
    "all wrong": (16, [0, 0, 0, 0]),
    "all right": (16, [16, 16, 16, 16]),
    "one problem": (16, [3]),
    "one sample": (1, [0, 1, 1, 0]),
    "one problem, one sample": (1, [1]),
    "unequal": ([4, 16, 1, 7], [0, 16, 1, 3]),
}


@pytest.mark.parametrize("over", ["problems", "samples", "both"])
@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_raises(shape, over):
    n, c = SHAPES[shape]
    ids = [str(i) for i in range(len(c))]
    table, other = CountTable.of("a", ids, n, c), CountTable.of("b", ids, n, np.zeros(len(c), dtype=int))
    for pair in ((table, other), (other, table), (table, table)):
        got = compare(*pair, draws=50, over=over)
        json.dumps(got.to_json(), allow_nan=False)
        defined = ~np.isnan(got.base_curve.low_K)
        assert (got.base_curve.low_K[defined] <= got.base_curve.value_K[defined] + 1e-12).all()
        assert (got.base_curve.high_K[defined] >= got.base_curve.value_K[defined] - 1e-12).all()
    json.dumps(summary(table, draws=50, over=over).to_json(), allow_nan=False)


@pytest.mark.parametrize("shape", SHAPES)
def test_priors_of_extreme_counts(shape):
    n, c = SHAPES[shape]
    prior = fit_prior(n, c)
    assert np.isfinite([prior.a, prior.b, prior.zero, prior.loglik]).all()
    got = extrapolate(n, c, [1, 64])
    assert ((got.low_K >= 0) & (got.low_K <= got.value_K + 1e-9) & (got.value_K <= got.high_K + 1e-9)).all()
    assert 0 <= cover(n, c, 0.5)[1] <= 1


def test_adaptive_of_extreme_counts():
    ids = ["a", "b"]
    for n, c in (([16, 16], [0, 0]), ([1, 1], [1, 1]), ([1, 16], [1, 0])):
        t = CountTable.of("t", ids, n, c, stop=StopRule(1, 16))
        got = compare(t, t, draws=50, over="samples")
        assert got.support.E == got.support.S == 0
        assert got.k_K.tolist() == [1, 2, 4, 8, 16]
        json.dumps(got.to_json(), allow_nan=False)
    mixed = compare(t, CountTable.of("u", ids, 16, [3, 1]), draws=50)
    assert (mixed.support.P, mixed.support.E) == (1, 1)
    assert mixed.support_by_k == {}


def test_zero_bound_is_the_rule_of_three():
    assert zero_bound(128) == pytest.approx(3 / 128, rel=0.02)
    assert (1 - zero_bound(10)) ** 10 == pytest.approx(0.05)
    with pytest.raises(DataError):
        cover(4, [1], 0)


def test_nothing_seen_is_said():
    ids = ["a", "b"]
    assert any("below 0.17" in x for x in summary(CountTable.of("t", ids, 16, [0, 0]), draws=20).notes)
    assert any("above 0.83" in x for x in summary(CountTable.of("t", ids, 16, [16, 16]), draws=20).notes)
    assert not summary(CountTable.of("t", ids, 16, [16, 0]), draws=20).notes
