"""A tiny base with two ways of reasoning: a *code* form (`python 654`) and a *language* form (`so 654`).

The families and the decoder are those of the tiny base. A response begins with one of two words, and the teacher
whose labels the base learned from was good in one form and poor in the other, family by family: language is the
better form of `add` and `mul22`, code that of `mul21`. So a policy that gives up code pays on `mul21`, as Qwen2.5-Math
did on Minerva (RBP fig. 6 and 15). Which form is drawn does not depend on the problem: the base does not know which is
better, only how each ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.lab.tiny_base import CHARACTERS, EOS, PAD, SPECIAL, BaseRecipe, fit, make_model, make_tokenizer
from limen.problems.arithmetic import ANSWER_LENGTH, FAMILIES, PROMPT_LENGTH, arithmetic_problems
from limen.types import Problem

FORMS = ("python ", "so ")
"""How a response in code and in language form begins; one token each."""

CODE, LANGUAGE = (len(CHARACTERS) + len(SPECIAL) + i for i in range(2))
BETTER = {"add": "language", "mul21": "code", "mul22": "language"}
"""The form in which the base's teacher was good."""

SHARES = {"add": 0.3, "mul21": 0.4, "mul22": 0.3}
MAX_TOKENS = ANSWER_LENGTH + 2


@dataclass(frozen=True)
class ModesRecipe(BaseRecipe):
    """`code_share` of the base's training responses are in code form. Labels in a family's better form are disturbed
    as `noisy_labels` and `noise` say, those in the other form as `poor_labels` and `poor_noise` do."""

    lr: float = 1.5e-3
    code_share: float = 0.4
    noisy_labels: float = 0.2
    noise: float = 0.5
    poor_labels: float = 0.9
    poor_noise: float = 0.75


def answer_of(response: str) -> str:
    """The digits of a response, whatever its form."""
    for form in FORMS:
        response = response.removeprefix(form)
    return response.strip()


def judge_form(gold: str, response: str, metadata: Mapping[str, Any]) -> dict[str, str]:
    """Verifier of the study: the digits must be the answer's, whatever the form."""
    answer = answer_of(response)
    if not answer:
        return {"outcome": "no_answer", "answer": "", "rule": "form"}
    return {"outcome": "correct" if answer == gold else "wrong", "answer": answer, "rule": "digits"}


VERIFIER = "limen.lab.tiny_modes:judge_form"


def encode(problems: list[Problem]) -> NDArray[np.int64]:
    """Token ids of prompt, a place for the form, answer, end, padding: shape (problems, PROMPT_LENGTH + 6)."""
    code = {c: i for i, c in enumerate(CHARACTERS)}
    ids = np.full((len(problems), PROMPT_LENGTH + MAX_TOKENS), PAD, dtype=np.int64)
    for row, p in zip(ids, problems, strict=True):
        row[:PROMPT_LENGTH] = [code[c] for c in p.problem]
        row[PROMPT_LENGTH] = LANGUAGE
        row[PROMPT_LENGTH + 1 : PROMPT_LENGTH + 1 + len(p.answer)] = [code[c] for c in p.answer]
        row[PROMPT_LENGTH + 1 + len(p.answer)] = EOS
    return ids


def modes_batch(
    pools: list[NDArray[np.int64]], recipe: ModesRecipe, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(token ids, labels) of one batch, shapes (batch, tokens); labels are -100 on the prompt and the padding."""
    shares = np.array([SHARES[f] for f in FAMILIES])
    family = rng.choice(len(pools), size=recipe.batch, p=shares / shares.sum())
    ids = np.stack([pools[f][rng.integers(len(pools[f]))] for f in family])
    code = rng.random(recipe.batch) < recipe.code_share
    ids[:, PROMPT_LENGTH] = np.where(code, CODE, LANGUAGE)
    better_is_code = np.array([BETTER[f] == "code" for f in FAMILIES])[family]
    good = code == better_is_code
    labels = np.where(good, recipe.noisy_labels, recipe.poor_labels)[:, None]
    noise = np.where(good, recipe.noise, recipe.poor_noise)[:, None]
    place = np.arange(ids.shape[1])
    digit = (ids < 10) & (place > PROMPT_LENGTH)
    disturbed = (rng.random((recipe.batch, 1)) < labels) & (rng.random(ids.shape) < noise)
    ids = np.where(digit & disturbed, rng.integers(10, size=ids.shape), ids)
    return ids, np.where((place >= PROMPT_LENGTH) & (ids != PAD), ids, -100)


def train_modes_base(
    out: Path, recipe: ModesRecipe | None = None, progress: Callable[[int, int, float], None] | None = None
) -> dict[str, Any]:
    """Train the base of two forms from `recipe.seed` and save model, tokenizer and `recipe.json` to `out`."""
    recipe = recipe or ModesRecipe()
    pools = [encode(arithmetic_problems((f,), "train")) for f in FAMILIES]
    rng = np.random.default_rng(recipe.seed)
    model = make_model(recipe, words=len(FORMS))
    return fit(model, make_tokenizer(FORMS), recipe, lambda: modes_batch(pools, recipe, rng), out, progress)
