"""Text of an answer to tokens: LaTeX, plain and Python-like mathematics alike. Linear in the text.

A token is (kind, text, value). Kinds: NUM, NAME (a symbol), FUNC, OP, REL, SEP, TEXT (words), CMD (a command with
arguments, such as \\frac), OPEN, CLOSE, BEGIN, END (environments), AND ("&"), ROW ("\\\\").
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from typing import Any, NamedTuple

from limen.verify import symbols as sy


class Token(NamedTuple):
    kind: str
    text: str
    value: Any = None


class Unreadable(ValueError):
    """The text is not of the grammar; another judge has to look at it."""


_INVISIBLE = dict.fromkeys(
    [0xAD, 0x34F, 0x61C, 0xFEFF, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070)]
)
_SUPER = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_SUB = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SUPER_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
_SUB_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_BRACED_GROUPS = re.compile(r"(?<=\{)[0-9]{1,3}(?:,[0-9]{3})+(?=\})")
_MODULES = re.compile(r"\b(?:np|numpy|math|sympy|sp)\.(?=[A-Za-z])")
_COLOURS = re.compile(r"\\(?:text)?color\s*\{[A-Za-z]{1,20}\}|\\[hv]?phantom\s*\{[^{}]*\}")
_THIN = re.compile(r"(?<=[0-9])(?:\\[,;: !]|\{,\}|,\\!|[\u2009\u202f\u00a0'~])\s{0,2}(?=[0-9]{3}(?![0-9]))")
_SPACED = re.compile(r"(?<![0-9.,/])[0-9]{1,3}(?: [0-9]{3})+(?![0-9/])")


def clean(text: str) -> str:
    """Unicode to one spelling: superscripts, signs, digits of other scripts, invisible characters."""
    if not text.isascii():
        text = text.translate(_INVISIBLE)
        text = _SUPER_RUN.sub(lambda m: "^{" + m.group().translate(_SUPER) + "}", text)
        text = _SUB_RUN.sub(lambda m: "_{" + m.group().translate(_SUB) + "}", text)
        text = "".join(sy.UNICODE.get(c, c) for c in text)
        text = "".join(_plain(c) if ord(c) > 127 else c for c in text)
    text = _MODULES.sub("", _COLOURS.sub("", text))
    text = _BRACED_GROUPS.sub(lambda m: m.group().replace(",", ""), text)
    text = _THIN.sub("", text)
    return _SPACED.sub(lambda m: m.group().replace(" ", ""), text)


def _plain(c: str) -> str:
    digit = unicodedata.digit(c, None)
    if digit is not None:
        return str(digit)
    if unicodedata.category(c) == "Zs":
        return " "
    return unicodedata.normalize("NFKC", c)


_TOKEN = re.compile(
    r"""(?P<space>(?:\s|~|\\[,;:!\ >]|\\(?:q?quad|displaystyle|textstyle|limits|left|right|[bB]igg?[lrm]?|phantom\{[^{}]*\})(?![A-Za-z]))+)
    |(?P<num>[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,5}(?![0-9A-Za-z.]))?|\.[0-9]+(?:[eE][-+]?[0-9]{1,5}(?![0-9A-Za-z.]))?)
    |(?P<text>\\(?:text|textrm|textbf|textit|mbox|mathrm|mathbf|mathit|mathsf|bm|boldsymbol|operatorname\*?|hbox|emph|textsf)\s*\{)
    |(?P<env>\\(?:begin|end)\s*\{(?P<envname>[A-Za-z]*)\*?\}(?:\{[clr|]*\})?)
    |(?P<row>\\\\(?:\[[0-9a-z.]*\])?|\\cr(?![A-Za-z]))
    |(?P<esc>\\[{}|%$\#&_])
    |(?P<cmd>\\[A-Za-z]+)
    |(?P<word>[A-Za-z]+)
    |(?P<op><=|>=|!=|==|\*\*|->|\.\.\.|[-+*/^_=<>(){}\[\]|!,;:%&'])""",  # noqa: E501
    re.VERBOSE,
)


def tokenize(text: str, limit: int, scientific: bool = True) -> list[Token]:
    """Tokens of a cleaned text. Raises `Unreadable` for what is not of the grammar, and beyond `limit` tokens.

    `scientific`: read 3e-5 as a number rather than as 3·e − 5.
    """
    tokens: list[Token] = []
    position, size = 0, len(text)
    while position < size:
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unreadable(f"character {text[position]!r}")
        if len(tokens) > limit:
            raise Unreadable("too long")
        kind, token, position = str(match.lastgroup), match.group(), match.end()
        if kind == "space":
            continue
        if kind == "num":
            position = _number(match, tokens, scientific)
        elif kind == "text":
            position = _wrapped(text, match, tokens)
        elif match["env"]:
            tokens.append(Token("BEGIN" if token[1] == "b" else "END", match["envname"]))
        elif kind == "row":
            tokens.append(Token("ROW", token))
        elif kind == "esc":
            tokens.append(_ESCAPED.get(token, Token("OP", token[1])))
        elif kind == "cmd":
            tokens.append(command(token[1:]))
        elif kind == "word":
            word(token, tokens)
        else:
            tokens.append(operator(token))
    return tokens


_ESCAPED = {"\\{": Token("OPEN", "\\{"), "\\}": Token("CLOSE", "\\}"), "\\|": Token("OP", "|")}
_OPEN, _CLOSE = {"(", "[", "{"}, {")", "]", "}"}


def _number(match: re.Match[str], tokens: list[Token], scientific: bool) -> int:
    """Add a number token. After \\frac and \\binom LaTeX takes one digit."""
    token, end = match.group(), match.end()
    if tokens and _takes_one_digit(tokens):
        token, end = token[0], match.start() + 1
    mantissa, _, exponent = token.lower().partition("e")
    if exponent and (not scientific or len(mantissa) > 400):
        end, exponent = match.start() + len(mantissa), ""
    if len(mantissa) > 4000:
        raise Unreadable("a number of too many digits")
    whole, _, fraction = mantissa.partition(".")
    value = Fraction(int((whole + fraction) or "0"), 10 ** len(fraction))
    if exponent:
        if abs(int(exponent)) > 5000:
            raise Unreadable("an exponent of too many digits")
        value *= Fraction(10) ** int(exponent)
    decimal = ("." in mantissa and bool(fraction)) or bool(exponent)
    tokens.append(Token("NUM", token[: end - match.start()], (value, len(fraction) if decimal else -1)))
    return end


def _takes_one_digit(tokens: list[Token]) -> bool:
    """True right behind \\frac, or behind \\frac and its first argument."""
    if tokens[-1].kind == "CMD" and tokens[-1].text in ("frac", "binom"):
        return True
    if len(tokens) >= 2 and tokens[-2].kind == "CMD" and tokens[-2].text in ("frac", "binom"):
        return tokens[-1].kind in ("NUM", "NAME")
    if tokens[-1].text != "}":
        return False
    depth = 0
    for i in range(len(tokens) - 1, max(-1, len(tokens) - 200), -1):
        depth += (tokens[i].text == "}") - (tokens[i].text == "{")
        if depth == 0:
            return i > 0 and tokens[i - 1].kind == "CMD" and tokens[i - 1].text in ("frac", "binom")
    return False


def _wrapped(text: str, match: re.Match[str], tokens: list[Token]) -> int:
    """\\text{...} and its like: a word, a unit, a separator, or plain mathematics in a wrapper."""
    depth, position = 1, match.end()
    while position < len(text) and depth:
        depth += (text[position] == "{") - (text[position] == "}")
        position += 1
    if depth:
        raise Unreadable("an open brace")
    inside = text[match.end() : position - 1].replace("~", " ").strip()
    bare = inside.strip(" .,;()")
    if bare.lower() in ("and", "or"):
        tokens.append(Token("SEP", bare.lower()))
    elif bare in sy.FUNCTIONS:
        tokens.append(Token("FUNC", sy.FUNCTIONS[bare]))
    elif not bare:
        tokens.extend([Token("SEP", ",")] if "," in inside else [])
    elif len(bare) == 1 and bare in _UNIT_LETTERS and _behind_value(tokens) and "rm{" in match.group().replace(" ", ""):
        tokens.append(Token("TEXT", bare))
    elif len(bare) == 1 and bare.isalpha() and "text" not in match.group() and "mbox" not in match.group():
        word(bare, tokens)
    elif re.search(r"[0-9\\^+=]", inside) and len(inside) < 400:
        tokens.extend([Token("OPEN", "{"), *tokenize(inside, 400), Token("CLOSE", "}")])
    else:
        tokens.append(Token("TEXT", bare))
    return position


_UNIT_LETTERS = set("mgshCFKLNJWVA")


def _behind_value(tokens: list[Token]) -> bool:
    """True behind a number or a degree sign: there an upright letter is a unit."""
    if not tokens:
        return False
    last = tokens[-1]
    if last.text == "}" and len(tokens) > 1:
        last = tokens[-2]
    return last.kind == "NUM" or last.text == "°"


def command(name: str) -> Token:
    """A backslash command."""
    if name in sy.ARGUMENTS:
        return Token("CMD", sy.ARGUMENTS[name])
    if name in sy.COMMAND_OPS:
        kind, text = sy.COMMAND_OPS[name]
        return Token(kind, text)
    if name in sy.FUNCTIONS:
        return Token("FUNC", sy.FUNCTIONS[name])
    if name in sy.GREEK or name in sy.LETTERLIKE:
        return Token("NAME", sy.LETTERLIKE.get(name, name))
    raise Unreadable(f"command \\{name}")


def word(text: str, tokens: list[Token]) -> None:
    """A run of letters: a function, a spelled-out symbol, a separator, words, or a product of letters."""
    lower = text.lower()
    if lower in ("and", "or"):
        tokens.append(Token("SEP", lower))
    elif lower in sy.FUNCTIONS and len(text) > 1:
        tokens.append(Token("FUNC", sy.FUNCTIONS[lower]))
    elif text in sy.SPELLED:
        tokens.append(Token("NAME", sy.SPELLED[text]))
    elif len(text) == 1:
        tokens.append(Token("NAME", text))
    elif len(text) >= 4 or lower in sy.WORDS:
        tokens.append(Token("TEXT", text))
    else:
        tokens.extend(Token("NAME", c) for c in text)


def operator(text: str) -> Token:
    if text in _OPEN:
        return Token("OPEN", text)
    if text in _CLOSE:
        return Token("CLOSE", text)
    if text in sy.RELATIONS:
        return Token("REL", sy.RELATIONS[text])
    if text in (",", ";"):
        return Token("SEP", ",")
    if text == "&":
        return Token("AND", "&")
    return Token("OP", "^" if text == "**" else text)
