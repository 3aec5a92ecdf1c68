"""Coverage of the intervals over simulated benchmarks. benchmarks/measure_coverage.py does this at full size."""

import numpy as np
import pytest

from limen.errors import DataError
from limen.measure import CountTable, StopRule, compare, pass_curve

M, N = 60, 64
KS = np.array([1, 4, 16])


def draw(rng):
    p = rng.beta(0.35, 0.5, size=M)
    p[rng.random(M) < 0.1] = 0
    return p


def table(n, c, **more):
    return CountTable.of("t", [str(i) for i in range(M)], n, c, **more)


def population_mean():
    rng = np.random.default_rng(99)
    p = rng.beta(0.35, 0.5, size=400_000)
    return 0.9 * (1 - (1 - p[:, None]) ** KS).mean(axis=0)


def enough(hits, runs, nominal=0.95, slack=0.02):
    """Within `slack` of nominal, allowing three standard errors of the simulation."""
    return (np.abs(hits / runs - nominal) <= slack + 3 * np.sqrt(nominal * (1 - nominal) / runs)).all()


@pytest.mark.parametrize("over", ["problems", "samples", "both"])
def test_coverage(over):
    rng = np.random.default_rng(0)
    runs = 150
    hits = np.zeros(KS.size)
    aim = population_mean()
    for seed in range(runs):
        p = draw(rng)
        curve = pass_curve(table(N, rng.binomial(N, p)), KS, draws=200, seed=seed, over=over)
        truth = (1 - (1 - p[:, None]) ** KS).mean(axis=0) if over == "samples" else aim
        hits += (curve.low_K <= truth) & (truth <= curve.high_K)
    assert enough(hits, runs)


def test_coverage_of_a_paired_difference():
    rng = np.random.default_rng(1)
    runs = 100
    hits = np.zeros(KS.size)
    for seed in range(runs):
        p = draw(rng)
        q = np.where(rng.random(M) < 0.5, p, p**2)
        tables = [table(N, rng.binomial(N, x)) for x in (p, q)]
        truth = ((1 - p[:, None]) ** KS - (1 - q[:, None]) ** KS).mean(axis=0)
        got = compare(*tables, ks=KS, draws=200, seed=seed, over="samples")
        hits += (got.difference_low_K <= truth) & (truth <= got.difference_high_K)
    assert enough(hits, runs)


def test_adaptive_interval_over_samples():
    rng = np.random.default_rng(2)
    runs, r = 60, 4
    hits = np.zeros(KS.size)
    for seed in range(runs):
        p = draw(rng)
        at = rng.geometric(np.maximum(p, 1e-12)[:, None], size=(M, r)).clip(max=N + 1).cumsum(axis=1)
        c = (at <= N).sum(axis=1)
        n = np.where(c == r, np.minimum(at[:, -1], N), N)
        curve = pass_curve(table(n, c, stop=StopRule(r, N)), KS, draws=200, seed=seed, over="samples")
        truth = (1 - (1 - p[:, None]) ** KS).mean(axis=0)
        hits += (curve.low_K <= truth) & (truth <= curve.high_K)
    assert enough(hits, runs)


def test_over_problems_is_wider_than_over_samples():
    rng = np.random.default_rng(3)
    t = table(N, rng.binomial(N, draw(rng)))
    wide, narrow = (pass_curve(t, KS, over=o) for o in ("problems", "samples"))
    assert (wide.high_K - wide.low_K > 3 * (narrow.high_K - narrow.low_K)).all()
    assert "samples of the same 60 problems" in narrow.resampled


def test_unknown_over_is_refused():
    with pytest.raises(DataError, match="expected problems, samples or both"):
        pass_curve(table(N, np.zeros(M, dtype=int)), over="tokens")
