"""Longer training: its marks, its rules on counts made by hand, and a page that says what is missing."""

import json

import numpy as np
import pytest
from test_lab_claims import GRPO, SAME, SELF, N, line, study

from limen.errors import ConfigError, DataError
from limen.lab import longer
from limen.lab.frontier_rule import gap
from limen.lab.gallery import find, make
from limen.lab.longer_page import longer_page, missing
from limen.lab.longer_rules import common, early_mark, goes_on, holds
from limen.lab.policies import Study
from limen.lab.slices import small_file

LOST_MORE = line([60, 62, 64], [30, 0, 0, 0, 0, 0])
DOWN = {"grpo": [(100, GRPO), (200, GRPO), (800, LOST_MORE)], "self": [(200, SELF), (800, SELF)]}


def long_study(methods, **more):
    return study(methods, "longer", steps=800, recipe="demo", commits=["abc1234"], hardware=["a CPU"], **more)


def test_marks_and_settings():
    assert longer.marks(800) == [100, 200, 400, 800]
    assert longer.marks(3) == [1, 2, 3]
    made = longer.settings(Study(None, steps=800), "nll-1")
    assert made["save_steps"] == 100
    assert made["keep_checkpoints"] >= 8
    assert made["algorithm"]["forward_kl_beta"] == 1.0
    with pytest.raises(ConfigError, match="unknown arm 'nll-2'"):
        longer.known("nll-2")


def test_both_intervals_of_a_gap():
    """Seeds at 0.1, 0.2, 0.3: mean 0.2, t interval of half width 4.303 · 0.1 / √3."""
    g = gap(np.array([[0.1] * 5, [0.2] * 5, [0.3] * 5]))
    assert g.value == pytest.approx(0.2)
    assert g.seeds[1] - g.value == pytest.approx(4.30265 * 0.1 / np.sqrt(3), abs=1e-5)
    assert g.problems == pytest.approx((0.2, 0.2))
    assert not g.surely_above, "the seeds' interval holds 0"


def test_shrinkage_goes_on_or_not():
    """Of 60 problems GRPO loses 20 by step 200 and 25 by step 800."""
    e = long_study(DOWN)
    found = goes_on(e)
    assert found.verdict == "agrees"
    assert f"pass@{N} at step 200 − base -0.333" in found.size
    assert "-0.083" in found.size
    back = long_study({"grpo": [(200, LOST_MORE), (800, GRPO)]})
    assert goes_on(back).verdict == "opposite"
    level = long_study({"grpo": [(200, GRPO), (800, GRPO)]})
    assert goes_on(level).verdict == "undetermined"
    assert goes_on(long_study({"grpo": [(200, GRPO)]})) is None


def test_holding_needs_a_gain_and_the_coverage():
    assert holds(long_study(DOWN), "self").verdict == "agrees"
    assert holds(long_study({"self": [(800, GRPO)]}), "self").verdict == "opposite"
    assert holds(long_study({"self": [(800, SAME)]}), "self").verdict == "undetermined", "no gain at pass@1"
    two = long_study({"self": [(800, SELF)]}, seeds=2)
    assert holds(two, "self").verdict == "too short to say"
    assert holds(two, "nll-1") is None


def test_the_end_is_what_all_seeds_have_and_the_page_names_the_rest():
    e = long_study(DOWN)
    e.doc["runs"][:] = [r for r in e.doc["runs"] if not (r["method"] == "self" and r["seed"] == 2 and r["step"] == 800)]
    assert common(e, "self") == [200]
    assert early_mark([100, 200, 400], 800) == 200
    text = missing(e)[0]
    assert "SELF, seed 2: not finished, sampled up to step 200" in text
    assert "GRPO + forward KL 1: 0 of 3 seeds" in text
    assert "GRPO, seed" not in text
    page = longer_page(e)
    assert "| SELF | 800 | 0, 1 |" in page
    assert "GRPO + forward KL nll 1 holds: not measured" in page


def write(out, name, c, **more):
    counts = {"ids": [f"p{i}" for i in range(len(c))], "task": ["t"] * len(c), "n": [8] * len(c), "c": c}
    doc = {"counts": counts, "study": {"recipe": "demo", "steps": 800}, "provenance": {"commit": "abc1234"}, **more}
    file = small_file(out / name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(doc), encoding="utf-8")


def test_a_page_from_small_files_alone(tmp_path):
    with pytest.raises(DataError, match="nothing of this study"):
        longer.read_small(tmp_path)
    write(tmp_path, "base", [4, 1, 0])
    assert "no mark of any training" in longer.write_page(tmp_path)
    write(tmp_path, "seed-0/grpo-step-100", [8, 0, 0], arm="grpo", seed=0, step=100)
    page = longer.write_page(tmp_path)
    assert "| GRPO | 100 | 0 | 0.333 | 0.333 |" in page
    assert (tmp_path / "longer.png").stat().st_size > 5000
    assert longer.collect(tmp_path, tmp_path / "x.tar.gz") > 500
    write(tmp_path, "seed-0/self-step-100", [8, 0, 0], arm="self", seed=0, step=100, study={"steps": 3})
    with pytest.raises(DataError, match="one folder each"):
        longer.read_small(tmp_path)
    with pytest.raises(DataError, match="one folder each"):  # and no page that ends as if all were well
        longer.write_page(tmp_path)


def test_its_figure_from_a_digest(tmp_path):
    files, text = make(find("limen", "figure", 1), {"longer": [long_study(DOWN)]}, tmp_path)
    assert "longer training" in text
    lines = next(f for f in files if f.suffix == ".csv").read_text(encoding="utf-8").splitlines()
    assert f"grpo,800,{N},3,0.58" in "\n".join(lines)
