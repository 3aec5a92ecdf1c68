"""Equations and inequalities: names for values, chains, and equality up to a factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from limen.verify.evaluate import Evaluator, environments, same, whole_numbered
from limen.verify.exact import Undecided
from limen.verify.nodes import Node, is_number, is_scalar, names, rename, walk
from limen.verify.scalars import Result

if TYPE_CHECKING:
    from limen.verify.compare import Comparer

_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!=", "~": "~"}


@dataclass(frozen=True)
class Assignment:
    """An equation that gives a value a name: x = 5, f(x) = 2x, AB = 3 + 4 = 7. `values`: the last side, or around
    "≈" the exact side and then the rounded one. `named`: its left side is a name and no formula."""

    name: str
    named: bool
    values: tuple[Node, ...]
    parameters: tuple[str, ...] = ()

    @property
    def function(self) -> bool:
        return bool(self.parameters)

    def rename(self, other: Assignment) -> tuple[Node, ...]:
        """The values with this function's parameters called as the other's."""
        if not self.function or len(self.parameters) != len(other.parameters) or self.parameters == other.parameters:
            return self.values
        table = dict(zip(self.parameters, other.parameters, strict=True))
        return tuple(rename(v, table) for v in self.values)


def split_assignment(node: Node) -> Assignment | None:
    """None for what is no chain of "=" and "≈"."""
    if node[0] != "rel":
        return None
    sides = node[2]
    first = sides[0]
    point = first[0] == "seq" and all(x[0] == "sym" for x in first[3])
    if node[1] == ("in",) and (point or first[0] == "sym") and sides[1][0] == "set":
        return Assignment(str(first), True, sides[1:])  # (x, y) ∈ {(1, 2), (2, 1)}
    if not set(node[1]) <= {"=", "~"}:
        return None
    if point:
        return Assignment(str(first), True, (sides[-1],))
    if node[1][-1] == "~":
        values = (sides[-2], sides[-1]) if len(sides) > 2 or is_number(first) else (sides[-1],)
    else:
        values = (sides[-1],)
    if first[0] == "apply":
        parameters = tuple(str(a[1]) for a in first[2] if a[0] == "sym")
        if len(parameters) == len(first[2]):
            return Assignment(str(first[1]), True, values, parameters)
        return Assignment(str(first), True, values)
    named = first[0] in ("sym", "text") or _is_label(first)
    return Assignment(str(first[1:] if named else first), named, values)


def _is_label(node: Node) -> bool:
    """AB, ∠ABC, |AB|, S_{ABC}: a product of bare symbols with a capital or an angle among them."""
    parts = list(walk(node))
    if not all(n[0] in ("sym", "mul") or (n[0] == "fn" and n[1] in ("abs", "min", "max")) for n in parts):
        return False
    symbols = [str(n[1]) for n in parts if n[0] == "sym"]
    return all(s[:1].isupper() or s in ("angle", "triangle") for s in symbols) and len(symbols) > 1


def equal_relations(gold: Node, answer: Node, comparer: Comparer) -> Result:
    """Two equations up to a constant factor; two inequalities up to a positive one, or turned round."""
    g, a = _ascending(gold), _ascending(answer)
    if g[1] == a[1] and len(g[2]) == len(a[2]):
        sides = [comparer.same(x, y) for x, y in zip(g[2], a[2], strict=True)]
        if all(r.same for r in sides):
            return Result(True, "relation")
    if set(gold[1]) == {"="} and set(answer[1]) == {"="} and len(gold[1]) == len(answer[1]) == 1:
        return _proportional(gold, answer, positive=False)
    if len(g[1]) == len(a[1]) == 1 and g[1] == a[1]:
        return _proportional(g, a, positive=True)
    if "=" in gold[1] or "=" in answer[1]:
        return Result(None if len(gold[1]) != len(answer[1]) else False, "relation")
    return Result(False if all(is_scalar(s) for s in (*gold[2], *answer[2])) else None, "relation")


def _ascending(node: Node) -> Node:
    """Written with < and <= only."""
    if any(op in (">", ">=") for op in node[1]):
        return ("rel", tuple(_FLIPPED.get(op, op) for op in reversed(node[1])), tuple(reversed(node[2])))
    return node


def _proportional(gold: Node, answer: Node, positive: bool) -> Result:
    """Whether left − right of the one is a constant times that of the other."""
    sides = (*gold[2], *answer[2])
    if not all(is_scalar(s) for s in sides):
        return Result(None, "relation")
    g, a = ("sub", *gold[2]), ("sub", *answer[2])
    variables = names(g) | names(a)
    if names(g) != names(a) or not variables:
        return Result(False, "relation")
    ratios: list[Any] = []
    for env, _ in environments(variables, whole_numbered(g, a)):
        evaluator = Evaluator(env)
        try:
            x, y = evaluator.value(g), evaluator.value(a)
        except Undecided:
            continue
        if x == 0 or y == 0:
            if x != y:
                return Result(False, "relation")
            continue
        ratios.append(x / y)
    if len(ratios) < 2:
        return Result(None, "relation")
    if all(same(r, ratios[0]) for r in ratios[1:]):
        ok = not positive or (evaluator.ctx.im(ratios[0]) == 0 and evaluator.ctx.re(ratios[0]) > 0)
        return Result(ok, "equation")
    polynomial = all(is_polynomial(s) for s in sides)
    return Result(False if polynomial and not _shares_factors(sides) else None, "equation")


def is_polynomial(node: Node) -> bool:
    for n in walk(node):
        if n[0] in ("fn", "apply") or (n[0] == "div" and names(n[2])) or (n[0] == "pow" and not _whole_power(n)):
            return False
    return True


def _whole_power(node: Node) -> bool:
    return bool(node[2][0] == "num" and node[2][1].denominator == 1)


def _shares_factors(sides: tuple[Node, ...]) -> bool:
    """(x-1)^2 = 0 and x-1 = 0 have the same solutions and are not proportional: left to math-verify."""
    return any(s[0] in ("mul", "pow") and not is_number(s) for s in sides) and any(s == ("num", 0, -1) for s in sides)
