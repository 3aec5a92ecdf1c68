"""`limen train` is killed with -9 and started again: the same weights, rollouts and metrics, bit for bit."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import yaml

from limen.errors import ConfigError
from limen.models import load_model
from limen.store import Run
from limen.train import TrainSettings, train
from limen.train.run import open_run
from limen.train.settings import OptimiserSettings, load_settings

SRC = Path(__file__).resolve().parents[2] / "src"
SMALL = {
    "model": "tiny", "problems": "arithmetic:all?split=train&size=300", "template": "plain", "max_new_tokens": 6,
    "prompts_per_step": 16, "group_size": 4, "optimiser": {"lr": 3e-4}, "steps": 6, "save_steps": 2, "base_n": 2,
}  # fmt: skip
KILLED = textwrap.dedent("""
    import os, signal, sys, torch, yaml
    torch.set_num_threads(1)
    from limen.train import TrainSettings, train

    def kill(step, total, metrics):
        if step == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

    train(TrainSettings(**yaml.safe_load(open(sys.argv[1]))), progress=kill)
""")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def metrics(folder):
    """Lines without what depends on the clock."""
    lines = [json.loads(x) for x in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in x.items() if not k.startswith("seconds") and k != "step_time"} for x in lines]


def stored(folder):
    return {
        (r.problem_id, r.policy.rpartition("@")[2], r.step, r.sample_index): r.token_ids
        for r in Run.open(folder).rollouts()
    }


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        ({"name": "self", "forward_kl_beta": 0.1, "refill": True, "kl_estimator": "k3",
          "schedule": [{"when": "kept > 3", "set": {"kl_samples": 1}}],
          "reverse_kl_beta": 0.01, "reference_reset": 3}, {}),
        ("grpo", {"iterations": 2, "accumulation": 2}),
    ],
)  # fmt: skip
def test_kill_9_and_resume_give_the_same_weights(tmp_path, algorithm, more):
    values = {**SMALL, **more, "algorithm": algorithm, "name": "p"}
    whole = train(TrainSettings(**values, out=str(tmp_path / "whole")))
    config = tmp_path / "killed.yaml"
    config.write_text(yaml.safe_dump({**values, "out": str(tmp_path / "killed")}))
    env = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", KILLED, str(config), "5"], env=env, capture_output=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    assert Run.open(tmp_path / "killed").info["status"] == "running"
    # what a kill in the middle of a save or of a line leaves behind
    (tmp_path / "killed" / "checkpoint-6").mkdir(exist_ok=True)
    with (tmp_path / "killed" / "metrics.jsonl").open("a") as out:
        out.write('{"step": 6, "lo')
    resumed = train(load_settings(config), resume=True)
    for name in ("model/model.safetensors", "checkpoint-6/model.safetensors"):
        assert (whole.path / name).read_bytes() == (resumed.path / name).read_bytes(), name
    assert metrics(whole.path) == metrics(resumed.path)
    assert [x["step"] for x in metrics(resumed.path)] == [1, 2, 3, 4, 5, 6]
    assert stored(whole.path) == stored(resumed.path)
    keys = Run.open(resumed.path).table("rollouts", ["rollout_id"]).column(0).to_pylist()
    assert len(keys) == len(set(keys)), "nothing is stored twice"


def test_saved_model_has_the_same_likelihood_and_other_models_are_refused(tmp_path):
    from limen.engines.hf import TransformersEngine
    from limen.engines.protocol import ScoreRequest
    from limen.models import load_model
    from limen.train.run import make_trainer, open_run, prepare

    settings = TrainSettings(**{**SMALL, "steps": 2}, algorithm="grpo", out=str(tmp_path / "run"))
    run, _ = open_run(settings, None)
    loaded, problems, prompts = prepare(settings)
    trainer = make_trainer(settings, loaded, problems, prompts, run.path)
    trainer.train()
    from limen.train.run import save_model

    save_model(trainer, run.path / "model", loaded.tokenizer)
    request = [ScoreRequest(p.token_ids, tuple(loaded.tokenizer.encode(q.answer)))
               for p, q in zip(prompts[:8], problems[:8], strict=True)]  # fmt: skip
    loaded.model.eval()
    now = TransformersEngine(loaded).score(request)
    again = TransformersEngine(load_model(str(run.path / "model"))).score(request)
    base = TransformersEngine(load_model("tiny")).score(request)
    assert all((a == b).all() for a, b in zip(now, again, strict=True))
    assert any((a != b).any() for a, b in zip(now, base, strict=True))

    from train_helpers import rows, tiny_model
    from train_helpers import trainer as other

    made = other(tmp_path / "other", tiny_model(), rows(), algorithm="grpo")
    with pytest.raises(ConfigError, match="another model"):
        made.train(resume_from_checkpoint=str(run.path / "checkpoint-2"))


def test_what_a_folder_holds_decides(tmp_path):
    settings = TrainSettings(**{**SMALL, "steps": 2}, algorithm="grpo", out=str(tmp_path / "run"))
    with pytest.raises(ConfigError, match="no run to go on with"):
        train(settings, resume=True)
    run = train(settings)
    lines = (run.path / "metrics.jsonl").read_text()
    assert train(settings).info["status"] == "done"
    assert (run.path / "metrics.jsonl").read_text() == lines, "a finished run is not trained again"
    with pytest.raises(ConfigError, match="already holds a run"):
        train(settings, resume=False)
    with pytest.raises(ConfigError, match="group_size was 4, is 2"):
        train(settings.model_copy(update={"group_size": 2}))
    decaying = settings.model_copy(
        update={"optimiser": OptimiserSettings(schedule="linear"), "out": str(tmp_path / "decay")}
    )
    open_run(decaying, None)
    (tmp_path / "decay" / "metrics.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(ConfigError, match="steps was 2, is 4"):
        open_run(decaying.model_copy(update={"steps": 4}), None)
    longer = train(settings.model_copy(update={"steps": 4}))
    assert [x["step"] for x in metrics(longer.path)] == [1, 2, 3, 4]


def test_a_folder_in_which_nothing_was_made_takes_the_mended_settings(tmp_path):
    values = {**SMALL, "steps": 1, "algorithm": "grpo", "out": str(tmp_path / "run")}
    with pytest.raises(ConfigError, match="context of"):
        train(TrainSettings(**{**values, "max_new_tokens": 500}))
    assert train(TrainSettings(**values)).settings["max_new_tokens"] == SMALL["max_new_tokens"]
    with pytest.raises(ConfigError, match=r"\(algorithm.soft_gate was None, is 1.0\)"):
        train(TrainSettings(**{**values, "algorithm": {"name": "grpo", "soft_gate": 1.0}}))


def test_a_run_that_ended_inside_a_cycle_goes_on_from_the_checkpoint_before(tmp_path):
    values = {**SMALL, "algorithm": "grpo", "iterations": 2, "save_steps": 2, "name": "p"}
    short = train(TrainSettings(**values | {"steps": 3}, out=str(tmp_path / "short")))
    assert (short.path / "checkpoint-3").exists()
    longer = train(TrainSettings(**values | {"steps": 4}, out=str(tmp_path / "short")))
    whole = train(TrainSettings(**values | {"steps": 4}, out=str(tmp_path / "whole")))
    assert metrics(longer.path) == metrics(whole.path)
    name = "model/model.safetensors"
    assert (whole.path / name).read_bytes() == (longer.path / name).read_bytes()


def test_checkpoints_of_other_trainers_are_left_alone(tmp_path):
    """A script that changed from GRPOTrainer to SELFTrainer keeps its output_dir, and what lies there."""
    from train_helpers import rows, tiny_model, trainer

    theirs = tmp_path / "checkpoint-500"
    theirs.mkdir()
    (theirs / "model.safetensors").write_bytes(b"weights")
    trainer(tmp_path, tiny_model(), rows(), algorithm="grpo", max_steps=1).train()
    assert (theirs / "model.safetensors").read_bytes() == b"weights"


def test_a_share_of_the_way_is_kept_beside_the_policy_as_trained_and_made_again_after_more_steps(tmp_path):
    values = {**SMALL, "algorithm": "grpo", "optimiser": {"lr": 1e-3, "schedule": "constant"}}
    plain = train(TrainSettings(**values | {"steps": 4}, out=str(tmp_path / "plain")))
    mixed = values | {"weights_share": 0.6, "out": str(tmp_path / "mixed")}
    for steps in (2, 4):
        run = train(TrainSettings(**mixed | {"steps": steps}))
    base, whole = (load_model(m, "cpu", "float32").model.state_dict() for m in ("tiny", plain.path / "model"))
    kept = load_model(run.path / "model-trained", "cpu", "float32").model.state_dict()
    for name, tensor in load_model(run.path / "model", "cpu", "float32").model.state_dict().items():
        assert torch.equal(kept[name], whole[name])
        torch.testing.assert_close(tensor, 0.4 * base[name] + 0.6 * whole[name], rtol=0, atol=1e-7)
    assert any(not torch.equal(base[name], whole[name]) for name in base)
