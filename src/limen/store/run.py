"""A run folder, opened for reading and appending."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from limen.errors import StoreError
from limen.provenance import provenance
from limen.store.schema import (
    PROBLEMS,
    SCHEMA_VERSION,
    TABLES,
    problem_row,
    row_problem,
    row_prompt,
    row_rollout,
)
from limen.store.writer import ShardWriter, write_json, write_table
from limen.types import Problem, Prompt, Rollout


def _passing(file: Path) -> bool:
    """A file that another process is writing (it may be starting the same run just now), or died while writing."""
    return file.name.startswith(".") and file.name.endswith(".tmp")


class Run:
    """A run folder. `create` starts one (or returns it if it is there), `open` reads one.

    `info` is the content of run.json: `kind` ("sample", "train", "counts", "probe"), `name`, `settings`,
    `provenance`, `status` ("running", "done"), `sessions` (provenance of each later start).
    """

    def __init__(self, path: Path, info: dict[str, Any]) -> None:
        self.path = path
        self.info = info

    @classmethod
    def create(cls, path: str | Path, kind: str, name: str, settings: dict[str, Any]) -> Run:
        """Start a run folder, or go on with the one that is there; settings are the caller's to compare."""
        path = Path(path)
        if (path / "run.json").exists():
            run = cls.open(path)
            run.info.setdefault("sessions", []).append(provenance())
            run.save()
            return run
        if path.exists() and not path.is_dir():
            raise StoreError(f"{path} is a file, and a run is a folder: choose another name")
        if path.exists() and any(not _passing(f) for f in path.iterdir()):
            raise StoreError(f"{path} is not empty and not a run folder (no run.json): choose another folder")
        info = {
            "schema": SCHEMA_VERSION,
            "kind": kind,
            "name": name,
            "settings": settings,
            "provenance": provenance(),
            "status": "running",
        }
        run = cls(path, info)
        run.save()
        return run

    @classmethod
    def open(cls, path: str | Path) -> Run:
        path = Path(path)
        file = path / "run.json"
        if not file.exists():
            what = "no such folder" if not path.exists() else "no run.json in it"
            raise StoreError(f"{path} is not a limen run ({what}): give the folder that `limen sample` or `train` made")
        try:
            info = json.loads(file.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise StoreError(f"{file} is corrupt ({error}): restore it, or start the run in a new folder") from error
        if not isinstance(info, dict):
            raise StoreError(f"{file} is corrupt (no JSON object): restore it, or start the run in a new folder")
        if info.get("schema", 0) > SCHEMA_VERSION:
            raise StoreError(f"{path} was written by a newer limen (schema {info['schema']}): update limen to read it")
        return cls(path, info)

    @property
    def name(self) -> str:
        return str(self.info.get("name", self.path.name))

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.info.get("settings", {}))

    def save(self) -> None:
        write_json(self.path / "run.json", self.info)

    @contextlib.contextmanager
    def changing(self) -> Iterator[dict[str, Any]]:
        """run.json as it is on the disk by now, saved at the end of the block: what another process wrote there stays.
        Processes take turns; not to be nested."""
        with file_lock(self.path / ".info.lock"):
            self.info = Run.open(self.path).info
            yield self.info
            self.save()

    def finish(self) -> None:
        self.info["status"] = "done"
        self.save()

    # -- problems ------------------------------------------------------------------------------------------

    def write_problems(self, problems: Sequence[Problem], prompts: Sequence[Prompt] | None = None) -> None:
        """Store the problems (and rendered prompts, in the same order). Replaces what was there."""
        rows = [problem_row(p, prompts[i] if prompts else None) for i, p in enumerate(problems)]
        write_table(self.path / "problems.parquet", pa.Table.from_pylist(rows, schema=PROBLEMS))

    def problems(self) -> list[Problem]:
        return [row_problem(row) for row in self.problem_table().to_pylist()]

    def prompts(self) -> dict[str, Prompt]:
        """Rendered prompts by problem id."""
        rows = self.problem_table().to_pylist()
        return {p.problem_id: p for row in rows if (p := row_prompt(row)) is not None}

    def problem_table(self) -> pa.Table:
        file = self.path / "problems.parquet"
        if not file.exists():
            return PROBLEMS.empty_table()
        _check_shard(file)
        with _whole(self.path / "problems.parquet"):
            return pq.read_table(file, schema=PROBLEMS)

    # -- append-only tables --------------------------------------------------------------------------------

    def writer(self, table: str, rows: int = 8192, seconds: float = 30.0) -> ShardWriter:
        return ShardWriter(self.path, table, rows, seconds)

    def shards(self, table: str) -> list[Path]:
        """Readable shards in the order in which they were written. Raises `StoreError` on a corrupt one."""
        files = sorted(p for p in (self.path / table).glob("*.parquet") if not p.name.startswith("."))
        for file in files:
            _check_shard(file)
        return files

    def dataset(self, table: str) -> ds.Dataset | None:
        """All shards as one lazily read dataset, or None if there are none. For work in bounded memory."""
        files = self.shards(table)
        if not files:
            return None
        return ds.dataset([str(f) for f in files], schema=TABLES[table], format="parquet")

    def table(self, table: str, columns: Sequence[str] | None = None, where: ds.Expression | None = None) -> pa.Table:
        """Rows of all shards, only `columns`, only those that `where` keeps."""
        data = self.dataset(table)
        schema = TABLES[table]
        if data is None:
            return (schema if columns is None else pa.schema([schema.field(c) for c in columns])).empty_table()
        with _whole(self.path / table):
            return data.to_table(columns=None if columns is None else list(columns), filter=where)

    def rollouts(self, where: ds.Expression | None = None) -> Iterator[Rollout]:
        """Stream stored rollouts as records."""
        data = self.dataset("rollouts")
        if data is not None:
            batches = data.to_batches(filter=where)
            while True:
                with _whole(self.path / "rollouts"):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield from (row_rollout(row) for row in batch.to_pylist())

    def keys(self, table: str, where: ds.Expression | None = None) -> set[tuple[str, str, int, int]]:
        """(problem_id, policy, step, sample_index) of the stored rows."""
        data = self.table(table, ["problem_id", "policy", "step", "sample_index"], where)
        columns: list[Iterable[Any]] = [c.to_pylist() for c in data.columns]
        return set(zip(*columns, strict=True)) if columns else set()


@contextlib.contextmanager
def file_lock(file: Path, share: bool = False, wait: bool = True) -> Iterator[None]:
    """Hold a lock, alone or with others that share; the system lets go of it however this process ends.

    Raises `BlockingIOError` without `wait` where another holds it, `StoreError` where the folder cannot be written.
    """
    import fcntl

    try:
        handle = file.open("a")
    except OSError as error:
        raise StoreError(f"cannot write {file.parent}: {error.strerror}. Nothing was changed") from error
    with handle:
        fcntl.flock(handle, (fcntl.LOCK_SH if share else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        yield


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[None]:
    """What Arrow raises where a file is readable at its end but damaged inside, as one clear error."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise StoreError(
            f"{path} is corrupt: {str(error).splitlines()[0]}. Move the damaged shard out of the folder and run the "
            "same command again, which makes anew only what it held"
        ) from error


def _check_shard(file: Path) -> None:
    try:
        pq.ParquetFile(file).close()
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        raise StoreError(
            f"{file} is corrupt ({str(error).splitlines()[0]}): move it out of the folder and run the same command "
            "again, which makes anew only what it held"
        ) from error
