"""Equality of two values: rational first, then decimals by policy, then 120 digits."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, NamedTuple

from limen.verify.evaluate import Evaluator, context, identical, infinite
from limen.verify.exact import MAX_BITS, Undecided, bits, exact
from limen.verify.nodes import Node, has_decimal, is_number, names, rename, walk
from limen.verify.policy import MathOptions
from limen.verify.symbols import UNITS

_SHORT_DECIMAL = 1e-9


class Result(NamedTuple):
    """`same` is None where it cannot be told; `rule` names what decided."""

    same: bool | None
    rule: str


def equal_values(gold: Node, answer: Node, policy: MathOptions) -> Result:
    """Compare two values with their percent signs, degrees, units and bases."""
    gold, gold_unit = _split_unit(gold)
    answer, answer_unit = _split_unit(answer)
    signs = {canonical_unit(unit) for unit, node in ((gold_unit, answer), (answer_unit, gold)) if node[0] == "pct"}
    if not _units_agree(gold_unit, answer_unit, policy) or signs - {"", "%"}:
        return Result(False, "unit")
    gold, answer = _degrees(gold), _degrees(answer)
    if gold[0] == "base" or answer[0] == "base":
        return _based(gold, answer, policy)
    if (gold[0] == "pct") != (answer[0] == "pct"):
        return _percent(gold, answer, policy)
    return _plain(gold, answer, policy)


def _split_unit(node: Node) -> tuple[Node, str]:
    return (node[1], str(node[2])) if node[0] == "unit" else (node, "")


def _degrees(node: Node) -> Node:
    return node[1] if node[0] == "deg" else node


def canonical_unit(words: str) -> str:
    """Known units in one spelling; "" for unknown words."""
    parts = words.replace("per", "/").split()
    known = []
    for part in parts:
        name, _, power = part.partition("^")
        name = name.strip(".,")
        if name == "square" or name == "cubic":
            continue
        if name in ("/", "*"):
            known.append(name)
            continue
        unit = UNITS.get(name) or UNITS.get(name.lower())
        if unit is None:
            return ""
        known.append(unit + ("^" + power if power else ""))
    return " ".join(known)


def _units_agree(gold: str, answer: str, policy: MathOptions) -> bool:
    if policy.units == "strict":
        return (canonical_unit(gold) or gold) == (canonical_unit(answer) or answer)
    a, b = canonical_unit(gold).partition("^")[0], canonical_unit(answer).partition("^")[0]
    return not a or not b or a == b or "%" in (a, b)


def _based(gold: Node, answer: Node, policy: MathOptions) -> Result:
    if gold[0] == "base" and answer[0] == "num" and answer[2] == -1 and policy.base == "optional":
        return Result(str(answer[1]) == gold[1].lstrip("0"), "base digits")
    if gold[0] == answer[0] == "base":
        return Result(exact(gold) == exact(answer), "base")
    return Result(_plain(_decimal(gold), _decimal(answer), policy).same, "base")


def _decimal(node: Node) -> Node:
    """A number in another base as a number."""
    return ("num", exact(node), -1) if node[0] == "base" else node


def _percent(gold: Node, answer: Node, policy: MathOptions) -> Result:
    """One side has a percent sign."""
    tries = []
    if policy.percent in ("either", "number"):
        tries.append((_bare(gold), _bare(answer)))
    if policy.percent in ("either", "value"):
        tries.append((gold, answer))
    results = [_plain(a, b, policy) for a, b in tries]
    for result in results:
        if result.same:
            return Result(True, "percent")
    return Result(None if any(r.same is None for r in results) else False, "percent")


def _bare(node: Node) -> Node:
    return node[1] if node[0] == "pct" else node


def _plain(gold: Node, answer: Node, policy: MathOptions) -> Result:
    if gold == answer:
        return Result(True, "same form")
    if any(n == ("const", "oo") for x in (gold, answer) for n in walk(x)):
        return Result(None if not (infinite(gold) or infinite(answer)) else False, "infinity")
    try:
        a = exact(gold)
    except Undecided:
        return Result(None, "pole")
    try:
        b = exact(answer)
    except Undecided:
        return Result(False if is_number(gold) else None, "undefined")
    if a is not None and b is not None:
        return _rationals(gold, answer, a, b, policy)
    if not is_number(gold) or not is_number(answer):
        if is_number(gold) != is_number(answer) and not _symbols_may_cancel(gold, answer):
            return Result(False, "symbols")
        return _formulas(gold, answer)
    return _irrationals(gold, answer, policy)


def _rationals(gold: Node, answer: Node, a: Fraction, b: Fraction, policy: MathOptions) -> Result:
    if a == b:
        return Result(True, "rational")
    if not has_decimal(gold) and not has_decimal(answer):
        return Result(False, "rational")
    if a.denominator == 1 and b.denominator == 1:
        return Result(False, "rational")
    if a == 0:
        return Result(False, "rational")
    short = _is_short(gold, a) and _is_short(answer, b)
    tolerance = Fraction(_SHORT_DECIMAL) if short else Fraction(policy.decimal)
    if abs(a - b) <= tolerance * abs(a):
        return Result(True, "decimal")
    if _rounds_to(gold, answer, a, b, policy):
        return Result(True, "rounded gold")
    return Result(False, "rational")


def _is_short(node: Node, value: Fraction) -> bool:
    """True if the value is written in full: an integer, or a fraction with a decimal of up to nine places."""
    return (value * 10**9).denominator == 1


def _rounds_to(gold: Node, answer: Node, a: Fraction, b: Any, policy: MathOptions) -> bool:
    if not policy.rounded_gold or has_decimal(answer):
        return False
    sign = 1
    scale = 1
    while gold[0] in ("neg", "pct"):
        sign, scale = (-sign, scale) if gold[0] == "neg" else (sign, scale * 100)
        gold = gold[1]
    if gold[0] != "num" or gold[2] < 0:
        return False
    digits = len(str(abs(gold[1].numerator * 10 ** gold[2] // gold[1].denominator)))
    if digits < policy.rounded_gold:
        return False
    half = Fraction(1, 2 * 10 ** gold[2] * scale)
    if isinstance(b, Fraction):
        return abs(a - b) <= half
    ctx = context()
    return bool(abs(ctx.mpf(a.numerator) / a.denominator - b) <= ctx.mpf(half.numerator) / half.denominator)


def _irrationals(gold: Node, answer: Node, policy: MathOptions) -> Result:
    """Numbers, at least one of which has no rational value that fits."""
    evaluator = Evaluator()
    values: list[Any] = []
    for node in (gold, answer):
        try:
            values.append(evaluator.value(node))
        except Undecided:
            values.append(None)
    a, b = values
    if a is None or b is None:
        other, huge = (b, gold) if a is None else (a, answer)
        if other is not None and abs(other) < 1e300 and _is_huge(huge):
            return Result(False, "magnitude")
        return Result(None, "too large" if _large(huge) else "numeric")
    identical_value = identical(gold, answer)
    if identical_value:
        return Result(None, "numeric") if _beyond_digits(gold, answer) else Result(True, "numeric")
    if has_decimal(gold) or has_decimal(answer):
        if abs(a - b) <= policy.decimal * abs(a):
            return Result(True, "decimal")
        value = exact(gold)
        if value is not None and evaluator.ctx.im(b) == 0 and _rounds_to(gold, answer, value, b, policy):
            return Result(True, "rounded gold")
    return Result(identical_value, "numeric")


def _beyond_digits(gold: Node, answer: Node) -> bool:
    """True if one side is a rational number too long for its exact value: 120 digits do not tell 10^9999 from its
    neighbour."""
    return any(n[0] == "pow" and is_number(n) and _long(n) for x in (gold, answer) for n in walk(x)) or any(
        n[0] == "fn" and n[1] in ("factorial", "binom") and is_number(n) and exact(n) is None
        for x in (gold, answer)
        for n in walk(x)
    )


def _long(node: Node) -> bool:
    base, exponent = exact(node[1]), exact(node[2])
    if base is None or exponent is None or exponent.denominator != 1:
        return False
    return bool(abs(exponent) * bits(base) > MAX_BITS)


def _large(node: Node) -> bool:
    """True for numbers that are undecided because of powers and factorials: math-verify would only hang on them."""
    kinds = {n[0] for n in walk(node)} | {n[1] for n in walk(node) if n[0] == "fn"}
    return bool(kinds & {"pow", "factorial", "binom"})


def _is_huge(node: Node) -> bool:
    """True if it is surely beyond 10^300: a tower of powers of whole numbers above 1 (perhaps times such)."""
    if node[0] == "num":
        return False
    if node[0] == "pow":
        if not all(n[0] in ("num", "pow", "mul", "add") for n in walk(node)):
            return False
        if not all(n[1] >= 2 for n in walk(node) if n[0] == "num"):
            return False
        return _magnitude(node) > 1000
    if node[0] in ("mul", "add"):
        ok = all(n[0] in ("num", "pow", "mul", "add") for n in walk(node))
        positive = all(n[1] >= 1 for n in walk(node) if n[0] == "num")
        return ok and positive and any(_is_huge(x) for x in node[1:])
    return False


def _magnitude(node: Node) -> float:
    """A lower bound of log2 of a tower of numbers of at least 2, capped."""
    if node[0] == "num":
        return float(node[1].numerator.bit_length() - node[1].denominator.bit_length())
    if node[0] == "pow":
        return min(1e9, max(1.0, _magnitude(node[1])) * 2 ** min(30.0, max(1.0, _magnitude(node[2]))))
    return max(_magnitude(node[1]), _magnitude(node[2]))


def _symbols_may_cancel(gold: Node, answer: Node) -> bool:
    """x - x + 5 is a number; x + 5 is not. Left to the formulas' values unless one side is a bare symbol."""
    return bool(gold[0] != "sym" and answer[0] != "sym")


def _formulas(gold: Node, answer: Node) -> Result:
    same = identical(gold, answer)
    if not same:
        renamed = _renamed(gold, answer)
        if renamed is not None and identical(gold, renamed):
            return Result(True, "renamed constant")
    if same is False and any(n == ("sym", "ldots") for x in (gold, answer) for n in walk(x)):
        return Result(None, "ellipsis")
    return Result(same, "formula")


_CONSTANT = re.compile(r"[Cc](?:_[0-9])?")
_PARAMETER = re.compile(r"[klmnj]")


def _renamed(gold: Node, answer: Node) -> Node | None:
    """The answer with its free constants called as the gold's: + C and + c; 2\\pi k and 2\\pi n."""
    ours, theirs = sorted(names(gold) - names(answer)), sorted(names(answer) - names(gold))
    if not ours or len(ours) != len(theirs) or gold[0] == "sym":
        return None
    periodic = len(ours) == 1 and any(n == ("const", "pi") for n in walk(gold))
    for pattern in (_CONSTANT, _PARAMETER) if periodic else (_CONSTANT,):
        if all(pattern.fullmatch(name) for name in ours + theirs):
            renamed: Node = rename(answer, dict(zip(theirs, ours, strict=True)))
            return renamed
    return None
