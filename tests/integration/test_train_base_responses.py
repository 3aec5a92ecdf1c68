"""`limen sample` output as the store of base responses."""

from collections import Counter

import pytest

from limen.config import SampleSettings
from limen.errors import DataError
from limen.sampling import sample_run
from limen.store import Run
from limen.train import TrainSettings, train
from limen.train.base_responses import load_base

PROBLEMS = "arithmetic:all?split=train&size=60"


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    settings = SampleSettings.make(model="tiny", problems=PROBLEMS, n=3, max_tokens=6, template="plain", device="cpu")
    return sample_run(settings, tmp_path_factory.mktemp("base") / "run", progress=False)


def settings(tmp_path, sampled, **more):
    algorithm = {"name": "self", "forward_kl_beta": 0.1, "kl_responses": "correct", "kl_samples": 0}
    return TrainSettings(
        model="tiny", device="cpu", problems=PROBLEMS, template="plain", algorithm=algorithm, prompts_per_step=8,
        group_size=4, max_new_tokens=6, steps=1, base_responses=str(sampled.path), out=str(tmp_path / "run"), **more,
    )  # fmt: skip


def test_sampled_run_is_used_as_it_is(tmp_path, sampled):
    run = train(settings(tmp_path, sampled))
    assert not (run.path / "base").exists()
    base = load_base(sampled.path, dict.fromkeys([p.id for p in sampled.problems()], ""))
    assert Counter(len(v) for v in base.by_problem.values()) == {3: 60}
    verdicts = sampled.table("verdicts").to_pylist()
    right = {(v["problem_id"], v["sample_index"]) for v in verdicts if v["outcome"] == "correct"}
    picked = base.pick(0, base.by_problem, 0, 0, correct_only=True)
    assert Counter(p.problem_id for p in picked) == Counter(p for p, _ in right)


def test_other_template_and_other_problems_are_refused(tmp_path, sampled):
    hashes = {p.id: "0123456789abcdef" for p in sampled.problems()}
    with pytest.raises(DataError, match="another template"):
        load_base(sampled.path, hashes)
    with pytest.raises(DataError, match="other problems"):
        load_base(sampled.path, {"nobody": ""})
    empty = Run.create(tmp_path / "empty", "sample", "base", {})
    with pytest.raises(DataError, match="holds no rollouts"):
        load_base(empty.path, {"nobody": ""})
