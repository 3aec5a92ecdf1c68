"""Progress for people: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_SECONDS = 10.0


class Meter:
    """Counts finished samples and their tokens, and shows rate and time left on stderr.

    `total` samples, of which `done` were there before. On a terminal a bar; else a line at most every 10 seconds,
    and one at the end. `show=False` only counts.
    """

    def __init__(self, label: str, total: int, done: int = 0, show: bool = True) -> None:
        self.label, self.total, self.done, self.first = label, total, done, done
        self.tokens = 0
        self.started = self._lined = time.monotonic()
        self._show = show
        self._bar: Progress | None = None
        console = Console(stderr=True)
        if show and console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            rest = (TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, *rest, console=console)
            self._task = self._bar.add_task(label, total=total, completed=done, rate="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._show and self.done > self.first:
            self._line()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)

    def advance(self, samples: int, tokens: int, note: str = "") -> None:
        """So many more samples, of so many tokens together."""
        self.done += samples
        self.tokens += tokens
        if self._bar is not None:
            rate: dict[str, Any] = {"rate": f"{self.tokens_per_second:,.0f} tok/s {note}".strip()}
            self._bar.update(self._task, completed=self.done, **rate)
        elif self._show and time.monotonic() - self._lined >= LINE_SECONDS:
            self._line(note)

    def forgo(self, samples: int) -> None:
        """So many of the samples need not be drawn."""
        self.total -= samples
        if self._bar is not None:
            self._bar.update(self._task, total=self.total)

    def _line(self, note: str = "") -> None:
        self._lined = time.monotonic()
        left = (self.total - self.done) * self.seconds / max(1, self.done - self.first)
        print(
            f"{self.label}: {self.done}/{self.total} samples, {self.tokens_per_second:,.0f} tok/s, "
            f"{_span(self.seconds)} gone, about {_span(left)} left{' ' + note if note else ''}",
            file=sys.stderr,
            flush=True,
        )


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
