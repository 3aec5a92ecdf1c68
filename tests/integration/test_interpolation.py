"""Models between two: weights by hand, what does not fit together, and a folder that is whole or not there."""

import json
import shutil

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from limen import interpolation
from limen.errors import ConfigError, ModelError
from limen.interpolation import RECORD, interpolate, mix, stored_dtype
from limen.models import load_model


class Small(nn.Module):
    """An embedding that is the head too (or is not), a layer, and a count."""

    def __init__(self, fill, tied=True, width=3, count=7):
        super().__init__()
        self.embed, self.head = nn.Embedding(5, width), nn.Linear(width, 5, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        for p in self.parameters():
            nn.init.constant_(p, fill)
        self.register_buffer("count", torch.tensor(count))


@pytest.mark.parametrize("tied", [True, False])
def test_every_weight_moves_once(tied):
    base, policy = Small(1.0, tied), Small(3.0, tied)
    mix(base, policy, 0.25)
    for tensor in (policy.embed.weight, policy.head.weight):
        assert torch.equal(tensor, torch.full((5, 3), 1.5))
    assert torch.equal(base.embed.weight, torch.full((5, 3), 1.0))


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Small(3.0, width=4), r"\(5, 3\) in the base and \(5, 4\)"),
        (Small(3.0, tied=False), "shares weights between tensors"),
        (Small(3.0, count=8), "integers that differ"),
        (nn.Linear(2, 2), "only the"),
    ],
)
def test_models_that_do_not_fit_are_refused_and_left_alone(policy, words):
    before = {k: v.clone() for k, v in policy.state_dict().items()}
    with pytest.raises(ModelError, match=words):
        mix(Small(1.0), policy, 0.5)
    assert all(torch.equal(v, before[k]) for k, v in policy.state_dict().items())


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """The tiny base, every weight a little off, in a folder."""
    folder = tmp_path_factory.mktemp("policy") / "model"
    loaded = load_model("tiny", "cpu", "float32")
    torch.manual_seed(0)
    with torch.no_grad():
        for p in loaded.model.parameters():
            p.add_(0.02 * torch.randn_like(p))
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return folder


def weights(model, dtype="float32"):
    return load_model(model, "cpu", dtype).model.state_dict()


def test_the_ends_are_the_models_themselves_and_the_middle_lies_between(policy, tmp_path):
    from limen.cli import _register, app

    _register()
    base, trained = weights("tiny"), weights(policy)
    for share in (0.0, 0.4, 1.0):
        out = tmp_path / str(share)
        done = CliRunner().invoke(app, ["interpolate", "tiny", str(policy), "--share", str(share), "--out", str(out)])
        assert done.exit_code == 0, done.output
        for name, tensor in weights(out).items():
            torch.testing.assert_close(tensor, (1 - share) * base[name] + share * trained[name], rtol=0, atol=1e-7)
    record = json.loads((out / RECORD).read_text())
    assert record["share"] == 1.0
    assert record["policy"]["weights"]
    assert record["base"] == {"model": "tiny", "weights": None}
    assert not list(tmp_path.glob(".*"))


def test_half_precision_is_kept_and_sums_are_not_taken_in_it(policy, tmp_path):
    half = tmp_path / "half"
    loaded = load_model(policy, "cpu", "bfloat16")
    loaded.model.save_pretrained(half)
    loaded.tokenizer.save_pretrained(half)
    assert stored_dtype(half) == "bfloat16"
    assert stored_dtype("tiny") == "float32"
    out = interpolate("tiny", half, 0.3, tmp_path / "out")
    made, base, trained = weights(out, "bfloat16"), weights("tiny", "bfloat16"), weights(half, "bfloat16")
    assert stored_dtype(out) == "bfloat16"
    for name, tensor in made.items():
        assert torch.equal(tensor, ((1 - 0.3) * base[name].float() + 0.3 * trained[name].float()).bfloat16())


def test_what_is_there_is_not_written_over_and_odd_shares_are_refused(policy, tmp_path):
    for share in (-0.1, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="between 0"):
            interpolate("tiny", policy, share, tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("of value")
    with pytest.raises(ConfigError, match="not empty"):
        interpolate("tiny", policy, 0.5, tmp_path / "mine")
    assert (tmp_path / "mine" / "notes").read_text() == "of value"


def test_another_vocabulary_is_refused(tmp_path):
    with pytest.raises(ModelError, match="different vocabularies"):
        interpolate("tiny", "tiny-modes", 0.5, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_nothing_behind(policy, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("transformers.PreTrainedTokenizerBase.save_pretrained", full)
    with pytest.raises(ModelError, match="No space left"):
        interpolate("tiny", policy, 0.5, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_study_s_arm_is_made_once(policy, tmp_path, monkeypatch):
    from limen.lab.frontier_arms import ARMS
    from limen.lab.mixing import weights_of

    shutil.copytree(policy, tmp_path / "train-k3-1" / "model")
    out = tmp_path / "model-k3-1-mix-0.8"
    assert weights_of(ARMS["k3-1"], "tiny", tmp_path / "train-k3-1", out) == tmp_path / "train-k3-1" / "model"
    assert weights_of(ARMS["k3-1-mix-0.8"], "tiny", tmp_path / "train-k3-1", out) == out
    assert json.loads((out / RECORD).read_text())["share"] == 0.8
    monkeypatch.setattr(interpolation, "interpolate", None)
    assert weights_of(ARMS["k3-1-mix-0.8"], "tiny", tmp_path / "train-k3-1", out) == out
