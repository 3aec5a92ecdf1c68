"""A piece of text to what it says: a tree, or plain words, or nothing that this grammar can read."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from limen.verify.lexer import Unreadable, clean, tokenize
from limen.verify.nodes import Node
from limen.verify.parser import Parser

QUICK_TOKENS = 160
QUICK_CHARS = 800
SLOW_TOKENS = 6_000
SLOW_CHARS = 60_000

_DELIMITERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("__", "__"), ("`", "`"))
_TIME = re.compile(
    r"([0-9]{1,2})(?:\s*:\s*([0-9]{2}))?\s*(?:\\text\{|\\mathrm\{|\\,|~|\\ |\s)*([ap])\.?\s?m?\.{0,2}\}?", re.IGNORECASE
)
_WORDS_ONLY = re.compile(r"[A-Za-z][A-Za-z .,'’-]*")
_LEAD = re.compile(
    r"(?:\\text\s*\{\s*)?(?:the\s+)?(?:final\s+)?answer(?:\s+is|\s*:|\s+is\s*:)\s*(?:\}|(?=[-0-9\\$(\[]))",
    re.IGNORECASE,
)
_STRIP_TEXT = re.compile(r"\\(?:text|textbf|textrm|textit|mbox|mathrm|mathbf|boxed|emph|operatorname)\s*\{([^{}]*)\}")
_CHOICE = re.compile(r"\(?\s*([A-Za-z])\s*[).:]?")
_COMMA_GROUPS = re.compile(r"(?:\\?\$)?\s*[-+]?\s*[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?(?=[^0-9,]*$)")
_SCIENTIFIC = re.compile(r"[0-9][eE][-+][0-9]")


class Reading(NamedTuple):
    """`readings`: trees, the likeliest first (several where a spelling is ambiguous: 1,234 and 3e-5). `words`:
    plain words, folded, where there is no formula. `text`: the cleaned text."""

    text: str
    readings: tuple[Node, ...]
    words: str | None
    too_long: bool = False


def strip(text: str) -> str:
    """Without delimiters, emphasis, enclosing boxes and a full stop at the end."""
    before = None
    text = text.strip()
    while text != before:
        before = text
        for left, right in _DELIMITERS:
            if text.startswith(left) and text.endswith(right) and len(text) > len(left) + len(right):
                inside = text[len(left) : -len(right)]
                if left not in inside or left == "\\(":
                    text = inside.strip()
        if text.startswith(("\\boxed{", "\\fbox{")) and text.endswith("}") and _encloses(text):
            text = text[text.index("{") + 1 : -1].strip()
        lead = _LEAD.match(text)
        if lead and lead.end() < len(text):
            text = text[lead.end() :].strip()
        if text.endswith((".", ",", ";", "\\")) and not text.endswith("..") and len(text) > 1:
            text = text[:-1].rstrip()
    return text


def _encloses(text: str) -> bool:
    depth = 0
    for i in range(text.index("{"), len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i == len(text) - 1
    return False


@lru_cache(maxsize=8192)
def read(text: str, quick: bool = True) -> Reading:
    """What an answer says. `quick` bounds the work to what may run in the caller's process."""
    limit = QUICK_TOKENS if quick else SLOW_TOKENS
    if len(text) > (QUICK_CHARS if quick else SLOW_CHARS):
        return Reading(" ".join(text.split()), (), None, True)
    stripped = strip(text)
    words = _words(stripped)
    if words is not None:
        return Reading(stripped, (), words)
    cleaned = clean(stripped.replace("\\(", " ").replace("\\)", " "))
    cleaned = cleaned.replace("\\$", "\\dollar ").replace("$", " ")
    readings: list[Node] = []
    for variant, scientific in _variants(cleaned):
        try:
            node = Parser(tokenize(variant, limit, scientific)).whole()
        except Unreadable as error:
            if str(error) == "too long":
                return Reading(cleaned, (), None, True)
            continue
        except RecursionError:
            continue
        if node not in readings:
            readings.append(node)
    return Reading(" ".join(cleaned.split()), tuple(readings), None)


def _variants(text: str) -> list[tuple[str, bool]]:
    """Ways to take an ambiguous spelling."""
    found: list[tuple[str, bool]] = []
    match = _COMMA_GROUPS.match(text)
    if match:
        found.append((match.group().replace(",", "") + text[match.end() :], True))
    found.append((text, True))
    if _SCIENTIFIC.search(text):
        found.append((text, False))
    return found


def _words(text: str) -> str | None:
    """Plain words, folded; a time of day; None for a formula."""
    match = _TIME.fullmatch(text)
    if match and (match[2] or match.group().rstrip(".} ").lower().endswith("m")):
        return f"{int(match[1])}:{match[2] or '00'} {match[3].lower()}m"
    bare = _STRIP_TEXT.sub(r"\1", _STRIP_TEXT.sub(r"\1", text)).replace("~", " ").strip()
    choice = _CHOICE.fullmatch(bare)
    if choice and (len(bare) > 1 or bare != text) and "\\" not in bare:
        return choice[1]
    if not _WORDS_ONLY.fullmatch(bare):
        return None
    letters = bare.strip(" .,")
    if len(letters) == 1:
        return None if bare == text else letters
    from limen.verify.symbols import FUNCTIONS, GREEK, SPELLED, WORDS

    runs = re.findall(r"[A-Za-z]+", letters)
    if any((len(r) >= 3 or r.lower() in WORDS) and r not in GREEK and r not in SPELLED and r.lower() not in FUNCTIONS
           for r in runs):  # fmt: skip
        return " ".join(r if len(r) == 1 else r.casefold() for r in re.findall(r"[A-Za-z]+|,", letters))
    return None if bare == text else " ".join(runs)
