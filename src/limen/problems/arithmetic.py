"""Small arithmetic, the problems of the tiny base model.

A problem is six characters, two zero-padded operands and an equals sign: `57*08=`. Its answer is written units
first (`57*08=` -> `654`), the order in which carries are worked out, so that a small decoder can learn it.

Families: `add` (two digits plus two digits), `mul21` (two digits times one), `mul22` (two digits times two).
The split is a property of the family, not of a seed: problems are ordered by a hash of the *unordered* pair of
operands, the first 100 are held out, and a held-out `38+57=` keeps `57+38=` out of training too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from limen.errors import DataError
from limen.types import Problem, content_hash

Split = Literal["train", "test"]

TEST_SIZE = 100
TRAIN_SIZES = {"add": 3400, "mul21": 550, "mul22": 3400}
TRAIN_SHARES = {"add": 0.4, "mul21": 0.3, "mul22": 0.3}
"""Share of each family in a training batch of the base model (the families differ in size)."""

FAMILIES = tuple(TRAIN_SIZES)
PROMPT_LENGTH = 6
ANSWER_LENGTH = 4
"""Longest answer in digits: 99*99 = 9801."""


def arithmetic_problems(
    families: tuple[str, ...] = FAMILIES, split: Split = "test", size: int | None = None
) -> list[Problem]:
    """Problems of the split, family by family; with `size`, that many in all, as evenly as the families allow.

    Ids are `add-57+38`: readable, and the same everywhere.
    """
    for family in families:
        if family not in TRAIN_SIZES:
            raise DataError(f"unknown arithmetic family {family!r}: expected some of {', '.join(FAMILIES)}")
    if split not in ("train", "test"):
        raise DataError(f"unknown split {split!r} of arithmetic problems: expected 'train' or 'test'")
    pools = [_split(family)[split] for family in families]
    if size is not None:
        total = sum(len(p) for p in pools)
        if not 0 < size <= total:
            raise DataError(f"arithmetic has {total} {split} problems of {', '.join(families)}, not {size}")
        pools = _take_evenly(pools, size)
    return [p for pool in pools for p in pool]


def _take_evenly(pools: list[list[Problem]], size: int) -> list[list[Problem]]:
    counts = [0] * len(pools)
    while sum(counts) < size:
        for i, pool in enumerate(pools):
            if counts[i] < len(pool) and sum(counts) < size:
                counts[i] += 1
    return [pool[:n] for pool, n in zip(pools, counts, strict=True)]


def _split(family: str) -> dict[str, list[Problem]]:
    """Test: the first `TEST_SIZE` of the ordering; train: what follows, without commuted test problems."""
    ordered = sorted(_operands(family), key=lambda ab: (content_hash([family, *sorted(ab)]), ab))
    test = ordered[:TEST_SIZE]
    held_out = {tuple(sorted(ab)) for ab in test}
    rest = [ab for ab in ordered[TEST_SIZE:] if tuple(sorted(ab)) not in held_out]
    train = rest[: TRAIN_SIZES[family]]
    return {
        "test": [_problem(family, a, b) for a, b in test],
        "train": [_problem(family, a, b) for a, b in train],
    }


def _operands(family: str) -> Iterator[tuple[int, int]]:
    second = range(2, 10) if family == "mul21" else range(10, 100)
    return ((a, b) for a in range(10, 100) for b in second)


def _problem(family: str, a: int, b: int) -> Problem:
    sign, value = ("+", a + b) if family == "add" else ("*", a * b)
    return Problem(
        id=f"{family}-{a}{sign}{b}",
        problem=f"{a:02d}{sign}{b:02d}=",
        answer=str(value)[::-1],
        task=family,
        source="arithmetic",
    )
