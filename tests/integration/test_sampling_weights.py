"""A run, or one name's scores, are not gone on with after the weights in the model folder changed."""

import shutil

import pytest
import torch

from limen.cli import main
from limen.config import SampleSettings
from limen.engines.hf import TransformersEngine
from limen.errors import ConfigError, ModelError
from limen.model_files import fingerprint
from limen.models import load_model
from limen.sampling import sample_run, score_run
from limen.store import Run


def rows(run):
    return {(r.problem_id, r.sample_index): r for r in run.rollouts()}


@pytest.fixture
def folder(tmp_path):
    return save(load_model("tiny", "cpu"), tmp_path / "model")


def save(loaded, path):
    loaded.model.save_pretrained(path)
    loaded.tokenizer.save_pretrained(path)
    return path


def train(path):
    """The folder as one step of training leaves it: the same names and sizes."""
    loaded = load_model(path, "cpu")
    with torch.no_grad():
        for p in loaded.model.parameters():
            p.mul_(1.001)
    save(loaded, path)


def of_folder(folder, **change):
    values = {"model": str(folder), "problems": "arithmetic:add?size=2", "n": 1, "max_tokens": 4, "device": "cpu"}
    return SampleSettings.make(**{**values, "verify_workers": 1, **change})


def test_a_folder_that_was_trained_further_is_another_policy(folder, tmp_path):
    run = sample_run(of_folder(folder), tmp_path / "run", progress=False)
    assert list(run.info["weights"]) == ["model.safetensors"]
    first = rows(run)
    kept = shutil.copytree(folder, tmp_path / "kept")
    train(folder)
    with pytest.raises(
        ConfigError, match=r"other weights than .*model holds now \(model.safetensors has other content"
    ):
        sample_run(of_folder(folder, n=2), tmp_path / "run", progress=False)
    assert rows(Run.open(run.path)) == first
    assert Run.open(run.path).info["weights"] == run.info["weights"]
    shutil.rmtree(folder)
    shutil.copytree(kept, folder)
    more = rows(sample_run(of_folder(folder, n=2), tmp_path / "run", progress=False))
    assert len(more) == 4
    assert all(more[key] == first[key] for key in first)


def test_a_run_that_recorded_no_weights_goes_on_and_records_them(folder, tmp_path):
    run = sample_run(of_folder(folder), tmp_path / "run", progress=False)
    del run.info["weights"]
    run.save()
    train(folder)  # nobody can tell
    run = sample_run(of_folder(folder, n=2), tmp_path / "run", progress=False)
    assert len(rows(run)) == 4
    train(folder)
    with pytest.raises(ConfigError, match="other weights"):
        sample_run(of_folder(folder, n=3), tmp_path / "run", progress=False)


def test_weights_of_a_start_that_drew_nothing_bind_nothing(folder, tmp_path):
    with pytest.raises(ModelError, match="do not fit"):
        sample_run(of_folder(folder, max_tokens=90), tmp_path / "run", progress=False)
    before = Run.open(tmp_path / "run").info["weights"]
    train(folder)
    run = sample_run(of_folder(folder), tmp_path / "run", progress=False)
    assert run.info["weights"] != before
    assert "weights" not in sample_run(of_folder("tiny"), tmp_path / "tiny", progress=False).info


def test_scores_of_one_name_are_of_the_same_weights(folder, tmp_path, monkeypatch, capsys):
    run = sample_run(of_folder(folder), tmp_path / "run", progress=False)

    def score(*more):
        command = ["limen", "score", str(run.path), "--model", str(folder), "--device", "cpu", "--quiet", *more]
        monkeypatch.setattr("sys.argv", command)
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code

    assert score("--name", "mine") == 0
    sample_run(of_folder(folder, n=2), tmp_path / "run", progress=False)
    train(folder)
    assert score("--name", "mine") == 2
    assert "scores under 'mine' were made with other weights" in capsys.readouterr().err
    assert run.table("scores").num_rows == 2
    assert score("--name", "trained") == 0
    names = run.table("scores")["scorer"].to_pylist()
    assert (names.count("mine"), names.count("trained")) == (2, 4)
    kept = Run.open(run.path).info["score_weights"]
    assert kept["mine"] == run.info["weights"] != kept["trained"]


def test_weights_of_a_scoring_that_kept_nothing_bind_nothing(folder, tmp_path):
    run = sample_run(of_folder(folder), tmp_path / "run", progress=False)
    with run.changing() as info:
        info["score_weights"] = {"mine": {"model.safetensors": "1:0"}}
    engine = TransformersEngine.load(str(folder), "cpu")
    assert score_run(run.path, engine, "mine", progress=False, weights=fingerprint(folder))["scored"] == 2
    assert Run.open(run.path).info["score_weights"]["mine"] == fingerprint(folder)
