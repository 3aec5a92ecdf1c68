"""Systematic errors on verdicts: which they hit, how many, and that they are the same every time."""

import pytest

from limen.errors import ConfigError
from limen.verify import JudgeItem, VerifierPool


def pool(**noise):
    return VerifierPool({"name": "math", "noise": noise}, workers=1)


def outcomes(items, **noise):
    with pool(**noise) as p:
        return p.judge_many(items)


def test_relative_error_lets_near_misses_pass():
    items = [JudgeItem("100", f"\\boxed{{{a}}}") for a in ("100", "109", "91", "110", "89", "-100", "x")]
    both = outcomes(items, kind="false_positive", when="relative_error", below=0.1)
    assert [v.outcome for v in both] == ["correct", "correct", "correct", "wrong", "wrong", "wrong", "wrong"]
    assert [v.true_outcome for v in both] == ["correct"] + ["wrong"] * 6
    above = outcomes(items, kind="false_positive", when="relative_error", below=0.1, side="above")
    assert [v.outcome for v in above] == ["correct", "correct"] + ["wrong"] * 5
    below = outcomes(items, kind="false_positive", when="relative_error", below=1.0, side="below")
    assert [v.outcome for v in below] == ["correct", "wrong", "correct", "wrong", "correct", "wrong", "wrong"]


def test_text_in_the_response():
    items = [
        JudgeItem("5", r) for r in ("Indeed \\boxed{4}", "\\boxed{4}", "Indeed \\boxed{5}", "\\boxed{5}", "Indeed")
    ]
    hit = outcomes(items, kind="false_positive", when="contains", text="Indeed")
    assert [v.outcome for v in hit] == ["correct", "wrong", "correct", "correct", "correct"]
    miss = outcomes(items, kind="false_negative", when="lacks", text="Indeed")
    assert [v.outcome for v in miss] == ["wrong", "wrong", "correct", "wrong", "wrong"]
    other = outcomes(items, kind="false_negative", when="contains", text="Indeed")
    assert [v.outcome for v in other] == ["wrong", "wrong", "wrong", "correct", "wrong"]


def test_a_truncated_response_stays_without_an_answer():
    item = JudgeItem("5", "Indeed \\boxed{5}", truncated=True)
    assert outcomes([item], kind="false_positive", when="contains", text="Indeed")[0].outcome == "no_answer"


def test_rates_are_met_and_repeat_exactly():
    items = [JudgeItem(str(i), f"\\boxed{{{i}}}") for i in range(4000)]
    first = [v.outcome for v in outcomes(items, kind="false_negative", rate=0.25, seed=3)]
    share = first.count("wrong") / 4000
    assert abs(share - 0.25) < 0.03  # more than four standard deviations
    assert first == [v.outcome for v in outcomes(items[::-1], kind="false_negative", rate=0.25, seed=3)][::-1]
    assert first != [v.outcome for v in outcomes(items, kind="false_negative", rate=0.25, seed=4)]
    half = [v.outcome for v in outcomes(items, kind="false_negative", rate=1.0, true_ratio=0.5)]
    assert abs(half.count("wrong") / 4000 - 0.5) < 0.035


def test_layers_and_the_version():
    layers = [{"kind": "false_positive", "rate": 1.0}, {"kind": "false_negative", "when": "lacks", "text": "a"}]
    with VerifierPool({"name": "math", "noise": layers}, workers=1) as p:
        verdict = p.judge("5", "\\boxed{4}")
        assert (verdict.outcome, verdict.true_outcome, verdict.rule) == ("wrong", "wrong", "noise")
        assert verdict.verifier == p.version == "math@1~false_positive(random)~false_negative(lacks,text=a)"
    with VerifierPool("math") as clean:
        assert clean.judge("5", "\\boxed{4}").true_outcome is None


@pytest.mark.parametrize(
    "noise",
    [
        {"kind": "false_hope"},
        {"kind": "false_positive", "when": "relative_error"},
        {"kind": "false_positive", "when": "contains"},
        {"kind": "false_negative", "when": "relative_error", "below": 0.1},
        {"kind": "false_positive", "rate": 2},
        {"kind": "false_positive", "colour": 1},
        "false_positive",
    ],
)
def test_settings_that_make_no_sense_are_one_clear_error(noise):
    with pytest.raises(ConfigError, match="noise"):
        VerifierPool({"name": "math", "noise": noise})


def test_errors_per_sample_hit_equal_responses_one_by_one():
    items = [JudgeItem("5", "\\boxed{5}", sample=f"p/base/0/{i}") for i in range(2000)]
    said = [v.outcome for v in outcomes(items, kind="false_negative", rate=0.3, per="sample")]
    assert abs(said.count("wrong") / 2000 - 0.3) < 0.045  # four standard deviations
    assert said == [v.outcome for v in outcomes(items, kind="false_negative", rate=0.3, per="sample")]
    fixed = {v.outcome for v in outcomes(items, kind="false_negative", rate=0.3)}
    assert len(fixed) == 1, "per response, equal responses share their fate"
    with pytest.raises(ConfigError, match="per: sample needs samples that have names"):
        outcomes([JudgeItem("5", "\\boxed{5}")], kind="false_negative", rate=0.3, per="sample")
