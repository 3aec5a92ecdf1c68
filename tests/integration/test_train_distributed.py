"""Two processes (gloo): the same step as one process, survivors shared out, and no deadlock without any."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from limen.store import Run
from train_helpers import scripted_trainer

HERE = Path(__file__).resolve()
SRC = str(HERE.parents[2] / "src")
WORKER = """
import json, sys, torch
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
sys.path.insert(0, {src!r})
from pathlib import Path
from train_helpers import scripted_trainer

from limen.store import Run
out = Path(sys.argv[1])
made, gradient = scripted_trainer(out, int(sys.argv[2]), json.loads(sys.argv[3]))
made.train()
if made.accelerator.is_main_process:
    torch.save({{"gradient": gradient, "counters": made.counters}}, out / "result.pt")
    made.recorder.flush()
"""


def launch(folder, micro, options, processes=2):
    folder.mkdir()
    script = folder / "worker.py"
    script.write_text(WORKER.format(tests=str(HERE.parents[1]), src=SRC))
    run_all([sys.executable, str(script), str(folder), str(micro), json.dumps(options)], processes)
    return torch.load(folder / "result.pt"), folder / "limen"


def run_all(command, processes):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    workers = []
    for rank in range(processes):
        env = {
            **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true",
            "PYTHONPATH": os.pathsep.join([SRC, os.environ.get("PYTHONPATH", "")]),
        }  # fmt: skip
        workers.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    output = [w.communicate(timeout=300)[0].decode() for w in workers]
    assert all(w.returncode == 0 for w in workers), output[0][-3000:] + output[-1][-3000:]


def lines(run):
    return [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]


def stored(run):
    return {
        (r.problem_id, r.policy.partition("@")[2], r.step, r.sample_index): r.text for r in Run.open(run).rollouts()
    }


@pytest.mark.parametrize(
    "more", [{}, pytest.param({"kl_prompts": "survivors", "kl_estimator": "k3"}, marks=pytest.mark.slow)]
)
def test_two_processes_take_the_same_steps_as_one(tmp_path, monkeypatch, more):
    """Three survivors of four: two processes get two each, one of them a repeat that must not count. In the second
    step nothing survives, and neither process waits for the other."""
    options = {"algorithm": "self", "forward_kl_beta": 0.3, "kl_samples": 2, "base_n": 2, "max_steps": 2, **more}
    made, gradients = scripted_trainer(tmp_path / "one", 16, options, monkeypatch.setattr)
    made.train()
    run_one = tmp_path / "one" / "limen"
    two, run_two = launch(tmp_path / "two", 8, options)
    assert gradients[0].norm() > 1e-3
    for a, b in zip(two["gradient"], gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-6)
    keys = ("kept", "screened", "active_rows", "unjudged", "reward_batch", "loss_kl", "greedy_solved", "kl_responses")
    for a, b in zip(lines(run_one), lines(run_two), strict=True):
        assert {k: round(a[k], 5) for k in keys if k in a} == {k: round(b[k], 5) for k in keys if k in b}
    assert [x["kept"] for x in lines(run_two)] == [3, 0]
    assert two["counters"]["no_survivors"] == 1
    assert stored(run_one) == stored(run_two)


@pytest.mark.slow
def test_limen_train_in_two_processes(tmp_path):
    config = tmp_path / "config.yaml"
    settings = {
        "model": "tiny", "device": "cpu", "problems": "arithmetic:all?split=train&size=60", "template": "plain",
        "steps": 2, "save_steps": 1, "prompts_per_step": 8, "group_size": 4, "max_new_tokens": 6, "base_n": 2,
        "out": str(tmp_path / "run"),
    }  # fmt: skip
    config.write_text(yaml.safe_dump(settings))
    run_all([sys.executable, "-m", "limen", "train", str(config)], 2)
    run = Run.open(tmp_path / "run")
    assert run.info["status"] == "done"
    assert (run.path / "model" / "model.safetensors").exists()
    assert [x["step"] for x in lines(run.path)] == [1, 2]
