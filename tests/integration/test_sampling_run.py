"""A sampling run from end to end on exact policies: counts, verdicts, going on, topping up, refusing."""

import json
import math
import time

import numpy as np
import pytest

from limen.config import SampleSettings
from limen.engines.exact import ExactEngine, ResponsesPolicy
from limen.engines.protocol import Capabilities
from limen.errors import ConfigError, DataError, ModelError, StoreError
from limen.measure import counts_from_run, describe, pass_at_k
from limen.sampling import recorder, sample_run, score_run
from limen.sampling.recorder import Recorder
from limen.store import Run
from limen.types import Problem
from limen.verify import VerifierPool

# Two problems with known success probabilities 0.5 and 0.01.
TABLE = {
    "1+1=": {"2": 0.5, "3": 0.25, "so: 4": 0.25},
    "2+2=": {"4": 0.01, "5": 0.49, "\\boxed{7}": 0.5},
}
P = {"a": 0.5, "b": 0.01}


@pytest.fixture
def problems(tmp_path):
    file = tmp_path / "problems.jsonl"
    rows = [{"id": "a", "problem": "1+1=", "answer": "2"}, {"id": "b", "problem": "2+2=", "answer": "4"}]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return file


def settings(problems, **change):
    return SampleSettings.make(
        **{"model": "exact", "problems": str(problems), "template": "plain", "verifier": "exact", "n": 40, **change}
    )


def engine(**options):
    return ExactEngine(ResponsesPolicy(TABLE), **options)


def rows(run):
    return {(r.problem_id, r.sample_index): r for r in run.rollouts()}


def test_counts_come_from_the_known_probabilities(problems, tmp_path):
    n = 3000
    run = sample_run(settings(problems, n=n), tmp_path / "run", engine(), progress=False)
    table = counts_from_run(run.path)
    assert dict(zip(table.problem_ids, table.n_P.tolist(), strict=True)) == {"a": n, "b": n}
    for pid, c in zip(table.problem_ids, table.c_P.tolist(), strict=True):
        assert abs(c - n * P[pid]) < 5 * math.sqrt(n * P[pid] * (1 - P[pid]))
    # Unbiased pass@k against the closed form 1 - (1-p)^k, within five standard errors of a count.
    k = 8
    estimate = pass_at_k(table.n_P, table.c_P, k)
    for pid, value in zip(table.problem_ids, np.ravel(estimate), strict=True):
        slope = k * (1 - P[pid]) ** (k - 1) * math.sqrt(P[pid] * (1 - P[pid]) / n)
        assert abs(value - (1 - (1 - P[pid]) ** k)) < 5 * slope + 1e-3
    assert run.info["status"] == "done"
    assert run.info["verifier"] == "exact@1"
    assert {len(run.prompts()), len(run.problems())} == {2}


def test_topping_up_keeps_what_is_there(problems, tmp_path):
    first = rows(sample_run(settings(problems, n=5), tmp_path / "run", engine(), progress=False))
    run = sample_run(settings(problems, n=12), tmp_path / "run", engine(), progress=False)
    more = rows(run)
    assert len(more) == 24
    assert run.info["last"]["samples"] == 14
    assert all(more[key] == first[key] for key in first)
    whole = rows(sample_run(settings(problems, n=12), tmp_path / "other" / "run", engine(), progress=False))
    assert {k: r.token_ids for k, r in whole.items()} == {k: r.token_ids for k, r in more.items()}
    again = sample_run(settings(problems, n=3), tmp_path / "run", engine(), progress=False)
    assert again.info["last"]["samples"] == 0
    assert again.settings["n"] == 12


def test_a_larger_limit_adds_problems(problems, tmp_path):
    sample_run(settings(problems, n=3, limit=1), tmp_path / "run", engine(), progress=False)
    run = sample_run(settings(problems, n=3), tmp_path / "run", engine(), progress=False)
    assert sorted(rows(run)) == [(p, i) for p in "ab" for i in range(3)]
    assert [p.id for p in run.problems()] == ["a", "b"]


class Dying(ExactEngine):
    """Breaks off after some samples, as a machine does."""

    def __init__(self, after):
        super().__init__(ResponsesPolicy(TABLE))
        self.after = after

    def sample(self, requests, params):
        for count, sample in enumerate(super().sample(requests, params)):
            if count == self.after:
                raise KeyboardInterrupt
            yield sample


