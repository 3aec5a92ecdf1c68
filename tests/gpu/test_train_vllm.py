"""SELF with vLLM colocated: on a CUDA device, or with vLLM's CPU build (LIMEN_VLLM_CPU=1 VLLM_CPU_KVCACHE_SPACE=1)."""

import json
import os

import pytest
import torch

from limen.lab.demo import RECIPE
from limen.store import Run
from limen.train import train
from limen.train.settings import parse_settings
from vllm_model import save_model

pytest.importorskip("vllm")
CPU = os.environ.get("LIMEN_VLLM_CPU") == "1"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not CPU and not torch.cuda.device_count(), reason="needs a CUDA device"),
    pytest.mark.timeout(600),
]


def test_self_samples_screens_and_learns_through_vllm(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    more = {
        "problems": "arithmetic:all?split=train", "limit": 64, "model": str(save_model(tmp_path / "model")),
        "algorithm": {"name": "self", "forward_kl_beta": 0.05, "kl_samples": 2}, "base_n": 2, "steps": 3,
        "save_steps": 3, "prompts_per_step": 8, "group_size": 4, "out": str(tmp_path / "run"),
        "vllm": {"mode": "colocate", "gpu_memory": 0.2},
    }  # fmt: skip
    run = train(parse_settings({**RECIPE, **more}))
    lines = [json.loads(x) for x in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [x["step"] for x in lines] == [1, 2, 3]
    assert all(x["screened"] == 8 and x["seconds/screen"] > 0 and x["loss_kl"] > 0 for x in lines)
    gaps = [x["sampling/sampling_logp_difference/mean"] for x in lines]
    assert max(gaps) < 0.05, "vLLM samples from the weights of the step before it"
    names = {r.policy.endswith("@greedy") for r in Run.open(run.path).rollouts()}
    assert names == {True, False}
