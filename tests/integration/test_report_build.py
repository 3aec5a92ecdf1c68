"""A report from run folders: what is written, and that its numbers are those of the counts."""

import json
import re

import pytest

from limen.errors import DataError, StoreError
from limen.report import build_report, read_report
from report_synthetic import paradox, problems, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return paradox(tmp_path_factory.mktemp("runs"), count=60, n=32)


@pytest.fixture(scope="module")
def out(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    sampled = [runs[k] for k in ("base", "GRPO", "SELF", "control")]
    build_report(sampled, out, train_runs=[runs["train GRPO"], runs["train SELF"]], draws=200)
    return out


def test_everything_is_written(out):
    names = {p.name for p in (out / "figures").iterdir()}
    for figure in ("passk", "difference", "flips", "support", "training"):
        assert {f"{figure}.png", f"{figure}.svg", f"{figure}.csv"} <= names
    assert (out / "tables.md").read_text().count("\n| base |") == 3
    assert r"\begin{tabular}" in (out / "tables.tex").read_text()


def test_page_names_nothing_outside_itself(out):
    html = (out / "report.html").read_text()
    assert "default-src &#39;none&#39;" in html
    assert not re.findall(r"<(?:link|img|iframe|script src|object|embed)\b", html)
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", html)


def test_counts_in_the_page_are_the_runs_own(runs, out):
    html = (out / "report.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.S).group(1))
    assert [p["role"] for p in data["policies"]] == ["base", "trained", "trained", "control"]
    from limen.store import Run

    rows = Run.open(runs["GRPO"]).table("verdicts", ["problem_id", "outcome"]).to_pylist()
    for i, problem in enumerate(data["problems"]["id"]):
        assert data["problems"]["c"][1][i] == sum(
            r["problem_id"] == problem and r["outcome"] == "correct" for r in rows
        )
    assert data["problems"]["n"][1] == [32] * 60


def test_another_base_and_a_named_control(runs):
    data = read_report([runs["GRPO"], runs["base"]], base="base", draws=0)
    assert [p.name for p in data.policies] == ["base", "GRPO"]
    data = read_report([runs["base"], runs["GRPO"]], controls=["GRPO"], draws=0)
    assert data.policies[1].role == "control"
    with pytest.raises(DataError, match="no policy is called 'nobody'"):
        read_report([runs["base"]], base="nobody")


def test_single_run_needs_no_comparison(runs, tmp_path):
    html = build_report([runs["base"]], tmp_path, figures=False, draws=50).read_text()
    assert "within 32 attempts" in html
    assert not (tmp_path / "figures").exists()


def test_wrong_inputs_say_what_to_do(runs, tmp_path):
    with pytest.raises(StoreError, match="no such folder"):
        build_report([tmp_path / "absent"], tmp_path)
    with pytest.raises(DataError, match="--train"):
        build_report([runs["train GRPO"]], tmp_path)
    items = problems(5)
    other = write_run(tmp_path / "other", "other", items, [0.5] * 5, 4, 9)
    with pytest.raises(DataError, match="Run both on the same problems"):
        build_report([runs["base"], other], tmp_path / "out")
    (runs["train SELF"] / "metrics.jsonl").write_text('{"loss": 1}\n')
    with pytest.raises(DataError, match="step"):
        build_report([runs["base"]], tmp_path / "out", train_runs=[runs["train SELF"]])
