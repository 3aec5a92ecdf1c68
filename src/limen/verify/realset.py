"""Sets of real numbers as sorted pieces: intervals, points, unions, inequalities in one variable."""

from __future__ import annotations

from typing import Any, NamedTuple

from limen.verify.evaluate import Evaluator, context, infinite, same
from limen.verify.exact import Undecided
from limen.verify.nodes import Node, is_number, is_scalar

MAX_PIECES = 64


class Piece(NamedTuple):
    low: Any
    low_in: bool
    high: Any
    high_in: bool


RealSet = tuple[Piece, ...]


def real_set(node: Node) -> tuple[RealSet, str] | None:
    """The set that a node describes, and the name of the variable of an inequality ("" without one); None if it is
    not a set of numbers."""
    try:
        return _set(node)
    except Undecided:
        return None


def is_setlike(node: Node) -> bool:
    """True for what can only be a set of reals, not a tuple or a list of values."""
    if node[0] in ("cup", "cap", "minus"):
        return True
    if node[0] == "seq" and len(node[3]) == 2:
        return (node[1], node[2]) != ("(", ")") or any(infinite(x) for x in node[3])
    if node[0] == "rel":
        return any(op in ("<", ">", "<=", ">=", "!=", "in") for op in node[1])
    if node[0] == "list":
        return any(is_setlike(x) and x[0] == "rel" for x in node[1])
    return bool(node[0] == "sym" and node[1] == "mathbb(R)")


def equal(a: RealSet, b: RealSet) -> bool:
    return len(a) == len(b) and all(
        same(x.low, y.low) and same(x.high, y.high) and (x.low_in, x.high_in) == (y.low_in, y.high_in)
        for x, y in zip(a, b, strict=True)
    )


def _number(node: Node) -> Any:
    if not (is_scalar(node) and is_number(node)):
        raise Undecided("not a number")
    value = Evaluator().value(node)
    if context().im(value) != 0:
        raise Undecided("not real")
    return context().re(value)


def _set(node: Node) -> tuple[RealSet, str] | None:
    ctx = context()
    everything = Piece(-ctx.inf, False, ctx.inf, False)
    kind = node[0]
    if kind == "seq" and len(node[3]) == 2:
        low, high = (_number(x) for x in node[3])
        return merge([Piece(low, node[1] == "[", high, node[2] == "]")]), ""
    if kind == "set":
        points = [_number(x) for x in node[1]]
        return merge([Piece(p, True, p, True) for p in points]), ""
    if kind == "sym" and node[1] == "mathbb(R)":
        return (everything,), ""
    if kind == "empty":
        return (), ""
    if kind in ("cup", "cap", "minus"):
        left, right = _set(node[1]), _set(node[2])
        if left is None or right is None:
            return None
        if kind == "cup":
            return merge([*left[0], *right[0]]), left[1] or right[1]
        other = right[0] if kind == "cap" else complement(right[0])
        return intersect(left[0], other), left[1] or right[1]
    if kind == "rel":
        return _relation(node)
    if kind == "list":
        return _several(node)
    return None


def _several(node: Node) -> tuple[RealSet, str] | None:
    """Inequalities joined by "or" (or a comma): their union; by "and": their intersection."""
    sets = [_set(x) for x in node[1]]
    found = [s for s in sets if s is not None]
    if len(found) != len(sets) or not found or not all(x[0] in ("rel", "seq") for x in node[1]):
        return None
    if len({name for _, name in found}) > 1:
        return None
    if node[2] == "and" or (node[2] == "," and all(x[0] == "rel" and "!=" in x[1] for x in node[1])):
        pieces = found[0][0]
        for other, _ in found[1:]:
            pieces = intersect(pieces, other)
        return pieces, found[0][1]
    return merge([p for pieces, _ in found for p in pieces]), found[0][1]


def _relation(node: Node) -> tuple[RealSet, str] | None:
    operators, sides = node[1], node[2]
    where = [i for i, side in enumerate(sides) if side[0] in ("sym", "apply")]
    if len(where) != 1:
        return None
    at, name = where[0], str(sides[where[0]][1]).replace("?", "")
    if operators == ("in",) and at == 0:
        inner = _set(sides[1])
        return None if inner is None else (inner[0], name)
    ctx = context()
    low, low_in, high, high_in = -ctx.inf, False, ctx.inf, False
    for i, op in enumerate(operators):
        if i not in (at - 1, at):
            return None
        value = _number(sides[i + 1] if i == at else sides[i])
        if op == "!=" and len(operators) == 1:
            return (Piece(low, False, value, False), Piece(value, False, high, False)), name
        if op == "=" and len(operators) == 1:
            return (Piece(value, True, value, True),), name
        if op not in ("<", ">", "<=", ">="):
            return None
        if (op[0] == "<") == (i == at):
            high, high_in = value, op.endswith("=")
        else:
            low, low_in = value, op.endswith("=")
    return merge([Piece(low, low_in, high, high_in)]), name


def merge(pieces: list[Piece]) -> RealSet:
    """Sorted and joined where they touch; empty pieces dropped."""
    if len(pieces) > MAX_PIECES:
        raise Undecided("too many pieces")
    kept = [p for p in pieces if p.low < p.high or (same(p.low, p.high) and p.low_in and p.high_in)]
    kept.sort(key=lambda p: (p.low, not p.low_in))
    out: list[Piece] = []
    for p in kept:
        if out and (p.low < out[-1].high or (same(p.low, out[-1].high) and (p.low_in or out[-1].high_in))):
            last = out[-1]
            if p.high > last.high:
                out[-1] = Piece(last.low, last.low_in, p.high, p.high_in)
            elif same(p.high, last.high):
                out[-1] = Piece(last.low, last.low_in, last.high, last.high_in or p.high_in)
        else:
            out.append(p)
    return tuple(out)


def complement(pieces: RealSet) -> RealSet:
    ctx = context()
    out: list[Piece] = []
    low, low_in = -ctx.inf, False
    for p in pieces:
        out.append(Piece(low, low_in, p.low, not p.low_in))
        low, low_in = p.high, not p.high_in
    out.append(Piece(low, low_in, ctx.inf, False))
    return merge(out)


def intersect(a: RealSet, b: RealSet) -> RealSet:
    out: list[Piece] = []
    for p in a:
        for q in b:
            low = max(p.low, q.low)
            high = min(p.high, q.high)
            low_in = (p.low_in or not same(p.low, low)) and (q.low_in or not same(q.low, low))
            high_in = (p.high_in or not same(p.high, high)) and (q.high_in or not same(q.high, high))
            out.append(Piece(low, low_in, high, high_in))
    return merge(out)
