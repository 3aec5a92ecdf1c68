"""`limen influence` from run folders to tables, JSON, CSV, kernels and figure."""

import csv
import json
import math

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from limen.cli.influence import register, run_options
from limen.config import SampleSettings
from limen.dynamics.influence import find_places
from limen.dynamics.influence_pairs import read_pairs, training_steps
from limen.errors import ConfigError, DataError, LimenError, StoreError
from limen.models import load_model
from limen.sampling import sample_run
from limen.store import Run
from limen.store.schema import rollout_row, verdict_row
from limen.types import Verdict

app = typer.Typer()  # of one command, which is then given without its name
register(app)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A sampled probe, and a training run as `limen train` leaves one: rollouts of steps 0 and 1, one checkpoint."""
    folder = tmp_path_factory.mktemp("influence")
    for name, split in (("probe", "test"), ("draws", "train")):
        settings = SampleSettings.make(model="tiny", problems=f"arithmetic:add?split={split}&size=8", n=8, max_tokens=6,
                                       device="cpu", verify_workers=1)  # fmt: skip
        sample_run(settings, folder / name, progress=False)
    draws = Run.open(folder / "draws")
    settings = {
        "name": "mine", "model": "tiny", "algorithm": {"name": "grpo", "loss_type": None}, "reward": "rbp",
        "optimiser": {"lr": 3e-4, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.01, "grad_clip": 0.5},
    }  # fmt: skip
    run = Run.create(folder / "train", "train", "mine", settings)
    run.write_problems(draws.problems(), list(draws.prompts().values()))
    verdict = {v["rollout_id"]: v for v in draws.table("verdicts").to_pylist()}
    with run.writer("rollouts") as rollouts, run.writer("verdicts") as verdicts:
        for r in draws.rollouts():
            for step, policy in ((0, "mine"), (1, "mine"), (0, "mine@greedy")):
                ours = type(r)(**{f: getattr(r, f) for f in r.__dataclass_fields__} | {"policy": policy, "step": step})
                rollouts.append(rollout_row(ours))
                v = verdict[r.id]
                verdicts.append(verdict_row(ours, Verdict(v["outcome"], v["answer"], v["rule"], v["verifier"])))
    model = load_model("tiny", "cpu")
    optimizer = torch.optim.AdamW(model.model.parameters(), lr=0.0, betas=(0.9, 0.99))
    ids = torch.randint(3, 13, (64, 10), generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        model.model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    model.model.save_pretrained(folder / "train" / "checkpoint-1")
    model.tokenizer.save_pretrained(folder / "train" / "checkpoint-1")
    torch.save(optimizer.state_dict(), folder / "train" / "checkpoint-1" / "optimizer.pt")
    return folder


def invoke(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def made(runs):
    out = runs / "out"
    text = invoke(runs / "train", "--probe", runs / "probe", "--out", out, "--train", 24, "--pairs", 24, "--quiet")
    return out, text, json.loads((out / "influence.json").read_text())


def test_every_checkpoint_has_its_kernel_prediction_and_spectrum(made):
    out, text, result = made
    assert [p["step"] for p in result["points"]] == [0, 1]
    assert [p["rollouts_step"] for p in result["points"]] == [0, 1]
    for point in result["points"]:
        assert point["parameters"] == 334_080
        assert point["training_samples"] == 24
        assert 1 <= point["spectrum"]["effective_rank"] <= 24
        for form, prediction in point["predictions"].items():
            best = max(c["r2"] for c in prediction["sweep"])
            assert best >= 0.95, form
            assert prediction["sketch"] == 0
    assert result["points"][1]["predictions"]["adam"]["lr"] == 3e-4  # the stored one is 0
    assert result["options"]["clip"] == 0.5
    assert "R²" in text
    for name in ("influence.png", "influence.svg", "kernel-1-adam.npz", "attribution.csv"):
        assert (out / name).stat().st_size > 100


def test_the_attribution_adds_up_and_names_responses_that_can_be_found(made, runs):
    out, _, result = made
    rows = list(csv.DictReader((out / "attribution.csv").open()))
    kernel = np.load(out / "kernel-1-adam.npz")
    stored = {r.id: r for name in ("train", "probe") for r in Run.open(runs / name).rollouts()}
    assert [r["steps"] for r in rows] == ["1"] * len(rows)  # cold moments are left out
    assert [float(r["effect"]) for r in rows] == sorted(float(r["effect"]) for r in rows)
    for row in rows:
        assert stored[row["train_key"]].problem_id == row["train_problem"]
        assert stored[row["train_key"]].policy == "mine"
        assert stored[row["probe_key"]].problem_id == row["probe_problem"]
    for key, response in result["responses"].items():
        assert response["text"] == stored[key].text
    # the effects on a problem are its predicted change, but for Adam's drift
    problem = rows[0]["probe_problem"]
    solved = next(s for s in result["points"][1]["solved"] if s["probe_problem"] == problem)
    total = sum(float(r["effect"]) for r in rows if r["probe_problem"] == problem)
    assert total == pytest.approx(solved["predicted"] - solved["drift"], abs=1e-9)
    assert list(kernel["train_key"]) == [k for k in kernel["train_key"] if k in stored]
    assert kernel["k"].shape == (24, 24)


def test_rewards_and_policies_are_the_training_runs_own(runs):
    options, _ = run_options(runs / "train")
    assert options.reward == {"correct": 1.0, "wrong": -0.5, "no_answer": -1.0, "unjudged": None}
    assert (options.base_lr, options.betas, options.weight_decay) == (3e-4, (0.9, 0.99), 0.01)
    pairs = read_pairs(runs / "train", step=0, reward=options.reward)
    assert len(pairs) == 64  # the greedy responses are another policy's
    assert {p.reward for p in pairs} <= {1.0, -0.5, -1.0}
    assert training_steps(runs / "train") == [0, 1]


def test_any_run_with_rollouts_serves_with_a_model(runs, tmp_path):
    text = invoke(runs / "draws", "--probe", runs / "probe", "--out", tmp_path, "--model", "tiny", "--train", 16,
                  "--pairs", 12, "--form", "sgd", "--sketch", 512, "--json", "--quiet")  # fmt: skip
    result = json.loads(text)
    (point,) = result["points"]
    assert list(point["predictions"]) == ["sgd"]
    assert point["predictions"]["sgd"]["sketch"] == 512
    assert point["predictions"]["sgd"]["sketch_error_rms"] > 0
    assert all(math.isfinite(e["effect"]) for e in result["effects"])


def test_what_cannot_be_done_is_one_clear_error(runs, tmp_path):
    with pytest.raises(ConfigError, match="say with --model"):
        find_places(runs / "draws")
    with pytest.raises(ConfigError, match="has no step 7; it has 0, 1"):
        find_places(runs / "train", steps=[7])
    with pytest.raises(ConfigError, match="expected one of both, sgd, adam"):
        run_options(runs / "train", "newton")
    with pytest.raises(DataError, match="holds several policies or steps"):
        read_pairs(runs / "train")
    with pytest.raises(StoreError, match="no verdicts that fit"):
        read_pairs(runs / "probe", verifier="math")
    with pytest.raises(StoreError, match="holds no"):
        read_pairs(runs / "probe", policy="nobody")
    for part in ("--train", "--pairs"):
        with pytest.raises(LimenError, match="ask for more"):
            invoke(runs / "train", "--probe", runs / "probe", "--out", tmp_path, part, 1, "--quiet")
