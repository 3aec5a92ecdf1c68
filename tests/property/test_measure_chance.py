"""Chance columns, exact tests, verdicts and the A/A control on policies whose truth is known."""

import numpy as np
import pytest

from limen.measure import (
    CountTable,
    StopRule,
    posterior_verdicts,
    question_verdicts,
    same_policy_flips,
    split_half,
    support,
)
from limen.measure.adaptive import adaptive_support
from limen.measure.verdicts import benjamini_hochberg, fisher_p


def population(rng, M=200):
    p = rng.beta(0.25, 0.9, size=M)
    p[rng.random(M) < 0.15] = 0
    return p


def close(values, truth):
    values = np.asarray(values, dtype=float)
    return abs(values.mean() - truth) < 3 * values.std() / np.sqrt(values.size) + 1e-9


@pytest.mark.parametrize(("nb", "nt"), [(16, 16), (8, 24)])
def test_chance_columns_match_flips_of_one_policy(nb, nt):
    rng = np.random.default_rng(0)
    p = population(rng)
    got = [support(nb, rng.binomial(nb, p), rng.binomial(nt, p), nt) for _ in range(1000)]
    qb, qt = (1 - p) ** nb, (1 - p) ** nt
    true_E, true_S = (qb * (1 - qt)).sum(), (qt * (1 - qb)).sum()
    for name, truth in (("E", true_E), ("chance_E", true_E), ("S", true_S), ("chance_S", true_S)):
        assert close([getattr(s, name) for s in got], truth), name


@pytest.mark.parametrize(("nb", "nt"), [(16, 16), (8, 24)])
def test_exact_tests_hold_their_level(nb, nt):
    rng = np.random.default_rng(1)
    p = population(rng)
    got = [support(nb, rng.binomial(nb, p), rng.binomial(nt, p), nt) for _ in range(800)]
    for name in ("mcnemar_p", "E_p", "S_p"):
        values = np.array([getattr(s, name) for s in got])
        for level in (0.01, 0.05, 0.2):
            assert (values <= level).mean() <= level + 3 * np.sqrt(level * (1 - level) / values.size), (name, level)


def test_mcnemar_sees_a_real_loss():
    rng = np.random.default_rng(2)
    p = population(rng, 400)
    lost = np.where((p > 0.02) & (p < 0.3) & (rng.random(400) < 0.5), 0, p)
    power = np.mean([support(32, rng.binomial(32, p), rng.binomial(32, lost)).mcnemar_p < 0.05 for _ in range(100)])
    assert power > 0.95


def test_same_policy_flips_are_unbiased():
    rng = np.random.default_rng(3)
    p = population(rng)
    truth = ((1 - p) ** 8 * (1 - (1 - p) ** 8)).sum()
    assert close([same_policy_flips(16, rng.binomial(16, p)).each_way for _ in range(800)], truth)
    unequal = rng.integers(16, 30, size=p.size)
    assert close([same_policy_flips(unequal, rng.binomial(unequal, p)).each_way for _ in range(800)], truth)


def test_split_halves_average_to_same_policy_flips():
    rng = np.random.default_rng(4)
    c = rng.binomial(16, population(rng))
    splits = [split_half(16, c, seed) for seed in range(800)]
    expected = same_policy_flips(16, c).each_way
    assert close([s.E for s in splits], expected)
    assert close([s.S for s in splits], expected)
    assert all(s.chance_each_way == pytest.approx(expected) for s in splits[:5])


def test_same_policy_flips_beyond_the_samples():
    rng = np.random.default_rng(5)
    p = population(rng, 4000)
    got = same_policy_flips(16, rng.binomial(16, p), budget=16)
    assert got.extrapolated
    assert got.each_way == pytest.approx(((1 - p) ** 16 * (1 - (1 - p) ** 16)).sum(), rel=0.1)


def test_false_discoveries_on_null_data():
    rng = np.random.default_rng(6)
    p = np.concatenate([population(rng, 150), np.full(150, 0.05)])  # many questions that can flip
    share = []
    for _ in range(200):
        got = question_verdicts(48, rng.binomial(48, p), rng.binomial(48, p), q=0.2)
        share.append(np.isin(got.verdict_P, ["shrunk", "expanded"]).any())
    assert np.mean(share) <= 0.2 + 3 * np.sqrt(0.16 / 200)


