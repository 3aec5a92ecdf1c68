"""verify, regrade, check-golds and verify-bench on a small run folder."""

import json

import pytest
from typer.testing import CliRunner

from limen.cli import _register, app
from limen.errors import DataError, StoreError
from limen.store import Run
from limen.store.schema import rollout_row, verdict_row
from limen.types import Problem, Rollout, SamplingParams, Verdict

_register()
PROBLEMS = [Problem("p1", "1/3?", "1/3"), Problem("p2", "2+2?", "4"), Problem("p3", "52 in base 8?", "52_8")]
TEXTS = {"p1": ["\\boxed{0.33}", "\\boxed{\\frac13}"], "p2": ["\\boxed{4}", "\\boxed{5}"], "p3": ["\\boxed{52}", "4"]}


def rollout(problem: str, index: int, text: str, finish: str = "eos") -> Rollout:
    return Rollout(
        problem,
        "base",
        0,
        index,
        1,
        (1, 2),
        text,
        finish,
        "hash",
        3,
        SamplingParams(),
        "exact",  # type: ignore[arg-type]
    )


@pytest.fixture
def run(tmp_path):
    run = Run.create(tmp_path / "run", "sample", "base", {"verifier": "math"})
    run.write_problems(PROBLEMS)
    with run.writer("rollouts") as writer:
        for problem, texts in TEXTS.items():
            for i, text in enumerate(texts):
                writer.append(rollout_row(rollout(problem, i, text)))
        writer.append(rollout_row(rollout("p2", 2, "\\boxed{4}", "length")))
    return run


def invoke(*args: str) -> dict:
    result = CliRunner().invoke(app, [*args, "--json"], catch_exceptions=False)
    return {"exit": result.exit_code, **(json.loads(result.stdout) if result.stdout.startswith("{") else {})}


def rows(run):
    return {(r["problem_id"], r["sample_index"], r["verifier"]): r for r in run.table("verdicts").to_pylist()}


def test_verify_judges_what_is_not_judged_and_nothing_twice(run):
    first = invoke("verify", str(run.path))
    assert first["judged"] == 7
    assert first["outcomes"] == {"correct": 3, "wrong": 3, "no_answer": 1}
    again = invoke("verify", str(run.path))
    assert (again["judged"], again["before"]) == (0, 7)
    with run.writer("rollouts") as writer:
        writer.append(rollout_row(rollout("p2", 3, "\\boxed{4}")))
    assert invoke("verify", str(run.path))["judged"] == 1
    verdicts = rows(run)
    assert len(verdicts) == 8
    assert verdicts["p2", 2, "math@1"]["rule"] == "truncated"
    assert verdicts["p1", 0, "math@1"]["outcome"] == "wrong"


def test_regrade_keeps_the_old_and_says_what_changed(run):
    invoke("verify", str(run.path))
    strict = json.dumps({"name": "math", "base": "strict", "decimal": 0.02})
    report = invoke("regrade", str(run.path), "--verifier", strict, "--samples", "5")
    assert (report["old"], report["compared"], report["changed"]) == ("math@1", 7, 2)
    changes = {(c["old"], c["new"]): c for c in report["changes"]}
    assert changes["wrong", "correct"]["samples"][0]["gold"] == "1/3"
    assert changes["wrong", "correct"]["new_rule"] == "decimal"
    assert changes["correct", "wrong"]["samples"][0]["problem_id"] == "p3"
    assert changes["correct", "wrong"]["count"] == 1
    assert len(rows(run)) == 14
    text = CliRunner().invoke(app, ["regrade", str(run.path), "--verifier", strict]).stdout
    assert "2 of 7 verdicts changed" in text
    back = invoke("regrade", str(run.path), "--verifier", "math", "--against", report["new"])
    assert (back["old"], back["changed"]) == (report["new"], 2)


def test_regrade_needs_something_to_compare_with(run):
    invoke("verify", str(run.path))
    with pytest.raises(DataError, match="nothing to compare"):
        invoke("regrade", str(run.path), "--verifier", "math")
    with pytest.raises(DataError, match="no single verifier"):
        invoke("regrade", str(run.path), "--verifier", "exact", "--against", "numeric")


def test_a_regrade_reads_verdicts_of_any_origin(run):
    with run.writer("verdicts") as writer:
        for problem, texts in TEXTS.items():
            for i, text in enumerate(texts):
                writer.append(verdict_row(rollout(problem, i, text), Verdict("correct", "?", "old", "other@9")))
    report = invoke("regrade", str(run.path), "--verifier", "math")
    assert (report["old"], report["compared"], report["changed"]) == ("other@9", 6, 3)


def test_runs_that_cannot_be_judged_are_one_clear_error(run, tmp_path):
    empty = Run.create(tmp_path / "empty", "sample", "base", {})
    with pytest.raises(StoreError, match="no responses"):
        invoke("verify", str(empty.path))
    run.write_problems(PROBLEMS[:1])
    with pytest.raises(DataError, match="not in its problems"):
        invoke("verify", str(run.path))


def test_check_golds_lists_what_fails(tmp_path):
    path = tmp_path / "problems.jsonl"
    golds = {"a": "5", "b": "$f(x)=ax$, where $a$ is any positive whole number that divides ten", "c": "\\div"}
    lines = [json.dumps({"id": k, "problem": f"question {k}", "answer": v}) for k, v in golds.items()]
    path.write_text("\n".join(lines))
    report = invoke("check-golds", str(path))
    assert report["exit"] == 0
    assert {r["problem_id"]: r["fails"] for r in report["reports"]} == {"b": False, "c": False}
    numeric = invoke("check-golds", str(path), "--verifier", "numeric")
    assert numeric["exit"] == 1
    assert {r["problem_id"] for r in numeric["reports"] if r["fails"]} == {"b", "c"}
    text = CliRunner().invoke(app, ["check-golds", str(path), "--verifier", "numeric"]).stdout
    assert "2 fail" in text
    assert "FAILS: b" in text


def test_verify_bench_counts_right_and_wrong(tmp_path):
    path = tmp_path / "cases.jsonl"
    cases = [
        {"gold": "1/2", "response": "\\boxed{0.5}", "expected": True},
        {"gold": "1/2", "response": "\\boxed{0.4}", "expected": "wrong"},
        {"gold": "1/2", "response": "\\boxed{0.4}", "expected": True, "why": "a label that is wrong"},
    ]
    path.write_text("\n".join(json.dumps(c) for c in cases))
    result = CliRunner().invoke(app, ["verify-bench", str(path), "--json"], catch_exceptions=False)
    own, other = json.loads(result.stdout)
    assert (own["name"], own["right"], own["labelled"], own["false_negatives"]) == ("math@1", 2, 3, 1)
    assert (other["name"], other["right"]) == ("math-verify", 2)
    text = CliRunner().invoke(app, ["verify-bench", str(path)], catch_exceptions=False).stdout
    assert "a label that is wrong" in text
