"""The verifiers of final answers: `math`, `numeric`, `exact`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from limen.verify import extract
from limen.verify.base import Decision, Extraction, Options, Verifier
from limen.verify.normalize import normalize
from limen.verify.numbers import close, number


class AnswerOptions(Options):
    """`box`: which box counts. `where`: "boxed", "marked" or "any" (`extract.final_answer`)."""

    box: Literal["last", "first"] = "last"
    where: Literal["boxed", "marked", "any"] = "any"


class AnswerVerifier(Verifier):
    options_type: ClassVar[type[Options]] = AnswerOptions
    options: AnswerOptions

    def extract(self, response: str, metadata: Mapping[str, Any]) -> Extraction:
        return extract.final_answer(response, self.options.box, self.options.where)


class Math(AnswerVerifier):
    """Mathematical equality."""

    name = "math"
    preload = ("math_verify", "limen.verify.mathverify")

    def quick(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision | None:
        gold, answer = normalize(gold), normalize(answer)
        if gold == answer:
            return Decision("correct", "string")
        a, b = number(gold), number(answer)
        if a is not None and b is not None:
            return Decision("correct" if a == b else "wrong", "rational")
        return None

    def decide(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision:
        from limen.verify.mathverify import equal

        return equal(normalize(gold), normalize(answer))


class NumericOptions(AnswerOptions):
    """`relative`: largest relative error that is still correct."""

    relative: float = 1e-6


class Numeric(AnswerVerifier):
    """Numbers within a relative tolerance."""

    name = "numeric"
    options_type = NumericOptions
    options: NumericOptions

    def quick(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision | None:
        a, b = number(normalize(gold)), number(normalize(answer))
        if a is None:
            return Decision("unjudged", "gold")
        if b is None:
            return Decision("wrong", "not a number")
        return Decision("correct" if close(b, a, self.options.relative) else "wrong", "numeric")


class Exact(AnswerVerifier):
    """The same text, spaces at the ends aside."""

    name = "exact"

    def quick(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision | None:
        return Decision("correct" if gold.strip() == answer.strip() else "wrong", "string")
