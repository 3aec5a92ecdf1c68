"""The tiny base: tokenizer round trip, labels, determinism, and what is shipped."""

from pathlib import Path

import numpy as np
import pytest

from limen.errors import ConfigError
from limen.lab.tiny_base import CHARACTERS, EOS, PAD, BaseRecipe, encode, make_tokenizer, noisy_batch, train_base
from limen.problems.arithmetic import FAMILIES, arithmetic_problems

SHIPPED = Path(__file__).resolve().parents[2] / "src" / "limen" / "lab" / "tiny_base"


def test_tokenizer_round_trips_every_string_of_its_characters():
    tokenizer = make_tokenizer()
    text = CHARACTERS + CHARACTERS[::-1]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids == [CHARACTERS.index(c) for c in text]
    assert tokenizer.decode(ids) == text
    assert tokenizer.pad_token_id == PAD
    assert tokenizer.eos_token_id == EOS


def test_loss_is_on_answer_and_end_only():
    problem = next(p for p in arithmetic_problems(("add",), "train") if len(p.answer) == 2)
    pools = [encode([problem])] * len(FAMILIES)
    ids, labels = noisy_batch(pools, BaseRecipe(batch=3, noisy_labels=0.0), np.random.default_rng(0))
    assert (labels[:, :6] == -100).all()
    assert (labels[:, 6:9] == ids[:, 6:9]).all()
    assert ids[0, 8] == EOS
    assert (labels[:, 9:] == -100).all()


def test_label_noise_is_of_the_stated_size_and_touches_answer_digits_only():
    problems = [p for p in arithmetic_problems(("add",), "train") if len(p.answer) == 3]
    clean = encode(problems[:1])
    recipe = BaseRecipe(batch=20000, noisy_labels=0.3, noise=0.5)
    ids, _ = noisy_batch([clean] * len(FAMILIES), recipe, np.random.default_rng(1))
    assert (ids[:, :6] == clean[:, :6]).all()
    assert (ids[:, 9:] == clean[:, 9:]).all()
    changed = (ids[:, 6:9] != clean[:, 6:9]).mean()
    assert changed == pytest.approx(0.3 * 0.5 * 0.9, abs=0.005)


def test_same_seed_same_weights_and_another_seed_other_weights(tmp_path):
    def weights(name, seed):
        train_base(tmp_path / name, BaseRecipe(seed=seed, steps=3, batch=16))
        return (tmp_path / name / "model.safetensors").read_bytes()

    assert weights("a", 5) == weights("b", 5)
    assert weights("c", 6) != weights("a", 5)


def test_the_shipped_base_is_small_and_says_how_it_was_made():
    import json

    info = json.loads((SHIPPED / "recipe.json").read_text())
    assert info["parameters"] == 334_080
    assert info["recipe"]["steps"] == 1500
    assert (SHIPPED / "model.safetensors").stat().st_size <= 4_000_000
    assert "train-base" in info["provenance"]["command"]


def test_a_base_of_another_width_is_trained_alike(tmp_path):
    from typer.testing import CliRunner

    import limen.cli as cli

    cli._register()
    out = tmp_path / "wide"
    done = CliRunner().invoke(cli.app, ["lab", "train-base", "--width", "48", "--steps", "1", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "84,096 parameters" in done.output  # a quarter of the tiny base's, by the size of its matrices
    assert (out / "recipe.json").exists()


@pytest.mark.parametrize("width", [20, 8, -8])
def test_a_width_that_heads_cannot_share_is_refused(width):
    with pytest.raises(ConfigError, match=f"width {width}: expected a multiple of 8"):
        BaseRecipe.of_width(width)
