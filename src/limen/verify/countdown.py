"""Expressions that make a target out of given numbers, each used once, with + − × ÷ only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from limen.errors import DataError
from limen.verify import extract
from limen.verify.base import Decision, Extraction, Verifier
from limen.verify.exact import Undecided, exact
from limen.verify.nodes import Node, walk
from limen.verify.policy import AnswerOptions
from limen.verify.reader import read

_ALLOWED = {"num", "add", "sub", "mul", "div"}


class CountdownOptions(AnswerOptions):
    use_all: bool = True
    """Every number has to be used; otherwise some may be left."""


class Countdown(Verifier):
    """`metadata`: {"numbers": [3, 7, 25], "target": 96}; without a target the gold answer is it. The answer is an
    expression, "(25+7)*3" or "(25+7)*3 = 96"; what it claims to equal is not believed."""

    name = "countdown"
    options_type = CountdownOptions
    options: CountdownOptions

    def extract(self, response: str, metadata: Mapping[str, Any]) -> Extraction:
        return extract.final_answer(response, self.options.box, self.options.where)

    def quick(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision | None:
        self.check(metadata)
        target = _target(gold, metadata)
        if target is None:
            return Decision("unjudged", "gold")
        numbers = Counter(Fraction(str(n)) for n in metadata["numbers"])
        readings = read(answer.replace("x", "*").replace("X", "*")).readings
        decisions = [self._judge(node, numbers, target) for node in readings]
        return next((d for d in decisions if d.outcome == "correct"), decisions[0] if decisions else _UNREADABLE)

    def _judge(self, node: Node, numbers: Counter[Fraction], target: Fraction) -> Decision:
        if node[0] == "rel" and set(node[1]) == {"="}:
            sides = [s for s in node[2] if s[0] != "num"]
            node = sides[0] if sides else node[2][0]
        parts = list(walk(node))
        if not {n[0] for n in parts} <= _ALLOWED:
            return Decision("wrong", "not an expression of + - * /")
        used = Counter(n[1] for n in parts if n[0] == "num")
        if used != numbers if self.options.use_all else bool(used - numbers):
            return Decision("wrong", "other numbers")
        try:
            value = exact(node)
        except Undecided:
            return Decision("wrong", "division by zero")
        return Decision("correct" if value == target else "wrong", "value")

    def check(self, metadata: Mapping[str, Any]) -> None:
        numbers = metadata.get("numbers")
        if not isinstance(numbers, list) or not all(isinstance(n, int | float) for n in numbers):
            raise DataError(
                "the verifier 'countdown' needs each problem's metadata to hold 'numbers', a list of numbers, "
                f"but found {numbers!r:.80}"
            )


_UNREADABLE = Decision("wrong", "unreadable")


def _target(gold: str, metadata: Mapping[str, Any]) -> Fraction | None:
    from limen.verify.answers import number

    return number(str(metadata.get("target", gold)))
