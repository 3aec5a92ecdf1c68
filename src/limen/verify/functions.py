"""How a named function takes its argument: \\sin x, \\sin^2 x, \\log_2 8, sqrt(2), \\exp{a t}."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from limen.verify.lexer import Unreadable
from limen.verify.nodes import Node

if TYPE_CHECKING:
    from limen.verify.stream import Stream

_INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "sinh": "asinh", "cosh": "acosh", "tanh": "atanh"}


def parse_function(p: Stream, name: str) -> Node:
    """The node of a function whose name was just read."""
    power: Node | None = None
    base: Node | None = None
    while p.is_op("^", "_"):
        if p.take().text == "^":
            power = p.exponent()
        else:
            base = p.argument()
    if power is not None and power == ("neg", ("num", Fraction(1), -1)) and name in _INVERSE:
        name, power = _INVERSE[name], None
    args = _arguments(p)
    if name == "sqrt":
        node: Node = ("fn", "root", (args[0], ("num", Fraction(2), -1)))
    elif name == "cbrt":
        node = ("fn", "root", (args[0], ("num", Fraction(3), -1)))
    elif name in ("log", "ln", "lg"):
        if base is None and name != "log":
            base = ("num", Fraction(10), -1) if name == "lg" else ("const", "e")
        node = ("fn", "log", (args[0],) if base is None else (args[0], base))
    else:
        if base is not None:
            name = f"{name}_{base}"
        node = ("fn", name, args)
    return node if power is None else ("pow", node, power)


def _arguments(p: Stream) -> tuple[Node, ...]:
    """A bracketed list; else everything up to the next sign, slash or function."""
    if p.next.kind == "OPEN" and p.next.text in ("(", "["):
        opening = p.take().text
        args = p.arguments(")" if opening == "(" else "]")
        return args
    if p.next.kind == "OPEN":
        return (p.argument(),)
    if p.is_op("-"):
        p.take()
        return (("neg", _arguments(p)[0]),)
    node = p.power()
    while p.starts_factor() and p.next.kind != "FUNC" and p.next.kind != "TEXT":
        node = ("mul", node, p.power())
    if node[0] in ("text", "seq", "set"):
        raise Unreadable("a function of words")
    return (node,)
