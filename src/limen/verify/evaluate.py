"""Value of a node to 120 digits, with chosen values for its symbols. Every step is bounded in time and memory."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from mpmath.ctx_mp import MPContext

from limen.verify.exact import Undecided, exact
from limen.verify.nodes import Node, is_scalar, names, walk

DIGITS = 120
_CANCELLED = 1e-90
_SAME = 1e-60
_LARGEST_EXPONENT = 1e6
_local = threading.local()


def context() -> Any:
    """This thread's own mpmath context: the library's global one is not safe in threads."""
    ctx = getattr(_local, "ctx", None)
    if ctx is None:
        ctx = _local.ctx = MPContext()
        ctx.dps = DIGITS
    return ctx


def same(a: Any, b: Any) -> bool:
    """Equal up to the rounding of 120 digits: relative, never absolute."""
    if a == b:
        return True
    largest = max(abs(a), abs(b))
    if largest == context().inf:
        return False
    return bool(abs(a - b) <= _SAME * largest)


_OO = ("const", "oo")


def infinite(node: Node) -> bool:
    """True for ∞ and −∞ themselves."""
    return node == _OO or node == ("neg", _OO)


class Evaluator:
    """`env`: symbol to value. `calls`: f(x) is a call of an unknown function, not a product. `log_base`: of a
    logarithm written without one, e (None) or 10."""

    def __init__(self, env: Mapping[str, Any] | None = None, calls: bool = True, log_base: int | None = None) -> None:
        self.ctx = context()
        self.env = env or {}
        self.calls = calls
        self.degrees = False
        self.log_base = log_base

    def value(self, node: Node) -> Any:
        """Raises `Undecided`."""
        try:
            result = self._value(node)
        except (ZeroDivisionError, OverflowError, ValueError, TypeError) as error:
            raise Undecided(str(error)) from None
        if self.ctx.isnan(result) or (self.ctx.isinf(result) and not infinite(node)):
            raise Undecided("not a finite number")
        return result

    def _value(self, node: Node) -> Any:
        kind, ctx = node[0], self.ctx
        if kind == "num":
            return self._fraction(node[1])
        if kind == "sym":
            if node[1] not in self.env:
                raise Undecided(node[1])
            return self.env[node[1]]
        if kind == "const":
            return {"pi": ctx.pi, "e": ctx.e, "i": ctx.mpc(0, 1), "oo": ctx.inf}[node[1]] * 1
        if kind in ("add", "sub"):
            a, b = self._value(node[1]), self._value(node[2])
            return self._sum(a, b if kind == "add" else -b)
        if kind == "mul":
            return self._value(node[1]) * self._value(node[2])
        if kind == "div":
            return self._value(node[1]) / self._value(node[2])
        if kind == "neg":
            return -self._value(node[1])
        if not self.calls and kind in ("pow", "fn") and _on_call(node):
            return self._product_with_bracket(node)
        if kind == "pow":
            return self._power(self._value(node[1]), self._value(node[2]))
        if kind == "pct":
            return self._value(node[1]) / 100
        if kind == "deg":
            inner = self._value(node[1])
            return inner * ctx.pi / 180 if self.degrees else inner
        if kind == "unit":
            return self._value(node[1])
        if kind == "base":
            return self._fraction(exact(node) or Fraction(0))
        if kind == "fn":
            return self._function(node[1], node[2])
        if kind == "apply":
            return self._apply(node)
        raise Undecided(kind)

    def _fraction(self, value: Fraction) -> Any:
        if value.denominator == 1:
            return self.ctx.mpf(value.numerator)
        return self.ctx.mpf(value.numerator) / value.denominator

    def _sum(self, a: Any, b: Any) -> Any:
        total = a + b
        small, large = sorted((abs(a), abs(b)))
        if 0 < small < _SAME * large:
            raise Undecided("one part is lost beside the other")  # e^(30 pi^2) + 1 would be e^(30 pi^2)
        if total != 0 and abs(total) <= _CANCELLED * max(abs(a), abs(b)):
            return self.ctx.mpf(0)
        return total

    def _power(self, a: Any, b: Any) -> Any:
        if a == 0:
            if self.ctx.re(b) > 0:
                return self.ctx.mpf(0)
            raise Undecided("a power of zero")
        size = abs(b) * (abs(self.ctx.log(abs(a))) + 4)
        if not size < _LARGEST_EXPONENT:
            raise Undecided("too large")
        return self.ctx.power(a, b)

    def _apply(self, node: Node) -> Any:
        args = [self._value(a) for a in node[2]]
        if self.calls:
            key = [node[1], *(self.ctx.nstr(a, 15) for a in args)]
            return self.ctx.mpf(random.Random("|".join(key)).uniform(0.5, 3.0))
        if len(args) != 1 or not (names(node[2][0]) or node[2][0][0] in ("add", "sub")):
            raise Undecided("a call, not a product")
        return self._value(("sym", node[1])) * args[0]

    def _product_with_bracket(self, node: Node) -> Any:
        """x(x+1)^2 and n(n-1)! where x and n are factors: the power belongs to the bracket."""
        call = node[1] if node[0] == "pow" else node[2][0]
        if len(call[2]) != 1:
            raise Undecided("a call, not a product")
        inside = call[2][0]
        bracket = ("pow", inside, node[2]) if node[0] == "pow" else ("fn", node[1], (inside,))
        return self._value(("sym", call[1])) * self._value(bracket)

    def _function(self, name: str, nodes: tuple[Node, ...]) -> Any:
        if name in _TRIG:
            self.degrees, before = any(n[0] == "deg" for a in nodes for n in walk(a)), self.degrees
            try:
                args = [self._value(a) for a in nodes]
            finally:
                self.degrees = before
            if abs(args[0]) > 1e30:
                raise Undecided("too large")
        else:
            args = [self._value(a) for a in nodes]
        if name == "log" and len(args) == 1 and self.log_base is not None:
            args.append(self.ctx.mpf(self.log_base))
        function = _FUNCTIONS.get(name)
        if function is None or any(self.ctx.isinf(a) for a in args):
            raise Undecided(name)
        result = function(self.ctx, *args)
        if name in _TRIG and abs(result) < _CANCELLED:
            return self.ctx.mpf(0)
        return result


def _on_call(node: Node) -> bool:
    """f(x)^2 or f(x)!"""
    if node[0] == "pow":
        return bool(node[1][0] == "apply")
    return bool(node[1] == "factorial" and node[2][0][0] == "apply")


_TRIG = {"sin", "cos", "tan", "cot", "sec", "csc"}


def _log(ctx: Any, x: Any, base: Any = None) -> Any:
    if x == 0 or base in (0, 1):
        raise Undecided("a logarithm of zero")
    return ctx.log(x) if base is None else ctx.log(x) / ctx.log(base)


def _root(ctx: Any, x: Any, index: Any) -> Any:
    if index == 0 or not abs(index) < 1000:
        raise Undecided("a root")
    if ctx.im(x) == 0 and ctx.re(x) < 0 and ctx.isint(index) and int(index) % 2 == 1:
        return -ctx.power(-x, 1 / index)
    return ctx.sqrt(x) if index == 2 else ctx.mpf(0) if x == 0 else ctx.power(x, 1 / index)


def _real(ctx: Any, x: Any) -> Any:
    if ctx.im(x) != 0:
        raise Undecided("not real")
    return ctx.re(x)


def _floor(ctx: Any, x: Any) -> Any:
    x = _real(ctx, x)
    near = ctx.nint(x)
    return near if abs(x - near) < 1e-30 else ctx.floor(x)


def _factorial(ctx: Any, x: Any) -> Any:
    x = _real(ctx, x)
    if not -1 < x < 1e5:
        raise Undecided("a factorial")
    return ctx.gamma(x + 1)


def _binom(ctx: Any, n: Any, k: Any) -> Any:
    return _factorial(ctx, n) / (_factorial(ctx, k) * _factorial(ctx, _real(ctx, n) - _real(ctx, k)))


def _exp(ctx: Any, x: Any) -> Any:
    if not abs(x) < _LARGEST_EXPONENT:
        raise Undecided("too large")
    return ctx.exp(x)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{n: (lambda ctx, x, n=n: getattr(ctx, n)(x)) for n in (*_TRIG, "sinh", "cosh", "tanh", "coth", "sec", "csc")},
    **{f"arc{n}": (lambda ctx, x, n=n: getattr(ctx, "a" + n)(x)) for n in ("sin", "cos", "tan")},
    **{n: (lambda ctx, x, n=n: getattr(ctx, n)(x)) for n in ("asinh", "acosh", "atanh")},
    "log": _log,
    "exp": _exp,
    "root": _root,
    "abs": lambda ctx, x: abs(x),
    "floor": _floor,
    "ceil": lambda ctx, x: -_floor(ctx, -x),
    "factorial": _factorial,
    "binom": _binom,
    "max": lambda ctx, *xs: max(_real(ctx, x) for x in xs),
    "min": lambda ctx, *xs: min(_real(ctx, x) for x in xs),
    "Re": lambda ctx, x: ctx.re(x),
    "Im": lambda ctx, x: ctx.im(x),
    "arg": lambda ctx, x: ctx.arg(x),
    "sgn": lambda ctx, x: ctx.sign(x),
}


def whole_numbered(*nodes: Node) -> bool:
    """True if something in the formulas only makes sense for whole numbers: n!, floors, (-1)^n."""
    for node in nodes:
        for n in walk(node):
            if n[0] == "fn" and n[1] in ("factorial", "binom", "floor", "ceil", "gcd", "lcm"):
                return True
            if n[0] == "pow" and n[1][0] == "neg" and names(n[2]):
                return True
    return False


def environments(variables: set[str], whole: bool) -> list[tuple[dict[str, Any], bool]]:
    """Values for the symbols, and whether these are of the kind that must agree (positive) or may (mixed signs)."""
    ctx = context()
    draws: list[tuple[dict[str, Any], bool]] = []
    for trial in range(5):
        env: dict[str, Any] = {}
        for name in sorted(variables):
            rng = random.Random(f"{name}|{trial}")
            if whole:
                env[name] = ctx.mpf(rng.randint(9, 16) if name[:1] in "nN" else rng.randint(2, 8))
            else:
                value = ctx.mpf(rng.uniform(0.3, 2.7))
                env[name] = -value if trial >= 3 and (rng.random() < 0.6 or len(variables) == 1) else value
        draws.append((env, whole or trial < 3))
    return draws


def identical(a: Node, b: Node) -> bool | None:
    """Whether two formulas have the same value for all values of their symbols, by trying some; None if that
    cannot be told. Positive reals must agree; at mixed signs, where roots and logarithms branch, only real values
    are compared."""
    if not is_scalar(a) or not is_scalar(b):
        return None
    variables = names(a) | names(b)
    parts = [n for x in (a, b) for n in walk(x)]
    readings: list[tuple[bool, int | None]] = [(True, None)]
    if any(n[0] == "apply" for n in parts):
        readings.append((False, None))
    if any(n[0] == "fn" and n[1] == "log" and len(n[2]) == 1 for n in parts):
        readings.append((True, 10))  # log x without a base means ln x or lg x, in both answers alike
    verdicts = [_agree(a, b, variables, calls, base) for calls, base in readings]
    if True in verdicts:
        return True
    return False if False in verdicts else None


def _agree(a: Node, b: Node, variables: set[str], calls: bool, base: int | None) -> bool | None:
    agreed = 0
    for env, strict in environments(variables, whole_numbered(a, b)) if variables else [({}, True)]:
        evaluator = Evaluator(env, calls, base)
        try:
            x, y = evaluator.value(a), evaluator.value(b)
        except Undecided:
            continue
        if same(x, y):
            agreed += 1
        elif strict or (evaluator.ctx.im(x) == 0 and evaluator.ctx.im(y) == 0):
            return False
    return True if agreed >= (2 if variables else 1) else None
