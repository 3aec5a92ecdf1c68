"""One row of a table (a file's or a hub dataset's) as a `Problem`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from limen.errors import DataError
from limen.types import Problem, content_hash

FIELDS = ("id", "problem", "answer", "task")


def row_to_problem(row: Mapping[str, Any], columns: Mapping[str, str], place: str, source: str, task: str) -> Problem:
    """The `Problem` of a row. What is not id, problem, answer or task becomes `metadata`.

    Answers may be text, numbers or lists of such (joined by a comma and a space: a set of answers). Raises
    `DataError` naming `place` where the problem or the answer is missing or empty.
    """
    unknown = sorted(set(columns) - set(FIELDS))
    if unknown:
        raise DataError(f"cannot map '{unknown[0]}' to a column: expected one of {', '.join(FIELDS)}")
    for field in columns:
        if columns[field] not in row:
            raise DataError(f"{place}: no column '{columns[field]}' (it has: {', '.join(map(str, row))})")
    problem = _text(row, columns.get("problem", "problem"), "problem", place)
    answer = _text(row, columns.get("answer", "answer"), "answer", place)
    given = row.get(columns.get("id", "id"))
    used = {columns.get(field, field) for field in FIELDS} | {"metadata"}
    own = row.get("metadata")
    rest = {key: value for key, value in row.items() if key not in used and value is not None}
    return Problem(
        id=content_hash([problem, answer]) if given is None or str(given).strip() == "" else str(given),
        problem=problem,
        answer=answer,
        task=str(row.get(columns.get("task", "task")) or task),
        source=source,
        metadata=plain_json(
            {**rest, **(own if isinstance(own, Mapping) else {} if own is None else {"metadata": own})}
        ),
    )


def plain_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping as JSON holds it: tuples become lists, keys text, and what JSON lacks becomes its text."""
    result: dict[str, Any] = json.loads(json.dumps(value, default=str))
    return result


def _text(row: Mapping[str, Any], column: str, field: str, place: str) -> str:
    if column not in row:
        names = ", ".join(map(str, row)) or "none"
        raise DataError(
            f"{place}: no '{field}' (columns: {names}). If another column holds it, say so: --column {field}=NAME"
        )
    value = row[column]
    text = ", ".join(map(_one, value)) if isinstance(value, list) else _one(value)
    if not text.strip():
        raise DataError(f"{place}: '{column}' is empty: every problem needs a {field}")
    return text


def _one(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
