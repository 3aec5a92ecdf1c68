"""P/E/S/O, rates, chance and tests against enumerations and worked numbers."""

import itertools
from math import comb, isnan

import numpy as np
import pytest

from limen.errors import DataError
from limen.measure import support, support_rates
from limen.measure.support import poisson_binomial, upper_tail


def test_counts_and_rates_by_hand():
    s = support(4, [4, 0, 1, 0, 2], [4, 3, 0, 0, 1])
    assert (s.P, s.E, s.S, s.O, s.M) == (2, 1, 1, 1, 5)
    assert pytest.approx((2 / 3, 1 / 3, 0)) == (s.SRR, s.NDR, s.NSCR)
    assert pytest.approx(4 / 9) == s.SDS


def test_undefined_rates_have_reasons():
    rates, why = support_rates(0, 0, 0)
    assert all(isnan(v) for v in rates.values())
    assert set(why) == {"SRR", "NDR", "SDS", "NSCR"}
    rates, why = support_rates(0, 2, 0)  # only discoveries: SRR undefined
    assert isnan(rates["SRR"])
    assert isnan(rates["SDS"])
    assert (rates["NDR"], rates["NSCR"]) == (1, 1)
    assert "base solved no problem" in why["SRR"]
    rates, why = support_rates(24, 0, 1)
    assert rates["SDS"] == 0
    assert not why
    rates, _ = support_rates(0, 0, 3)
    assert rates["SRR"] == 0
    assert isnan(rates["NDR"])


def split_chance(n_b: int, n_t: int, c: int) -> tuple[float, float]:
    """By listing every arrangement of c successes over n_b + n_t samples."""
    ways = list(itertools.combinations(range(n_b + n_t), c))
    none_b = sum(all(i >= n_b for i in w) for w in ways)
    none_t = sum(all(i < n_b for i in w) for w in ways)
    return none_b / len(ways), none_t / len(ways)


@pytest.mark.parametrize(("n_b", "n_t"), [(3, 3), (4, 4), (2, 5), (5, 2)])
def test_chance_by_listing(n_b, n_t):
    for cb in range(n_b + 1):
        for ct in range(n_t + 1):
            s = support(n_b, [cb], [ct], n_t)
            want = split_chance(n_b, n_t, cb + ct) if cb + ct else (0, 0)
            assert (s.chance_E, s.chance_S) == pytest.approx(want)
            assert s.chance_each_way == pytest.approx(sum(want) / 2)


def test_mcnemar_against_statsmodels():
    from statsmodels.stats.contingency_tables import mcnemar

    rng = np.random.default_rng(0)
    for _ in range(20):
        b, t = rng.integers(0, 2, 30), rng.integers(0, 2, 30)
        s = support(5, b, t)
        assert s.mcnemar_p == pytest.approx(mcnemar([[s.P, s.S], [s.E, s.O]], exact=True).pvalue)


def test_unequal_n_is_allowed_for():
    # base 10 samples, trained 1: the base solves more by chance alone
    s = support(10, [1] * 40, [0] * 40, 1)
    assert s.S == 40
    assert s.chance_S == pytest.approx(40 * 10 / 11)
    assert s.mcnemar_p > 0.01  # 40 against 0 would be 2e-12 for equal n
    assert s.matched is not None
    assert s.matched["S"] == pytest.approx(40 * 0.1)
    # with unequal n the test reduces to the listing of arrangements
    one = support(2, [1], [0], 1)
    assert one.mcnemar_p == pytest.approx(min(1, 2 * 2 / 3))


def test_tails():
    assert poisson_binomial([0.5] * 4) == pytest.approx([comb(4, i) / 16 for i in range(5)])
    assert upper_tail(np.array([0.5, 0.5]), 2) == pytest.approx(0.25)
    assert upper_tail(np.array([0.5]), 0) == 1.0
    assert upper_tail(np.array([0.0]), 1) == 0.0


def test_all_wrong_all_right_one_problem():
    s = support(8, [0, 0], [0, 0])
    assert (s.O, s.chance_E, s.mcnemar_p) == (2, 0, 1)
    s = support(8, [8, 8], [8, 8])
    assert (s.P, s.SRR, s.NDR, s.SDS, s.NSCR, s.chance_S) == (2, 1, 0, 0, 0, 0)
    assert support(1, [1], [0]).mcnemar_p == 1.0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((4, [5], [1]), "c=5 > n=4"),
        ((4, [1, 2], [1]), "one of each per problem"),
        ((4, [], []), "no problems"),
        (([4, 0], [1, 0], [1, 0]), "no judged sample"),
    ],
)
def test_refuses(args, says):
    with pytest.raises(DataError, match=says):
        support(*args)
