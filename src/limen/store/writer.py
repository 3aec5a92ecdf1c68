"""Atomic files and append-only shards. What is visible in a run folder is complete."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from limen.errors import StoreError
from limen.store.schema import TABLES

_counter = itertools.count()
_PROCESS = uuid.uuid4().hex[:12]
"""Process ids are no names: containers that share a disk may all be number 1. A forked process has another id."""


def _own() -> str:
    """A part of a file name that no other process and no other call has."""
    return f"{os.getpid()}-{_PROCESS}-{next(_counter)}"


def atomic_write(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it into place, flushed to disk.

    Raises `StoreError` (nothing visible changed) when the disk is full or the folder cannot be written.
    """
    temp = path.with_name(f".{path.name}.{_own()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temp)
        with temp.open("rb") as f:
            os.fsync(f.fileno())
        temp.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temp.unlink(missing_ok=True)
        why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error)
        raise StoreError(
            f"cannot write {path}: {why}. What was stored before is intact; make room and run the same command again"
        ) from error


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1, sort_keys=True, allow_nan=True) + "\n"
    atomic_write(path, lambda temp: _write_text(temp, text))


def write_table(path: Path, table: pa.Table) -> None:
    atomic_write(path, lambda temp: pq.write_table(table, temp, compression="zstd"))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


class ShardWriter:
    """Buffers rows of one table and writes them as shards, each whole or absent.

    A shard is written after `rows` rows or `seconds` seconds, whichever comes first, and on `close`. Use as a
    context manager: rows in the buffer are written also when the body raises.
    """

    def __init__(self, run: Path, table: str, rows: int = 8192, seconds: float = 30.0) -> None:
        self.folder = run / table
        self.schema = TABLES[table]
        self.rows = rows
        self.seconds = seconds
        self._buffer: list[dict[str, Any]] = []
        self._last = time.monotonic()

    def append(self, row: dict[str, Any]) -> None:
        self._buffer.append(row)
        if len(self._buffer) >= self.rows or time.monotonic() - self._last >= self.seconds:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered. On `StoreError` the rows stay buffered, so a later flush can succeed."""
        if self._buffer:
            table = pa.Table.from_pylist(self._buffer, schema=self.schema)
            name = f"{time.time_ns():020d}-{_own()}.parquet"
            write_table(self.folder / name, table)
            self._buffer.clear()
        self._last = time.monotonic()

    close = flush

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()
