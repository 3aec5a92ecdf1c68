"""A real local Ray cluster with two workers: the suite of all engines, and what happens when workers die."""

import json
import os
import signal

import pytest

pytest.importorskip("ray")

import engine_conformance as suite
import ray_factories
from limen.config import SampleSettings
from limen.engines import exact
from limen.engines.protocol import ScoreRequest
from limen.engines.ray_cluster import RayEngine, join
from limen.errors import ModelError
from limen.sampling import sample_run
from limen.sampling.cluster_judges import ClusterJudges
from limen.types import SamplingParams
from limen.verify import JudgeItem, VerifierPool

TOKENIZER = ray_factories.make_exact().tokenizer


@pytest.fixture(scope="module", autouse=True)
def cluster():
    import ray

    join(None, 4)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def engine(cluster):
    engine = RayEngine(ray_factories.make_exact, TOKENIZER, workers=2)
    yield engine
    engine.close()


@pytest.fixture
def subject(engine):
    here = ray_factories.make_exact()
    return suite.Subject(engine, TOKENIZER, here.policy.next_probs, exact.EOS, tuple(ray_factories.TABLE), n=1000)


def pid_of(engine, slot):
    import ray

    return ray.get(engine._workers[slot].actor.pid.remote())


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda c: c.__name__)
def test_conformance(subject, check):
    check(subject)


def test_distribution(subject):
    suite.check_distribution(subject, suite.PARAMS[2])


def test_resume_and_top_up(subject, tmp_path):
    suite.check_resume_and_top_up(subject, tmp_path)


def settings(tmp_path, n):
    file = tmp_path / "p.jsonl"
    rows = [{"id": f"p{i}", "problem": t, "answer": "ab"} for i, t in enumerate(ray_factories.TABLE)]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    values = {"model": "m", "problems": str(file), "template": "plain", "verifier": "exact", "max_tokens": 4}
    return SampleSettings.make(**values, n=n, keep_bad_golds=True)


class Killing:
    """The engine; after some samples, `kill` is called once."""

    def __init__(self, engine, after, kill):
        self.engine, self.after, self.kill = engine, after, kill
        self.name, self.capabilities, self.tokenizer = engine.name, engine.capabilities, engine.tokenizer

    def sample(self, requests, params):
        for count, sample in enumerate(self.engine.sample(requests, params)):
            if count == self.after:
                self.kill()
            yield sample


def rollouts(run):
    found = {(r.problem_id, r.sample_index): (r.seed, r.token_ids, r.text, r.finish_reason) for r in run.rollouts()}
    assert len(found) == run.table("rollouts").num_rows
    return found


def test_a_worker_killed_in_the_middle_loses_nothing(engine, tmp_path):
    victim = pid_of(engine, 0)
    killing = Killing(engine, 100, lambda: os.kill(victim, signal.SIGKILL))
    run = sample_run(settings(tmp_path, 300), tmp_path / "a" / "run", killing, progress=False)
    assert engine.deaths >= 1
    assert pid_of(engine, 0) != victim
    alone = sample_run(settings(tmp_path, 300), tmp_path / "b" / "run", ray_factories.make_exact(), progress=False)
    assert len(rollouts(run)) == 600
    assert rollouts(run) == rollouts(alone)
    assert run.keys("verdicts") == run.keys("rollouts")


class Texts:
    texts, tokenizer = tuple(ray_factories.TABLE), TOKENIZER


def test_scores_come_back_in_order(engine):
    here = ray_factories.make_exact()
    prompt = tuple(TOKENIZER.encode("q="))
    ids = [s.token_ids for s in here.sample(suite.asks(Texts, 60, ["q="]), SamplingParams(max_tokens=4))]
    requests = [ScoreRequest(prompt, i) for i in ids]
    assert [s.tolist() for s in engine.score(requests)] == [s.tolist() for s in here.score(requests)]


def test_an_error_of_the_engine_is_one_clear_error():
    with pytest.raises(ModelError, match="this model cannot be loaded"):
        RayEngine(ray_factories.make_broken, TOKENIZER, workers=1)


def test_judges_on_the_cluster_say_what_a_pool_says(tmp_path):
    items = [JudgeItem("12", f"it is \\boxed{{{i}}}", {}, i == 7) for i in range(20)]
    with VerifierPool("math", workers=1) as pool:
        want = pool.judge_many(items)
    values = SampleSettings.make(model="m", problems="p", ray=True, verify_workers=1)
    with ClusterJudges("math", values) as judges:
        assert judges.judge_many(items) == want
        assert judges.version == pool.version
        assert judges._actors
        import ray

        ray.kill(next(iter(judges._actors.values())))
        assert judges.judge_many(items) == want
        assert judges.judge_many([]) == []
