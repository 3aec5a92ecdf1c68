"""pass@k against exact fractions, and what it refuses."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from limen.errors import DataError
from limen.measure import pass_at_k, pass_at_k_stopped, pass_table


def exact(n: int, c: int, k: int) -> float:
    return float(1 - Fraction(comb(n - c, k), comb(n, k)))


def test_equals_exact_fractions_everywhere():
    for n in (1, 2, 3, 7, 16):
        for c in range(n + 1):
            for k in range(1, n + 1):
                assert pass_at_k(n, c, k) == pytest.approx(exact(n, c, k), abs=1e-13)


@pytest.mark.parametrize(("n", "c", "k"), [(1024, 3, 256), (20_000, 7, 1000), (20_000, 1, 1), (100_000, 50, 2000)])
def test_equals_exact_fractions_for_large_n(n, c, k):
    assert pass_at_k(n, c, k) == pytest.approx(exact(n, c, k), rel=1e-9)


def test_exactly_one_zero_and_nan():
    assert pass_at_k(10, 4, 7) == 1.0
    assert pass_at_k(10, 0, 10) == 0.0
    assert np.isnan(pass_at_k(10, 4, 11))
    assert np.isnan(pass_at_k(10, 10, 11))
    assert np.isnan(pass_at_k(0, 0, 1))
    assert pass_at_k(3, 1, 1) == pytest.approx(1 / 3)


def test_arrays_broadcast():
    n, c, k = np.array([4, 8]), np.array([1, 2]), np.array([1, 2, 4, 8])
    table = pass_at_k(n[:, None], c[:, None], k)
    assert table.shape == (2, 4)
    assert np.array_equal(table, pass_table(n, c, k), equal_nan=True)
    assert table[0, :3] == pytest.approx([0.25, 0.5, 1.0])
    assert np.isnan(table[0, 3])
    assert pass_at_k(4, [0, 1, 4], 2) == pytest.approx([0, 0.5, 1])
    assert isinstance(pass_at_k(4, 1, 2), float)


@pytest.mark.parametrize(
    ("n", "c", "k", "says"),
    [
        (4, 5, 1, "c=5 > n=4"),
        (4, -1, 1, "at least 0"),
        (4, 1, 0, "at least 1"),
        (4, 0.5, 1, "whole numbers"),
        (4, True, 1, "counts, not flags"),
        ([4, 4], [1, 9], 1, "position 1"),
    ],
)
def test_refuses(n, c, k, says):
    with pytest.raises(DataError, match=says):
        pass_at_k(n, c, k)


def test_stopped_by_hand():
    # r=2, stopped at N=5: the first success is at 1, 2, 3 or 4, each with probability 1/4
    assert [pass_at_k_stopped(5, 2, 10, 2, k) for k in (1, 2, 3, 4, 5, 10)] == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])
    # r=1: known to the sample
    assert [pass_at_k_stopped(3, 1, 8, 1, k) for k in (1, 2, 3, 8)] == [0, 0, 1, 1]
    # ran to the end with one success of four
    assert pass_at_k_stopped(4, 1, 4, 2, 2) == pytest.approx(0.5)
    assert np.isnan(pass_at_k_stopped(3, 1, 8, 1, 9))
    for N, r, k in ((9, 3, 2), (9, 3, 5), (30, 5, 8)):
        assert pass_at_k_stopped(N, r, 99, r, k) == pytest.approx(1 - comb(N - k - 1, r - 1) / comb(N - 1, r - 1))


@pytest.mark.parametrize(
    ("N", "c", "n_max", "r", "says"),
    [
        (5, 3, 9, 2, "cut the samples"),
        (10, 2, 9, 2, "beyond"),
        (5, 1, 9, 2, "not finished"),
        (5, 1, 9, 0, "at least 1"),
    ],
)
def test_stopped_refuses(N, c, n_max, r, says):
    with pytest.raises(DataError, match=says):
        pass_at_k_stopped(N, c, n_max, r, 1)
