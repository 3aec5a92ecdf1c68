"""Loading models: clear errors, and a folder that is saved is the folder that is loaded."""

import json

import pytest
import torch

from limen.errors import ModelError
from limen.models import cache_folder, load_model, load_tokenizer, resolve_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=8,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(path)
    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "a": 2, "b": 3}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>").save_pretrained(path)
    return path


def test_folder_loads_in_float32_on_the_cpu(folder):
    loaded = load_model(folder, device="cpu")
    assert loaded.model.dtype == torch.float32
    assert not loaded.model.training
    assert loaded.tokenizer.encode("a b") == [2, 3]
    assert load_model(folder, device="cpu", dtype="bfloat16").model.dtype == torch.bfloat16


def copy(folder, target, skip=()):
    for file in folder.iterdir():
        if file.name not in skip:
            (target / file.name).write_bytes(file.read_bytes())
    return target


def test_folder_without_tokenizer_is_one_error(folder, tmp_path):
    copy(folder, tmp_path, skip=("tokenizer.json", "tokenizer_config.json"))
    with pytest.raises(ModelError, match="has no tokenizer"):
        load_model(tmp_path)


def test_folder_without_config_or_weights_is_one_error(folder, tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_model(copy(folder, tmp_path / "a", skip=("config.json",)))
    (tmp_path / "b").mkdir()
    with pytest.raises(ModelError, match="cannot load the model"):
        load_model(copy(folder, tmp_path / "b", skip=("model.safetensors",)))
    (tmp_path / "c").mkdir()
    broken = copy(folder, tmp_path / "c")
    (broken / "model.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(ModelError, match="cannot load the model"):
        load_model(broken)


def test_tokenizer_of_another_model_is_refused(folder, tmp_path):
    copy(folder, tmp_path)
    data = json.loads((tmp_path / "tokenizer.json").read_text())
    data["model"]["vocab"] |= {f"w{i}": 4 + i for i in range(20)}
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(ModelError, match="do not belong together"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [("no/such/folder/at/all", "no model"), ("./nowhere", "no model"), ("nobody/nothing-at-all", "cannot load")],
)
def test_unknown_names_are_one_error(name, message):
    with pytest.raises(ModelError, match=message):
        load_tokenizer(name)


def test_file_unknown_device_and_dtype_are_one_error(folder, tmp_path):
    file = tmp_path / "weights.bin"
    file.write_bytes(b"")
    with pytest.raises(ModelError, match="is a file"):
        resolve_model(file)
    with pytest.raises(ModelError, match="unknown device"):
        load_model(folder, device="abacus")
    with pytest.raises(ModelError, match="unknown dtype"):
        load_model(folder, dtype="int3")


def test_cache_folder_is_the_users_choice(monkeypatch, tmp_path):
    monkeypatch.setenv("LIMEN_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
