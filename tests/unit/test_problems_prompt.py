"""Prompts: one rendering, explicit BOS, ids concatenated, hash of the text."""

import pytest

from limen.errors import ConfigError, ModelError
from limen.problems.prompt import BOXED_TURN, Template, load_template, render
from limen.types import Problem


class CharTokenizer:
    """Characters as code points; BOS (id 1) put before plain text like Llama's tokenizers do."""

    bos_token, bos_token_id = "<s>", 1
    chat_template = None

    def encode(self, text, add_special_tokens=True):
        return ([1] if add_special_tokens else []) + [ord(c) for c in text]


class ChatTokenizer(CharTokenizer):
    chat_template = "some"

    def apply_chat_template(self, turns, tokenize, add_generation_prompt, **options):
        assert not tokenize
        assert add_generation_prompt
        assert options["date_string"] == "26 Jul 2024"
        return "<s>" + "".join(f"[{t['role']}]{t['content']}" for t in turns) + "[assistant]"


P = Problem("p", "What is {answer}?", "2")


def test_plain_has_bos_once_and_the_text_as_it_is():
    (prompt,) = render([P], CharTokenizer(), "plain")
    assert prompt.text == "<s>What is {answer}?"
    assert prompt.token_ids == (1, *map(ord, "What is {answer}?"))
    (auto,) = render([P], CharTokenizer(), "auto")
    assert auto == prompt


def test_chat_is_one_user_turn_through_the_tokenizers_template():
    (prompt,) = render([P], ChatTokenizer(), "auto")
    assert prompt.text == "<s>[user]" + BOXED_TURN.replace("{problem}", P.problem) + "[assistant]"
    assert prompt.token_ids == tuple(map(ord, prompt.text))
    assert r"\boxed{}." in prompt.text
    with pytest.raises(ModelError, match="no chat template"):
        render([P], CharTokenizer(), "chat")


def test_few_shot_is_frozen_and_fills_in_one_pass():
    template = Template("few_shot", shot="Q {problem} A {answer};", query="Q {problem} A", shots=(("x{y}", "1"),))
    (prompt,) = render([P], CharTokenizer(), template)
    assert prompt.text == "<s>Q x{y} A 1;Q What is {answer}? A"
    assert load_template("chain_sum").stop == ("\n",)
    assert len(load_template("arithmetic").shots) == 3


def test_hash_tells_templates_apart():
    one, two = (render([P], CharTokenizer(), t)[0] for t in ("plain", "arithmetic"))
    assert one.hash != two.hash
    assert render([P], CharTokenizer(), "plain")[0].hash == one.hash


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("queri: x", "unknown key 'queri'"),
        ("query: no holder", "does not hold"),
        ("shots: [{problem: a}]", "a problem and an answer"),
        ("- 1", "expected a mapping"),
        ("kind: other", "kind is 'other'"),
        ("a: [", "not YAML"),
    ],
)
def test_bad_template_files_have_one_clear_error(tmp_path, text, message):
    file = tmp_path / "t.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_template(file)


def test_unknown_template_names_what_there_is():
    with pytest.raises(ConfigError, match="chain_sum"):
        load_template("nope")
