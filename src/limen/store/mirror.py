"""A copy of a run folder at any fsspec address (s3://, gs://, hf://, memory://, a path), kept while it is filled.

An object store has no rename, no locks and no appending; a run folder needs the first two. But its shards are written
once and never changed, so a copy of what is visible is a run folder too. A machine without it begins with the copy.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from limen.errors import ConfigError, StoreError

log = logging.getLogger(__name__)

TABLES = ("rollouts", "verdicts", "scores")
"""In the order in which they are copied: a verdict never before its rollout."""
FILES = ("run.json", "problems.parquet")


class Mirror:
    """url: an fsspec address of a folder. Raises `ConfigError` where its kind is unknown or its package is missing."""

    def __init__(self, url: str) -> None:
        import fsspec

        self.url = url.rstrip("/")
        try:
            self.fs, self.root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"mirror {url}: {error}") from error
        self._sizes: dict[str, int] | None = None

    def pull(self, folder: Path) -> bool:
        """Fill a folder that has no run from the mirror; whether there was one. Raises `StoreError` where both have
        one and the mirror's has shards that the folder lacks: another machine went on with it."""
        there = self._there()
        if "run.json" not in there:
            return False
        if (folder / "run.json").exists():
            extra = sorted(n for n in there if "/" in n and not (folder / n).exists())
            if extra:
                raise StoreError(
                    f"{self.url} holds {len(extra)} shards that {folder} lacks ({extra[0]}, ...): another machine went "
                    "on with this run. Use an empty folder, which begins with the mirror's run"
                )
            return True
        for name in sorted(there, key=lambda n: n == "run.json"):  # run.json last: then the folder is a run
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with self._told(f"read {name} of"):
                self.fs.get_file(f"{self.root}/{name}", str(target.with_name(f".{target.name}.part")))
            target.with_name(f".{target.name}.part").replace(target)
        return True

    def push(self, folder: Path) -> int:
        """Copy what is new or changed; the number of files. Raises `StoreError` where the store refuses."""
        there = self._there()
        count = 0
        names = self._here(folder)
        # What makes it a run comes first, and what says that all is done comes last.
        for name in [*([] if "run.json" in there else ["run.json"]), *names, "run.json"]:
            size = (folder / name).stat().st_size
            if "/" in name and there.get(name) == size:
                continue
            with self._told(f"write {name} to"):
                self.fs.makedirs(f"{self.root}/{name}".rpartition("/")[0], exist_ok=True)
                self.fs.put_file(str(folder / name), f"{self.root}/{name}")
            there[name] = size
            count += 1
        return count

    def _here(self, folder: Path) -> list[str]:
        """Names to be copied. Tables are listed last to first, so that a verdict's rollout is listed with it."""
        tables = {t: sorted((folder / t).glob("[!.]*.parquet")) for t in reversed(TABLES)}
        problems = [n for n in FILES[1:] if (folder / n).exists()]
        return problems + [f"{t}/{file.name}" for t in TABLES for file in tables[t]]

    def _there(self) -> dict[str, int]:
        """Sizes of the mirror's files by name, listed once."""
        if self._sizes is None:
            with self._told("list"):
                self.fs.invalidate_cache()
                found: dict[str, Any] = self.fs.find(self.root, detail=True) if self.fs.exists(self.root) else {}
            start = len(self.fs._strip_protocol(self.root).rstrip("/")) + 1
            names = {path[start:]: int(info["size"]) for path, info in found.items()}
            self._sizes = {n: s for n, s in names.items() if n.split("/")[0] in TABLES + FILES}
        return self._sizes

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"cannot {what} {self.url}: {error}. The run folder itself is intact") from error


@contextlib.contextmanager
def mirrored(folder: Path, mirror: Mirror | None, seconds: float) -> Iterator[None]:
    """While the block fills `folder`, copy what is new to the mirror every `seconds`, and all of it at the end.

    A copy that fails meanwhile is warned of and tried again; at the end it is an error.
    """
    if mirror is None:
        yield
        return
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(seconds):
            try:
                mirror.push(folder)
            except StoreError as error:
                log.warning("%s; trying again", error)

    thread = threading.Thread(target=work, name="limen-mirror", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        mirror.push(folder)
