"""Several processes on one run folder: none does the other's work, and the work of the dead is done."""

import dataclasses
import errno
import json
import multiprocessing
import os
import signal
import threading
import time

import pytest

from limen.config import SampleSettings
from limen.engines.exact import ExactEngine, ResponsesPolicy
from limen.errors import StoreError
from limen.sampling import fill, sample_run
from limen.sampling.leases import LeaseLost, Leases
from limen.store import Run

TABLE = {f"{i}=": {"1": 0.5, "2": 0.5} for i in range(12)}
N = 20


class Slow(ExactEngine):
    """Takes a while for each sample, so that processes meet."""

    def __init__(self, seconds):
        super().__init__(ResponsesPolicy(TABLE))
        self.seconds = seconds

    def sample(self, requests, params):
        for sample in super().sample(requests, params):
            time.sleep(self.seconds)
            yield sample


def settings(tmp_path, **change):
    file = tmp_path / "p.jsonl"
    rows = [{"id": f"p{i}", "problem": t, "answer": "1"} for i, t in enumerate(TABLE)]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    values = {"model": "m", "problems": str(file), "template": "plain", "verifier": "exact", "n": N, "share": True}
    return SampleSettings.make(**{**values, "lease_seconds": 4.0, "flush_seconds": 0.2, **change})


def work(wanted, path, seconds, results=None):
    fill.UNIT_SAMPLES = 2 * N  # two problems
    run = sample_run(wanted, path, Slow(seconds), progress=False)
    if results is not None:
        results.put(run.info["last"]["samples"])


def check(path):
    run = Run.open(path)
    for table in ("rollouts", "verdicts"):
        assert run.table(table).num_rows == len(run.keys(table)) == len(TABLE) * N
    assert not [f for f in (path / "leases").iterdir() if not f.name.startswith(".")]


@pytest.fixture
def spawn():
    """Fresh processes: what other tests left in this one (gRPC, a browser) does not survive a fork."""
    return multiprocessing.get_context("spawn")


def test_two_processes_divide_the_work(tmp_path, spawn):
    wanted, path, results = settings(tmp_path), tmp_path / "run", spawn.Queue()
    workers = [spawn.Process(target=work, args=(wanted, path, 0.004, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    done = [results.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    assert sum(done) == len(TABLE) * N
    assert min(done) >= 2 * N
    check(path)


def test_the_work_of_a_killed_process_is_done_by_another(tmp_path, spawn):
    wanted, path, results = settings(tmp_path), tmp_path / "run", spawn.Queue()
    doomed = spawn.Process(target=work, args=(wanted, path, 0.02))
    doomed.start()
    while not list(path.glob("rollouts/*.parquet")):
        assert doomed.is_alive()
        time.sleep(0.01)
    other = spawn.Process(target=work, args=(wanted, path, 0.0, results))
    other.start()
    os.kill(doomed.pid, signal.SIGKILL)
    doomed.join()
    assert 0 < results.get(timeout=120) < len(TABLE) * N
    other.join()
    check(path)


def test_processes_with_another_n_and_limit_draw_nothing_twice(tmp_path, spawn):
    """Someone tops a run up while it is still being filled."""
    path = tmp_path / "run"
    first = spawn.Process(target=work, args=(settings(tmp_path, limit=7), path, 0.01))
    first.start()
    while not list(path.glob("rollouts/*.parquet")):
        assert first.is_alive()
        time.sleep(0.01)
    second = spawn.Process(target=work, args=(settings(tmp_path, n=3 * N), path, 0.002))
    second.start()
    for worker in (first, second):
        worker.join()
    run = Run.open(path)
    for table in ("rollouts", "verdicts"):
        assert run.table(table).num_rows == len(run.keys(table)) == len(TABLE) * 3 * N
    assert run.settings["n"] == 3 * N
    assert len(run.problems()) == len(TABLE)


def test_a_disk_without_hard_links_is_told_of(tmp_path, monkeypatch):
    def link(*args):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StoreError, match=r"Operation not permitted.*hard links.*--ray"):
        sample_run(settings(tmp_path), tmp_path / "run", Slow(0), progress=False)


def test_sharing_and_being_alone_exclude_each_other(tmp_path):
    wanted, path = settings(tmp_path), tmp_path / "run"
    thread = threading.Thread(target=work, args=(wanted, path, 0.01))
    thread.start()
    while not (path / "leases").exists():
        time.sleep(0.01)
    with pytest.raises(StoreError, match="--share"):
        sample_run(settings(tmp_path, share=False), path, Slow(0), progress=False)
    thread.join()
    check(path)


def test_a_lease_is_held_by_one_and_taken_over_when_stale(tmp_path):
    one, two = Leases(tmp_path, stale=0.3), Leases(tmp_path, stale=0.3)
    one.folder.mkdir()
    assert one._claim("u")
    assert not two._claim("u")
    one.check("u")
    time.sleep(0.4)
    assert two._claim("u")
    two.check("u")
    with pytest.raises(LeaseLost, match="taken over"):
        one.check("u")
    assert not one._claim("u")


def test_a_living_owner_keeps_its_lease(tmp_path):
    one, two = Leases(tmp_path, stale=2.0), Leases(tmp_path, stale=2.0)
    for unit in one.work(["u"]):
        for _ in range(6):
            time.sleep(0.5)
            assert not two._claim(unit)
    assert two._claim("u")


def test_a_process_that_slept_writes_nothing(tmp_path, caplog):
    """Its lease is taken over while it sleeps; it notices before it writes, and the samples are there once."""
    wanted, path = settings(tmp_path), tmp_path / "run"

    class Sleeper(Slow):
        slept = False

        def sample(self, requests, params):
            for count, sample in enumerate(super().sample(requests, params)):
                # Rare responses, none of which comes twice by itself.
                sample = dataclasses.replace(sample, token_ids=(2, count), log_q=-20.0)
                if count == 30 and not self.slept:
                    self.slept = True
                    for lease in (path / "leases").iterdir():
                        lease.write_text("another")  # what a take-over leaves
                        lease.unlink()
                    time.sleep(0.3)
                yield sample

    fill.UNIT_SAMPLES = 2 * N
    sample_run(wanted, path, Sleeper(0), progress=False)
    assert "was taken over" in caplog.text
    check(path)
    assert "alarms" not in Run.open(path).info  # what was drawn again is not a repetition
