"""The number of samples: expected flips under thinning against enumeration, and the rules both ways round."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from test_lab_claims import GRPO, SELF, line, study

from limen.errors import DataError
from limen.lab.evidence import Trained
from limen.lab.gallery import find, make
from limen.lab.samples import curve, depends, expected_chance, numbers_of_samples, point, run_samples, shows_from
from limen.measure import CountTable, support


def pair(n, base, trained):
    ids = [f"p{i}" for i in range(len(base))]
    return Trained("grpo", 0, "0", 1, CountTable.of("base", ids, n, base), CountTable.of("grpo", ids, n, trained))


def test_numbers():
    assert numbers_of_samples(256) == [2, 4, 8, 16, 32, 64, 128, 256]
    assert numbers_of_samples(24) == [2, 4, 8, 16, 24]


def test_expected_cells_and_chance_by_enumeration():
    """Every way to take 2 of 5 samples from each policy, one problem of 2 and 1 successes."""
    n, m, cb, ct = 5, 2, 2, 1
    E, S, chance = [], [], []
    for a in combinations(range(n), m):
        for b in combinations(range(n), m):
            base, own = sum(i < cb for i in a), sum(i < ct for i in b)
            E.append(base == 0 and own > 0)
            S.append(base > 0 and own == 0)
            chance.append(support(m, [base], [own]).chance_each_way)
    p = point([pair(n, [cb], [ct])], m)
    assert pytest.approx(np.mean(E)) == p.E
    assert pytest.approx(np.mean(S)) == p.S
    assert p.chance == pytest.approx(np.mean(chance))
    assert (p.base, p.trained) == (pytest.approx(0.7), pytest.approx(0.4))
    assert p.gap[0] == pytest.approx(-0.3)


def test_at_all_samples_it_is_what_support_says():
    base, own = [0, 1, 3, 8, 2], [4, 0, 0, 8, 1]
    r = pair(8, base, own)
    s, p = support(8, base, own), point([r], 8)
    assert (p.E, p.S) == (s.E, s.S) == (1, 2)
    assert expected_chance(r, 8) == pytest.approx(s.chance_each_way)
    assert p.back == 0.0, "what is lost with all samples is not solved with all"
    half = 1.96 * np.sqrt((3 / 5 - 0.2**2) / 5)
    assert p.gap == pytest.approx((-0.2, -0.2 - half, -0.2 + half))


def test_losses_that_more_samples_take_back():
    """One rare success each, of 8: thinned to 2, the base finds it and the policy does not in 1/4 · 3/4 of the ways."""
    p = point([pair(8, [1], [1])], 2)
    assert pytest.approx(3 / 16) == p.S
    assert p.back == 1.0


def test_the_verdict_turns_with_the_number_of_samples():
    points = curve(study({"grpo": line([40, 42], [40, 0, 0])}), "grpo")
    assert points[0].gap[1] > 0 > points[-1].gap[2]
    found = depends(points)
    assert found.verdict == "agrees"
    assert found.size.startswith("2 samples: +")
    start = shows_from(points)
    assert start == next(p.m for p in points if p.gap[2] < 0)
    up = curve(study({"grpo": line([60], [60])}, bases={"0": {"n": 64, "c": line([1], [0, 1])}}), "grpo")
    assert depends(up).verdict == "opposite"
    assert shows_from(up) is None
    with pytest.raises(DataError, match="no runs of 'dapo'"):
        curve(study({"grpo": GRPO}), "dapo")


def test_page_and_figure(tmp_path):
    e = study({"grpo": GRPO, "self": SELF}, "methods")
    page = run_samples(e, tmp_path, ["grpo", "self"])
    assert "| GRPO | 64 | 1.000 | 0.667 | -0.333" in page
    files, _ = make(find("limen", "figure", 3), {"methods": [e]}, tmp_path)
    assert [f.name for f in files] == ["limen-figure3.png", "limen-figure3.svg", "limen-figure3.csv"]
    assert Path(tmp_path / "samples.json").exists()
