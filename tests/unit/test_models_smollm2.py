"""Where SmolLM2's weights are looked for."""

import pytest

from limen.errors import ModelError
from limen.models import _smollm2_gguf


def test_the_variable_names_a_file_or_its_folder(tmp_path, monkeypatch):
    file = tmp_path / "SmolLM2.Q4_1.gguf"
    file.write_bytes(b"GGUF....")
    for given in (file, tmp_path):
        monkeypatch.setenv("LIMEN_SMOLLM2", str(given))
        assert _smollm2_gguf() == (file, "SmolLM2.Q4_1-8")


def test_a_variable_that_names_nothing_is_one_clear_error(tmp_path, monkeypatch):
    for given in (tmp_path / "missing.gguf", tmp_path):
        monkeypatch.setenv("LIMEN_SMOLLM2", str(given))
        with pytest.raises(ModelError, match="LIMEN_SMOLLM2 is"):
            _smollm2_gguf()
