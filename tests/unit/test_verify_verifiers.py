"""The other verifiers by name: numeric, exact, choice, countdown, reasoning_gym, the user's own."""

import sys

import pytest

from limen.errors import ConfigError, DataError
from limen.verify import JudgeItem, VerifierPool, judge

OPTIONS = {"choices": ["Paris", "Rome", "12 m/s", "None of these"]}


@pytest.mark.parametrize(
    ("gold", "response", "outcome"),
    [
        ("3.14", "3.1400001", "correct"),
        ("3.14", "3.15", "wrong"),
        ("1e-7", "2e-7", "wrong"),
        ("0", "1e-12", "wrong"),
        ("0", "0.0", "correct"),
        ("1/3", "\\boxed{0.3333333333}", "correct"),
        ("$1,000", "1000 dollars", "correct"),
        ("\\sqrt{2}", "1.41421356", "correct"),
        ("5", "x = 5", "correct"),
        ("5", "five", "wrong"),
        ("none", "5", "unjudged"),
    ],
)
def test_numeric(gold, response, outcome):
    assert judge(gold, response, "numeric").outcome == outcome


def test_numeric_tolerance_is_a_setting_and_part_of_the_version():
    with VerifierPool({"name": "numeric", "relative": 0.01}) as pool:
        assert pool.judge("100", "100.9").correct
        assert not pool.judge("100", "101.1").correct
        assert pool.version == "numeric@1[relative=0.01]"


def test_exact_is_the_same_text():
    assert judge("18", " 18\n", "exact").correct
    assert judge("18", "\\boxed{18}", "exact").correct
    assert judge("18", "18.0", "exact").outcome == "wrong"


@pytest.mark.parametrize(
    ("gold", "response", "outcome"),
    [
        ("B", "\\boxed{B}", "correct"),
        ("B", "The answer is (B).", "correct"),
        ("B", "**B**", "correct"),
        ("B", "\\boxed{\\text{(B)}}", "correct"),
        ("B", "b", "correct"),
        ("B", "B) Rome", "correct"),
        ("B", "B. Rome", "correct"),
        ("B", "Rome", "correct"),
        ("Rome", "B", "correct"),
        ("B", "A", "wrong"),
        ("B", "B) Paris", "wrong"),
        ("B", "Paris", "wrong"),
        ("B", "Berlin", "wrong"),
        ("B", "Z", "wrong"),
        ("C", "\\boxed{12 m/s}", "correct"),
        ("Q", "A", "unjudged"),
        ("B", "", "no_answer"),
        ("B", "Because of the many roads that lead there, it can hardly be any other city", "no_answer"),
    ],
)
def test_choice(gold, response, outcome):
    assert judge(gold, response, "choice", OPTIONS).outcome == outcome


def test_choice_with_bad_options_is_one_clear_error():
    with pytest.raises(DataError, match="choices"):
        judge("A", "A", "choice", {"choices": 4})


COUNT = {"numbers": [3, 7, 25], "target": 96}


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        ("\\boxed{(25+7)*3}", "correct"),
        ("<answer>(25 + 7) × 3 = 96</answer>", "correct"),
        ("<answer>3*(7+25)</answer>", "correct"),
        ("\\boxed{(25+7)\\times 3}", "correct"),
        ("\\boxed{96 = (25+7)*3}", "correct"),
        ("\\boxed{25*3+7}", "wrong"),
        ("\\boxed{96}", "wrong"),
        ("\\boxed{25*3+7 = 96}", "wrong"),
        ("\\boxed{32*3}", "wrong"),
        ("\\boxed{(25+7)*3+3-3}", "wrong"),
        ("\\boxed{(25+7)*3+0*1}", "wrong"),
        ("\\boxed{(25+7)*3!/2}", "wrong"),
        ("\\boxed{25/(7-7)}", "wrong"),
        ("\\boxed{__import__('os')}", "wrong"),
        ("I do not know how to make it out of these numbers at all", "no_answer"),
    ],
)
def test_countdown(response, outcome):
    assert judge("96", response, "countdown", COUNT).outcome == outcome


def test_countdown_needs_its_numbers():
    with pytest.raises(DataError, match="numbers"):
        judge("96", "\\boxed{96}", "countdown", {})
    with VerifierPool({"name": "countdown", "use_all": False}) as pool:
        assert pool.judge("75", "\\boxed{25*3}", {"numbers": [3, 7, 25]}).correct


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "my_own_verifier.py").write_text(
        "import time\n"
        "def same(gold, response, metadata, extra=0):\n"
        "    if response == 'hang': time.sleep(60)\n"
        "    if response == 'crash': raise RuntimeError('no')\n"
        "    if response == 'die': import os; os._exit(1)\n"
        "    if response == 'half': return 0.5\n"
        "    if response == 'none': return 'no_answer'\n"
        "    if response == 'map': return {'outcome': 'correct', 'answer': 'm', 'rule': 'mine'}\n"
        "    if response == 'odd': return [1]\n"
        "    return int(gold) + extra == int(response)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "my_own_verifier:same"
    sys.modules.pop("my_own_verifier", None)


def test_the_users_own_function(own_module):
    responses = ["5", "6", "half", "none", "map", "hang", "crash", "die", "odd", "5"]
    with VerifierPool(own_module, workers=2, deadline=1.0) as pool:
        verdicts = pool.judge_many([JudgeItem("5", r) for r in responses])
        assert pool.version.startswith("my_own_verifier:same@")
    expected = ["correct", "wrong", "wrong", "no_answer", "correct", *["unjudged"] * 4, "correct"]
    assert [v.outcome for v in verdicts] == expected
    assert [v.rule for v in verdicts[5:9]] == ["timeout", "crash", "crash", "crash"]
    assert (verdicts[4].answer, verdicts[4].rule) == ("m", "mine")


def test_the_users_own_function_with_options(own_module):
    with VerifierPool({"name": own_module, "options": {"extra": 1}}, workers=1) as pool:
        assert pool.judge("5", "6").correct


@pytest.mark.parametrize("name", ["no_such_module_here:f", "__main__:f", "json:", "os:not an identifier"])
def test_functions_that_cannot_be_found_are_one_clear_error(name):
    with pytest.raises(ConfigError, match=r"found|script or notebook"):
        VerifierPool(name)


def test_reasoning_gym_counts_full_score_only():
    import reasoning_gym

    entry = reasoning_gym.create_dataset("chain_sum", size=1, seed=3)[0]
    data = {"source_dataset": "chain_sum", "entry": entry}
    with VerifierPool("reasoning_gym", workers=1, deadline=20.0) as pool:
        right, partial, nothing = pool.judge_many(
            [JudgeItem(entry["answer"], r, data) for r in (entry["answer"], f"it is {entry['answer']} I think", " ")]
        )
        assert (right.outcome, partial.outcome, nothing.outcome) == ("correct", "wrong", "no_answer")
        with pytest.raises(DataError, match="source_dataset"):
            pool.judge("1", "1", {})
