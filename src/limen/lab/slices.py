"""Studies in short pieces of machine time: runs as processes until a deadline, and small files that travel.

A study keeps what its page needs of every finished run in one small JSON beside the run folder. Those can be packed
into one tar, unpacked elsewhere, and gone on from: a run whose small file is there is not made again.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from limen.errors import DataError

if TYPE_CHECKING:
    from limen.measure import CountTable

SMALL = ".small.json"
"""Ending of the file that stands beside the folder of a finished run."""

MOST_BYTES = 15_000_000
"""Size of a packed file, at most."""

GRACE = 10.0
"""Seconds between asking a process to end and making it."""


def cores() -> int:
    """Processor cores that this process may use: fewer than the machine's where it was pinned to some."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_slice(commands: Mapping[str, Sequence[str]], jobs: int, seconds: float | None = None) -> dict[str, str]:
    """Run each command (whole argument list), `jobs` at a time, each with its share of the cores, until `seconds`.

    Returns by name: done, failed, cut (it was ended by the deadline) or waiting (never begun). A run that is cut goes
    on from its last checkpoint when the same command is given again.
    """
    threads = max(1, cores() // jobs)
    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    end = None if seconds is None else time.monotonic() + seconds

    children: list[subprocess.Popen[bytes]] = []

    def one(command: Sequence[str]) -> str:
        if end is not None and time.monotonic() >= end:
            return "waiting"
        child = subprocess.Popen(list(command), stdout=sys.stderr, env=env, start_new_session=True)
        children.append(child)
        try:
            code = child.wait(None if end is None else max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            _stop(child)
            return "cut"
        if code:
            print(f"failed with exit code {code}: {' '.join(command)}", file=sys.stderr, flush=True)
        return "failed" if code else "done"

    pool = ThreadPoolExecutor(max_workers=jobs)
    try:
        return dict(zip(commands, pool.map(one, commands.values()), strict=True))
    finally:  # an interrupt reaches this process alone: the children are sessions of their own
        pool.shutdown(wait=False, cancel_futures=True)
        for child in children:
            if child.poll() is None:
                _stop(child)


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End a process and what it started: they are a session of their own."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        try:
            child.wait(GRACE)
        except subprocess.TimeoutExpired:
            continue
        if sign == signal.SIGTERM:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        return


def pack(folder: Path, files: Iterable[Path], to: Path, most: int = MOST_BYTES) -> int:
    """Write `files` (all below `folder`) into the tar `to`, gzipped; returns its bytes. Raises `DataError`
    where it would be larger than `most`; then nothing is written."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", format=tarfile.PAX_FORMAT, compresslevel=6) as tar:
        for file in sorted(set(files)):
            info = tarfile.TarInfo(file.relative_to(folder).as_posix())
            data = file.read_bytes()
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    size = made.getbuffer().nbytes
    if size > most:
        raise DataError(f"{to} would be {size:,} bytes, more than {most:,}: pack fewer runs")
    to.parent.mkdir(parents=True, exist_ok=True)
    temp = to.with_name(f".{to.name}.tmp")
    temp.write_bytes(made.getbuffer())
    temp.replace(to)
    return size


def unpack(file: Path, folder: Path) -> list[Path]:
    """Put the files of `pack` below `folder`. What is there stays. Raises `DataError` for what is no such tar, and for
    names that lead out of the folder."""
    made = []
    try:
        with tarfile.open(file, "r:gz") as tar:
            for info in tar:
                name = PurePosixPath(info.name)
                if name.is_absolute() or ".." in name.parts or not info.isreg():
                    raise DataError(f"{file} holds '{info.name}', which is no plain file below the folder")
                place = folder / name
                source = tar.extractfile(info)
                assert source is not None
                if not place.exists():
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(source.read())
                    made.append(place)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"cannot read {file} as what --collect wrote: {error}") from error
    return made


def small_file(run: Path) -> Path:
    """Where the small file of a run folder stands."""
    return run.with_name(run.name + SMALL)


def counts_json(run: Path) -> dict[str, Any]:
    """Counts of a sampled run, as JSON values; `counts_table` reads them back."""
    from limen.measure import counts_from_run

    t = counts_from_run(run)
    columns = {"n": t.n_P, "c": t.c_P, "unjudged": t.unjudged_P, "truncated": t.truncated_P, "no_answer": t.no_answer_P}
    return {"ids": list(t.problem_ids), "task": list(t.task_P), **{k: v.tolist() for k, v in columns.items()}}


def counts_table(name: str, counts: dict[str, Any]) -> CountTable:
    """The table of `counts_json`."""
    from limen.measure import CountTable

    more = {k: counts[k] for k in ("unjudged", "truncated", "no_answer", "task") if k in counts}
    return CountTable.of(name, counts["ids"], counts["n"], counts["c"], **more)
