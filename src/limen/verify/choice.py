"""Multiple choice: the letter of an option, or its text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from limen.errors import DataError
from limen.verify import extract
from limen.verify.base import Decision, Extraction, Verifier
from limen.verify.policy import AnswerOptions
from limen.verify.reader import strip

_WRAP = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|boxed)\s*\{([^{}]*)\}")
_LETTER = re.compile(r"\(?\s*([A-Za-z])\s*(?:[).:]|$)\s*(.*)", re.DOTALL)
_LEADING = re.compile(r"\s*\(?([A-Za-z])[).:]")
_SPACES = re.compile(r"\s+")


class Choice(Verifier):
    """`metadata["choices"]`: the options' texts in order, or a mapping of letter to text; without it, letters only.
    The gold answer is a letter or an option's text."""

    name = "choice"
    options_type = AnswerOptions
    options: AnswerOptions

    def extract(self, response: str, metadata: Mapping[str, Any]) -> Extraction:
        found = extract.final_answer(response, self.options.box, self.options.where)
        if found.answer is None and self.options.where == "any":
            match = _LEADING.match(response)  # "B) because ..."
            if match:
                return Extraction(match[1], "leading letter")
        return found

    def quick(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision | None:
        options = _options(metadata)
        expected, given = _letter(gold, options), _letter(answer, options)
        if expected is None:
            return Decision("unjudged", "gold")
        if given is None:
            return Decision("wrong", "no such option")
        return Decision("correct" if given == expected else "wrong", "letter")

    def check(self, metadata: Mapping[str, Any]) -> None:
        _options(metadata)


def _options(metadata: Mapping[str, Any]) -> dict[str, str]:
    choices = metadata.get("choices")
    if choices is None:
        return {}
    if isinstance(choices, Mapping):
        return {str(k).upper(): _fold(str(v)) for k, v in choices.items()}
    if isinstance(choices, Sequence) and not isinstance(choices, str) and len(choices) <= 26:
        return {chr(ord("A") + i): _fold(str(c)) for i, c in enumerate(choices)}
    raise DataError(f"metadata 'choices' should be a list of texts or a mapping from letters, but is {choices!r:.80}")


def _fold(text: str) -> str:
    return _SPACES.sub(" ", _WRAP.sub(r"\1", strip(text))).strip().casefold()


def _letter(text: str, options: Mapping[str, str]) -> str | None:
    """The option that a text names. A text that names one option by its letter and another by its words names none."""
    bare = _WRAP.sub(r"\1", strip(text)).strip()
    folded = _fold(text)
    by_text = [letter for letter, option in options.items() if option == folded]
    if len(by_text) == 1:
        return by_text[0]
    match = _LETTER.match(bare)
    if not match:
        return None
    letter, rest = match[1].upper(), _fold(match[2])
    if options and letter not in options:
        return None
    other = [x for x, option in options.items() if option == rest and x != letter]
    if other or (rest and not options):
        return None
    return letter
