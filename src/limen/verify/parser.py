"""Tokens to a tree. A small grammar of final answers; what is not of it raises `Unreadable`.

Nodes are described in `limen.verify.nodes`.
"""

from __future__ import annotations

from fractions import Fraction

from limen.verify.functions import parse_function
from limen.verify.lexer import Token, Unreadable
from limen.verify.nodes import Node, is_number

MAX_DEPTH = 48
_END = Token("EOF", "")
_CONSTANTS = {"pi": ("const", "pi"), "e": ("const", "e"), "i": ("const", "i"), "oo": ("const", "oo"), "∅": ("empty",)}
_DECORATIONS = ("bar", "hat", "vec", "dot", "ddot", "tilde", "mathcal")


class Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0

    # -- reading tokens --------------------------------------------------------------------------------

    @property
    def next(self) -> Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else _END

    def take(self) -> Token:
        token = self.next
        self.at += 1
        return token

    def is_op(self, *texts: str) -> bool:
        return self.next.kind == "OP" and self.next.text in texts

    def expect(self, kind: str, *texts: str) -> Token:
        token = self.take()
        if token.kind != kind or (texts and token.text not in texts):
            raise Unreadable(f"{token.text or 'end'!r} where {texts or kind} should be")
        return token

    # -- lists and relations ---------------------------------------------------------------------------

    def whole(self) -> Node:
        node = self.items()
        if self.next is not _END:
            raise Unreadable(f"unexpected {self.next.text!r}")
        return node

    def items(self) -> Node:
        """One item, or a list of them."""
        found = [self.relation()]
        separator = ""
        while self.next.kind == "SEP":
            while self.next.kind == "SEP":
                text = self.take().text
                separator = text if separator in ("", ",") else separator
            if self.next.kind in ("EOF", "CLOSE"):
                break
            found.append(self.relation())
        return found[0] if len(found) == 1 else ("list", tuple(found), separator)

    def relation(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        sides, operators = [], []
        if self.next.kind == "REL" and self.next.text in ("=", "~"):
            self.take()  # "= 5"
        sides.append(self.union())
        while self.next.kind == "REL":
            operators.append(self.take().text)
            sides.append(self.union())
        self.depth -= 1
        return ("rel", tuple(operators), tuple(sides)) if operators else sides[0]

    def union(self) -> Node:
        node = self.ratio()
        names = {"∪": "cup", "∩": "cap", "∖": "minus"}
        while self.is_op(*names):
            node = (names[self.take().text], node, self.ratio())
        return node

    def ratio(self) -> Node:
        parts = [self.sum()]
        while self.is_op(":"):
            self.take()
            parts.append(self.sum())
        return parts[0] if len(parts) == 1 else ("ratio", tuple(parts))

    # -- arithmetic ------------------------------------------------------------------------------------

    def sum(self) -> Node:
        self.skip_currency()
        if self.is_op("±", "∓"):
            sign = self.take().text
            node: Node = ("pm", None, self.product(), sign)
        else:
            node = self.product()
        while self.is_op("+", "-", "±", "∓"):
            sign = self.take().text
            right = self.product()
            node = ("pm", node, right, sign) if sign in "±∓" else ("add" if sign == "+" else "sub", node, right)
        return node

    def product(self) -> Node:
        node = self.unary()
        while True:
            if self.is_op("*", "/"):
                kind = "mul" if self.take().text == "*" else "div"
                node = (kind, node, self.unary())
            elif self.next.kind == "TEXT" and node[0] != "text":
                return self.unit(node)
            elif self.starts_factor():
                if node[0] in ("text", "seq", "set", "list"):
                    raise Unreadable("words in the middle of a formula")
                node = ("mul", node, self.power())
            else:
                return node

    def unary(self) -> Node:
        if self.is_op("-", "+"):
            sign = self.take().text
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise Unreadable("nested too deeply")
            node = self.unary()
            self.depth -= 1
            return ("neg", node) if sign == "-" else node
        if self.is_op("±", "∓"):
            sign = self.take().text
            return ("pm", None, self.unary(), sign)
        self.skip_currency()
        return self.power()

    def starts_factor(self) -> bool:
        token = self.next
        if token.kind in ("NAME", "FUNC", "BEGIN"):
            return True
        if token.kind == "CMD":
            return token.text not in ("mod",)
        if token.kind == "OPEN":
            return token.text != "\\{"
        if token.kind == "NUM":
            previous = self.tokens[self.at - 1]
            return previous.kind != "NUM"
        return self.is_op("|") and self.bars == 0

    def skip_currency(self) -> None:
        while self.is_op("$"):
            self.take()

    def unit(self, node: Node) -> Node:
        """Words behind a value, with powers and quotients: cm^2, miles per hour."""
        words: list[str] = []
        while True:
            if self.next.kind == "TEXT":
                words.append(self.take().text)
            elif self.is_op("^") and words:
                self.take()
                words[-1] += "^" + _flat(self.argument())
            elif self.is_op("/", "*") and self.tokens[self.at + 1 : self.at + 2] and self._unit_follows():
                words.append(self.take().text)
            else:
                break
        if self.next.kind not in ("EOF", "SEP", "CLOSE", "REL", "AND", "ROW", "END"):
            raise Unreadable("a formula behind words")
        if node[0] == "unit" or not is_number(node):
            raise Unreadable("words behind a formula")
        return ("unit", node, " ".join(words))

    def _unit_follows(self) -> bool:
        return self.tokens[self.at + 1].kind == "TEXT"

    def power(self) -> Node:
        return self.postfix(self.primary())

    def postfix(self, node: Node) -> Node:
        while True:
            if self.is_op("^"):
                self.take()
                mark = self.mark()
                if mark == "°":
                    node = ("deg", node)
                elif mark == "'":
                    node = self.primed(node)
                else:
                    node = ("pow", node, self.exponent())
            elif self.is_op("!"):
                self.take()
                if self.is_op("!"):
                    raise Unreadable("double factorial")
                node = ("fn", "factorial", (node,))
            elif self.is_op("%"):
                self.take()
                node = ("pct", node)
            elif self.is_op("°"):
                self.take()
                node = ("deg", node)
            elif self.is_op("'"):
                self.take()
                node = self.primed(node)
            elif self.is_op("_"):
                self.take()
                node = self.subscript(node)
            elif self.is_op("$"):
                self.take()
            else:
                return node

    def mark(self) -> str:
        """Consume an exponent that is only a degree sign or primes, and say which."""
        start = self.at
        braces = 0
        while self.next == ("OPEN", "{", None):
            self.take()
            braces += 1
        sign = self.next.text if self.is_op("°", "'") else ""
        while sign and self.is_op(sign):
            self.take()
        for _ in range(braces if sign else 0):
            if self.next != ("CLOSE", "}", None):
                sign = ""
                break
            self.take()
        if not sign:
            self.at = start
        return sign

    def primed(self, node: Node) -> Node:
        if node[0] == "sym":
            return ("sym", node[1] + "'")
        raise Unreadable("a prime on a formula")

    def exponent(self) -> Node:
        if self.is_op("-", "+"):
            sign = self.take().text
            inner = self.exponent()
            return ("neg", inner) if sign == "-" else inner
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        # a number here is not the whole part of a mixed one: x^2 \\frac12
        node = ("num", *self.take().value) if self.next.kind == "NUM" else self.primary()
        if self.is_op("^"):
            self.take()
            node = ("pow", node, self.exponent())
        self.depth -= 1
        return node

    def argument(self) -> Node:
        """A braced group, or one token."""
        if self.is_op("-"):
            self.take()
            return ("neg", self.argument())
        token = self.next
        if token.kind == "NAME":
            self.take()
            return _symbol(token.text)
        if token.kind in ("TEXT", "FUNC"):
            self.take()
            return ("text", token.text)
        if token.kind == "NUM":
            self.take()
            return ("num", *token.value)
        return self.primary()

    def subscript(self, node: Node) -> Node:
        if node[0] == "num" and node[2] == -1:
            return ("base", str(node[1]), self.base())
        if node[0] == "sym":
            return ("sym", f"{node[1]}_{_flat(self.argument())}")
        if node[0] == "const":
            return ("sym", f"{node[1]}_{_flat(self.argument())}")
        raise Unreadable("a subscript on a formula")

    def base(self) -> int:
        node = self.argument()
        if node[0] == "num" and node[1].denominator == 1 and 2 <= node[1] <= 36:
            return int(node[1])
        words = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
        if node[0] == "text" and node[1].lower() in words:
            return words[node[1].lower()]
        raise Unreadable("a base that is no number")

    # -- primaries -------------------------------------------------------------------------------------

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
            return _symbol(text)
        return ("text", text)

    def number(self, token: Token) -> Node:
        value, decimals = token.value
        node: Node = ("num", value, decimals)
        if decimals >= 0 or "." in token.text:
            if self.next == ("CMD", "overline", None) and "." in token.text:
                self.take()
                return self.repeating(value, decimals)
            return node
        mixed = self.mixed(value)
        return mixed or node

    def repeating(self, value: Fraction, decimals: int) -> Node:
        """0.1\\overline{6}"""
        digits = _flat(self.primary())
        if not digits.isdigit():
            raise Unreadable("a bar over a formula")
        places = max(decimals, 0)
        period = Fraction(int(digits), (10 ** len(digits) - 1) * 10**places)
        return ("num", value + period, -1)

    def mixed(self, whole: Fraction) -> Node | None:
        """2\\frac{1}{3} and 2 1/3 are sums; a product would be written otherwise."""
        start = self.at
        if self.next == ("CMD", "frac", None):
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
        if text == "":  # np.arcsin: the module's name falls away
            if self.next.kind == "OP" and self.next.text == ".":
                self.take()
            return self.primary()
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
        if self.next == ("OPEN", "(", None):
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
            return ("sym", f"{name}({_flat(self.argument())})")
        if name == "mathbb":
            return ("sym", f"mathbb({_flat(self.argument())})")
        if name in ("group", "skip"):
            return self.primary()
        if name == "ldots":
            return ("sym", "ldots")
        if name == "overline":
            return ("sym", f"overline({_flat(self.argument())})")
        raise Unreadable(f"command {name}")

    def root(self) -> Node:
        index: Node = ("num", Fraction(2), -1)
        if self.next == ("OPEN", "[", None):
            self.take()
            index = self.sum()
            self.expect("CLOSE", "]")
        inside = self.argument()
        return ("fn", "root", (inside, index))

    def bracket(self, opening: str) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        bars, self.bars = self.bars, 0
        if self.next.kind == "CLOSE":
            close = self.take().text
            if opening == "\\{" and close == "\\}":
                self.depth, self.bars = self.depth - 1, bars
                return ("empty",)
            raise Unreadable("empty brackets")
        node = self.items()
        close = self.expect("CLOSE").text
        self.depth, self.bars = self.depth - 1, bars
        return _bracketed(opening, close, node)

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


def _symbol(name: str) -> Node:
    return _CONSTANTS.get(name, ("sym", name))


def _is_int(node: Node) -> bool:
    return bool(node[0] == "num" and node[2] == -1 and node[1].denominator == 1)


def _flat(node: Node) -> str:
    """Text of a subscript or an argument of a decoration."""
    if node[0] == "num":
        return str(node[1])
    if node[0] in ("sym", "const", "text"):
        return str(node[1])
    return "".join(_flat(x) if isinstance(x, tuple) and x else str(x) for x in node)
