"""The run folder: what is visible is whole, what is broken is named, what is written comes back."""

import errno
import json
import os
import subprocess
import sys

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limen.errors import StoreError
from limen.store import Run
from limen.store.schema import rollout_row, row_rollout, verdict_row
from limen.types import Problem, Prompt, Rollout, SamplingParams, Verdict


def rollout(i=0, problem="p", **change):
    values = {
        "problem_id": problem,
        "policy": "m",
        "step": 0,
        "sample_index": i,
        "seed": 2**63 - 1 - i,
        "token_ids": (5, 1),
        "text": "4",
        "finish_reason": "eos",
        "prompt_hash": "h",
        "n_prompt_tokens": 3,
        "params": SamplingParams(0.5, 1.0, 0, 8, ("\n",)),
        "engine": "exact",
        "logprobs": (-0.5, -0.25),
    }
    return Rollout(**{**values, **change})


def make(tmp_path, rows=3):
    run = Run.create(tmp_path / "run", "sample", "r", {"n": 1})
    with run.writer("rollouts") as writer:
        for i in range(rows):
            writer.append(rollout_row(rollout(i)))
    return run


texts = st.text(st.characters(codec="utf-8"), max_size=40)


@settings(max_examples=25, deadline=None)
@given(
    text=texts,
    ids=st.none() | st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple),
    logprobs=st.none() | st.lists(st.sampled_from([0.0, -0.5, -1.25]), max_size=3).map(tuple),
    seed=st.integers(0, 2**63 - 1),
    stop=st.lists(texts, max_size=2).map(tuple),
)
def test_rollouts_come_back_as_they_were(tmp_path_factory, text, ids, logprobs, seed, stop):
    run = Run.create(tmp_path_factory.mktemp("r") / "run", "sample", "r", {})
    params = SamplingParams(0.6, 0.95, 3, 8, stop)
    one = rollout(text=text, token_ids=ids, logprobs=logprobs, seed=seed, params=params)
    with run.writer("rollouts") as writer:
        writer.append(rollout_row(one))
    assert list(run.rollouts()) == [one]


def test_problems_and_prompts_come_back(tmp_path):
    run = make(tmp_path)
    problem = Problem("p", "1+1=?", "2", "t", "s", {"a": [1, {"b": None}]})
    prompt = Prompt("p", "1+1=?", (3, 4), "h")
    run.write_problems([problem], [prompt])
    again = Run.open(run.path)
    assert again.problems() == [problem]
    assert again.prompts() == {"p": prompt}


def test_verdicts_are_keyed_by_rollout(tmp_path):
    run = make(tmp_path)
    with run.writer("verdicts") as writer:
        writer.append(verdict_row(rollout(1), Verdict("correct", "4", "exact", "exact@1")))
    assert run.keys("verdicts") == {("p", "m", 0, 1)}
    assert run.table("verdicts")["rollout_id"].to_pylist() == [rollout(1).id]


