"""A disk that is really full: a small tmpfs. One clear error, nothing torn, and the same command goes on."""

import json
import os
import subprocess

import pytest

from limen.config import SampleSettings
from limen.engines import exact
from limen.errors import StoreError
from limen.sampling import sample_run

TABLE = {"q=": {"ab": 0.5, "a": 0.2, "b": 0.2, "": 0.1}, "r=": {"b": 0.6, "aaa": 0.4}}
SIZE = "160k"


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)  # readers may hold files until they are collected


def settings(tmp_path):
    file = tmp_path / "p.jsonl"
    rows = [{"id": f"p{i}", "problem": t, "answer": "ab"} for i, t in enumerate(TABLE)]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    values = {"model": "m", "problems": str(file), "template": "plain", "verifier": "exact", "keep_bad_golds": True}
    return SampleSettings.make(**values, n=3000, max_tokens=4, logprobs=True, flush_seconds=0.2, verify_workers=1)


def engine():
    return exact.ExactEngine(exact.ResponsesPolicy(TABLE), logprobs=True)


def rollouts(run):
    return {(r.problem_id, r.sample_index): (r.seed, r.token_ids, r.finish_reason) for r in run.rollouts()}


def test_a_full_disk(small_disk, tmp_path):
    run = small_disk / "run"
    with pytest.raises(StoreError, match=r"the disk is full.*make room and run the same command again"):
        sample_run(settings(tmp_path), run, engine(), progress=False)
    assert not list(run.rglob("*.tmp")), "half-written files are left"
    from limen.store import Run

    torn = Run.open(run)
    stored = rollouts(torn)
    assert len(stored) == torn.table("rollouts").num_rows
    assert 0 < len(stored) < 6_000
    assert torn.keys("verdicts") <= torn.keys("rollouts")
    with pytest.raises(StoreError, match="the disk is full"):
        sample_run(settings(tmp_path), run, engine(), progress=False)
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    whole = sample_run(settings(tmp_path), run, engine(), progress=False)
    alone = sample_run(settings(tmp_path), tmp_path / "roomy" / "run", engine(), progress=False)
    assert len(rollouts(whole)) == whole.table("rollouts").num_rows == 6_000
    assert rollouts(whole) == rollouts(alone)
    assert rollouts(whole).items() >= stored.items()
    assert whole.keys("verdicts") == whole.keys("rollouts")
    assert whole.table("verdicts").num_rows == 6_000
