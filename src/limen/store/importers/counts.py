"""Plain counts from JSONL, CSV or Parquet with any column names, as a count file of limen."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from limen.errors import DataError
from limen.store.importers.trl import parquet_rows
from limen.store.jsonl import json_rows
from limen.store.writer import atomic_write

KEYS = ("problem_id", "model", "n", "c", "task", "unjudged", "no_answer", "truncated", "prompt_hash")
_NEEDED = ("problem_id", "n", "c")


def import_counts(source: str | Path, out: str | Path, fields: Mapping[str, str] | None = None) -> int:
    """Write `out` (JSONL as `limen passk` reads it) from `source`; returns the number of lines.

    fields: our name -> column of the file, for those of `KEYS` that are called otherwise. Raises `DataError` for a
    missing column or something that is no count; whether counts make sense is checked where they are read.
    """
    source, out, names = Path(source), Path(out), dict(fields or {})
    unknown = sorted(set(names) - set(KEYS))
    if unknown:
        raise DataError(f"no count column is called {unknown[0]!r}: known are {', '.join(KEYS)}")
    lines = [json.dumps(_line(row, where, names), ensure_ascii=False) for where, row in _rows(source)]
    if not lines:
        raise DataError(f"{source} holds no rows")
    atomic_write(out, lambda temp: _write(temp, lines))
    return len(lines)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _line(row: Mapping[str, Any], where: str, names: Mapping[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key in KEYS:
        column = names.get(key, key)
        value = row.get(column)
        if value is None or value == "":
            if key in _NEEDED or key in names:
                raise DataError(
                    f"{where} has no {column!r} (it has: {', '.join(map(str, row))}): name its column, such as "
                    f"--field {key}=NAME"
                )
            continue
        out[key] = str(value) if key in ("problem_id", "model", "task", "prompt_hash") else _count(value, key, where)
    return out


def _count(value: Any, key: str, where: str) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: {key} is {value!r}, expected a whole number") from error
    if not number.is_integer():
        raise DataError(f"{where}: {key} is {value!r}, expected a whole number (counts, not rates)")
    return int(number)


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix == ".parquet":
        yield from ((f"{path} row {i}", row) for i, row in enumerate(parquet_rows(path)))
    elif path.suffix in (".csv", ".tsv"):
        with path.open(encoding="utf-8-sig", newline="") as file:
            for i, row in enumerate(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",")):
                yield f"{path} line {i + 2}", row
    else:
        yield from json_rows(path)
