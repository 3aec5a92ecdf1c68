"""Whole runs over processes and over Ray, against the same run in one process; drivers, nodes and heads that die."""

import os
import signal
import subprocess
import sys
import time

import pytest

from limen.config import SampleSettings
from limen.engines.processes import ProcessWorker
from limen.engines.spread import SpreadEngine
from limen.models import load_tokenizer
from limen.sampling import sample_run
from limen.store import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]
PROBLEMS = "arithmetic:all?size=12"


def settings(**more):
    values = {"model": "tiny", "problems": PROBLEMS, "n": 40, "max_tokens": 6, "device": "cpu", "flush_seconds": 0.5}
    return SampleSettings.make(**{**values, **more})


def rollouts(path):
    run = Run.open(path)
    found = {(r.problem_id, r.sample_index): (r.seed, r.token_ids, r.text, r.finish_reason) for r in run.rollouts()}
    assert len(found) == run.table("rollouts").num_rows
    assert run.keys("verdicts") == run.keys("rollouts")
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    path = tmp_path_factory.mktemp("alone") / "run"
    sample_run(settings(), path, progress=False)
    found = rollouts(path)
    assert len(found) == 12 * 40
    return found


def environment():
    paths = os.pathsep.join(p for p in sys.path if p)
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def command(out, *more):
    base = [sys.executable, "-m", "limen", "sample", "--model", "tiny", "--problems", PROBLEMS, "-n", "40"]
    return [*base, "--max-tokens", "6", "--device", "cpu", "--out", str(out), "--quiet", *more]


def test_processes_one_of_them_killed(alone, tmp_path):
    """What vLLM on several GPUs is made of, here with the transformers engine in each process."""
    workers = []

    def open_worker(slot):
        workers.append(ProcessWorker(settings(), {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}))
        return workers[-1]

    engine = SpreadEngine(open_worker, 2, load_tokenizer("tiny"))
    seen = []

    class Killing:
        name, capabilities, tokenizer = engine.name, engine.capabilities, engine.tokenizer

        def sample(self, requests, params):
            for sample in engine.sample(requests, params):
                seen.append(sample)
                if len(seen) == 50:
                    workers[0].process.send_signal(signal.SIGKILL)
                yield sample

    sample_run(settings(), tmp_path / "run", Killing(), progress=False)
    assert rollouts(tmp_path / "run") == alone
    engine.close()
    assert all(w.process.poll() is not None for w in workers)


def test_the_command_over_ray(alone, tmp_path):
    pytest.importorskip("ray")
    out = tmp_path / "run"
    subprocess.run(command(out, "--ray", "--workers", "2"), check=True, env=environment(), timeout=300)
    assert rollouts(out) == alone
    subprocess.run(
        [sys.executable, "-m", "limen", "score", str(out), "--model", "tiny", "--device", "cpu", "--ray", "--quiet"],
        check=True,
        env=environment(),
        timeout=300,
    )
    assert Run.open(out).table("scores").num_rows == len(alone)


def test_a_driver_killed_in_the_middle_goes_on_without_ray(alone, tmp_path):
    pytest.importorskip("ray")
    out = tmp_path / "run"
    process = subprocess.Popen(command(out, "--ray", "--workers", "1", "--batch-size", "2"), env=environment())
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and process.poll() is None and not list(out.glob("rollouts/*.parquet")):
        time.sleep(0.05)
    process.kill()
    process.wait()
    sample_run(settings(), out, progress=False)
    assert rollouts(out) == alone


@pytest.fixture
def two_nodes():
    """A head without room for workers, and two nodes with room for one each, as processes of this machine."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = environment()["PYTHONPATH"]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


def test_a_node_that_is_lost_and_one_that_joins(two_nodes, alone, tmp_path):
    from limen.engines.ray_cluster import RayEngine

    cluster, nodes = two_nodes
    engine = RayEngine.start(settings(ray=True, ray_address=cluster.address, batch_size=2))
    seen = []

    class Losing:
        name, capabilities, tokenizer = engine.name, engine.capabilities, engine.tokenizer

        def sample(self, requests, params):
            for sample in engine.sample(requests, params):
                seen.append(sample)
                if len(seen) == 20:
                    cluster.remove_node(nodes[0], allow_graceful=False)
                    cluster.add_node(num_cpus=1)
                yield sample

    sample_run(settings(batch_size=2), tmp_path / "run", Losing(), progress=False)
    assert rollouts(tmp_path / "run") == alone
    engine.close()


def test_a_head_that_is_lost_costs_nothing_that_was_reported(two_nodes, alone, tmp_path):
    """The driver ends with the cluster; the same command with another cluster, or none, goes on from the folder."""
    cluster, _ = two_nodes
    out = tmp_path / "run"
    more = ["--ray", "--ray-address", cluster.address, "--workers", "1", "--batch-size", "2"]
    process = subprocess.Popen(
        command(out, *more), env={**environment(), "RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
    )
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and process.poll() is None and not list(out.glob("rollouts/*.parquet")):
        time.sleep(0.05)
    before = {(r.problem_id, r.sample_index) for r in Run.open(out).rollouts()}
    cluster.head_node.kill_gcs_server()
    try:
        process.wait(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    sample_run(settings(), out, progress=False)
    found = rollouts(out)
    assert found == alone
    assert before <= found.keys()
