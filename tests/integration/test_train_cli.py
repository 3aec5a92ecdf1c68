"""`limen train CONFIG.yaml` at the command line."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import limen.cli as cli

RUNNER = CliRunner()
GOOD = {"model": "tiny", "problems": "arithmetic:all?split=train&size=60", "prompts_per_step": 4, "group_size": 2,
        "max_new_tokens": 4, "steps": 1, "algorithm": "grpo"}  # fmt: skip


@pytest.fixture(scope="module")
def app():
    cli._register()
    return cli.app


def write(tmp_path, **values):
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({**GOOD, **values}))
    return str(file)


def test_dry_run_checks_and_trains_nothing(app, tmp_path):
    out = RUNNER.invoke(app, ["train", write(tmp_path, out=str(tmp_path / "run")), "--dry-run"])
    assert out.exit_code == 0, out.output
    assert "golds      60 of 60" in out.output
    assert "parameters   0.3 M" in out.output
    assert "selector: all" in out.output
    assert not (tmp_path / "run").exists()


def test_train_and_set(app, tmp_path):
    run = tmp_path / "run"
    out = RUNNER.invoke(
        app, ["train", write(tmp_path), "--out", str(run), "--seed", "3", "--set", "optimiser.lr=0.001"]
    )
    assert out.exit_code == 0, out.output
    assert (run / "model" / "model.safetensors").exists()
    assert '"lr": 0.001' in (run / "run.json").read_text()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"group_sise": 4}, "unknown key 'group_sise' (did you mean 'group_size'?)"),
        ({"algorithm": {"name": "self", "betta": 1}}, "unknown key 'algorithm.betta'"),
        ({"algorithm": "selv"}, "'selv' is not known"),
        ({"group_size": 1}, "group_size"),
        ({"accumulation": 3}, "cannot be cut into 3"),
        ({"iterations": 2, "save_steps": 5}, "multiple of iterations"),
        ({"prompts_per_step": 64}, "60 problems, but prompts_per_step is 64"),
        ({"max_new_tokens": 100}, "context of"),
        ({"problems": "nope.jsonl"}, "nope.jsonl"),
        ({"model": "nope"}, "nope"),
        ({"verifier": "nope"}, "nope"),
        ({"base_responses": "nope"}, "nope"),
    ],
)
def test_bad_settings_are_one_clear_line(app, tmp_path, values, says):
    out = RUNNER.invoke(app, ["train", write(tmp_path, **values), "--dry-run"])
    assert out.exit_code != 0
    assert says in str(out.exception)
    assert "\n" not in str(out.exception)


def test_a_tracker_that_is_not_installed_is_named_before_anything_is_made(app, tmp_path, monkeypatch):
    monkeypatch.setattr("limen.train.dry_run.find_spec", lambda name: None)
    out = RUNNER.invoke(app, ["train", write(tmp_path, trackers=["trackio"], out=str(tmp_path / "run"))])
    assert "pip install 'limen[track]'" in str(out.exception)
    assert not (tmp_path / "run").exists()


def test_presets_are_valid():
    from limen.train.dry_run import resolve
    from limen.train.settings import load_settings

    presets = sorted((Path(__file__).resolve().parents[2] / "presets").glob("*.yaml"))
    assert len(presets) >= 4
    for file in presets:
        resolve(load_settings(file))
