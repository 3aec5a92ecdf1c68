"""Several processes, on one machine or many, share one run folder: each works on problems that it has leased.

A lease is a file `RUN/leases/UNIT` that is created in one step or not at all, holds its owner's name, and is touched
while the owner lives. One that is not touched for `stale` seconds is taken over. Before an owner writes, it looks
whether the lease is still its own, so that a process that was asleep too long writes nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from limen.errors import StoreError

STALE_SECONDS = 60.0
POLL_SECONDS = 0.5


class LeaseLost(StoreError):
    """Another process took the lease over, because this one gave no sign of life for too long."""


class Leases:
    """The leases of one run, seen by one process.

    stale: seconds without a sign of life after which a lease may be taken over; every process must use the same.
    """

    def __init__(self, run: Path, stale: float = STALE_SECONDS) -> None:
        self.folder = run / "leases"
        self.stale = stale
        self.lost = False
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def work(self, units: Sequence[str]) -> Iterator[str]:
        """Yield each unit once, while its lease is held; ends when every unit was.

        Units that others hold are waited for, and taken over where the owner died; what is then still missing of
        one is for its new holder to see. After a `LeaseLost` the unit comes again.
        """
        with _told(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        left = list(units)
        while left:
            mine = next((unit for unit in left if self._claim(unit)), None)
            if mine is None:
                time.sleep(min(POLL_SECONDS, self.stale / 4))
                continue
            self.lost = False
            with self._alive(mine):
                yield mine
            if not self.lost:
                left.remove(mine)

    def check(self, unit: str) -> None:
        """Raise `LeaseLost` unless the lease is this process's own. Asked before every write."""
        if self._holder(unit) != self.owner:
            self.lost = True
            raise LeaseLost(
                f"{self.folder / unit} was taken over: this process gave no sign of life for {self.stale} s"
            )

    def _claim(self, unit: str) -> bool:
        file = self.folder / unit
        fresh = self.folder / f".{unit}.{self.owner}"
        with _told(self.folder):
            fresh.write_text(self.owner)
            try:
                os.link(fresh, file)
            except FileExistsError:
                return self._take_over(file, fresh)
            finally:
                fresh.unlink(missing_ok=True)
        return True

    def _take_over(self, file: Path, fresh: Path) -> bool:
        """Move a stale lease away (one process succeeds in that) and put a new one in its place."""
        away = self.folder / f".stale.{file.name}.{self.owner}"
        try:
            if _age(file, fresh) < self.stale:
                return False
            file.rename(away)
        except FileNotFoundError:
            return False
        try:
            if _age(away, fresh) < self.stale:  # another was quicker, and this is its new lease: give it back
                os.link(away, file)
                return False
            os.link(fresh, file)
        except FileExistsError:
            return False
        finally:
            away.unlink(missing_ok=True)
        return True

    @contextlib.contextmanager
    def _alive(self, unit: str) -> Iterator[None]:
        """Touch the lease from a thread, and give it back at the end, also after an error."""
        stop = threading.Event()
        file = self.folder / unit

        def beat() -> None:
            while not stop.wait(self.stale / 6):
                if self._holder(unit) == self.owner:
                    with contextlib.suppress(FileNotFoundError):
                        os.utime(file)

        thread = threading.Thread(target=beat, name="limen-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            if self._holder(unit) == self.owner:
                file.unlink(missing_ok=True)

    def _holder(self, unit: str) -> str | None:
        try:
            return (self.folder / unit).read_text()
        except FileNotFoundError:
            return None


@contextlib.contextmanager
def _told(folder: Path) -> Iterator[None]:
    """What the file system refuses, as an error that says what is needed."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot make a lease in {folder}: {error.strerror}. Sharing a folder (--share) needs a disk with room and "
            "with hard links; elsewhere use --ray, or a folder for each process"
        ) from error


def _age(file: Path, fresh: Path) -> float:
    """Seconds since the last sign of life, both times told by the clock of the folder's own machine."""
    return fresh.stat().st_mtime - file.stat().st_mtime