def test_an_interrupted_run_goes_on_without_loss_or_doubles(problems, tmp_path):
    whole = rows(sample_run(settings(problems), tmp_path / "a" / "run", engine(), progress=False))
    for after in (0, 7, 50):
        with pytest.raises(KeyboardInterrupt):
            sample_run(settings(problems), tmp_path / "b" / "run", Dying(after), progress=False)
    run = sample_run(settings(problems), tmp_path / "b" / "run", engine(), progress=False)
    assert rows(run) == whole
    assert run.table("rollouts").num_rows == 80
    assert run.table("verdicts").num_rows == 80
    assert run.keys("rollouts") == run.keys("verdicts")


def test_verdicts_that_are_missing_are_made_and_not_doubled(problems, tmp_path):
    run = sample_run(settings(problems), tmp_path / "run", engine(), progress=False)
    want = sorted((v["rollout_id"], v["outcome"]) for v in run.table("verdicts").to_pylist())
    for shard in run.shards("verdicts"):
        shard.unlink()
    run = sample_run(settings(problems), tmp_path / "run", engine(), progress=False)
    assert sorted((v["rollout_id"], v["outcome"]) for v in run.table("verdicts").to_pylist()) == want
    assert run.info["last"]["samples"] == 0


def test_verdicts_of_rollouts_that_are_gone_do_not_count_twice(problems, tmp_path):
    """A corrupt shard of rollouts is moved out, as the error asks; its verdicts and scores are still there."""
    path = tmp_path / "run"
    run = sample_run(settings(problems), path, engine(), progress=False)
    score_run(path, engine(), "exact", progress=False)
    before = counts_from_run(path)
    (shard,) = run.shards("rollouts")
    shard.write_bytes(shard.read_bytes()[:200])
    with pytest.raises(StoreError, match="move it out of the folder and run the same command again"):
        sample_run(settings(problems), path, engine(), progress=False)
    shard.unlink()
    with pytest.raises(StoreError, match=r"80 rollouts that are gone.*once without --share"):
        sample_run(settings(problems, share=True), path, engine(), progress=False)
    sample_run(settings(problems), path, engine(), progress=False)
    after = counts_from_run(path)
    assert (after.n_P.tolist(), after.c_P.tolist()) == (before.n_P.tolist(), before.c_P.tolist())
    assert after.n_P.tolist() == [40, 40]
    assert score_run(path, engine(), "exact", progress=False)["scored"] == 80
    assert run.table("scores").num_rows == 80


def test_a_truncated_response_has_no_answer(problems, tmp_path):
    run = sample_run(settings(problems, max_tokens=1, n=50), tmp_path / "run", engine(), progress=False)
    for v in run.table("verdicts").to_pylist():
        assert v["finish_reason"] == "length"
        assert (v["outcome"], v["rule"]) == ("no_answer", "truncated")


@pytest.mark.parametrize(
    "change", [{"temperature": 0.5}, {"seed": 1}, {"max_tokens": 7}, {"stop": ("x",)}, {"verifier": "math"}]
)
def test_other_settings_are_refused_by_name(problems, tmp_path, change):
    sample_run(settings(problems, n=2), tmp_path / "run", engine(), progress=False)
    with pytest.raises(ConfigError, match=f"other settings.*{next(iter(change))}"):
        sample_run(settings(problems, n=2, **change), tmp_path / "run", engine(), progress=False)


def test_problems_that_changed_are_refused(problems, tmp_path):
    sample_run(settings(problems, n=2), tmp_path / "run", engine(), progress=False)
    text = problems.read_text()
    problems.write_text(text.replace('"answer": "2"', '"answer": "3"'))
    with pytest.raises(ConfigError, match="problem a has another prompt or answer"):
        sample_run(settings(problems, n=2), tmp_path / "run", engine(), progress=False)
    problems.write_text(text.replace('"id": "a"', '"id": "c"'))
    with pytest.raises(ConfigError, match="the problems are others"):
        sample_run(settings(problems, n=2), tmp_path / "run", engine(), progress=False)


