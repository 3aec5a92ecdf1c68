"""The tree of a parsed answer.

Nodes are tuples (hashable, so parses are cached), first the kind:

    ("num", Fraction, decimals)   decimals -1 for an integer, else the digits behind the point
    ("sym", name)  ("const", "pi"|"e"|"i"|"oo")  ("text", words)  ("empty",)
    ("add", a, b)  ("sub", a, b)  ("mul", a, b)  ("div", a, b)  ("pow", a, b)  ("neg", a)  ("pos", a)
    ("pm", a, b, sign)            a ± b or a ∓ b; a is None for a leading sign
    ("fn", name, args)  ("apply", name, args)   sin(x); f(x), or a product f·(x)
    ("pct", a)  ("deg", a)  ("unit", a, words)  ("base", digits, base)
    ("seq", open, close, items)   (a, b), [a, b), ...; a tuple or an interval
    ("set", items)  ("list", items, separator)  ("ratio", items)  ("mat", rows)
    ("rel", operators, sides)     a < b <= c
    ("cup"|"cap"|"minus", a, b)   ("mod", a, n): a modulo n
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Node = tuple[Any, ...]

SCALARS = {"num", "sym", "const", "add", "sub", "mul", "div", "pow", "neg", "fn", "apply", "pct", "deg", "unit", "base"}


def children(node: Node) -> Iterator[Node]:
    """Direct sub-nodes."""
    for part in node[1:]:
        if isinstance(part, tuple) and part:
            if part[0] in _KINDS:
                yield part
            elif isinstance(part[0], tuple):
                for item in part:
                    if item and item[0] in _KINDS:
                        yield item
                    elif item and isinstance(item[0], tuple):
                        yield from item


_KINDS = SCALARS | {"text", "empty", "pm", "seq", "set", "list", "ratio", "mat", "rel", "cup", "cap", "minus", "mod"}


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(children(node))


def is_number(node: Node) -> bool:
    """True if no symbol, no words and no relation occur in it."""
    return not any(n[0] in ("sym", "text", "apply", "rel", "empty", "seq", "set", "list") for n in walk(node))


def is_scalar(node: Node) -> bool:
    """True for a value: a number or a formula, and no collection, relation or words."""
    return all(n[0] in SCALARS for n in walk(node))


def names(node: Node) -> set[str]:
    """Symbols that occur."""
    return {n[1] for n in walk(node) if n[0] in ("sym", "apply")}


def has_decimal(node: Node) -> bool:
    """True if a number with a decimal point (or an exponent) occurs: such a value may be rounded."""
    return any(n[0] == "num" and n[2] >= 0 for n in walk(node))


def rename(node: Any, table: Mapping[str, str]) -> Any:
    """The tree with its symbols called otherwise."""
    if not isinstance(node, tuple):
        return node
    if len(node) == 2 and node[0] == "sym":
        return ("sym", table.get(node[1], node[1]))
    return tuple(rename(part, table) for part in node)
