"""Counts from run folders: what is counted, what is refused."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from limen.cli import measure as cli
from limen.errors import DataError, StoreError
from limen.measure import compare, counts_from_run, summary
from limen.store import Run
from limen.store.schema import verdict_row
from limen.types import Problem, Prompt, Rollout, SamplingParams, Verdict


def rollout(problem, sample, policy="base", step=0, finish="eos"):
    return Rollout(problem, policy, step, sample, 0, (1, 2), "x", finish, "h", 3, SamplingParams(), "test")


def write_run(path, outcomes, kind="sample", template="h", verifier="math@1"):
    """A run folder whose verdicts are `outcomes`: {(problem, policy, step): "cwnu..."}, one letter a sample."""
    run = Run.create(path, kind, path.name, {"temperature": 1.0})
    ids = list(dict.fromkeys(key[0] for key in outcomes))
    problems = [Problem(i, f"question {i}", "1", task="even" if n % 2 == 0 else "odd") for n, i in enumerate(ids)]
    run.write_problems(problems, [Prompt(i, i, (1,), template) for i in ids])
    words = {"c": "correct", "w": "wrong", "n": "no_answer", "u": "unjudged", "t": "no_answer"}
    with run.writer("verdicts") as out:
        for (problem, policy, step), letters in outcomes.items():
            for i, letter in enumerate(letters):
                r = rollout(problem, i, policy, step, "length" if letter == "t" else "eos")
                out.append(verdict_row(r, Verdict(words[letter], verifier=verifier)))
    return path


@pytest.fixture
def base(tmp_path):
    return write_run(tmp_path / "base", {("a", "base", 0): "ccwn", ("b", "base", 0): "wwuu", ("c", "base", 0): "tccc"})


def test_counts(base):
    t = counts_from_run(base)
    assert t.problem_ids == ("a", "b", "c")
    assert t.n_P.tolist() == [4, 2, 4]
    assert t.c_P.tolist() == [2, 0, 3]
    assert t.unjudged_P.tolist() == [0, 2, 0]
    assert t.no_answer_P.tolist() == [1, 0, 1]
    assert t.truncated_P.tolist() == [0, 0, 1]
    assert t.task_P == ("even", "odd", "even")
    assert (t.policy, t.step, t.verifier, t.prompt_hash_P) == ("base", 0, "math@1", ("h", "h", "h"))


def test_ambiguous_lists_what_is_there(tmp_path):
    run = write_run(tmp_path / "train", {("a", "p", 0): "cw", ("a", "p", 5): "cc", ("b", "p", 5): "ww"}, kind="train")
    with pytest.raises(DataError, match=r"step 0 .*step 5"):
        counts_from_run(run)
    assert counts_from_run(run, step=0).problem_ids == ("a",)  # only what was sampled at that step
    assert counts_from_run(run, step=5).problem_ids == ("a", "b")
    with pytest.raises(DataError, match="none that fits"):
        counts_from_run(run, step=7)


def test_repeated_and_contradicting_verdicts(base):
    run = Run.open(base)
    with run.writer("verdicts") as out:
        out.append(verdict_row(rollout("a", 0), Verdict("correct", verifier="math@1")))
    assert counts_from_run(base).n_P.tolist() == [4, 2, 4]
    with run.writer("verdicts") as out:
        out.append(verdict_row(rollout("a", 0), Verdict("wrong", verifier="math@1")))
    with pytest.raises(DataError, match="contradicting"):
        counts_from_run(base)


def test_two_verifiers(base):
    with Run.open(base).writer("verdicts") as out:
        for problem in "abc":
            out.append(verdict_row(rollout(problem, 0), Verdict("correct", verifier="math@2")))
    with pytest.raises(DataError, match="math@2"):
        counts_from_run(base)
    assert counts_from_run(base, verifier="math@2").c_P.tolist() == [1, 1, 1]


def test_samples_without_verdict_and_problems_without_samples(base):
    run = Run.open(base)
    run.write_problems([*run.problems(), Problem("d", "late", "1")])
    from limen.store.schema import rollout_row

    with run.writer("rollouts") as out:
        for i in range(6):
            out.append(rollout_row(rollout("a", i)))
    t = counts_from_run(base)
    assert t.problem_ids[-1] == "d"
    assert t.n_P[-1] == 0
    assert t.unjudged_P[0] == 2
    assert any("no verdict" in n for n in t.notes)
    assert any("1 of 4 problems have no judged sample" in n for n in t.notes)


def test_no_verdicts(tmp_path):
    Run.create(tmp_path / "r", "sample", "r", {})
    with pytest.raises(StoreError, match="limen verify"):
        counts_from_run(tmp_path / "r")


def test_other_template_is_refused(base, tmp_path):
    other = write_run(tmp_path / "other", {(p, "x", 0): "ccww" for p in "abc"}, template="h2")
    with pytest.raises(DataError, match="rendered prompt"):
        compare(counts_from_run(base), counts_from_run(other))
    forced = compare(counts_from_run(base), counts_from_run(other), force=True)
    assert any("forced" in n for n in forced.notes)


def test_other_problems_are_refused(base, tmp_path):
    other = write_run(tmp_path / "other", {(p, "x", 0): "ccww" for p in "bcd"})
    with pytest.raises(DataError, match="2 are shared"):
        compare(counts_from_run(base), counts_from_run(other))
    forced = compare(counts_from_run(base), counts_from_run(other), force=True)
    assert forced.base.problem_ids == ("b", "c")


def test_command_line(base, tmp_path):
    other = write_run(tmp_path / "other", {(p, "x", 0): "ccww" for p in "abc"})
    app = typer.Typer()
    cli.register(app)
    done = CliRunner().invoke(app, ["passk", str(base), "--json", "--k", "1,4", "--draws", "20"])
    assert done.exit_code == 0, done.output
    got = json.loads(done.stdout)
    assert got["pass_at_k"]["1"] == pytest.approx(np.mean([0.5, 0, 0.75]))
    assert got["pass_at_k"]["4"] is None
    assert "1 of them because of unjudged" in got["undefined"]["4"]
    assert got["samples"]["unjudged"] == 2
    for extra in ([], ["--json"]):
        done = CliRunner().invoke(app, ["compare", str(base), str(other), *extra])
        assert done.exit_code == 0, done.output
        assert "unjudged" in done.output


def test_adaptive_run_is_cut_at_its_last_success(tmp_path):
    path = write_run(
        tmp_path / "adaptive",
        {
            ("a", "p", 0): "wcwcww",  # stopped at 4; two samples overshot
            ("b", "p", 0): "wwwwwwww",  # ran to the end
            ("c", "p", 0): "cuwc",  # the unjudged sample does not count
            ("d", "p", 0): "cc",
        },
    )
    run = Run.open(path)
    run.info["settings"] = {"stop_after_successes": 2, "max_samples": 8}
    run.save()
    t = counts_from_run(path)
    assert t.stop is not None
    assert (t.stop.r, t.stop.n_max) == (2, 8)
    assert t.n_P.tolist() == [4, 8, 3, 2]
    assert t.c_P.tolist() == [2, 0, 2, 2]
    got = summary(t, [1, 2, 8], draws=50)
    # (N=4: 1/3, none, N=3: 1/2, N=2: 1) and so on by the closed form
    assert got.curve.value_K.tolist() == pytest.approx([(1 / 3 + 0 + 1 / 2 + 1) / 4, (2 / 3 + 0 + 1 + 1) / 4, 3 / 4])
    other = compare(t, t, draws=50)
    assert (other.support.P, other.support.O) == (3, 1)
    assert other.support.chance_from.startswith("posterior")
    json.dumps(other.to_json(), allow_nan=False)


def test_mixed_templates_in_one_run_are_refused(base):
    from dataclasses import replace

    from limen.store.schema import rollout_row

    with Run.open(base).writer("rollouts") as out:
        out.append(rollout_row(rollout("a", 0)))
        out.append(rollout_row(replace(rollout("a", 1), prompt_hash="other")))
    with pytest.raises(DataError, match="mixed templates"):
        counts_from_run(base)