def test_gold_answers_are_checked_before_a_token_is_sampled(problems, tmp_path):
    problems.write_text('{"id": "a", "problem": "1+1=", "answer": "two apples"}\n')
    with pytest.raises(DataError, match=r"1 of 1 gold answers fail the verifier numeric@1.*a: 'two apples'"):
        sample_run(settings(problems, verifier="numeric"), tmp_path / "run", Dying(0), progress=False)
    assert not (tmp_path / "run").exists()
    run = sample_run(
        settings(problems, verifier="numeric", keep_bad_golds=True, n=3), tmp_path / "run", engine(), progress=False
    )
    assert {v["outcome"] for v in run.table("verdicts").to_pylist()} <= {"unjudged", "no_answer"}


def test_one_writer_at_a_time(problems, tmp_path):
    class Nested(ExactEngine):
        def sample(self, requests, params):
            sample_run(settings(problems, n=50), tmp_path / "run", engine(), progress=False)
            return super().sample(requests, params)

    with pytest.raises(StoreError, match="another process is sampling"):
        sample_run(settings(problems, limit=1), tmp_path / "run", Nested(ResponsesPolicy(TABLE)), progress=False)
    run = Run.open(tmp_path / "run")  # what was refused changed nothing
    assert (run.settings["n"], len(run.problems()), run.info.get("sessions")) == (40, 1, None)


