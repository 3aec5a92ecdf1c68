"""Rewards by outcome, and what of a response is graded."""

import pytest

from limen.errors import ConfigError, DataError
from limen.train.rewards import VerifierReward, completion_text, cut_at_stop
from limen.types import Verdict


class Judge:
    """Remembers what it was asked; the outcome is the response itself."""

    version = "echo@1"

    def judge_many(self, items):
        self.items = list(items)
        return [Verdict("no_answer" if i.truncated else i.response) for i in self.items]  # type: ignore[arg-type]


OUTCOMES = ["correct", "wrong", "no_answer", "unjudged"]


@pytest.mark.parametrize(("kind", "want"), [("binary", [1, 0, 0, None]), ("rbp", [1, -0.5, -1, None])])
def test_reward_by_outcome(kind, want):
    reward = VerifierReward(Judge(), kind)
    assert reward(["p"] * 4, OUTCOMES, [[1]] * 4, answer=["g"] * 4) == want
    assert [v.outcome for v in reward.last_verdicts] == OUTCOMES


def test_a_truncated_response_has_no_answer_and_the_prompt_is_not_graded():
    judge = Judge()
    reward = VerifierReward(judge, "rbp", stop=["END"])
    reward.is_truncated = lambda ids: len(ids) == 3
    got = reward(
        ["\\boxed{correct}"] * 3, ["correct", "correct", "correctENDwrong"], [[1, 2], [1, 2, 3], [1, 2, 3]],
        answer=[7, 7, 7], metadata=['{"a": 1}', None, {"b": 2}],
    )  # fmt: skip
    assert got == [1, -1, 1], "cut off by length: no answer; ended by its stop string: graded before it"
    assert [i.response for i in judge.items] == ["correct", "correct", "correct"]
    assert [i.gold for i in judge.items] == ["7"] * 3
    assert [dict(i.metadata) for i in judge.items] == [{"a": 1}, {}, {"b": 2}]


def test_chat_completions_and_stops():
    assert completion_text([{"role": "assistant", "content": "a"}, {"role": "tool", "content": None}]) == "a"
    assert cut_at_stop("xaby", ["b", "ab"]) == ("x", True)
    assert cut_at_stop("x", ["b"]) == ("x", False)


def test_missing_column_and_unknown_kind():
    with pytest.raises(DataError, match="column 'answer'"):
        VerifierReward(Judge())(["p"], ["x"], [[1]])
    with pytest.raises(ConfigError, match="binary"):
        VerifierReward(Judge(), "ternary")