@pytest.mark.parametrize("damage", ["cut", "zeros", "empty"])
def test_a_corrupt_shard_is_one_error_that_names_it(tmp_path, damage):
    run = make(tmp_path)
    (shard,) = run.shards("rollouts")
    data = shard.read_bytes()
    shard.write_bytes({"cut": data[: len(data) // 2], "zeros": b"\0" * len(data), "empty": b""}[damage])
    for read in (lambda: run.table("rollouts"), lambda: list(run.rollouts()), lambda: run.keys("rollouts")):
        with pytest.raises(StoreError, match="is corrupt") as error:
            read()
        assert str(shard) in str(error.value)
        assert "\n" not in str(error.value)


def test_a_shard_whose_inside_is_damaged_is_one_error(tmp_path):
    run = make(tmp_path, rows=200)
    (shard,) = run.shards("rollouts")
    data = bytearray(shard.read_bytes())
    data[4 : len(data) // 2] = b"\xff" * (len(data) // 2 - 4)  # the footer stays readable
    shard.write_bytes(data)
    with pytest.raises(StoreError, match="corrupt"):
        list(run.rollouts())
    with pytest.raises(StoreError, match="corrupt"):
        run.table("rollouts")


def test_half_written_files_are_not_seen(tmp_path):
    run = make(tmp_path)
    (run.path / "rollouts" / ".000.parquet.1-0.tmp").write_bytes(b"half")
    assert run.table("rollouts").num_rows == 3


def test_run_json_that_is_missing_corrupt_or_newer(tmp_path):
    with pytest.raises(StoreError, match="no such folder"):
        Run.open(tmp_path / "none")
    run = make(tmp_path)
    file = run.path / "run.json"
    file.write_text(json.dumps({**run.info, "schema": 99}))
    with pytest.raises(StoreError, match="newer limen"):
        Run.open(run.path)
    file.write_text('{"schema": 1, ')
    with pytest.raises(StoreError, match="corrupt"):
        Run.open(run.path)
    file.write_text("[]")
    with pytest.raises(StoreError, match="corrupt"):
        Run.open(run.path)
    file.unlink()
    with pytest.raises(StoreError, match=r"no run\.json"):
        Run.open(run.path)


def test_a_full_disk_keeps_the_rows_for_another_try(tmp_path, monkeypatch):
    run = make(tmp_path)
    writer = run.writer("rollouts")
    writer.append(rollout_row(rollout(7)))
    write = pq.write_table

    def full(table, path, **options):
        path.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(StoreError, match="the disk is full"):
        writer.flush()
    assert run.table("rollouts").num_rows == 3
    assert not list(run.path.rglob("*.tmp"))
    monkeypatch.setattr(pq, "write_table", write)
    writer.flush()
    writer.flush()
    assert run.table("rollouts").num_rows == 4


def test_a_folder_that_cannot_be_written_is_one_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        Run.create(tmp_path / "file" / "run", "sample", "r", {})


def test_filters_reach_the_files(tmp_path):
    run = make(tmp_path)
    with run.writer("rollouts") as writer:
        writer.append(rollout_row(rollout(0, "q", step=4)))
    assert run.keys("rollouts", ds.field("problem_id") == "q") == {("q", "m", 4, 0)}
    assert run.table("rollouts", ["text"], ds.field("step") == 0).column_names == ["text"]
    assert len(run.shards("rollouts")) == 2


def test_shards_of_many_processes_do_not_meet(tmp_path):
    run = make(tmp_path, rows=0)
    children = []
    for child in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                for i in range(5):
                    with run.writer("rollouts") as writer:
                        writer.append(rollout_row(rollout(i, f"p{child}")))
            finally:
                os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    assert len(run.keys("rollouts")) == 20
    assert len(run.shards("rollouts")) == 20


def test_row_conversion_is_total():
    one = rollout(token_ids=None, logprobs=None)
    row = {**rollout_row(one), "stop": None}
    assert row_rollout(row).params.stop == ()


def test_a_start_beside_another_or_after_one_that_died_while_writing(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".run.json.123-0.tmp").write_text("{")
    assert Run.create(folder, "sample", "run", {}).info["status"] == "running"
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match="not empty and not a run folder"):
        Run.create(other, "sample", "run", {})


def test_what_another_process_wrote_into_run_json_stays(tmp_path):
    one = Run.create(tmp_path / "run", "sample", "r", {})
    two = Run.open(tmp_path / "run")
    with one.changing() as info:
        info.setdefault("alarms", []).append("first")
    with two.changing() as info:
        info.setdefault("alarms", []).append("second")
    assert Run.open(tmp_path / "run").info["alarms"] == ["first", "second"] == two.info["alarms"]


def test_processes_of_the_same_number_take_different_file_names():
    """Containers that share a disk: each is process 1, and each counts from 0."""
    code = "import os; os.getpid = lambda: 1; from limen.store.writer import _own; print(_own())"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    names = [subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True) for _ in range(2)]
    assert len({n.stdout for n in names}) == 2
