"""`limen sample` output as the store of base responses."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from limen.config import SampleSettings
from limen.errors import DataError
from limen.sampling import sample_run
from limen.store import Run
from limen.train import TrainSettings, train
from limen.train.base_draw import _check_ids
from limen.train.base_responses import BaseResponse, BaseResponses, load_base

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


def test_a_training_runs_greedy_answers_are_no_base_samples(tmp_path, sampled):
    """Its rollouts of step 0 are the base's, but those of the screening are greedy."""
    run = train(settings(tmp_path, sampled))
    stored = list(run.rollouts())
    assert any(r.policy.endswith("@greedy") and r.step == 0 for r in stored)
    base = load_base(run.path, dict.fromkeys([p.id for p in sampled.problems()], ""))
    own = {(r.problem_id, r.token_ids) for r in stored if not r.policy.endswith("@greedy")}
    assert {(p, tuple(r.token_ids.tolist())) for p, rs in base.by_problem.items() for r in rs} <= own
    assert len(base) == len([r for r in stored if not r.policy.endswith("@greedy")])


def test_responses_at_another_temperature_are_said_aloud_and_of_two_policies_refused(tmp_path, sampled, caplog):
    hashes = dict.fromkeys([p.id for p in sampled.problems()], "")
    load_base(sampled.path, hashes)
    assert not caplog.records
    cool = SampleSettings.make(model="tiny", problems=PROBLEMS, n=1, max_tokens=6, template="plain", device="cpu",
                               temperature=0.5, policy="cool")  # fmt: skip
    path = sample_run(cool, tmp_path / "cool", progress=False).path
    load_base(path, hashes)
    assert "(0.5, 1.0, 0)" in caplog.text
    for r in sampled.rollouts():
        from limen.store.schema import rollout_row

        with Run.open(path).writer("rollouts") as rollouts:
            rollouts.append(rollout_row(r))
        break
    with pytest.raises(DataError, match="several policies"):
        load_base(path, hashes)


def test_responses_of_another_models_tokenizer_are_refused(tmp_path, sampled, monkeypatch):
    from limen.train import base_responses

    own = base_responses.load_base

    def shifted(*args):
        base = own(*args)
        for rs in base.by_problem.values():
            for r in rs:
                r.token_ids[:] += 1000
        return base

    monkeypatch.setattr("limen.train.base_draw.load_base", shifted)
    with pytest.raises(DataError, match="drawn by another model"):
        train(settings(tmp_path, sampled))


def test_an_empty_base_response_has_no_token_to_look_at():
    """A server that stops at once leaves none."""
    empty, full = (BaseResponse(np.array(ids, dtype=np.int64), None, None) for ids in ([], [2, 5]))
    model = SimpleNamespace(get_input_embeddings=lambda: SimpleNamespace(weight=np.zeros((6, 1))))
    trainer = SimpleNamespace(model=model, accelerator=SimpleNamespace(unwrap_model=lambda m: m))
    _check_ids(trainer, BaseResponses({"p": [empty, full]}))
    model.get_input_embeddings = lambda: SimpleNamespace(weight=np.zeros((5, 1)))
    with pytest.raises(DataError, match="hold token 5"):
        _check_ids(trainer, BaseResponses({"p": [empty, full]}))