def test_a_folder_of_something_else_is_refused(problems, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(StoreError, match="not empty and not a run folder"):
        sample_run(settings(problems), tmp_path / "full", engine(), progress=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is a file, and a run is a folder"):
        sample_run(settings(problems), tmp_path / "file", engine(), progress=False)
    Run.create(tmp_path / "train", "train", "t", {})
    with pytest.raises(StoreError, match="kind 'train'"):
        sample_run(settings(problems), tmp_path / "train", engine(), progress=False)


def test_shared_seeds_raise_the_alarm(problems, tmp_path):
    class Constant(ExactEngine):
        """Gives an improbable response again and again, as workers do that share a seed."""

        def sample(self, requests, params):
            for sample in super().sample(requests, params):
                yield type(sample)(
                    sample.problem_id, sample.sample_index, sample.seed, (5, 1), "4", "eos", None, math.log(1e-4)
                )

    run = sample_run(settings(problems), tmp_path / "run", Constant(ResponsesPolicy(TABLE)), progress=False)
    assert "share their randomness" in run.info["alarms"][0]
    quiet = sample_run(settings(problems), tmp_path / "other", engine(), progress=False)
    assert "alarms" not in quiet.info


def test_prompts_too_long_for_the_model_are_listed(problems, tmp_path):
    class Short(ExactEngine):
        context = 20

    short = Short(ResponsesPolicy(TABLE))
    with pytest.raises(ModelError, match=r"2 prompts do not fit.*context of 20.*a \(4 tokens\)"):
        sample_run(settings(problems, max_tokens=17), tmp_path / "run", short, progress=False)
    with pytest.raises(ModelError, match="2 prompts do not fit"):
        sample_run(settings(problems, max_tokens=17, leave_out_long=True), tmp_path / "run", short, progress=False)


def test_a_problem_whose_prompt_is_too_long_is_left_out_by_itself(problems, tmp_path):
    rows = [{"id": "a", "problem": "1+1=", "answer": "2"}, {"id": "c", "problem": "1+1=1+1=", "answer": "2"}]
    file = tmp_path / "more.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))

    class Short(ExactEngine):
        context = 22

    short = Short(ResponsesPolicy(TABLE))
    run = sample_run(settings(file, max_tokens=17, leave_out_long=True), tmp_path / "run", short, progress=False)
    assert run.info["left_out"] == {"c": 8}
    assert {r.problem_id for r in run.rollouts()} == {"a"}
    table = counts_from_run(run.path)
    assert table.problem_ids == ("a",)
    assert any("1 problems were left out" in note for note in table.notes)
    assert describe(run.path).table.problem_ids == ("a",)


def test_a_problem_that_fits_another_engine_is_left_out_no_more(problems, tmp_path):
    class Short(ExactEngine):
        context = 22

    rows = [{"id": "a", "problem": "1+1=", "answer": "2"}, {"id": "c", "problem": "1+1=1+1=", "answer": "2"}]
    problems.write_text("".join(json.dumps(r) + "\n" for r in rows))
    policy = ResponsesPolicy({**TABLE, "1+1=1+1=": {"2": 1.0}})
    wanted = settings(problems, max_tokens=17, leave_out_long=True, n=2)
    assert sample_run(wanted, tmp_path / "run", Short(policy), progress=False).info["left_out"] == {"c": 8}
    run = sample_run(wanted, tmp_path / "run", ExactEngine(policy), progress=False)
    assert run.info["left_out"] == {}
    assert {r.problem_id for r in run.rollouts()} == {"a", "c"}


def test_one_scoring_of_a_name_at_a_time(problems, tmp_path):
    run = sample_run(settings(problems, n=2), tmp_path / "run", engine(), progress=False)

    class Nested(ExactEngine):
        def score(self, requests):
            score_run(run.path, engine(), "another", progress=False)
            with pytest.raises(StoreError, match="another process is scoring this run as 'exact'"):
                score_run(run.path, engine(), "exact", progress=False)
            return super().score(requests)

    score_run(run.path, Nested(ResponsesPolicy(TABLE)), "exact", progress=False)
    assert run.table("scores").num_rows == 8
    assert set(Run.open(run.path).info["scores"]) == {"exact", "another"}


def test_sampling_does_not_wait_for_judging_that_has_ended(problems, tmp_path, monkeypatch):
    """The queue to the judging thread is full when that thread breaks off."""

    class Broken(VerifierPool):
        def judge_many(self, items):
            time.sleep(0.5)
            raise StoreError("the disk is full")

    run = Run.create(tmp_path / "run", "sample", "run", {})
    monkeypatch.setattr(recorder, "WAITING", 2)
    monkeypatch.setattr(recorder, "JUDGE_AT_ONCE", 1)
    rollout = rows(sample_run(settings(problems, n=1), tmp_path / "other", engine(), progress=False))["a", 0]
    with Broken("exact", workers=1) as pool, pytest.raises(StoreError, match="full"):
        record(Recorder(run, {"a": Problem("a", "1+1=", "2")}, pool, 60.0), [rollout] * 10)


def record(recorder, rollouts):
    with recorder:
        for rollout in rollouts:
            recorder.add(rollout)


def test_scores_are_the_exact_log_probabilities_and_resume(problems, tmp_path):
    run = sample_run(settings(problems, n=9), tmp_path / "run", engine(), progress=False)
    result = score_run(run.path, engine(), "exact", progress=False)
    assert result["scored"] == 18
    assert result["noise_max"] == 0
    texts = {"a": TABLE["1+1="], "b": TABLE["2+2="]}
    by_key = {(r.problem_id, r.sample_index): r for r in run.rollouts()}
    for s in run.table("scores").to_pylist():
        rollout = by_key[(s["problem_id"], s["sample_index"])]
        assert s["logprob_sum"] == pytest.approx(math.log(texts[s["problem_id"]][rollout.text]), abs=1e-6)
        assert s["n_tokens"] == len(rollout.token_ids)
    sample_run(settings(problems, n=11), tmp_path / "run", engine(), progress=False)
    assert score_run(run.path, engine(), "exact", progress=False)["scored"] == 4
    assert run.table("scores").num_rows == 22


def test_scoring_needs_an_engine_that_scores(problems, tmp_path):
    class Mute(ExactEngine):
        capabilities = Capabilities(token_ids=True, raw_logprobs=False, seeds=True, score=False)

    run = sample_run(settings(problems, n=1), tmp_path / "run", engine(), progress=False)
    with pytest.raises(ModelError, match="cannot score"):
        score_run(run.path, Mute(ResponsesPolicy(TABLE)), "x", progress=False)


def test_a_start_that_failed_before_its_first_sample_binds_nothing(problems, tmp_path):
    with pytest.raises(ModelError, match="do not fit"):
        sample_run(
            settings(problems, max_tokens=10_000), tmp_path / "run", Small(ResponsesPolicy(TABLE)), progress=False
        )
    run = sample_run(settings(problems, max_tokens=50), tmp_path / "run", engine(), progress=False)
    assert run.settings["max_tokens"] == 50
    assert len(rows(run)) == 80


class Small(ExactEngine):
    context = 100
