"""Estimators against a policy whose success probabilities are known: exact expectations and simulated runs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, nbinom

from limen.measure import (
    BetaPrior,
    chao1,
    cover,
    extrapolate,
    fit_prior,
    good_turing,
    pass_at_k,
    pass_at_k_stopped,
    pass_table,
)

P = (0.0, 0.003, 0.1, 0.5, 0.97, 1.0)


@pytest.mark.parametrize("p", P)
def test_pass_at_k_is_unbiased(p):
    """Expectation over every possible c, not a simulation."""
    for n in (1, 5, 40):
        c = np.arange(n + 1)
        k = np.arange(1, n + 1)
        mean = binom.pmf(c, n, p) @ pass_table(n, c, k)
        assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


@pytest.mark.parametrize("p", P)
@pytest.mark.parametrize("r", [1, 2, 5])
def test_stopped_estimator_is_unbiased(p, r):
    """Over every way a run can end: r-th success at N <= n_max, or c < r successes in n_max samples."""
    n_max = 24
    k = np.arange(1, n_max + 1)
    N = np.arange(r, n_max + 1)
    stopped = nbinom.pmf(N - r, r, p) if p > 0 else np.zeros(N.shape)
    c = np.arange(r)
    ran = binom.pmf(c, n_max, p)
    assert stopped.sum() + ran.sum() == pytest.approx(1)
    mean = stopped @ pass_at_k_stopped(N[:, None], r, n_max, r, k)
    mean = mean + ran @ pass_at_k_stopped(n_max, c[:, None], n_max, r, k)
    assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


def test_fixed_formula_is_biased_under_stopping():
    """Why there are two: (N, r) in the fixed-n formula overstates pass@1 by half here."""
    N = np.arange(2, 400)
    wrong = nbinom.pmf(N - 2, 2, 0.1) @ pass_at_k(N, 2, 1)
    assert wrong > 0.13
    right = nbinom.pmf(N - 2, 2, 0.1) @ pass_at_k_stopped(N, 2, 400, 2, 1)
    assert right == pytest.approx(0.1, abs=1e-6)


def test_simulated_benchmark_mean_within_three_standard_errors():
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 0.6, size=40)
    k = np.array([1, 4, 32])
    runs = np.array([pass_table(32, rng.binomial(32, p), k).mean(axis=0) for _ in range(3000)])
    truth = (1 - (1 - p[:, None]) ** k).mean(axis=0)
    assert (np.abs(runs.mean(axis=0) - truth) < 3 * runs.std(axis=0) / np.sqrt(len(runs))).all()


@given(st.integers(1, 300), st.data())
def test_range_and_monotonicity(n, data):
    c = data.draw(st.integers(0, n))
    k = np.arange(1, n + 1)
    value = pass_at_k(n, c, k)
    assert ((value >= 0) & (value <= 1)).all()
    assert (np.diff(value) >= -1e-12).all()
    half = k[k * 2 <= n]
    assert (pass_at_k(n, c, 2 * half) <= 2 * pass_at_k(n, c, half) + 1e-12).all()
    if c < n:
        assert (pass_at_k(n, c + 1, k) >= value - 1e-12).all()
    assert value[0] == pytest.approx(c / n)
    assert value[-1] == (c > 0)


@given(st.integers(1, 12), st.data())
def test_stopped_range_and_monotonicity(r, data):
    n_max = data.draw(st.integers(r, 200))
    N = data.draw(st.integers(r, n_max))
    value = pass_at_k_stopped(N, r, n_max, r, np.arange(1, n_max + 1))
    assert ((value >= 0) & (value <= 1)).all()
    assert (np.diff(value) >= -1e-12).all()
    assert value[-1] == 1


def test_posterior_is_the_formula_and_agrees_with_scorio():
    from scorio import eval as scorio

    rng = np.random.default_rng(1)
    R = (rng.random((7, 12)) < rng.random((7, 1))).astype(int)
    c = R.sum(axis=1)
    for k in (1, 3, 12):
        assert pass_table(12, c, [k]).mean() == pytest.approx(scorio.pass_at_k(R, k))
        assert BetaPrior(2.0, 3.0).pass_at_k(12, c, k).mean() == pytest.approx(
            scorio.pass_at_k_ci(R, k, alpha0=2.0, beta0=3.0)[0]
        )


def test_prior_is_recovered():
    rng = np.random.default_rng(2)
    for zero in (0.0, 0.2):
        p = rng.beta(0.6, 1.5, size=6000)
        p[rng.random(6000) < zero] = 0
        prior = fit_prior(200, rng.binomial(200, p))
        assert prior.a == pytest.approx(0.6, rel=0.12)
        assert prior.b == pytest.approx(1.5, rel=0.12)
        assert prior.zero == pytest.approx(zero, abs=0.04)


def test_prior_does_not_mind_the_stopping_rule():
    rng = np.random.default_rng(3)
    p = rng.beta(0.5, 1.0, size=4000)
    gaps = rng.geometric(np.maximum(p, 1e-9)[:, None], size=(4000, 3)).cumsum(axis=1)
    c = (gaps <= 128).sum(axis=1)
    n = np.where(c == 3, np.minimum(gaps[:, -1], 128), 128)
    prior = fit_prior(n, c)
    assert (prior.a, prior.b) == pytest.approx((0.5, 1.0), rel=0.15)


def test_posterior_mean_is_unbiased_over_the_prior():
    """E over p and c of the posterior mean is E over p of the truth, also beyond n."""
    rng = np.random.default_rng(4)
    prior = BetaPrior(0.4, 2.0, 0.3)
    p = np.where(rng.random(200_000) < 0.3, 0, rng.beta(0.4, 2.0, 200_000))
    c = rng.binomial(16, p)
    for k in (1, 16, 64, 500):
        truth = 1 - (1 - p) ** k
        gap = prior.pass_at_k(16, c, k) - truth
        assert abs(gap.mean()) < 3 * gap.std() / np.sqrt(gap.size)


def test_extrapolation_band_holds_the_truth_mostly():
    """Where the model is right; at four times the samples."""
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(30):
        p = rng.beta(0.4, 1.2, size=200)
        p[rng.random(200) < 0.15] = 0
        got = extrapolate(32, rng.binomial(32, p), [128])
        truth = (1 - (1 - p) ** 128).mean()
        hits += bool(got.low_K[0] <= truth <= got.high_K[0])
    assert hits >= 25  # 28.5 expected at 95%
    assert "beyond the 32 samples" in got.warning


def test_cover():
    rng = np.random.default_rng(6)
    p = rng.beta(2, 2, size=20_000)
    plug_in, posterior = cover(8, rng.binomial(8, p), 0.5)
    assert posterior == pytest.approx(0.5, abs=0.01)
    assert plug_in > 0.55  # c/n >= 0.5 holds the whole bin at one half


def test_good_turing_is_unbiased_and_chao1_a_lower_bound():
    rng = np.random.default_rng(7)
    share = rng.dirichlet(np.ones(30) * 0.4)
    n = 40
    draws = rng.multinomial(n, share, size=4000)
    unseen = ((1 - share) ** (n - 1) * share).sum()  # exact, at n - 1 samples
    got = np.array([good_turing(d) for d in draws])
    assert abs(got.mean() - unseen) < 3 * got.std() / np.sqrt(4000)
    assert np.mean([chao1(d) for d in draws]) < 30
    assert np.mean([chao1(d) for d in draws]) > np.mean((draws > 0).sum(axis=1))
    assert np.isnan(good_turing([]))
    assert chao1([5]) == 1
