"""Sampling at several settings: what is called faked, hidden or exaggerated, on counts made by hand."""

from pathlib import Path

import pytest
from test_lab_claims import TASKS, N, line

from limen.errors import ConfigError, DataError
from limen.lab.decoding import (
    DecodingStudy,
    base_change,
    changes,
    label,
    nucleus_fakes,
    parse,
    run_one,
    settings,
    shift,
)
from limen.lab.decoding_page import decoding_page
from limen.lab.evidence import Evidence
from limen.lab.frontier_rule import Gap
from limen.lab.gallery import find, make
from limen.lab.policies import Study

WHOLE, CUT = line([30], [3]), line([40], [4, 0])  # the cut loses half of the hard ones: 15 of 60
LESS, LEAST = line([60], [30, 0, 0]), line([60], [30, 0])


def decoded(base, grpo, control=WHOLE):
    """Settings by name: the base's and GRPO's counts there."""
    runs = [
        {"method": "grpo", "seed": s, "group": g, "step": 0, "n": N, "c": c} for g, c in grpo.items() for s in range(3)
    ]
    runs.append({"method": "control", "seed": 0, "group": "t1-p1", "step": 0, "n": N, "c": control})
    bases = {g: {"n": N, "c": c} for g, c in base.items()}
    doc = {"digest": "decoding", "tasks": TASKS, "bases": bases, "runs": runs}
    return Evidence("decoding", doc, Path("decoding.digest.json"))


def test_settings_are_read_and_the_reference_is_first():
    assert parse("0.6/0.95,1/1") == [(1.0, 1.0), (0.6, 0.95)]
    assert label((0.6, 0.95)) == "t0.6-p0.95"
    for wrong in ("1", "0/1", "1/1.5", "a/b", "1/1/1"):
        with pytest.raises(ConfigError, match="temperature/top-p"):
            parse(wrong)


def test_a_nucleus_that_costs_the_base_coverage_fakes_shrinkage():
    e = decoded({"t1-p1": WHOLE, "t1-p0.8": CUT}, {"t1-p1": WHOLE, "t1-p0.8": CUT})
    assert settings(e) == ["t1-p1", "t1-p0.8"]
    value, low, high = base_change(e, "t1-p0.8", N)
    assert value == pytest.approx(-15 / 60)
    assert low < value < high < 0
    assert nucleus_fakes(e).verdict == "agrees"
    assert shift(e, "t1-p0.8", "grpo", N).value == 0
    assert "leaves" in decoding_page(e)


def test_it_does_not_where_the_base_stays_or_the_second_draw_falls_too():
    stays = decoded({"t1-p1": WHOLE, "t1-p0.8": WHOLE}, {"t1-p1": LESS, "t1-p0.8": LESS})
    assert nucleus_fakes(stays).verdict == "opposite"
    noisy = decoded({"t1-p1": WHOLE, "t1-p0.8": CUT}, {"t1-p1": LESS, "t1-p0.8": LESS}, control=CUT)
    assert nucleus_fakes(noisy).verdict == "undetermined"
    assert nucleus_fakes(decoded({"t1-p1": WHOLE, "t0.6-p1": CUT}, {"t1-p1": LESS, "t0.6-p1": LESS})) is None


def test_the_difference_may_be_hidden_or_exaggerated():
    """As they are GRPO lacks 20 of 60, at the setting 15 of 60 and the base too: the difference is gone."""
    e = decoded({"t1-p1": WHOLE, "t1-p0.8": CUT}, {"t1-p1": LESS, "t1-p0.8": LEAST})
    found = shift(e, "t1-p0.8", "grpo", N)
    assert found.value == pytest.approx(20 / 60)
    assert changes(found) == "hides"
    assert changes(Gap(-0.1, (-0.12, -0.08), (-0.15, -0.05))) == "exaggerates"
    assert changes(Gap(0.0, (-0.01, 0.01), (-0.02, 0.02))) == "leaves"
    assert changes(Gap(0.0, (-0.01, 0.01), (-0.2, 0.2))) == "unclear"
    assert changes(Gap(0.1, (-0.01, 0.21), (0.05, 0.15))) == "unclear", "seeds do not agree"


def test_its_figure(tmp_path):
    e = decoded({"t1-p1": WHOLE, "t0.6-p0.95": CUT}, {"t1-p1": LESS, "t0.6-p0.95": LEAST})
    files, _ = make(find("limen", "figure", 2), {"decoding": [e]}, tmp_path)
    text = next(f for f in files if f.suffix == ".csv").read_text(encoding="utf-8")
    assert f"t0.6-p0.95,base,,{N},0.75" in text
    with pytest.raises(DataError, match="no runs of 't9'"):
        e.runs_of_base("t9")


def test_models_that_are_not_there(tmp_path):
    whole = DecodingStudy(Study(tmp_path, n=2), tmp_path / "methods", ("grpo",), (0,))
    with pytest.raises(ConfigError, match="no model at"):
        run_one(whole, "base")
