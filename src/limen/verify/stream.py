"""Tokens in a row, with what the grammar's two halves ask of each other."""

from __future__ import annotations

from limen.verify.lexer import Token, Unreadable
from limen.verify.nodes import Node

MAX_DEPTH = 48
END = Token("EOF", "")


class Stream:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0
        self.in_set = False

    @property
    def next(self) -> Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else END

    def take(self) -> Token:
        token = self.next
        self.at += 1
        return token

    def is_op(self, *texts: str) -> bool:
        return self.next.kind == "OP" and self.next.text in texts

    def is_at(self, kind: str, text: str) -> bool:
        return self.next.kind == kind and self.next.text == text

    def expect(self, kind: str, *texts: str) -> Token:
        token = self.take()
        if token.kind != kind or (texts and token.text not in texts):
            raise Unreadable(f"{token.text or 'end'!r} where {texts or kind} should be")
        return token

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")

    def items(self) -> Node:
        raise NotImplementedError

    def relation(self) -> Node:
        raise NotImplementedError

    def sum(self) -> Node:
        raise NotImplementedError

    def power(self) -> Node:
        raise NotImplementedError

    def starts_factor(self) -> bool:
        raise NotImplementedError

    def exponent(self) -> Node:
        raise NotImplementedError

    def arguments(self, close: str) -> tuple[Node, ...]:
        raise NotImplementedError

    def argument(self) -> Node:
        raise NotImplementedError

    def subscript(self, node: Node) -> Node:
        raise NotImplementedError

    def primed(self, node: Node) -> Node:
        raise NotImplementedError

    def mark(self) -> str:
        raise NotImplementedError
