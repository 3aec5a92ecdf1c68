"""Reasoning Gym's scorers behind the verifier: right answers kept, cheats refused, hostile answers not run."""

import subprocess
import sys
from pathlib import Path

import pytest

from limen.problems import load_problems
from limen.verify import JudgeItem, VerifierPool

ROOT = Path(__file__).resolve().parents[2]
TASKS = ["dice", "prime_factorization", "palindrome_generation", "advanced_geometry", "arc_1d", "leg_counting"]
TASKS += ["family_relationships", "power_function", "chain_sum", "simple_equations", "arc_agi", "spiral_matrix"]
TASKS += ["game_of_life_halting", "number_sorting", "simple_integration", "n_queens", "countdown", "knights_knaves"]


@pytest.fixture(scope="module")
def pool():
    with VerifierPool("reasoning_gym", workers=1, deadline=60.0) as pool:
        yield pool


@pytest.mark.parametrize("task", TASKS)
def test_gold_is_right_and_nonsense_is_wrong(pool, task):
    problem = load_problems(f"reasoning_gym:{task}?size=1")[0]
    gold = problem.answer
    responses = [
        gold,
        f"<answer>{gold}</answer>",
        f"<answer>{gold}</answer> ",
        "zzz",
        "7 " + gold + " or 1",
        "0.5",
        "{}",
    ]
    verdicts = pool.judge_many([JudgeItem(gold, r, problem.metadata) for r in responses])
    assert [v.outcome for v in verdicts[:3]] == ["correct"] * 3
    assert [v.outcome for v in verdicts[3:4]] == ["wrong"]
    assert all(v.outcome != "unjudged" for v in verdicts)
    assert "correct" not in {v.outcome for v in verdicts[5:]}


def test_the_scorer_itself_accepts_the_gold(pool):
    """Through `decide`, without the shortcut for equal texts: entries survive being stored as JSON."""
    from limen.verify.reasoning import ReasoningGym

    for task in TASKS:
        problem = load_problems(f"reasoning_gym:{task}?size=1")[0]
        assert ReasoningGym().decide(problem.answer, problem.answer, problem.metadata).outcome == "correct", task


@pytest.mark.parametrize("task", ["countdown", "simple_integration", "spiral_matrix", "n_queens", "string_insertion"])
def test_answers_that_are_code_are_not_run(pool, task, tmp_path):
    mark = tmp_path / "mark"
    problem = load_problems(f"reasoning_gym:{task}?size=1")[0]
    code = f"open({str(mark)!r}, 'w')"
    answers = [code, f"[{code}]", f"(open)({str(mark)!r}, 'w')", f"[open][0]({str(mark)!r}, 'w')", "().__class__"]
    answers += [f"__import__('os').system('touch {mark}')", f"ｏｐｅｎ({str(mark)!r}, 'w')", f"exec ( {code!r} )"]
    verdicts = pool.judge_many([JudgeItem(problem.answer, a, problem.metadata) for a in answers])
    assert {v.outcome for v in verdicts} == {"wrong"}
    assert not mark.exists()


def test_partial_credit_is_wrong(pool):
    problem = load_problems("reasoning_gym:prime_factorization?size=1")[0]
    factors = problem.answer.split(" × ")
    product = str(eval("*".join(factors)))  # noqa: S307 - digits of our own making
    assert pool.judge(problem.answer, f"{product} × 1", problem.metadata).outcome == "wrong"
    assert pool.judge(problem.answer, " × ".join(reversed(factors)), problem.metadata).outcome == "correct"


def test_a_worker_is_shut_off_from_network_and_disk(tmp_path):
    mark = tmp_path / "mark"
    script = f"""
import socket, sys
from limen.verify.isolation import close_up
if not close_up():
    print("not to be had"); sys.exit()
try:
    open({str(mark)!r}, "w")
except OSError:
    print("disk shut")
s = socket.socket(); s.settimeout(1)
try:
    s.connect(("192.0.2.1", 80))
except TimeoutError:
    pass
except OSError:
    print("network shut")
"""
    env = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=env, check=True
    )
    if "not to be had" in out.stdout:
        pytest.skip("this system gives no user namespaces")
    assert out.stdout.split("\n")[:2] == ["disk shut", "network shut"]
    assert not mark.exists()


def test_a_task_without_a_gold_answer_is_scored_by_its_rules(pool):
    import json

    problem = load_problems("reasoning_gym:graph_color?size=1")[0]
    puzzle = problem.metadata["entry"]["metadata"]["puzzle"]
    assert problem.answer == ""
    colours: dict[str, int] = {}
    for v in puzzle["vertices"]:  # greedy is enough for these sparse graphs
        near = {colours.get(str(b if a == v else a)) for a, b in puzzle["edges"] if v in (a, b)}
        colours[str(v)] = next(c for c in puzzle["color_options"] if c not in near)
    a, b = puzzle["edges"][0]
    assert pool.judge("", json.dumps(colours), problem.metadata).outcome == "correct"
    assert pool.judge("", json.dumps({**colours, str(a): colours[str(b)]}), problem.metadata).outcome == "wrong"
