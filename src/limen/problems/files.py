"""Problems from JSONL, JSON, CSV and Parquet files, with an error that names the line for whatever is wrong."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from limen.errors import DataError
from limen.problems.load import FILE_TYPES, check_unique
from limen.problems.rows import row_to_problem
from limen.store.jsonl import json_rows
from limen.types import Problem


def load_file(path: Path, limit: int | None, columns: Mapping[str, str]) -> list[Problem]:
    """Problems of one file; `columns` maps `id`, `problem`, `answer`, `task` to the file's names.

    The whole file is checked for what it says of ids only as far as `limit` reaches.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file (problems come from {', '.join(FILE_TYPES)} files)")
    problems: list[Problem] = []
    where: list[str] = []
    for place, row in _rows(path):
        problems.append(row_to_problem(row, columns, place, source=path.name, task=path.stem))
        where.append(place)
        if limit is not None and len(problems) == limit:
            break
    if not problems:
        raise DataError(f"{path} holds no problems: it must have one row per problem, with a problem and an answer")
    check_unique(problems, where)
    return problems


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) pairs; the place names the file and the line of a text file, or the row of a Parquet file."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            yield from _parquet_rows(path)
        elif suffix == ".csv":
            with path.open(encoding="utf-8-sig", newline="") as file:
                yield from _csv_rows(path, file)
        elif suffix == ".json":
            yield from _json_rows(path)
        elif suffix == ".jsonl":
            yield from json_rows(path)
        else:
            raise DataError(f"{path}: unknown file type '{suffix}', expected one of {', '.join(FILE_TYPES)}")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error}): convert it first") from error


def _json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}:{error.lineno}: not JSON ({error.msg}); one object per line? Call it .jsonl"
        ) from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path}: expected a JSON list of objects")
    for number, row in enumerate(rows, 1):
        yield f"{path}:item {number}", row


def _csv_rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    reader = csv.DictReader(lines, strict=True)
    try:
        for row in reader:
            if None in row:
                raise DataError(f"{path}:{reader.line_num}: more fields than the header has columns; quote the commas")
            yield f"{path}:{reader.line_num}", dict(row)
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not CSV ({error})") from error


def _parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}:row {number}", row
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file ({str(error).splitlines()[0]})") from error
