"""The smallest parts of an answer: numbers, symbols, functions, brackets, matrices."""

from __future__ import annotations

from fractions import Fraction

from limen.verify.functions import parse_function
from limen.verify.lexer import Token, Unreadable
from limen.verify.nodes import Node
from limen.verify.stream import Stream

_CONSTANTS = {"pi": ("const", "pi"), "e": ("const", "e"), "i": ("const", "i"), "oo": ("const", "oo"), "∅": ("empty",)}
_DECORATIONS = ("bar", "hat", "vec", "dot", "ddot", "tilde", "mathcal")


class Primaries(Stream):
    def primary(self) -> Node:
        token = self.take()
        if token.kind == "NUM":
            return self.number(token)
        if token.kind == "NAME":
            return self.name(token)
        if token.kind == "FUNC":
            return parse_function(self, token.text)
        if token.kind == "CMD":
            return self.command(token.text)
        if token.kind == "OPEN":
            return self.bracket(token.text)
        if token.kind == "BEGIN":
            return self.matrix(token.value if token.value else token.text)
        if token.kind == "TEXT":
            return self.words(token.text)
        if token.kind == "OP" and token.text == "|":
            self.bars += 1
            node = self.relation()
            self.bars -= 1
            self.expect("OP", "|")
            return ("fn", "abs", (node,))
        raise Unreadable(f"unexpected {token.text or 'end'!r}")

    def words(self, first: str) -> Node:
        words = [first]
        while self.next.kind == "TEXT":
            words.append(self.take().text)
        text = " ".join(words)
        if len(text) == 1:
            return symbol(text)
        return ("text", text)

    def number(self, token: Token) -> Node:
        value, decimals = token.value
        node: Node = ("num", value, decimals)
        if decimals >= 0 or "." in token.text:
            if self.is_at("CMD", "overline") and "." in token.text:
                self.take()
                return self.repeating(value, decimals)
            return node
        mixed = self.mixed(value)
        return mixed or node

    def repeating(self, value: Fraction, decimals: int) -> Node:
        """0.1\\overline{6}"""
        digits = flat(self.primary())
        if not digits.isdigit():
            raise Unreadable("a bar over a formula")
        places = max(decimals, 0)
        period = Fraction(int(digits), (10 ** len(digits) - 1) * 10**places)
        return ("num", value + period, -1)

    def mixed(self, whole: Fraction) -> Node | None:
        """2\\frac{1}{3} and 2 1/3 are sums; a product would be written otherwise."""
        start = self.at
        if self.is_at("CMD", "frac"):
            self.take()
            top, bottom = self.argument(), self.argument()
        elif self.next.kind == "NUM":
            top = ("num", *self.take().value)
            if not self.is_op("/"):
                raise Unreadable("two numbers side by side")
            self.take()
            if self.next.kind != "NUM":
                raise Unreadable("two numbers side by side")
            bottom = ("num", *self.take().value)
        else:
            return None
        if _is_int(top) and _is_int(bottom) and 0 < top[1] < bottom[1]:
            return ("num", whole + top[1] / bottom[1], -1)
        if self.tokens[start].kind == "NUM":
            raise Unreadable("two numbers side by side")
        self.at = start
        return None

    def name(self, token: Token) -> Node:
        text = token.text
        if text in _CONSTANTS and not self.is_op("_"):
            return _CONSTANTS[text]
        node: Node = ("sym", text)
        while self.is_op("_", "'"):
            node = self.subscript(node) if self.take().text == "_" else self.primed(node)
        if self.is_op("^"):
            start = self.at
            self.take()
            if self.mark() == "'":
                node = self.primed(node)
            else:
                self.at = start
        if self.is_at("OPEN", "("):
            self.take()
            return ("apply", node[1], self.arguments(")"))
        return node

    def arguments(self, close: str) -> tuple[Node, ...]:
        if self.next.kind == "CLOSE":
            raise Unreadable("no argument")
        node = self.items()
        self.expect("CLOSE", close)
        return node[1] if node[0] == "list" else (node,)

    def command(self, name: str) -> Node:
        if name == "frac":
            return ("div", self.argument(), self.argument())
        if name == "binom":
            return ("fn", "binom", (self.argument(), self.argument()))
        if name == "sqrt":
            return self.root()
        if name in _DECORATIONS:
            return ("sym", f"{name}({flat(self.argument())})")
        if name == "mathbb":
            return ("sym", f"mathbb({flat(self.argument())})")
        if name in ("group", "skip"):
            return self.primary()
        if name == "ldots":
            return ("sym", "ldots")
        if name == "overline":
            return ("sym", f"overline({flat(self.argument())})")
        raise Unreadable(f"command {name}")

    def root(self) -> Node:
        index: Node = ("num", Fraction(2), -1)
        if self.is_at("OPEN", "["):
            self.take()
            index = self.sum()
            self.expect("CLOSE", "]")
        inside = self.argument()
        return ("fn", "root", (inside, index))

    def bracket(self, opening: str) -> Node:
        self.deeper()
        bars, self.bars, outer = self.bars, int(opening == "\\{"), self.in_set
        self.in_set = opening == "\\{"
        if self.next.kind == "CLOSE":
            close = self.take().text
            if opening == "\\{" and close == "\\}":
                self.depth, self.bars, self.in_set = self.depth - 1, bars, outer
                return ("empty",)
            raise Unreadable("empty brackets")
        node = self.items()
        condition = self.such_that() if opening == "\\{" else None
        close = self.expect("CLOSE").text
        self.depth, self.bars, self.in_set = self.depth - 1, bars, outer
        if condition is not None:
            return _described(node, condition)
        return _bracketed(opening, close, node)

    def such_that(self) -> Node | None:
        """The condition of a set that is described: {x | x > 0}."""
        if not self.is_op("|", "mid", ":"):
            return None
        self.take()
        return self.items()

    def matrix(self, name: str) -> Node:
        if name not in ("pmatrix", "bmatrix", "matrix", "vmatrix", "Vmatrix", "array", "smallmatrix", "Bmatrix"):
            raise Unreadable(f"environment {name}")
        rows: list[tuple[Node, ...]] = []
        cells: list[Node] = []
        while True:
            if self.next.kind == "END":
                break
            cells.append(self.relation())
            if self.next.kind == "ROW":
                self.take()
                rows.append(tuple(cells))
                cells = []
            elif self.next.kind == "AND":
                self.take()
            elif self.next.kind != "END":
                raise Unreadable("a matrix cell without an end")
        self.take()
        if cells:
            rows.append(tuple(cells))
        if not rows or len({len(r) for r in rows}) != 1:
            raise Unreadable("rows of different lengths")
        node: Node = ("mat", tuple(rows))
        return ("fn", "det", (node,)) if name == "vmatrix" else node


