"""The only place where a prompt is rendered. Text and token ids are made once, stored, and used as they are.

Templates move a benchmark by tens of points (QwenLM/Qwen2.5-Math#47, #60), so the hash of the rendered text goes
with every rollout, and runs whose hashes differ are not compared in silence.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml

from limen.errors import ConfigError, ModelError
from limen.types import Problem, Prompt

BOXED_TURN = "{problem}\nLet's think step by step and output the final answer within \\boxed{}."
"""The user turn of the papers (RBP, A.1)."""

FROZEN_DATE = "26 Jul 2024"
"""Some chat templates (Llama 3.2) print today's date; prompts must not change from one day to the next."""


@dataclass(frozen=True)
class Template:
    """How a problem becomes a prompt.

    kind `chat`: one user turn, `user`, through the tokenizer's own chat template, after an optional `system` turn;
    `chat_options` are passed to the chat template. kind `few_shot`: each of `shots` through `shot`, then the problem
    through `query`. kind `plain`: `query` alone. kind `auto`: chat where the tokenizer has a chat template, else plain.
    `stop`: stop strings that belong to the template (used where the settings give none).
    `{problem}` and `{answer}` are replaced; all other text, braces included, stands for itself.
    """

    kind: Literal["auto", "chat", "few_shot", "plain"] = "auto"
    name: str = ""
    user: str = BOXED_TURN
    system: str = ""
    shot: str = ""
    query: str = "{problem}"
    shots: tuple[tuple[str, str], ...] = ()
    stop: tuple[str, ...] = ()
    chat_options: Mapping[str, Any] = field(default_factory=dict)

    def resolve(self, tokenizer: Any) -> Template:
        """The template with `auto` settled for this tokenizer."""
        if self.kind != "auto":
            return self
        return load_template("chat" if getattr(tokenizer, "chat_template", None) else "plain")


def load_template(name: str | Path) -> Template:
    """A template by name (`auto`, `chat`, `plain`, or one shipped: `arithmetic`, `chain_sum`) or from a YAML file.

    Keys of the file: `name`, `kind` (few_shot unless given), `shot`, `query`, `shots` (list of problem and answer),
    `stop`; for kind chat `user`, `system`, `chat_options`. Raises `ConfigError` for unknown names and keys.
    """
    name = str(name)
    if name in ("auto", "chat", "plain"):
        return Template(kind=name, name=name)  # type: ignore[arg-type]
    shipped = resources.files("limen.problems") / "templates"
    names = sorted(p.name.removesuffix(".yaml") for p in shipped.iterdir() if p.name.endswith(".yaml"))
    if name in names:
        return _parse((shipped / f"{name}.yaml").read_text(encoding="utf-8"), name)
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f"no template '{name}': expected auto, chat, plain, {', '.join(names)}, or a YAML file")
    return _parse(path.read_text(encoding="utf-8"), str(path))


def render(problems: Sequence[Problem], tokenizer: Any, template: Template | str = "auto") -> list[Prompt]:
    """One `Prompt` per problem, in order: text, token ids (BOS among them where the tokenizer wants one), hash.

    The beginning-of-sequence token is written into the text, and nothing is added at tokenising, so it is there
    exactly once. Raises `ModelError` where kind chat meets a tokenizer without a chat template.

    Without a tokenizer (None: a server has it) the text is what is sent, for kind chat the user's turn alone, and
    there are no token ids.
    """
    if isinstance(template, str):
        template = load_template(template)
    if tokenizer is None:
        return [_unread(problem, template) for problem in problems]
    template = template.resolve(tokenizer)
    if template.kind == "chat" and not getattr(tokenizer, "chat_template", None):
        raise ModelError("this tokenizer has no chat template: use --template plain or a few-shot template file")
    bos_text, bos_ids = ("", ()) if template.kind == "chat" else _bos(tokenizer)
    prompts = []
    for problem in problems:
        text = _body(problem.problem, tokenizer, template)
        ids = (*bos_ids, *tokenizer.encode(text, add_special_tokens=False))
        prompts.append(Prompt(problem.id, bos_text + text, ids, text_hash(bos_text + text)))
    return prompts


def _unread(problem: Problem, template: Template) -> Prompt:
    if template.kind == "chat" and template.system:
        raise ConfigError("a server is sent one user turn: leave the system turn out, or give the model's tokenizer")
    chat = template.kind == "chat"
    text = _fill(template.user, problem.problem) if chat else _body(problem.problem, None, template)
    return Prompt(problem.id, text, (), text_hash(text))


def text_hash(text: str) -> str:
    """16 hex digits that name a rendered prompt."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _body(problem: str, tokenizer: Any, template: Template) -> str:
    if template.kind == "chat":
        turns = [{"role": "system", "content": template.system}] if template.system else []
        turns.append({"role": "user", "content": _fill(template.user, problem)})
        options = {"date_string": FROZEN_DATE, **template.chat_options}
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **options)
        return str(text)
    shots = "".join(_fill(template.shot, p, a) for p, a in template.shots)
    return shots + _fill(template.query, problem)


def _fill(form: str, problem: str, answer: str = "") -> str:
    """Replace the two place holders in one pass, so that a problem that holds `{answer}` stays as it is."""
    values = {"{problem}": problem, "{answer}": answer}
    return re.sub(r"\{problem\}|\{answer\}", lambda m: values[m.group()], form)


def _bos(tokenizer: Any) -> tuple[str, tuple[int, ...]]:
    """The BOS token, if this tokenizer puts one before plain text by itself."""
    bos = getattr(tokenizer, "bos_token_id", None)
    if (
        bos is None
        or tokenizer.encode("a")[:1] != [bos]
        or tokenizer.encode("a", add_special_tokens=False)[:1] == [bos]
    ):
        return "", ()
    return str(tokenizer.bos_token), (int(bos),)


def _parse(text: str, name: str) -> Template:
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"template {name} is not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"template {name}: expected a mapping with query and shots, came {type(data).__name__}")
    known = set(Template.__dataclass_fields__)
    unknown = sorted(set(data) - known)
    if unknown:
        raise ConfigError(f"template {name}: unknown key '{unknown[0]}', expected some of {', '.join(sorted(known))}")
    data = {"kind": "few_shot", "name": name, **data}
    try:
        data["shots"] = tuple((str(s["problem"]), str(s["answer"])) for s in data.get("shots", ()))
    except (KeyError, TypeError) as error:
        raise ConfigError(f"template {name}: each of shots must have a problem and an answer") from error
    data["stop"] = tuple(map(str, data.get("stop", ())))
    template = Template(**data)
    if template.kind not in ("auto", "chat", "few_shot", "plain"):
        raise ConfigError(f"template {name}: kind is '{template.kind}', expected chat, few_shot or plain")
    if "{problem}" not in (template.user if template.kind == "chat" else template.query):
        raise ConfigError(f"template {name}: the query does not hold {{problem}}, so every prompt would be the same")
    return template
