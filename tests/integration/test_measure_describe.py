"""A run's votes, diversity, lengths and modes from its folder, against numbers worked by hand."""

import json
from math import log

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from limen.cli import measure as cli
from limen.errors import DataError
from limen.measure import answers_from_run, describe, describe_difference, responses_from_run
from limen.store import Run
from limen.store.schema import rollout_row, verdict_row
from limen.types import Problem, Rollout, SamplingParams, Verdict


def write(path, samples, params=None, logprobs=True):
    """samples: {problem: [(outcome letter, answer, text, tokens)]}"""
    run = Run.create(path, "sample", path.name, {"temperature": 1.0})
    run.write_problems([Problem(i, i, "1") for i in samples])
    words = {"c": "correct", "w": "wrong", "n": "no_answer", "u": "unjudged"}
    with run.writer("rollouts") as rollouts, run.writer("verdicts") as verdicts:
        for problem, rows in samples.items():
            for i, (letter, answer, text, tokens) in enumerate(rows):
                r = Rollout(
                    problem, "p", 0, i, 0, tuple(range(tokens)), text, "length" if letter == "n" else "eos", "h", 3,
                    params or SamplingParams(), "test", tuple([-0.5] * tokens) if logprobs else None,
                )  # fmt: skip
                rollouts.append(rollout_row(r))
                verdicts.append(verdict_row(r, Verdict(words[letter], answer, "exact", "math@1")))
    return path


SAMPLES = {
    "a": [("c", "1", "python 1", 10), ("c", "1.0", "so 1", 20), ("w", "2", "two", 30), ("w", " 2 ", "two", 40)],
    "b": [("w", "3", "python", 8), ("w", "4", "four", 8), ("n", "", "...", 8), ("u", "?", "?", 99)],
}


@pytest.fixture
def run(tmp_path):
    return write(tmp_path / "run", SAMPLES)


def test_answers(run):
    got = answers_from_run(run)
    assert got.correct_P.tolist() == [2, 0]  # 1 and 1.0 are the correct answer, however written
    assert [w.tolist() for w in got.wrong_P] == [[2], [1, 1]]
    assert got.no_answer_P.tolist() == [0, 1]
    merged = answers_from_run(run, merge=lambda problem, answers: [0] * len(answers))
    assert [w.tolist() for w in merged.wrong_P] == [[2], [2]]


def test_description(run):
    got = describe(run, draws=50)
    assert got.budget == 3  # b has three judged samples
    m = {name: x.value for name, x in got.measures.items()}
    assert got.per_problem["answer_entropy"][1] == pytest.approx(log(3))
    # a: of the 4 subsets of 3 of [2, 2], each has entropy of (1/3, 2/3)
    assert got.per_problem["answer_entropy"][0] == pytest.approx(-(log(1 / 3) / 3 + 2 * log(2 / 3) / 3))
    assert m["distinct_answers"] == pytest.approx((2 + 2) / 2)
    assert m["self_consistency"] == pytest.approx((0.5 + 0.5) / 2)
    assert m["maj@1"] == pytest.approx((0.5 + 0) / 2)
    assert m["tokens"] == pytest.approx((25 + 8) / 2)
    assert got.per_problem["tokens_correct"][0] == 15
    assert got.measures["tokens_correct"].problems == 1  # b has no correct response
    assert m["truncated"] == pytest.approx((0 + 1 / 3) / 2)
    assert m["code_share"] == pytest.approx((0.25 + 1 / 3) / 2)
    assert got.per_problem["accuracy_code"].tolist() == [1, 0]
    assert got.per_problem["accuracy_language"].tolist() == pytest.approx([1 / 3, 0])
    assert m["token_entropy"] == pytest.approx(0.5)
    json.dumps(got.to_json(), allow_nan=False)


def test_token_entropy_needs_untruncated_sampling(tmp_path):
    cold = write(tmp_path / "cold", SAMPLES, SamplingParams(temperature=0.6))
    got = responses_from_run(cold)
    assert np.isnan(got.columns["token_entropy"]).all()
    assert "temperature 1" in got.why["token_entropy"]
    bare = responses_from_run(write(tmp_path / "bare", SAMPLES, logprobs=False))
    assert "no log-probabilities" in bare.why["token_entropy"]


def test_other_modes(run):
    assert responses_from_run(run, pattern="two").columns["code_share"].tolist() == [0.5, 0]
    with pytest.raises(DataError, match="not a regular expression"):
        responses_from_run(run, pattern="(")


def test_difference_is_paired(run, tmp_path):
    other = write(tmp_path / "other", {p: [SAMPLES["a"][0]] * 4 for p in "ab"})
    first, second = describe(run, draws=50), describe(other, draws=50)
    gap = describe_difference(first, second, draws=50)
    assert gap["maj@1"].value == pytest.approx(0.75)
    assert "answer_entropy" not in gap  # taken at other budgets
    same = describe_difference(first, first, draws=50)
    assert (same["tokens"].low, same["tokens"].high) == (0, 0)


def test_command_line(run, tmp_path):
    app = typer.Typer()
    cli.register(app)
    other = write(tmp_path / "other", SAMPLES)
    for args in ([str(run)], [str(run), str(other)], [str(run), "--json"], [str(run), str(other), "--json"]):
        done = CliRunner().invoke(app, ["describe", *args, "--draws", "20"])
        assert done.exit_code == 0, done.output
        assert "maj@1" in done.output
    done = CliRunner().invoke(app, ["passk", str(run), "--json"])
    assert json.loads(done.stdout)["maj_at_k"]["1"] == pytest.approx(0.25)


def test_equivalent_wrong_answers_are_one_where_asked(tmp_path):
    path = write(tmp_path / "run", {"a": [("w", a, "x", 3) for a in ("0.5", r"\frac{1}{2}", "2", "1/2")]})
    app = typer.Typer()
    cli.register(app)
    shown = []
    for extra in ([], ["--merge", "math"]):
        done = CliRunner().invoke(app, ["describe", str(path), "--json", "--draws", "0", *extra])
        assert done.exit_code == 0, done.output
        shown.append(json.loads(done.stdout)["measures"])
    assert shown[0]["distinct_answers"]["value"] == 4
    assert shown[1]["distinct_answers"]["value"] == 2
    assert shown[1]["self_consistency"]["value"] == 0.75
