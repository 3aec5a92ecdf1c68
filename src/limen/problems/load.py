"""Problems by one string: a file, a Reasoning Gym task, limen's own arithmetic, or a dataset of the hub."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from limen.errors import DataError
from limen.types import Problem

FILE_TYPES = (".jsonl", ".json", ".csv", ".parquet")


def load_problems(
    spec: str | Path,
    limit: int | None = None,
    columns: Mapping[str, str] | None = None,
    split: str | None = None,
) -> list[Problem]:
    """Problems that `spec` names, in the source's order, the first `limit` of them.

    spec: `FILE.jsonl|.csv|.parquet`, `reasoning_gym:TASK?option=value&...`, `arithmetic:all?split=test&size=30`, or
        a hub dataset `owner/name[?config=...&split=...]`.
    columns: which column of a file or hub dataset holds `id`, `problem`, `answer`, `task`, where the names differ.
    split: split of a hub dataset.

    Raises `DataError`, with file and line, for what cannot be used: nothing is dropped in silence.
    """
    if limit is not None and limit < 1:
        raise DataError(f"limit is {limit}: give a number of problems of at least 1, or none for all")
    name, _, query = str(spec).partition("?")
    kind, colon, rest = name.partition(":")
    if colon and kind == "reasoning_gym":
        from limen.problems.gym import load_gym

        problems = load_gym(rest, parse_options(str(spec), query), limit)
    elif colon and kind == "arithmetic":
        problems = _arithmetic(rest, parse_options(str(spec), query))
    elif Path(spec).suffix.lower() in FILE_TYPES or Path(spec).exists():
        from limen.problems.files import load_file

        problems = load_file(Path(spec), limit, columns or {})
    elif "/" in name and not name.startswith((".", "/", "~")):
        from limen.problems.hub import load_hub

        problems = load_hub(name, parse_options(str(spec), query), limit, columns or {}, split)
    else:
        raise DataError(
            f"cannot tell what problems '{spec}' are: give a file ({', '.join(FILE_TYPES)}), reasoning_gym:TASK, "
            "arithmetic:FAMILY, or a hub dataset as owner/name"
        )
    return problems if limit is None else problems[:limit]


def _arithmetic(names: str, options: dict[str, str]) -> list[Problem]:
    """`arithmetic:all` or `arithmetic:add,mul22`, options `split` (test unless given) and `size` (taken evenly)."""
    from limen.problems.arithmetic import FAMILIES, arithmetic_problems

    unknown = sorted(set(options) - {"split", "size"})
    if unknown:
        raise DataError(f"arithmetic has no option '{unknown[0]}': expected split or size")
    size = options.get("size")
    if size is not None and not size.isdecimal():
        raise DataError(f"arithmetic: size is '{size}', expected a whole number")
    families = FAMILIES if names in ("", "all") else tuple(names.split(","))
    split: Any = options.get("split", "test")
    return arithmetic_problems(families, split, None if size is None else int(size))


def parse_options(spec: str, query: str) -> dict[str, str]:
    """`a=1&b=x` as a dict of strings. Raises `DataError` where a pair is malformed or given twice."""
    if not query:
        return {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    except ValueError as error:
        raise DataError(f"'{spec}': what follows the question mark must be option=value&option=value") from error
    options = dict(pairs)
    if len(options) < len(pairs):
        raise DataError(f"'{spec}': an option is given twice")
    return options


def check_unique(problems: list[Problem], where: list[str]) -> None:
    """Raise `DataError` at the first id that occurs twice; `where[i]` says where problem i stands."""
    seen: dict[str, int] = {}
    for i, problem in enumerate(problems):
        first = seen.setdefault(problem.id, i)
        if first != i:
            raise DataError(
                f"{where[i]}: id '{problem.id}' is already that of {where[first]}. "
                "Problems need ids of their own (without an id column the id is a hash of problem and answer, so "
                "the two are the same problem: remove one)"
            )