def test_false_discovery_rate_with_real_losses():
    rng = np.random.default_rng(7)
    p = np.full(300, 0.12)
    trained = np.where(np.arange(300) < 60, 0, p)
    wrong, found = [], []
    for _ in range(150):
        got = question_verdicts(64, rng.binomial(64, p), rng.binomial(64, trained), q=0.2)
        called = np.isin(got.verdict_P, ["shrunk", "expanded"])
        wrong.append(called[60:].sum() / max(1, called.sum()))
        found.append((got.verdict_P[:60] == "shrunk").mean())
    assert np.mean(wrong) <= 0.2 + 3 * np.std(wrong) / np.sqrt(150)
    assert np.mean(found) > 0.1  # it does find some of the lost ones


def test_verdicts_by_hand():
    got = question_verdicts(8, [1, 0, 8, 0, 8, 3], [0, 0, 0, 8, 8, 1], q=0.05)
    assert got.verdict_P.tolist() == ["undetermined", "out", "shrunk", "expanded", "kept", "kept"]
    assert got.p_flip_P[[0, 1, 4]].tolist() == [1, 1, 1]  # one success is no evidence
    assert got.p_flip_P[2] == pytest.approx(2 / 12870)
    assert got.rate_P.tolist() == ["same", "same", "fell", "rose", "same", "same"]


def test_fisher_against_scipy():
    from scipy.stats import fisher_exact

    rng = np.random.default_rng(8)
    nb, nt = rng.integers(1, 30, 60), rng.integers(1, 30, 60)
    cb, ct = rng.binomial(nb, 0.4), rng.binomial(nt, 0.6)
    want = [fisher_exact([[b, n - b], [t, m - t]]).pvalue for b, n, t, m in zip(cb, nb, ct, nt)]
    assert fisher_p(nb, cb, nt, ct) == pytest.approx(want)


def test_benjamini_hochberg_against_statsmodels():
    from statsmodels.stats.multitest import multipletests

    rng = np.random.default_rng(9)
    for size in (1, 5, 200):
        p = rng.random(size) ** 3
        assert np.array_equal(benjamini_hochberg(p, 0.1), multipletests(p, 0.1, method="fdr_bh")[0])
    assert benjamini_hochberg(np.zeros(0), 0.1).size == 0


def stopped(rng, p, r=4, n_max=64):
    with np.errstate(divide="ignore"):
        at = rng.geometric(np.maximum(p, 1e-12)[:, None], size=(p.size, r)).clip(max=n_max + 1).cumsum(axis=1)
    c = (at <= n_max).sum(axis=1)
    n = np.where(c == r, np.minimum(at[:, -1], n_max), n_max)
    ids = [str(i) for i in range(p.size)]
    return CountTable.of("t", ids, n, c, stop=StopRule(r, n_max))


def test_adaptive_support_is_that_of_the_full_run():
    """Same distribution of E and S as with n_max samples of everything, and chance columns that fit."""
    rng = np.random.default_rng(10)
    p = population(rng, 300)
    q = (1 - p) ** 64
    truth = (q * (1 - q)).sum()
    got = [adaptive_support(stopped(rng, p), stopped(rng, p)) for _ in range(80)]
    assert close([s.E for s in got], truth)
    assert close([s.S for s in got], truth)
    assert np.mean([s.chance_each_way for s in got]) == pytest.approx(truth, rel=0.1)
    assert np.mean([s.mcnemar_p < 0.05 for s in got]) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 80)


def test_posterior_verdicts_keep_their_rate():
    """Called flips are real (p on the two sides of the threshold) but for about q of them, on prior-drawn data."""
    rng = np.random.default_rng(11)
    wrong = called = 0
    for _ in range(25):
        p = rng.beta(0.5, 1.0, size=300)
        t = np.where(rng.random(300) < 0.3, 0, rng.beta(0.5, 1.0, size=300))
        got = posterior_verdicts(stopped(rng, p), stopped(rng, t), q=0.2)
        inside = (p >= got.threshold, t >= got.threshold)
        shrunk, grown = got.verdict_P == "shrunk", got.verdict_P == "expanded"
        real = (shrunk & inside[0] & ~inside[1]) | (grown & ~inside[0] & inside[1])
        called += int((shrunk | grown).sum())
        wrong += int(((shrunk | grown) & ~real).sum())
    assert called > 200
    assert wrong / called <= 0.2 + 0.05
