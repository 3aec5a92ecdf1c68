"""Probe sets: drawn fresh and taken from a run, each response with its verdict."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from limen.config import SampleSettings
from limen.dynamics.probe import ProbePairs, build_probe, choose, draw_probe, judged, load_probe
from limen.engines.exact import EOS, ExactEngine, ResponsesPolicy
from limen.engines.protocol import ScoreRequest
from limen.errors import ConfigError, DataError, StoreError
from limen.sampling import sample_run
from limen.store import Run
from limen.store.schema import rollout_row, verdict_row
from limen.types import Verdict

M = 6
TABLE = {f"{i}+{i}=": {str(2 * i): 0.5, "99": 0.5} for i in range(M)}


@pytest.fixture
def problems(tmp_path):
    file = tmp_path / "problems.jsonl"
    rows = [{"id": f"p{i}", "problem": f"{i}+{i}=", "answer": str(2 * i)} for i in range(M)]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return file


def settings(problems, **change):
    values = {"model": "exact", "problems": str(problems), "template": "plain", "verifier": "exact", "n": 4,
              "temperature": 0.9, "max_tokens": 4, "verify_workers": 1}  # fmt: skip
    return SampleSettings.make(**{**values, **change})


def engine():
    return ExactEngine(ResponsesPolicy(TABLE))


def check(pairs):
    """Every pair's verdict is what its own tokens say."""
    tok = engine().tokenizer
    for request, (pid, _), right in zip(pairs.request_N, pairs.key_N, pairs.correct_N, strict=True):
        assert tok.decode(request.prompt_ids) == f"{pid[1:]}+{pid[1:]}="
        assert request.token_ids[-1] == EOS
        assert right == (tok.decode(request.token_ids) == str(2 * int(pid[1:])))


def test_drawn_fresh_and_gone_on_with(problems, tmp_path):
    out = tmp_path / "probe"
    run = draw_probe(settings(problems), out, engine(), progress=False)
    assert (run.info["kind"], run.info["status"]) == ("probe", "done")
    assert run.info["probe"]["pairs"] == 4 * M
    assert run.info["probe"]["temperatures"] == [0.9]
    assert not (out / "draw").exists()
    pairs = load_probe(out)
    assert len(pairs) == 4 * M
    assert 0 < pairs.correct_N.sum() < 4 * M
    check(pairs)
    assert draw_probe(settings(problems), out, engine(), progress=False).path == out  # there already
    with pytest.raises(ConfigError, match="other settings"):
        draw_probe(settings(problems, temperature=0.5), out, engine(), progress=False)
    # killed after half of it was drawn: what lies in `draw` is kept
    half = tmp_path / "half"
    sample_run(settings(problems, n=2), half / "draw", engine(), progress=False)
    before = {(r.problem_id, r.sample_index): r.token_ids for r in Run.open(half / "draw").rollouts()}
    draw_probe(settings(problems), half, engine(), progress=False)
    after = dict(zip(load_probe(half).key_N, (r.token_ids for r in load_probe(half).request_N), strict=True))
    assert {k: after[k] for k in before} == before


def test_seldom_solved_problems_are_those_that_half_or_fewer_responses_solve():
    correct = [True, False, False, True, True, True, False, False, True, True]
    keys = tuple((p, i) for i, p in enumerate("aaabbbccdd"))
    pairs = ProbePairs((ScoreRequest((2,), (3,)),) * 10, keys, np.array(correct))
    assert pairs.rate_N == pytest.approx([1 / 3] * 3 + [1.0] * 3 + [0.0] * 2 + [1.0] * 2)
    assert pairs.rare_N.tolist() == [True] + [False] * 9


def test_taken_from_a_run_by_seed(problems, tmp_path):
    source = sample_run(settings(problems, n=20), tmp_path / "run", engine(), progress=False).path
    first = load_probe(build_probe(source, tmp_path / "a", problems=3, responses=4, seed=1).path)
    same = load_probe(build_probe(source, tmp_path / "b", problems=3, responses=4, seed=1).path)
    other = load_probe(build_probe(source, tmp_path / "c", problems=3, responses=4, seed=2).path)
    assert first.key_N == same.key_N
    assert first.key_N != other.key_N
    assert len(set(first.problem_N)) == 3
    assert all(first.problem_N.count(p) == 4 for p in first.problem_N)
    check(first)
    picked = np.array([i for _, i in first.key_N + other.key_N])
    assert picked.max() > 4  # not just the first samples
    assert Run.open(tmp_path / "a").info["probe"]["temperatures"] == [0.9]


def test_unjudged_and_too_few_are_counted_not_used(problems, tmp_path):
    source = sample_run(settings(problems, n=5), tmp_path / "run", engine(), progress=False)
    with source.writer("verdicts") as writer:  # a later verdict counts: two of p0's five become unjudged
        for r in source.rollouts():
            if r.problem_id == "p0" and r.sample_index < 2:
                writer.append(verdict_row(r, Verdict("unjudged", rule="timeout", verifier="exact@1")))
    chosen, dropped = choose(judged(source), 10, 4, 0)
    assert sorted(chosen) == [f"p{i}" for i in range(1, M)]
    assert dropped == {"unjudged": 2, "problems with too few responses": 1}
    with pytest.raises(DataError, match="no problem has 9"):
        choose(judged(source), 10, 9, 0)


def test_what_cannot_be_a_probe_is_refused(problems, tmp_path):
    source = sample_run(settings(problems, n=4), tmp_path / "run", engine(), progress=False)
    rollouts = list(source.rollouts())
    with source.writer("rollouts") as a, source.writer("verdicts") as b:
        for r in rollouts:
            moved = dataclasses.replace(r, step=7)
            a.append(rollout_row(moved))
            b.append(verdict_row(moved, Verdict("wrong", verifier="exact@1")))
    with pytest.raises(DataError, match="several policies or steps"):
        build_probe(source.path, tmp_path / "x")
    assert build_probe(source.path, tmp_path / "y", step=7).info["probe"]["outcomes"] == {"wrong": 4 * M}
    shutil.rmtree(source.path / "verdicts")
    with pytest.raises(DataError, match="no verdicts"):
        build_probe(source.path, tmp_path / "z")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine")
    other = sample_run(settings(problems, n=4), tmp_path / "run2", engine(), progress=False)
    with pytest.raises(StoreError, match="not empty"):
        build_probe(other.path, tmp_path / "full")
