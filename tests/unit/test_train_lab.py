"""The rule that names what a wrong verifier did, on curves drawn for it; and the studies' tables of what is run."""

import numpy as np
import pytest

from limen.errors import ConfigError
from limen.lab.methods import METHODS
from limen.lab.noise import PATTERNS, classify, levels, verifier_of
from limen.train.settings import parse_settings
from limen.verify.noise import Noise

STEPS = 100
CLEAN = np.stack([np.linspace(0.3, 0.5, STEPS) + d for d in (-0.01, 0, 0.01)])


def test_levels_of_a_ramp():
    """Means of 0..4, of 80..99, of 90..99."""
    assert levels(np.arange(100.0)) == pytest.approx((2.0, 89.5, 94.5))


def curve(*points):
    return np.interp(np.arange(STEPS), np.linspace(0, STEPS - 1, len(points)), points)[None]


@pytest.mark.parametrize(
    ("points", "want"),
    [
        ((0.3, 0.31, 0.48, 0.49, 0.49), "delay"),
        ((0.3, 0.5, 0.5), "delay"),
        ((0.3, 0.38, 0.38, 0.38), "plateau"),
        ((0.3, 0.3, 0.3), "collapse"),
        ((0.3, 0.2, 0.1), "collapse"),
        ((0.3, 0.5, 0.5, 0.38, 0.36, 0.36), "collapse"),
        ((0.3, 0.5, 0.5, 0.46, 0.44, 0.44), "plateau"),
    ],
)
def test_classes(points, want):
    assert classify(curve(*points), CLEAN) == want


def test_patterns_and_methods_are_valid():
    for name, noise in PATTERNS.items():
        if noise is not None:
            assert Noise(noise).layers, name
    with pytest.raises(ConfigError, match="fp_near_10"):
        verifier_of("nope")
    for algorithm in METHODS.values():
        parse_settings({"algorithm": algorithm})
    wanted = "grpo greedy_filter self w_reinforce dapo pass_k overtraining_gate direction"
    assert set(wanted.split()) <= set(METHODS)


@pytest.mark.slow
def test_both_studies_run_and_go_on(tmp_path):
    from limen.lab.methods import run_methods
    from limen.lab.noise import run_noise
    from limen.lab.policies import Study

    study = Study(tmp_path / "m", steps=2, n=8, limit=10)
    page = run_methods(study, ["grpo", "self"], [0, 1])
    assert page.count("| grpo |") == 2
    assert (tmp_path / "m" / "methods.png").stat().st_size > 10_000
    assert run_methods(study, ["grpo", "self"], [0, 1]) == page, "nothing is trained or sampled again"
    page = run_noise(Study(tmp_path / "n", steps=10, n=8, limit=10), ["fp_near_100"], [0])
    assert "| fp_near_100 |" in page
