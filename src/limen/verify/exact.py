"""Exact rational value of a node, where it has one and it is not too large."""

from __future__ import annotations

import math
from fractions import Fraction

from limen.verify.nodes import Node

MAX_BITS = 24_000
_FACTORIAL = 2_100


class Undecided(ArithmeticError):
    """No value can be had cheaply: too large, a pole, or an unknown function."""


def exact(node: Node) -> Fraction | None:
    """The rational value; None where it is irrational, symbolic or too large. Raises `Undecided` at a pole."""
    kind = node[0]
    if kind == "num":
        return _bounded(node[1])
    if kind == "base":
        return _based(node)
    if kind in ("add", "sub", "mul", "div"):
        a = exact(node[1])
        b = exact(node[2]) if a is not None else None
        return None if a is None or b is None else _bounded(_binary(kind, a, b))
    if kind in ("neg", "pct", "deg", "unit"):
        a = exact(node[1])
        if a is None:
            return None
        return -a if kind == "neg" else a / 100 if kind == "pct" else a
    if kind == "pow":
        return _power(node)
    if kind == "fn":
        return _function(node)
    return None


def _binary(kind: str, a: Fraction, b: Fraction) -> Fraction:
    if kind == "add":
        return a + b
    if kind == "sub":
        return a - b
    if kind == "mul":
        return a * b
    if b == 0:
        raise Undecided("division by zero")
    return a / b


def bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _bounded(value: Fraction) -> Fraction | None:
    return value if bits(value) <= MAX_BITS else None


def _based(node: Node) -> Fraction:
    try:
        return Fraction(int(node[1], node[2]))
    except ValueError:
        raise Undecided(f"{node[1]} has digits that base {node[2]} has not") from None


def _power(node: Node) -> Fraction | None:
    a = exact(node[1])
    b = exact(node[2]) if a is not None else None
    if a is None or b is None:
        return None
    if b.denominator != 1:
        root = _root(a, b.denominator)
        return None if root is None else _int_power(root, b.numerator)
    return _int_power(a, b.numerator)


def _int_power(a: Fraction, n: int) -> Fraction | None:
    if a == 0 and n <= 0:
        raise Undecided("a power of zero")
    if a in (0, 1):
        return a
    if a == -1:
        return Fraction(1 if n % 2 == 0 else -1)
    if abs(n) * bits(a) > 2 * MAX_BITS:
        return None
    return _bounded(a**n)


def _root(a: Fraction, index: int) -> Fraction | None:
    """The real root, if it is rational; of negative numbers for odd indices only as a root, not as a power."""
    if a < 0 or index > 64:
        return None
    top, bottom = _int_root(a.numerator, index), _int_root(a.denominator, index)
    return None if top is None or bottom is None else Fraction(top, bottom)


def _int_root(n: int, index: int) -> int | None:
    if index == 2:
        r = math.isqrt(n)
        return r if r * r == n else None
    if n.bit_length() > 900:
        return None
    r = round(n ** (1.0 / index))
    return next((c for c in (r - 1, r, r + 1) if c >= 0 and c**index == n), None)


def _function(node: Node) -> Fraction | None:
    name = node[1]
    if name not in ("factorial", "binom", "floor", "ceil", "abs", "root", "max", "min", "gcd", "lcm"):
        return None
    values = [exact(a) for a in node[2]]
    args = [v for v in values if v is not None]
    if len(args) != len(values) or not args:
        return None
    if name in ("floor", "ceil", "abs") and len(args) == 1:
        return _floor(args[0]) if name == "floor" else _ceil(args[0]) if name == "ceil" else abs(args[0])
    if name == "root" and len(args) == 2:
        return _rational_root(args[0], args[1])
    if name in ("max", "min"):
        return max(args) if name == "max" else min(args)
    if any(a.denominator != 1 for a in args):
        return None
    whole = [int(a) for a in args]
    if name == "gcd":
        return Fraction(math.gcd(*whole))
    if name == "lcm":
        return _bounded(Fraction(math.lcm(*whole)))
    if name == "factorial" and len(whole) == 1 and 0 <= whole[0] <= _FACTORIAL:
        return _bounded(Fraction(math.factorial(whole[0])))
    if name == "binom" and len(whole) == 2 and 0 <= whole[1] <= whole[0] <= _FACTORIAL:
        return _bounded(Fraction(math.comb(*whole)))
    return None


def _rational_root(a: Fraction, index: Fraction) -> Fraction | None:
    if index.denominator != 1 or index < 1:
        return None
    if a < 0 and index % 2 == 1:
        root = _root(-a, int(index))
        return None if root is None else -root
    return _root(a, int(index))


def _floor(a: Fraction) -> Fraction:
    return Fraction(math.floor(a))


def _ceil(a: Fraction) -> Fraction:
    return Fraction(math.ceil(a))