def _bracketed(opening: str, close: str, node: Node) -> Node:
    items = node[1] if node[0] == "list" else (node,)
    if opening == "\\{":
        if close != "\\}":
            raise Unreadable("brackets that do not match")
        return ("set", items)
    if opening == "{":
        if close != "}":
            raise Unreadable("brackets that do not match")
        return node if node[0] != "list" else ("set", items)
    shapes = {"⌊": ("⌋", "floor"), "⌈": ("⌉", "ceil"), "abs": ("abs", "abs")}
    if opening in shapes:
        if close != shapes[opening][0] or node[0] == "list":
            raise Unreadable("brackets that do not match")
        return ("fn", shapes[opening][1], (node,))
    if close not in (")", "]"):
        raise Unreadable("brackets that do not match")
    if node[0] == "list":
        if node[2] not in (",", ""):
            return node
        return ("seq", opening, close, items)
    if opening == "(" and close == ")":
        return node
    if opening == "[" and close == "]":
        return node
    raise Unreadable("brackets that do not match")


def _described(head: Node, condition: Node) -> Node:
    """{x | 0 < x < 1} says what 0 < x < 1 says; conditions with commas between all hold."""
    if head[0] == "rel" and head[1] == ("in",):
        head = head[2][0]
    if head[0] != "sym":
        raise Unreadable("a set of formulas")
    if condition[0] == "list":
        kept = tuple(x for x in condition[1] if not (x[0] == "rel" and x[1] == ("in",) and x[2][1][0] == "sym"))
        return kept[0] if len(kept) == 1 else ("list", kept, "or" if condition[2] == "or" else "and")
    return condition


def symbol(name: str) -> Node:
    return _CONSTANTS.get(name, ("sym", name))


def _is_int(node: Node) -> bool:
    return bool(node[0] == "num" and node[2] == -1 and node[1].denominator == 1)


def flat(node: Node) -> str:
    """Text of a subscript or an argument of a decoration."""
    if node[0] == "num":
        return str(node[1])
    if node[0] in ("sym", "const", "text"):
        return str(node[1])
    return "".join(flat(x) if isinstance(x, tuple) and x else str(x) for x in node)
