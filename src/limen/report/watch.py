"""`limen watch`: running samplers and trainings in a terminal, from what they have stored so far."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from limen.errors import StoreError
from limen.report.progress import Progress, read_progress
from limen.report.terminal import visible

BARS = " ▁▂▃▄▅▆▇█"
STALE_SECONDS = 180
SHOWN = ("reward_batch", "reward", "loss", "entropy", "kept", "screened", "grad_norm", "grad_ratio_kl_rl", "loss_kl")
PROBES = ("delta_plus", "influence", "logp_plus", "ppl_correct", "clip", "clip_batch")
""""probe/..." quantities of a training run: what the last probed step did to the probe set."""


class Rate:
    """Units per second over the last minute or so, from (time, done) as they are seen."""

    def __init__(self, window: float = 90.0) -> None:
        self.window = window
        self.seen: list[tuple[float, int]] = []

    def add(self, now: float, done: int) -> None:
        if not self.seen or self.seen[-1][1] != done:
            self.seen.append((now, done))
        while len(self.seen) > 2 and now - self.seen[0][0] > self.window:
            self.seen.pop(0)

    def per_second(self) -> float:
        if len(self.seen) < 2:
            return 0.0
        (t0, d0), (t1, d1) = self.seen[0], self.seen[-1]
        return max(0.0, (d1 - d0) / (t1 - t0)) if t1 > t0 else 0.0


def watch(paths: Sequence[Path], interval: float = 2.0, once: bool = False, console: Console | None = None) -> None:
    """Show the runs until all are done (or once). Raises `StoreError` if a folder is no run."""
    console = console or Console()
    rates = [Rate() for _ in paths]
    first = view([read_progress(p) for p in paths], rates)
    if once:
        console.print(first)
        return
    with Live(first, console=console, refresh_per_second=4, transient=False) as live:
        while True:
            try:
                states = [read_progress(p) for p in paths]
            except StoreError:  # a shard or run.json in the middle of being replaced; a lasting fault shows next time
                time.sleep(interval)
                states = [read_progress(p) for p in paths]
            now = time.monotonic()
            for rate, state in zip(rates, states, strict=True):
                rate.add(now, state.done)
            live.update(view(states, rates))
            if all(s.status == "done" for s in states):
                return
            time.sleep(interval)


def view(states: Sequence[Progress], rates: Sequence[Rate]) -> RenderableType:
    return Group(*[_one(s, r) for s, r in zip(states, rates, strict=True)])


def _one(state: Progress, rate: Rate) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    share = f"{state.done}" + (f" of {state.total} {state.unit}" if state.total else f" {state.unit}")
    head = Text.assemble((visible(state.name), "bold"), f"  {state.kind}  ", _status(state))
    line: list[RenderableType] = [Text(share)]
    if state.total:
        line.insert(0, ProgressBar(total=state.total, completed=min(state.done, state.total), width=32))
    speed = rate.per_second()
    if speed > 0 and state.status != "done":
        line.append(Text(f"{speed:.3g} {state.unit}/s", style="dim"))
        if state.total and state.total > state.done:
            line.append(Text(f"{duration((state.total - state.done) / speed)} left", style="dim"))
    grid.add_row(*line)
    parts: list[RenderableType] = [head, grid]
    judged = sum(n for o, n in state.outcomes.items() if o != "unjudged")
    if judged:
        text = f"correct {state.outcomes['correct'] / judged:.1%} of {judged} judged"
        text += "".join(
            f" · {o.replace('_', ' ')} {state.outcomes[o]}" for o in ("no_answer", "unjudged") if state.outcomes[o]
        )
        parts.append(Text(text, style="yellow" if state.outcomes["unjudged"] else ""))
    shown = [f"{k} {state.metrics[k]:.4g}" for k in SHOWN if k in state.metrics]
    if shown:
        parts.append(Text("  ".join(shown)))
    probed = [f"{k} {state.metrics[f'probe/{k}']:.4g}" for k in PROBES if f"probe/{k}" in state.metrics]
    if probed:
        parts.append(Text("probe  " + "  ".join(probed), style="cyan"))
    if len(state.trend) > 1:
        parts.append(Text.assemble((f"{state.trend_of} ", "dim"), (spark(state.trend), "cyan")))
    return Group(*parts, Text(""))


def _status(state: Progress) -> tuple[str, str]:
    if state.status == "done":
        return "done", "green"
    ago = f"last written {duration(state.age)} ago"
    if state.age > STALE_SECONDS:
        return f"silent: {ago}; stopped? The same command goes on from there", "yellow"
    return f"running, {ago}", "dim"


def spark(values: Sequence[float], width: int = 60) -> str:
    """A line of bars, averaged down to `width`."""
    size = max(1, -(-len(values) // width))
    groups = [values[i : i + size] for i in range(0, len(values), size)]
    means = [sum(g) / len(g) for g in groups]
    low, high = min(means), max(means)
    if high == low:
        return BARS[4] * len(means)
    return "".join(BARS[1 + round((v - low) / (high - low) * 7)] for v in means)


def duration(seconds: float) -> str:
    s = int(max(0, seconds))
    if s < 60:
        return f"{s} s"
    return f"{s // 60} min {s % 60:02d} s" if s < 3600 else f"{s // 3600} h {s % 3600 // 60:02d} min"
