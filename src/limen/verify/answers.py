"""The verifiers of final answers: `math`, `numeric`, `exact`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

from limen.verify import extract
from limen.verify.base import Decision, Extraction, Options, Verifier
from limen.verify.compare import compare
from limen.verify.exact import Undecided, exact
from limen.verify.nodes import is_number, is_scalar
from limen.verify.policy import AnswerOptions, MathOptions
from limen.verify.reader import Reading, read
from limen.verify.relations import split_assignment
from limen.verify.scalars import Result

_WORD = re.compile(r"[A-Za-z]{3,}")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_ODD = re.compile(r"[?\"@#`~\x00-\x08]|[^\x00-\x7f]")
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_MUCH_LONGER = 2_000


class AnswerVerifier(Verifier):
    closed = True
    options_type: ClassVar[type[Options]] = AnswerOptions
    options: AnswerOptions

    def extract(self, response: str, metadata: Mapping[str, Any]) -> Extraction:
        return extract.final_answer(response, self.options.box, self.options.where)


class Math(AnswerVerifier):
    """Mathematical equality, by our own grammar where it reads both sides, else by math-verify."""

    name = "math"
    preload = ("math_verify", "limen.verify.mathverify")
    options_type = MathOptions
    options: MathOptions

    def extract(self, response: str, metadata: Mapping[str, Any]) -> Extraction:
        return extract.final_answer(response, self.options.box, self.options.where, self.options.join_boxes)

    def quick(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision | None:
        return self._compare(gold, answer, quick=True)

    def decide(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision:
        return self._compare(gold, answer, quick=False) or self._ask_math_verify(gold, answer)

    def _compare(self, gold: str, answer: str, quick: bool) -> Decision | None:
        """None where it cannot be told."""
        joined, answer = answer, answer.rpartition(extract.JOIN)[2]
        if not gold.strip():
            return Decision("unjudged", "gold", answer)
        if gold.strip() == answer.strip():
            return Decision("correct", "string", answer)
        if _INTEGER.fullmatch(gold) and _INTEGER.fullmatch(answer):  # most answers there are, without a parse
            return Decision("correct" if int(gold) == int(answer) else "wrong", "rational", answer)
        if len(answer) > _MUCH_LONGER + 20 * len(gold):
            return Decision("wrong", "length", answer)
        expected = read(gold, quick)
        if joined != answer:
            several = ", ".join(dict.fromkeys(joined.split(extract.JOIN)))
            if _is_several(expected) and not _is_several(read(answer, quick)):
                answer = several
        result = compare(expected, read(answer, quick), self.options)
        if result.same is None:
            return self._hopeless(expected, result, answer)
        return Decision("correct" if result.same else "wrong", result.rule, answer)

    def _hopeless(self, gold: Reading, result: Result, answer: str) -> Decision | None:
        """A gold answer in prose cannot be judged by anything here; an answer in odd characters equals nothing."""
        if result.rule == "prose" or len(_WORD.findall(_COMMAND.sub(" ", gold.text))) > 4:
            return Decision("unjudged", "gold", answer)
        if result.rule == "too large":
            return Decision("unjudged", "too large", answer)
        if result.rule == "unread" and gold.readings and _ODD.search(answer):
            return Decision("wrong", "unreadable", answer)
        return None

    def understands(self, gold: str) -> bool:
        reading = read(gold, False)
        return bool(reading.readings) or (reading.words is not None and len(reading.words.split()) <= 4)

    def _ask_math_verify(self, gold: str, answer: str) -> Decision:
        from limen.verify.mathverify import equal

        answer = answer.rpartition(extract.JOIN)[2]
        decision = equal(gold, answer)
        if decision.outcome == "correct" and _WORD.search(_COMMAND.sub(" ", answer)) and read(gold).words is None:
            return Decision("wrong", "words around it", answer)  # "5 \\text{ is wrong}": math-verify drops the words
        return decision._replace(answer=answer)


def _is_several(reading: Reading) -> bool:
    return bool(reading.readings) and reading.readings[0][0] in ("list", "set", "pm")


class NumericOptions(AnswerOptions):
    relative: float = 1e-6
    """Largest relative error that is still correct."""


class Numeric(AnswerVerifier):
    """Numbers within a relative tolerance: 3.14, 1/3, 2.5e-3, 40%, $1,000, x = 5. Nothing but 0 is close to 0."""

    name = "numeric"
    options_type = NumericOptions
    options: NumericOptions

    def quick(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision | None:
        a, b = number(gold), number(answer)
        if a is None:
            return Decision("unjudged", "gold")
        if b is None:
            return Decision("wrong", "not a number")
        near = abs(a - b) <= Fraction(self.options.relative) * abs(a)
        return Decision("correct" if near else "wrong", "numeric")


def number(text: str) -> Fraction | None:
    """The rational value of a text (to 40 digits where it is irrational), or None for anything but a real number."""
    from limen.verify.evaluate import Evaluator, context

    for node in read(text).readings:
        named = split_assignment(node)
        node = named.values[0] if named else node
        if not (is_scalar(node) and is_number(node)):
            continue
        try:
            value = exact(node)
            if value is None:
                real = Evaluator().value(node)
                if context().im(real) != 0 or context().isinf(real):
                    return None
                value = Fraction(context().nstr(context().re(real), 40))
        except Undecided:
            return None
        return value
    return None


class Exact(AnswerVerifier):
    """The same text, spaces at the ends aside."""

    name = "exact"

    def quick(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision | None:
        return Decision("correct" if gold.strip() == answer.strip() else "wrong", "string")
