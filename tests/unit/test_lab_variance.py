"""The gradient's variance and the tail: by hand on a policy that can be written down, and the rule both ways round."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from limen.errors import ConfigError
from limen.lab.evidence import Evidence
from limen.lab.policies import Study
from limen.lab.variance import marks, run_one, spread, tail_mass, token_logs
from limen.lab.variance_page import before, cause, drop, figure, variance_page


def test_tail_by_hand():
    log = torch.log(torch.tensor([[[0.5, 0.25, 0.125, 0.0625, 0.0625], [0.2, 0.2, 0.2, 0.2, 0.2]]]))
    assert tail_mass(log, 3)[0].tolist() == pytest.approx([0.125, 0.4])


def test_spread_by_hand():
    """Gradients (1, 0) and (3, 2): mean (2, 1), variances 2 and 2."""
    assert spread(np.array([[1.0, 0.0], [3.0, 2.0]])) == pytest.approx((4.0, 4.0 / 5.0))
    assert spread(np.array([[1.0, 0.0]])) == (None, None)
    assert spread(np.array([[1.0], [-1.0]])) == (2.0, None)


def test_padding_changes_no_token():
    """A policy whose logits are a table of the token before: the shorter answer reads the same alone and padded."""
    table = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))

    def model(input_ids):
        return SimpleNamespace(logits=table[input_ids])

    both, _, mask = token_logs(model, (1, 2), [(3, 4, 5), (4,)], "cpu")
    want = torch.log_softmax(table, -1)
    assert both[0].tolist() == pytest.approx([float(want[a, b]) for a, b in ((2, 3), (3, 4), (4, 5))])
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert float(both[1, 0]) == pytest.approx(float(want[2, 4]))


def measured(success, variance, tail, seeds=3):
    """W-REINFORCE's curves at steps 0, 3, 6; GRPO's are level at 0.4, 1 and 0.1, and seeds differ by a thousandth."""
    points = [
        {"method": m, "seed": s, "step": step, "success": a, "variance": b * (1 + s / 1e3), "relative": b,
         "tail": c + s / 1e4 * (m == "w_reinforce"), "active": 10}
        for s in range(seeds)
        for i, step in enumerate((0, 3, 6))
        for m, a, b, c in (("w_reinforce", success[i], variance[i], tail[i]), ("grpo", 0.4, 1.0, 0.1))
    ]  # fmt: skip
    return Evidence("variance", {"points": points, "steps": 6}, Path("variance.digest.json"))


def test_the_drop_and_what_came_before_it():
    e = measured((0.4, 0.3, 0.2), (1, 4, 9), (0.1, 0.2, 0.3))
    assert drop(e) == 6
    assert before(e, "tail", 6)[0] == pytest.approx(0.1001)
    assert before(e, "variance", 6)[0] == pytest.approx(np.log(4), abs=2e-3), "the base is left out"
    assert cause(e).verdict == "agrees"
    assert "drop at step 6" in cause(e).size
    assert cause(measured((0.4, 0.3, 0.2), (1, 0.25, 9), (0.1, 0.05, 0.3))).verdict == "opposite"
    assert cause(measured((0.4, 0.3, 0.2), (1, 0.25, 9), (0.1, 0.2, 0.3))).verdict == "undetermined"


def test_when_nothing_can_be_said():
    assert cause(measured((0.4, 0.3, 0.3), (1, 4, 9), (0.1, 0.2, 0.3))).verdict == "too short to say"
    assert cause(measured((0.4, 0.1, 0.1), (1, 4, 9), (0.1, 0.2, 0.3))).verdict == "too short to say"
    assert cause(measured((0.4, 0.3, 0.2), (1, 4, 9), (0.1, 0.2, 0.3), seeds=2)).verdict == "too short to say"
    assert cause(Evidence("variance", {}, Path("x"))) is None


def test_page_figure_and_bad_input(tmp_path):
    e = measured((0.4, 0.3, 0.2), (1, 4, 9), (0.1, 0.2, 0.3))
    assert "| W-REINFORCE | 3 | 0.3 | 4" in variance_page(e)
    assert figure(e, tmp_path, "variance")[0].stat().st_size > 5000
    assert marks(24) == [3, 6, 9, 12, 15, 18, 21, 24]
    with pytest.raises(ConfigError, match="unknown arm 'dapo'"):
        run_one(Study(tmp_path), "dapo", 0)


def test_three_seeds_that_were_not_measured_are_not_three_seeds():
    e = measured((0.4, 0.3, 0.2), (1, 4, 9), (0.1, 0.2, 0.3))
    missing = [p for p in e.doc["points"] if p["step"] == 3 and p["method"] == "w_reinforce"]
    missing[0]["variance"] = None
    assert cause(e).verdict == "too short to say", "the variance of two seeds"
    for p in missing:
        p["variance"] = None
    assert cause(e).verdict == "too short to say"
    assert "first mark" not in cause(e).size
    assert cause(e).size.endswith("gradient variance over groups")


def test_the_drop_compares_the_same_seeds():
    e = measured((0.4, 0.3, 0.3), (1, 4, 9), (0.1, 0.2, 0.3))
    for p in e.doc["points"]:
        if p["seed"] == 2 and p["method"] == "grpo":
            p["success"] = 1.0
    e.doc["points"][:] = [p for p in e.doc["points"] if (p["seed"], p["method"]) != (2, "w_reinforce")]
    assert drop(e) is None, "0.3 is not half of 0.4, whatever a seed that one arm lacks has"
