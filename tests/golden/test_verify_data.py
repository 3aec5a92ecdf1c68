"""Real golds, real completions: every disagreement is known by name (docs/results/verifier.md has the reasons)."""

import json
from collections import Counter

import pytest

from limen.types import Problem
from limen.verify import JudgeItem, VerifierPool
from limen.verify.golds import report_golds

BENCHMARKS = {
    "aime24": set(),
    "aime25": set(),
    "amc23": set(),
    "gsm8k_test": set(),
    "gsm8k_train2000": set(),
    "math500": set(),
    "minerva_math": set(),
    "olympiadbench_math": {"olympiadbench-1965", "olympiadbench-2045"},
    "deepscaler_sub1207": {"dsr-sub-0139", "dsr-sub-0309", "dsr-sub-1187"},
}
"""Golds that the grammar does not understand and that are matched as text."""


@pytest.fixture(scope="module")
def pool():
    with VerifierPool("math", workers=2, deadline=20.0) as pool:
        yield pool


def test_the_shared_cases(shared, pool):
    cases = [json.loads(line) for line in shared("cases/verifier_cases.jsonl").read_text().splitlines()]
    assert len(cases) >= 28
    verdicts = pool.judge_many([JudgeItem(c["gold"], c["response"]) for c in cases])
    wrong = [(c, v) for c, v in zip(cases, verdicts, strict=True) if v.correct != c["expected"]]
    assert wrong == []
    assert [v for v in verdicts if v.outcome == "unjudged"] == []


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_gold_equals_itself(shared, pool, name):
    rows = [json.loads(line) for line in shared(f"data/{name}.jsonl").read_text().splitlines()]
    problems = [Problem(r["id"], r["problem"], r["answer"]) for r in rows]
    reports = report_golds(problems, pool)
    assert [r for r in reports if r.fails] == []
    assert {r.problem_id for r in reports} == BENCHMARKS[name]


def test_no_gold_equals_another_problems_gold_unless_it_should(shared, pool):
    """The 500 golds of MATH-500 against each other's neighbours: only true equals agree."""
    rows = [json.loads(line) for line in shared("data/math500.jsonl").read_text().splitlines()]
    golds = list(dict.fromkeys(r["answer"] for r in rows))
    pairs = [(a, b) for i, a in enumerate(golds) for b in golds[i + 1 : i + 4]]
    verdicts = pool.judge_many([JudgeItem(a, f"\\boxed{{{b}}}") for a, b in pairs])
    assert {p for p, v in zip(pairs, verdicts, strict=True) if v.correct} == {("2 \\sqrt{5}", "2\\sqrt{5}")}


def test_800_completions(shared, pool):
    rows = [json.loads(line) for line in shared("data/raw/math_cot_100.jsonl").read_text().splitlines()]
    work = [(r["idx"], r["gt"], text, score) for r in rows for text, score in zip(r["code"], r["score"], strict=True)]
    verdicts = pool.judge_many([JudgeItem(gold, text) for _, gold, text, _ in work])
    assert Counter(v.outcome for v in verdicts) == {"correct": 737, "wrong": 63}
    differ = Counter(w[0] for w, v in zip(work, verdicts, strict=True) if v.correct != w[3])
    # Gold "4:30p.." is 4:30 p.m., and "10{,}000" is 10000: the labels are wrong, the verdicts right.
    assert {str(k): n for k, n in differ.items()} == {"3": 8, "72": 1}


def test_5276_solutions_of_gsm8k(shared, pool):
    items, labels = [], []
    for line in shared("data/raw/example_model_solutions.jsonl").read_text().splitlines():
        row = json.loads(line)
        gold = row["ground_truth"].rsplit("A: ")[-1]
        for model in ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"):
            items.append(JudgeItem(gold, row[model]["solution"]))
            labels.append(row[model]["is_correct"])
    verdicts = pool.judge_many(items)
    assert [v.correct for v in verdicts] == labels
    assert Counter(v.outcome for v in verdicts)["no_answer"] == 10
