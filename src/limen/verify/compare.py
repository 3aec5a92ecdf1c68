"""Are two answers the same? Structure by structure: values, tuples, sets, lists, intervals, matrices, relations.

Ordered and unordered are kept apart: a tuple never equals a set. `Result.same` is None where this cannot be told
here, and math-verify is asked in a worker.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from limen.verify import realset
from limen.verify.exact import Undecided, exact
from limen.verify.nodes import Node, children, is_number, is_scalar, walk
from limen.verify.policy import MathOptions
from limen.verify.reader import Reading
from limen.verify.relations import Assignment, equal_relations, is_polynomial, split_assignment
from limen.verify.scalars import Result, equal_values

_MOST_ITEMS = 64
_EMPTY_WORDS = {
    "no solution",
    "no solutions",
    "empty set",
    "the empty set",
    "none",
    "no real solutions",
    "no real solution",
}
_ALL_REALS = {"all real numbers", "all reals", "real numbers", "all real"}


def compare(gold: Reading, answer: Reading, policy: MathOptions) -> Result:
    """Compare what two texts say. Any pair of their readings that agrees will do."""
    if gold.text == answer.text and gold.text:
        return Result(True, "string")
    if gold.words is not None or answer.words is not None:
        return _words(gold, answer, policy)
    if not gold.readings or not answer.readings:
        return Result(None, "unread")
    results = [_guarded(g, a, policy) for g in gold.readings for a in answer.readings]
    for result in results:
        if result.same:
            return result
    undecided = [r for r in results if r.same is None]
    return undecided[0] if undecided else results[0]


def _guarded(gold: Node, answer: Node, policy: MathOptions) -> Result:
    try:
        return Comparer(policy).same(gold, answer)
    except Undecided as error:
        return Result(None, str(error) or "undecided")
    except RecursionError:
        return Result(None, "nested too deeply")


def _words(gold: Reading, answer: Reading, policy: MathOptions) -> Result:
    if gold.words is not None and answer.words is not None:
        if gold.words == answer.words or _folded(gold.words) == _folded(answer.words):
            return Result(True, "words")
        if sorted(_parts(gold.words)) == sorted(_parts(answer.words)):
            return Result(True, "words")
        if _meaning(gold.words) and _meaning(gold.words) == _meaning(answer.words):
            return Result(True, "words")
        long = max(len(gold.words.split()), len(answer.words.split())) > 4
        return Result(None if long else False, "prose" if long else "words")
    times = [_clock(x) for x in (gold, answer)]
    if times[0] is not None and times[1] is not None:
        return Result(times[0] == times[1] and policy.units == "optional", "time")
    words, other = (gold.words, answer) if gold.words is not None else (answer.words, gold)
    assert words is not None
    meaning = _meaning(words)
    if meaning is not None:
        results = [_guarded(meaning, node, policy) for node in other.readings]
        return next((r for r in results if r.same), Result(False if results else None, "words"))
    if not other.readings:
        return Result(None, "unread")
    for node in other.readings:
        if node in (("sym", words), ("text", words)):
            return Result(True, "words")
        if node[0] == "rel" and set(node[1]) == {"="} and node[2][-1][0] in ("text", "sym"):
            return Result(str(node[2][-1][1]).casefold() == words.casefold(), "words")
    return Result(None if len(words.split()) > 4 else False, "words")


def _parts(words: str) -> list[str]:
    """Monday and Friday: the words between commas and "and"."""
    return [x.strip() for x in re.split(r",|\band\b", words.casefold()) if x.strip()]


def _clock(reading: Reading) -> str | None:
    """The time of day that a text gives, without the half of the day."""
    if reading.words is not None:
        match = re.fullmatch(r"([0-9]{1,2}:[0-9]{2}) [ap]m", reading.words)
        return match[1] if match else None
    match = re.fullmatch(r"0?([0-9]{1,2}:[0-9]{2})", reading.text.replace(" ", ""))
    return match[1] if match else None


def _folded(words: str) -> str:
    return " ".join(w for w in words.casefold().split() if w not in ("the", "a", "an", ","))


def _meaning(words: str) -> Node | None:
    if words in _EMPTY_WORDS:
        return ("empty",)
    return ("sym", "mathbb(R)") if words in _ALL_REALS else None


class Comparer:
    def __init__(self, policy: MathOptions) -> None:
        self.policy = policy

    def same(self, gold: Node, answer: Node) -> Result:
        if gold == answer:
            return Result(True, "same form")
        if _has_sign_choice(gold) or _has_sign_choice(answer):
            return self._sign_choice(gold, answer)
        gold, answer = _without_domains(gold), _without_domains(answer)
        if gold[0] == "rel" or answer[0] == "rel":
            found = self._relations(gold, answer)
            if found is not None:
                return found
        if self.policy.intervals and (realset.is_setlike(gold) or realset.is_setlike(answer)):
            found = self._real_sets(gold, answer)
            if found is not None:
                return found
        if "mod" in (gold[0], answer[0]):
            return self._residues(gold, answer)
        if is_scalar(gold) and is_scalar(answer):
            return equal_values(gold, answer, self.policy)
        return self._collections(gold, answer)

    # -- relations and sets ----------------------------------------------------------------------------

    def _relations(self, gold: Node, answer: Node) -> Result | None:
        g, a = split_assignment(gold), split_assignment(answer)
        if self.policy.assignment and (g or a):
            found = self._assignments(gold, answer, g, a)
            if found is not None:
                return found
        if gold[0] == "rel" and answer[0] == "rel":
            found = self._real_sets(gold, answer) if self.policy.intervals else None
            return found or equal_relations(gold, answer, self)
        if is_scalar(gold) or is_scalar(answer):
            return Result(False, "a relation, not a value")
        return None

    def _assignments(self, gold: Node, answer: Node, g: Assignment | None, a: Assignment | None) -> Result | None:
        if g and a:
            if g.name == a.name or (g.function and a.function):
                return self._first_that_agrees(g.rename(a), a.values)
            relation = equal_relations(gold, answer, self)
            return relation if relation.same is not False else Result(False, "names differ")
        if g and (answer[0] not in ("rel", "list") or g.values[0][0] == "set"):
            sound = g.named or all(is_number(side) for side in gold[2])
            return self._first_that_agrees(g.values, [answer]) if sound else None
        if a and gold[0] != "rel":
            if a.named or (is_scalar(gold) and is_number(gold) and _names_a_value(answer[2][0])):
                return self._first_that_agrees([gold], a.values)
            return Result(False, "an equation, not a value") if gold[0] != "list" else None
        return None

    def _first_that_agrees(self, golds: Sequence[Node], answers: Sequence[Node]) -> Result:
        results = [self.same(g, a) for g in golds for a in answers]
        return next((r for r in results if r.same), results[0])

    def _real_sets(self, gold: Node, answer: Node) -> Result | None:
        """Intervals and inequalities over the reals; None where an end is no number."""
        a, b = realset.real_set(gold), realset.real_set(answer)
        if a is None or b is None:
            return None
        if a[1] and b[1] and a[1] != b[1]:
            return Result(False, "names differ")
        return Result(realset.equal(a[0], b[0]), "interval")

    def _residues(self, gold: Node, answer: Node) -> Result:
        """a mod n: the modulus counts where both give one."""
        (a, m), (b, n) = ((x[1], x[2]) if x[0] == "mod" else (x, None) for x in (gold, answer))
        if m is not None and n is not None:
            if self.same(m, n).same is not True:
                return Result(False, "modulus")
            quotient = exact(("div", ("sub", a, b), m))
            if quotient is not None:
                return Result(quotient.denominator == 1, "modulus")
        return Result(self.same(a, b).same, "modulus")

    # -- collections -----------------------------------------------------------------------------------

    def _collections(self, gold: Node, answer: Node) -> Result:
        kinds = (gold[0], answer[0])
        if "text" in kinds:
            return self._texts(gold, answer)
        if kinds == ("seq", "seq"):
            if len(gold[3]) == 2 and (gold[1], gold[2]) != (answer[1], answer[2]):
                return Result(False, "brackets")
            return self._ordered(gold[3], answer[3], "tuple")
        if set(kinds) == {"seq", "mat"} and self.policy.vector:
            return self._vector(gold, answer)
        if kinds == ("mat", "mat"):
            return self._matrices(gold, answer)
        if "ratio" in kinds:
            return self._ratios(gold, answer)
        if set(kinds) == {"list", "seq"}:
            return self._bare_tuple(gold, answer)
        if "seq" in kinds:
            other = answer if gold[0] == "seq" else gold
            return Result(False, "set against tuple" if other[0] == "set" else "tuple")
        if _SETS & set(kinds):
            return Result(None if set(kinds) <= _SETS or "rel" in kinds else False, "interval")
        if "rel" in kinds and "list" in kinds:
            return self._unordered(_items(gold), _items(answer))
        if "empty" in kinds:
            return Result(False, "empty set")
        if "mat" in kinds:
            return Result(False if kinds[0] != kinds[1] and "fn" not in kinds else None, "matrix")
        if set(kinds) <= {"list", "set"} | _VALUES and not any(_unknown(x) for x in (gold, answer)):
            if _is_assigned(gold) != _is_assigned(answer):
                return self._assigned(gold, answer)
            return self._unordered(_items(gold), _items(answer))
        return Result(None, "structure")

    def _assigned(self, gold: Node, answer: Node) -> Result:
        """x = 1, y = 2 against values without names: in the same order, and never as a set."""
        if "set" in (gold[0], answer[0]):
            return Result(False, "set against tuple")
        return self._ordered(_items(gold), _items(answer), "tuple")

    def _texts(self, gold: Node, answer: Node) -> Result:
        if gold[0] == answer[0] == "text":
            same = _folded(gold[1]) == _folded(answer[1])
            return Result(True if same else None if len(gold[1].split()) > 4 else False, "words")
        other = answer if gold[0] == "text" else gold
        return Result(None if other[0] in ("list", "rel") else False, "words")

    def _ordered(self, gold: Sequence[Node], answer: Sequence[Node], rule: str) -> Result:
        if len(gold) != len(answer):
            return Result(False, rule)
        undecided = False
        for g, a in zip(gold, answer, strict=True):
            result = self.same(g, a)
            if result.same is False:
                return Result(False, rule)
            undecided |= result.same is None
        return Result(None if undecided else True, rule)

    def _unordered(self, gold: Sequence[Node], answer: Sequence[Node]) -> Result:
        """As sets: every gold value has an equal among the answers, and the other way round."""
        if any(n == ("sym", "ldots") for x in (*gold, *answer) for n in walk(x)):
            return self._ordered(gold, answer, "list")
        if max(len(gold), len(answer)) > _MOST_ITEMS:
            return self._ordered(gold, answer, "list") if len(gold) == len(answer) else Result(False, "set")
        table = [[self.same(g, a).same for a in answer] for g in gold]
        rows = table + [list(column) for column in zip(*table, strict=True)]
        if all(any(cell is True for cell in row) for row in rows):
            return Result(True, "set")
        hopeless = any(all(cell is False for cell in row) for row in rows)
        return Result(False if hopeless else None, "set")

    def _bare_tuple(self, gold: Node, answer: Node) -> Result:
        bare, bracketed = (gold, answer) if gold[0] == "list" else (answer, gold)
        if not self.policy.bare_tuple or bare[2] == "or" or (bracketed[1], bracketed[2]) != ("(", ")"):
            return Result(False, "brackets")
        values = [split_assignment(x) for x in bare[1]]
        names = [x.name for x in values if x]
        if len(set(names)) != len(names):
            return Result(False, "set against tuple")  # x = 1, x = 2 are two values of one thing
        parts = [x.values[0] if x else node for x, node in zip(values, bare[1], strict=True)]
        first, second = (parts, bracketed[3]) if gold[0] == "list" else (bracketed[3], parts)
        return self._ordered(first, second, "tuple")

    def _vector(self, gold: Node, answer: Node) -> Result:
        matrix, row = (gold, answer) if gold[0] == "mat" else (answer, gold)
        rows = matrix[1]
        if len(rows) > 1 and len(rows[0]) > 1:
            return Result(False, "matrix")
        entries = rows[0] if len(rows) == 1 else tuple(r[0] for r in rows)
        first, second = (entries, row[3]) if gold[0] == "mat" else (row[3], entries)
        return self._ordered(first, second, "vector")

    def _matrices(self, gold: Node, answer: Node) -> Result:
        a, b = gold[1], answer[1]
        if len(a) != len(b) or len(a[0]) != len(b[0]):
            return Result(False, "matrix")
        return self._ordered([x for r in a for x in r], [x for r in b for x in r], "matrix")

    def _ratios(self, gold: Node, answer: Node) -> Result:
        if gold[0] == answer[0] == "ratio":
            if len(gold[1]) != len(answer[1]):
                return Result(False, "ratio")
            g, a = gold[1], answer[1]
            cross = [(("mul", g[0], a[i]), ("mul", g[i], a[0])) for i in range(1, len(g))]
            return self._ordered([x for x, _ in cross], [y for _, y in cross], "ratio")
        ratio, other = (gold, answer) if gold[0] == "ratio" else (answer, gold)
        if len(ratio[1]) != 2 or not is_scalar(other):
            return Result(False, "ratio")
        quotient = ("div", *ratio[1])
        pair = (quotient, other) if gold[0] == "ratio" else (other, quotient)
        return Result(equal_values(*pair, self.policy).same, "ratio")

    # -- plus-minus ------------------------------------------------------------------------------------

    def _sign_choice(self, gold: Node, answer: Node) -> Result:
        """±: the set of both values. Several signs go together, or (in another reading) apart."""
        results = []
        for together in (True, False):
            g, a = _expand(gold, together), _expand(answer, together)
            results.append(self.same(g, a))
        return next((r for r in results if r.same), results[0])


_SETS = {"cup", "cap", "minus"}
_VALUES = {"num", "sym", "const", "add", "sub", "mul", "div", "pow", "neg", "fn", "apply", "pct", "deg", "unit", "base"}


def _without_domains(node: Node) -> Node:
    """k\\pi, k ∈ ℤ: what the parameter runs through says nothing new beside the value."""
    if node[0] != "list":
        return node
    kept = tuple(x for x in node[1] if not (x[0] == "rel" and x[1] == ("in",) and x[2][1] in _DOMAINS))
    return node if len(kept) in (0, len(node[1])) else kept[0] if len(kept) == 1 else ("list", kept, node[2])


_DOMAINS = [("sym", f"mathbb({x})") for x in ("Z", "N", "R", "Q", "C")] + [("sym", "Z"), ("sym", "N")]


def _names_a_value(left: Node) -> bool:
    """a + b + c = 12 names a value; 1/8 + 1/x = 1/2 is there to be solved."""
    return is_scalar(left) and (is_number(left) or is_polynomial(left))


def _is_assigned(node: Node) -> bool:
    """True for x = 1, y = 2: values of different unknowns."""
    parts = [split_assignment(x) for x in _items(node)]
    found = [p.name for p in parts if p and p.named]
    return 1 < len(found) == len(parts) == len(set(found))


def _items(node: Node) -> Sequence[Node]:
    return node[1] if node[0] in ("list", "set") else (node,)


def _unknown(node: Node) -> bool:
    """A list with words in it is prose that this grammar did not understand."""
    return node[0] == "list" and any(x[0] == "text" for x in node[1]) and not all(x[0] == "text" for x in node[1])


def _has_sign_choice(node: Node) -> bool:
    return any(n[0] == "pm" for n in walk(node))


def _expand(node: Node, together: bool) -> Node:
    """The node with each ± resolved: a list of alternatives, flattened into the collection around it."""
    if not _has_sign_choice(node):
        return node
    if node[0] in ("list", "set"):
        items: list[Node] = []
        for item in node[1]:
            expanded = _expand(item, together)
            items.extend(expanded[1] if expanded[0] == "list" else (expanded,))
        return (node[0], tuple(items), *node[2:])
    if node[0] == "rel":
        last = _expand(node[2][-1], together)
        if last[0] == "list" and not any(_has_sign_choice(s) for s in node[2][:-1]):
            return ("list", tuple(("rel", node[1], (*node[2][:-1], x)) for x in last[1]), ",")
    count = 1 if together else sum(1 for n in walk(node) if n[0] == "pm")
    if count > 4:
        raise Undecided("too many signs")
    variants = []
    for choice in range(2**count):
        variants.append(_resolve(node, choice, together, [0]))
    return ("list", tuple(dict.fromkeys(variants)), ",")


def _resolve(node: Node, choice: int, together: bool, seen: list[int]) -> Node:
    if node[0] == "pm":
        bit = choice & 1 if together else (choice >> seen[0]) & 1
        seen[0] += 1
        plus = (bit == 0) == (node[3] == "±")
        right = _resolve(node[2], choice, together, seen)
        if node[1] is None:
            return right if plus else ("neg", right)
        return ("add" if plus else "sub", _resolve(node[1], choice, together, seen), right)
    if not any(True for _ in children(node)):
        return node
    return tuple(_part(p, choice, together, seen) for p in node)


def _part(part: object, choice: int, together: bool, seen: list[int]) -> object:
    if isinstance(part, tuple) and part:
        if isinstance(part[0], str) and part[0].isalpha() and len(part) > 1:
            return _resolve(part, choice, together, seen)
        if isinstance(part[0], tuple):
            return tuple(_part(p, choice, together, seen) for p in part)
    return part
