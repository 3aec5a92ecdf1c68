"""Shares of code, from responses that were written with known ones, through figure, CSV and page."""

import csv
import io
import json
import re

import pytest

from limen.report import build_report
from report_synthetic import problems, write_run


def text(every):
    """Sample j is code where j is a multiple of `every`."""
    return lambda problem, sample, correct: ("python " if sample % every == 0 else "so ") + f"\\boxed{{{problem}}}"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("modes")
    items = problems(6)
    half = write_run(folder / "base", "base", items, [0.5] * 6, 8, 1, text(2))
    fewer = write_run(folder / "grpo", "grpo", items, [0.7] * 6, 8, 2, text(8))
    return build_report([half, fewer], folder / "report", title="modes", draws=50)


def test_shares_are_those_that_were_written(report):
    (figures,) = {p.parent for p in report.parent.rglob("modes.png")}
    assert (figures / "modes.svg").stat().st_size > 3000
    page = report.read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
    assert [p["modes"][0] for p in data["policies"]] == [0.5, 0.125]
    assert 'id="modes"' in page


def test_csv_of_the_modes(report):
    from limen.report.build import read_report
    from limen.report.export import csv_files

    data = read_report([report.parent.parent / n for n in ("base", "grpo")], draws=50)
    rows = list(csv.DictReader(io.StringIO(csv_files(data)["modes.csv"])))
    share = {r["policy"]: float(r["value"]) for r in rows if r["quantity"] == "code_share"}
    assert share == {"base": 0.5, "grpo": 0.125}
    assert {r["quantity"] for r in rows} == {"code_share", "accuracy_code", "accuracy_language"}


def test_without_code_there_is_no_figure(tmp_path):
    items = problems(4)
    run = write_run(tmp_path / "base", "base", items, [0.5] * 4, 4, 1)
    page = build_report([run], tmp_path / "report", draws=0)
    assert 'id="modes"' not in page.read_text(encoding="utf-8")
    assert not list(tmp_path.rglob("modes.png"))
