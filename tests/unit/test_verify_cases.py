"""limen's own labelled cases, each with its reason and, where a policy decides, its name."""

import json
from collections import Counter

import pytest

from limen.errors import DataError
from limen.verify import VerifierPool, judge
from limen.verify.bench import own_cases, read_cases

CASES = own_cases()


@pytest.fixture(scope="module")
def pools():
    made: dict[str, VerifierPool] = {}
    yield made
    for pool in made.values():
        pool.close()


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.kind}|{c.gold[:30]}|{c.response[:30]}")
def test_case(case, pools):
    spec = {"name": "math", **case.options}
    pool = pools.setdefault(json.dumps(spec), VerifierPool(spec, workers=1, deadline=20.0))
    verdict = pool.judge(case.gold, case.response)
    assert verdict.outcome == case.expected, f"{case.why}: {verdict}"
    assert verdict.verifier == pool.version


def test_there_are_enough_cases_both_ways():
    outcomes = Counter(c.expected for c in CASES)
    assert len(CASES) >= 150
    assert outcomes["correct"] >= 150
    assert outcomes["wrong"] >= 100
    assert all(c.why for c in CASES)
    assert len({(c.gold, c.response, str(c.options)) for c in CASES}) == len(CASES)


def test_bad_case_files_are_one_clear_error(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text('{"gold": "1", "response": "1", "expected": true}\n{"gold": "1"}\n')
    with pytest.raises(DataError, match=r"line 2.*response"):
        read_cases(path)
    path.write_text('{"gold": "1", "response": "1", "expected": "maybe"}\n')
    with pytest.raises(DataError, match="no outcome"):
        read_cases(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_cases(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("gold", "answer", "outcome"),
    [
        ("2 x \\left(2 + \\pi\\right)", "4 x + 2 \\pi x", "correct"),  # x(2 + pi) is a product
        ("x(2+3)", "5x", "correct"),
        ("f(2)", "2f", "wrong"),  # f(2) is a call
        ("e^{6 \\pi^{2}}", "1 + e^{6 \\pi^{2}}", "wrong"),  # equal in their first 25 digits
        ("e^{30 \\pi^{2}}", "1 + e^{30 \\pi^{2}}", "unjudged"),  # in more than 120
        ("e^{5 \\pi}", "1 + e^{5 \\pi}", "wrong"),
    ],
)
def test_products_with_a_bracket_and_parts_that_are_lost(gold, answer, outcome):
    assert judge(gold, f"\\boxed{{{answer}}}").outcome == outcome
