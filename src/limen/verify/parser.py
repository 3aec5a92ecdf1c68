"""Tokens to a tree. A small grammar of final answers; what is not of it raises `Unreadable`.

Nodes are described in `limen.verify.nodes`.
"""

from __future__ import annotations

from limen.verify.lexer import Unreadable
from limen.verify.nodes import Node, is_number
from limen.verify.primaries import Primaries, flat, symbol
from limen.verify.stream import END


class Parser(Primaries):
    # -- lists and relations ---------------------------------------------------------------------------

    def whole(self) -> Node:
        node = self.items()
        if self.next is not END:
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
        self.deeper()
        sides: list[Node] = []
        operators: list[str] = []
        if self.next.kind == "REL":
            operator = self.take().text
            if operator not in ("=", "~"):  # "> 5" is a statement about something; "= 5" is 5
                operators, sides = [operator], [ANYTHING]
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
        parts = [self.over()]
        while self.is_op(":") and not self.in_set:
            self.take()
            parts.append(self.over())
        return parts[0] if len(parts) == 1 else ("ratio", tuple(parts))

    def over(self) -> Node:
        """a \\over b and n \\choose k, which take all that stands before and behind them in their group."""
        node = self.sum()
        if self.is_at("CMD", "over"):
            self.take()
            return ("div", node, self.sum())
        if self.is_at("CMD", "choose"):
            self.take()
            return ("fn", "binom", (node, self.sum()))
        if self.is_at("CMD", "mod"):
            self.take()
            return ("mod", node, self.argument())
        return node

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
            if right[0] == "set" and sign == "-":
                node = ("minus", node, right)
                continue
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
            self.deeper()
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
            return token.text not in ("mod", "over", "choose")
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
                words[-1] += "^" + flat(self.argument())
            elif self.is_op("/", "*") and self.tokens[self.at + 1 : self.at + 2] and self._unit_follows():
                words.append(self.take().text)
            else:
                break
        if self.next.kind not in ("EOF", "SEP", "CLOSE", "REL", "AND", "ROW", "END"):
            raise Unreadable("a formula behind words")
        if node[0] == "unit" or not is_number(node) or not _may_be_unit(" ".join(words)):
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
                    power = self.exponent()
                    node = node if power in _ORDINALS else ("pow", node, power)
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
        while self.is_at("OPEN", "{"):
            self.take()
            braces += 1
        sign = self.next.text if self.is_op("°", "'") else ""
        while sign and self.is_op(sign):
            self.take()
        for _ in range(braces if sign else 0):
            if not self.is_at("CLOSE", "}"):
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
        self.deeper()
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
            return symbol(token.text)
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
            return ("sym", f"{node[1]}_{self.index()}")
        if node[0] == "const":
            return ("sym", f"{node[1]}_{self.index()}")
        raise Unreadable("a subscript on a formula")

    def index(self) -> str:
        """Text of a subscript, whatever stands in it."""
        if not self.is_at("OPEN", "{"):
            return flat(self.argument())
        self.take()
        texts: list[str] = []
        while not self.is_at("CLOSE", "}"):
            if self.next is END or self.next.text == "{":
                raise Unreadable("a subscript without an end")
            texts.append(self.take().text)
        self.take()
        return "".join(texts)

    def base(self) -> int:
        node = self.argument()
        if node[0] == "num" and node[1].denominator == 1 and 2 <= node[1] <= 36:
            return int(node[1])
        words = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
        if node[0] == "text" and node[1].lower() in words:
            return words[node[1].lower()]
        raise Unreadable("a base that is no number")


ANYTHING: Node = ("sym", "?")
"""The left side that "> 5" leaves out."""
_ORDINALS = [("text", x) for x in ("st", "nd", "rd", "th")]
_DOUBTS = "is are not no or if when but wrong incorrect maybe perhaps false except than less more least most about"
_NO_UNITS = frozenset(_DOUBTS.split())


def _may_be_unit(words: str) -> bool:
    """Up to three words that say what is counted, and nothing about whether it is so."""
    parts = words.lower().split()
    return len(parts) <= 4 and not _NO_UNITS & set(parts)
