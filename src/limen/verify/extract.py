"""Where the final answer stands in a response. Only the response is read, all of it, in linear time.

Order: the last box that closes; a tag `<answer>`; GSM8K's `####`; a phrase ("the answer is ..."); the whole of a
one-line response, or a last line that is nothing but an answer. What is found is not yet normalised.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from limen.verify.base import Extraction

_BOX_COMMAND = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])")
_BOX_TOKENS = re.compile(_BOX_COMMAND.pattern + r"|\\[\\{}]|\{+|\}+")
_BOX_BARE = re.compile(r"\s*([^\s{}$\\.,]+|\\[A-Za-z]+)")
_HASHES = re.compile(r"^[ \t>*]{0,8}####+[ \t]*(.*)$", re.MULTILINE)
_PHRASE = re.compile(
    r"\b(?:final\s{1,3}|correct\s{1,3}|my\s{1,3})?(?:answer|solution|result)\b"
    r"(?:\s{0,3}\*{2,3})?(?:\s{1,3}(?:to|of|for)\s[^\n.:=$]{1,60})?"
    r"(?:\s{0,3}\*{2,3})?(?:\s{1,3}(?:is|are|equals|will\s{1,3}be|would\s{1,3}be)\b\s{0,3}:?|\s{0,3}[:=]|(?<=\*\*)\s{0,3}\n)"
    r"(?:\s{0,3}\*{2,3})?",
    re.IGNORECASE,
)
_LETTER_PHRASE = re.compile(r"^[ \t]*(?:A|Ans|Answer)[ \t]*:", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?]\**(?=\s+[A-Z(]|\s*$)|\n")
_ONE_LINE = 400
JOIN = "\x1f"
"""Between the parts of an answer that stood in several boxes."""
_PROSE = re.compile(r"(?:\b[A-Za-z]{2,}\b[ ,]+){4,}")
_LONG_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_MATHY = re.compile(r"^(?:[A-Za-z]\w{0,3}\s*=|[-+(\[{$\\\d.])")


class Box(NamedTuple):
    """A closed box: where it begins and ends in the text, and what it holds."""

    start: int
    end: int
    content: str


def boxes(text: str) -> list[Box]:
    """All closed, non-empty boxes that are in no other box, in order. Braces are balanced, `\\{` is no brace."""
    found: list[Box] = []
    opened: list[tuple[int, int, int]] = []
    depth, expect, expect_end = 0, -1, -1
    first = _BOX_COMMAND.search(text)
    for match in _BOX_TOKENS.finditer(text, first.start()) if first else ():
        token = match.group()
        if token[0] == "{":
            if expect >= 0 and not text[expect_end : match.start()].strip():
                opened.append((expect, match.start() + 1, depth))
            depth, expect = depth + len(token), -1
        elif token[0] == "}":
            after, expect = max(0, depth - len(token)), -1
            while opened and opened[-1][2] >= after:
                start, inside, outside = opened.pop()
                end = match.start() + depth - outside
                while found and found[-1].start > start:
                    found.pop()
                found.append(Box(start, end, text[inside : end - 1]))
            depth = after
        elif len(token) > 2:
            expect, expect_end = match.start(), match.end()
            bare = _BOX_BARE.match(text, match.end(), match.end() + 80)
            if bare:
                found.append(Box(match.start(), bare.end(), bare.group(1)))
    return [box for box in found if box.content.strip()]


def last_box(text: str) -> str | None:
    """Content of the last box."""
    found = boxes(text)
    return found[-1].content.strip() if found else None


def adjacent(text: str, found: list[Box]) -> list[str]:
    """Contents of the last boxes that only "and", "or", commas, `$` and space stand between."""
    group: list[str] = []
    for i in range(len(found) - 1, -1, -1):
        if i + 1 < len(found):
            between = text[found[i].end : found[i + 1].start]
            if len(between) > 60 or not _BETWEEN.fullmatch(between):
                break
        group.append(found[i].content.strip())
        if len(group) > _MOST_BOXES:
            break
    return group[::-1]


_MOST_BOXES = 64
_BETWEEN = re.compile(r"(?:\s|[$,;]|\\[()\[\],; ]|\\quad|\\text\{|\}|and|or|[A-Za-z]\w?\s*=)*")


def tagged(text: str) -> str | None:
    """Content of the last `<answer>...</answer>`."""
    folded = text.lower() if "<ANSWER>" in text or "<Answer>" in text else text
    end = folded.rfind("</answer>")
    start = folded.rfind("<answer>", 0, end) if end >= 0 else -1
    return text[start + len("<answer>") : end].strip() if start >= 0 else None


def hashed(text: str) -> str | None:
    found = None
    for match in _HASHES.finditer(text):
        if match.group(1).strip():
            found = match
    return found.group(1).strip() if found else None


def phrased(text: str) -> str | None:
    """What follows the last "the answer is", up to the end of the sentence."""
    end = -1
    for pattern in (_PHRASE, _LETTER_PHRASE):
        for match in pattern.finditer(text):
            end = max(end, match.end())
    if end < 0:
        return None
    rest = text[end : end + 2000].lstrip(" \t\n*:")
    stop = _SENTENCE_END.search(rest)
    rest = rest[: stop.start()] if stop else rest
    return rest.strip(" \t*") or None


def bare(text: str) -> str | None:
    """A response of one line, or a last line that is an answer and not prose."""
    text = text.strip()
    if not text or _BOX_COMMAND.search(text, max(0, len(text) - _ONE_LINE)):
        return None  # a box that is empty or never closes is no answer
    if "\n" not in text:
        return text if len(text) <= _ONE_LINE and not _PROSE.search(text) else None
    line = text[text.rfind("\n") + 1 :].strip(" \t*")
    if 0 < len(line) <= _ONE_LINE and not _PROSE.search(line):
        formula = "=" in line and not _LONG_WORD.search(line)
        return line if formula or _MATHY.match(line) else None
    return None


def final_answer(text: str, box: str = "last", where: str = "any", join: bool = False) -> Extraction:
    """The final answer of a response.

    `box`: which box counts, "last" or "first". `where`: "boxed" takes boxes only, "marked" boxes, tags, `####` and
    phrases, "any" also a bare answer. `join`: the last boxes that stand side by side, with `JOIN` between them.
    """
    found = boxes(text)
    if found:
        group = adjacent(text, found) if join and box == "last" else []
        if len(group) > 1:
            return Extraction(JOIN.join(group), "boxes")
        return Extraction(found[0 if box == "first" else -1].content.strip(), "box")
    if where != "boxed":
        for rule, look in (("tag", tagged), ("hashes", hashed), ("phrase", phrased)):
            answer = look(text)
            if answer:
                return Extraction(answer, rule)
    if where == "any":
        answer = bare(text)
        if answer:
            return Extraction(answer, "bare")
    return Extraction(None, "no box" if where == "boxed" else "no answer found")
