"""Fingerprints of model folders: of content, cheap, and of folders alone."""

import json
import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file

from limen import model_files
from limen.model_files import changed, fingerprint


@pytest.fixture(params=["whole", "pieces"])
def folder(request, tmp_path, monkeypatch):
    """A model of 20 tensors of 40 kB; its file counts as small or as large."""
    if request.param == "pieces":
        monkeypatch.setattr(model_files, "WHOLE", 1000)
    rng = np.random.default_rng(0)
    place = tmp_path / "model"
    place.mkdir()
    (place / "config.json").write_text("{}")
    save_file(
        {f"layer.{i}": rng.normal(size=(100, 100)).astype(np.float32) for i in range(20)}, place / "model.safetensors"
    )
    return place


def test_what_is_no_folder_has_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [fingerprint(n) for n in ("tiny", "tiny-modes", "smollm2", "owner/name", "name")] == [None] * 5


def test_a_copy_is_as_good_and_times_do_not_count(folder, tmp_path):
    before = fingerprint(folder)
    assert list(before) == ["model.safetensors"]
    copy = shutil.copytree(folder, tmp_path / "copy")
    os.utime(copy / "model.safetensors", (1, 1))
    (copy / "trainer_state.json").write_text("{}")
    assert fingerprint(copy) == before
    assert changed(before, fingerprint(copy)) == []


@pytest.mark.parametrize("layer", [0, 7, 19])
def test_one_tensor_of_twenty_that_was_trained_is_seen(folder, layer):
    from safetensors.numpy import load_file

    before, size = fingerprint(folder), (folder / "model.safetensors").stat().st_size
    tensors = load_file(folder / "model.safetensors")
    tensors[f"layer.{layer}"] = tensors[f"layer.{layer}"] * np.float32(1.0001)
    save_file(tensors, folder / "model.safetensors")
    assert (folder / "model.safetensors").stat().st_size == size
    assert changed(before, fingerprint(folder)) == ["model.safetensors has other content"]


def test_files_that_come_and_go(folder):
    before = fingerprint(folder)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    words = ["model-00001-of-00001.safetensors is new", "model.safetensors is gone"]
    assert changed(before, fingerprint(folder)) == words


@pytest.mark.parametrize(
    "header", [b"\xff" * 8, b"not json", b"[1]", json.dumps({"a": {"data_offsets": [-(10**30), 10**30]}}).encode()]
)
def test_a_file_that_is_not_what_its_name_says_is_read_all_the_same(folder, header):
    file = folder / "model.safetensors"
    text = len(header).to_bytes(8, "little") + header if header[:1] != b"\xff" else header
    file.write_bytes(text + bytes(range(256)) * 400)
    before = fingerprint(folder)
    file.write_bytes(text + bytes(range(1, 256)) * 402)
    assert fingerprint(folder) != before


def test_ten_gigabytes_are_not_read(tmp_path):
    """A sparse file of 10 GB and 400 tensors: three pieces of each are read."""
    (tmp_path / "config.json").write_text("{}")
    step = 25 << 20
    header = json.dumps({f"t{i}": {"dtype": "U8", "shape": [step], "data_offsets": [i * step, (i + 1) * step]}
                         for i in range(400)}).encode()  # fmt: skip
    with (tmp_path / "model.safetensors").open("wb") as out:
        out.write(len(header).to_bytes(8, "little") + header)
        out.truncate(8 + len(header) + 400 * step)
    read = []

    class Counting:
        def __init__(self, data):
            self.data, self.seek = data, data.seek

        def read(self, size):
            read.append(size)
            return self.data.read(size)

    class Digest:
        def update(self, data):
            assert len(data) in (0, len(header))

    with (tmp_path / "model.safetensors").open("rb") as data:
        starts = list(model_files._starts(Counting(data), (tmp_path / "model.safetensors").stat().st_size, Digest()))
    assert read == [8, len(header)]
    begin = 8 + len(header)
    assert starts[:4] == [begin, begin + step // 2, begin + step - 4096, begin + step]
    assert len(starts) == 1200
    assert len(fingerprint(tmp_path)) == 1


def test_an_adapter_s_weights_and_those_of_its_base_count(folder, tmp_path):
    pytest.importorskip("peft")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(folder)}))
    save_file({"lora_A": np.ones((4, 4), dtype=np.float32)}, adapter / "adapter_model.safetensors")
    before = fingerprint(adapter)
    assert list(before) == ["adapter_model.safetensors", "base/model.safetensors"]
    save_file({"lora_A": np.zeros((4, 4), dtype=np.float32)}, adapter / "adapter_model.safetensors")
    (folder / "model.safetensors").unlink()
    words = ["adapter_model.safetensors has other content", "base/model.safetensors is gone"]
    assert changed(before, fingerprint(adapter)) == words
