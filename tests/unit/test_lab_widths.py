"""The figure of sizes: changes against the base of the same width, from counts made by hand."""

from pathlib import Path

import pytest
from test_lab_claims import BASE, GRPO, SAME, SELF, TASKS, N, line

from limen.errors import DataError
from limen.lab.evidence import Evidence
from limen.lab.gallery import find, make
from limen.lab.widths_figure import changes


def of_widths():
    own = {("grpo", "48"): SAME, ("grpo", "96"): GRPO, ("self", "48"): SELF, ("self", "96"): SELF}
    runs = [
        {"method": m, "seed": s, "group": g, "step": 200, "n": N, "c": c} for (m, g), c in own.items() for s in range(3)
    ]
    bases = {"48": {"n": N, "c": line([31, 32, 33], [4])}, "96": {"n": N, "c": BASE}}
    doc = {"digest": "widths", "tasks": TASKS, "bases": bases, "runs": runs, "parameters": {"48": 84000, "96": 334000}}
    return Evidence("widths", doc, Path("widths.digest.json"))


def test_each_width_against_its_own_base():
    rows = {(r["method"], r["width"], r["k"]): r for r in changes(of_widths())}
    assert rows["grpo", 48, 1]["change"] == pytest.approx(0)
    assert rows["grpo", 96, 1]["change"] == pytest.approx(0.28125)
    assert rows["grpo", 96, N]["change"] == pytest.approx(-1 / 3)
    assert rows["grpo", 96, N]["high"] < -0.2
    assert rows["self", 96, N]["parameters"] == 334000


def test_its_figure(tmp_path):
    files, _ = make(find("limen", "figure", 4), {"widths": [of_widths()]}, tmp_path)
    assert files[0].stat().st_size > 5000
    with pytest.raises(DataError, match="several widths"):
        changes(Evidence("widths", {**of_widths().doc, "parameters": {}}, Path("x")))
