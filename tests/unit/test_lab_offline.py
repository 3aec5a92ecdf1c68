"""Training on stored correct samples: what is learned from, and the rules that compare it with policy gradients."""

import pytest
from test_lab_claims import BASE, GRPO, SELF, N, line, study

from limen.errors import ConfigError
from limen.lab.claims_offline import crosses, greedy_marks, on_policy_concentrates
from limen.lab.offline import checkpoints, correct_samples, separation
from limen.lab.policies import Study


def test_only_correct_samples_are_learned_from_and_only_their_responses(tmp_path):
    from report_synthetic import problems, write_run

    items = problems(3)
    run = write_run(tmp_path / "base", "base", items, [1.0, 0.0, 0.5], 8, 1)
    ids, labels = correct_samples(run)
    from limen.store import Run

    stored = Run.open(run)
    right = sum(v == "correct" for v in stored.table("verdicts", ["outcome"]).column("outcome").to_pylist())
    assert 8 <= right < 24
    assert len(ids) == len(labels) == right
    prompts, first = stored.prompts(), next(stored.rollouts())
    start = len(prompts[first.problem_id].token_ids)
    assert (labels[0, :start] == -100).all()
    assert labels[0, start : start + len(first.token_ids)].tolist() == list(first.token_ids)
    assert (labels[0, start + len(first.token_ids) :] == -100).all()
    assert ids[0, :start].tolist() == list(prompts[first.problem_id].token_ids)


def test_nothing_correct_is_one_clear_error(tmp_path):
    from report_synthetic import problems, write_run

    run = write_run(tmp_path / "base", "base", problems(2), [0.0, 0.0], 4, 1)
    with pytest.raises(ConfigError, match="nothing to imitate"):
        correct_samples(run)


def test_checkpoints():
    assert checkpoints(Study(None, steps=200)) == [50, 100, 150, 200]
    assert checkpoints(Study(None, steps=2)) == [1, 2]
    assert checkpoints(Study(None, steps=10)) == [2, 4, 6, 8, 10]


def test_the_checkpoint_nearest_in_pass_at_1_is_compared():
    """SFT's first checkpoint has GRPO's pass@1 (0.5625) and covers all; its last is far ahead and covers less."""
    near, late = line([60, 62, 64], [10]), line([64], [64, 0, 0])
    e = study({"grpo": GRPO, "sft": [(50, near), (100, late)], "dapo": SELF}, "offline")
    found = on_policy_concentrates(e)
    assert found.verdict == "agrees"
    assert "step 50" in found.size
    assert f"pass@{N} +0.333" in found.size
    worse = study({"grpo": near, "sft": [(50, GRPO)], "dapo": SELF}, "offline")
    assert on_policy_concentrates(worse).verdict == "opposite"


def test_crossing_curves():
    e = study({"grpo": GRPO, "sft": [(100, SELF)], "dapo": GRPO}, "offline")
    found = crosses(e)
    assert found.verdict == "agrees"
    assert "they cross at k" in found.size
    never = study({"sft": [(100, BASE)], "dapo": SELF}, "offline")
    assert crosses(never).verdict == "undetermined"


def test_separation_by_hand():
    """Rates of the kept 0.1, 0.2, 0.6 and of the dropped 0.5, 0.9: 5 of 6 pairs in order."""
    import numpy as np

    got = separation(np.array([0.1, 0.5, 0.2, 0.9, 0.6]), np.array([False, True, False, True, False]))
    assert got["auc"] == pytest.approx(5 / 6)
    assert (got["kept"], got["dropped"]) == (3, 2)
    assert got["quartiles"]["kept"][1] == 0.2
    assert separation(np.array([0.5]), np.array([True]))["auc"] is None


def test_greedy_failures_mark_hard_problems():
    rows = [
        {
            "policy": "base",
            "auc": 0.9,
            "kept": 3,
            "dropped": 2,
            "quartiles": {"kept": [0, 0.1, 0.2], "dropped": [0.5, 0.6, 1]},
        }
    ]
    e = study({"grpo": GRPO}, "offline", greedy=rows)
    assert greedy_marks(e).verdict == "agrees"
    rows.append({**rows[0], "auc": 0.7})
    assert greedy_marks(e).verdict == "undetermined"
