"""verl: `{step}.jsonl` of `validation_data_dir` and `rollout_data_dir`, from both of its trainers.

Fields: input, output, gts, score, step, and extras of the reward such as `acc`. A prompt has no stable name (the
`uid` of the newer trainer is drawn anew each time), so problems are joined on input and gts, and samples of a
problem are numbered in order; their number varies. The newer trainer's `uid` is UID_SESSION_INDEX: padding rows begin
with `pad`, and of a session with several turns only the last index is the response; the first one holds the question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from limen.errors import DataError
from limen.store.importers.base import (
    LogSample,
    Notes,
    Numbering,
    Options,
    find_files,
    need,
    outcome_of_score,
    text_of,
)
from limen.store.jsonl import json_rows
from limen.types import Outcome, content_hash

_SESSION = re.compile(r"(?P<session>.+_\d+)_(?P<index>\d+)$")


def read(paths: Sequence[Path], options: Options, notes: Notes) -> Iterator[LogSample]:
    """Samples of every step; the step is the file's own."""
    for path in sorted(find_files(paths, "*.jsonl", "verl dumps"), key=_order):
        number = Numbering()
        for where, row, question in _final_rows(path, notes):
            gold = row.get("gts")
            problem = content_hash([question, gold])
            step = row.get("step", path.stem)
            if not str(step).lstrip("-").isdigit():
                raise DataError(f"{where}: step is {step!r}, expected a whole number (the file is named {path.name})")
            yield LogSample(
                problem_id=problem,
                sample_index=number(problem, step),
                text=text_of(need(row, "output", where), where),
                outcome=_outcome(row, where, options),
                gold=None if gold is None else text_of(gold, where) if isinstance(gold, str | list) else str(gold),
                question=question,
                prompt=question,
                task=str(row.get("data_source") or ""),
                step=int(step),
            )


def _final_rows(path: Path, notes: Notes) -> Iterator[tuple[str, dict[str, Any], str]]:
    """(place, row, question) without padding; of each session only its last row, with its first row's input."""
    sessions: dict[str, tuple[int, str, dict[str, Any], int, str]] = {}
    for n, (where, row) in enumerate(json_rows(path)):
        uid = str(row.get("uid", ""))
        if uid.startswith("pad"):
            notes["padding rows (uid pad...) were left out"] += 1
            continue
        named = _SESSION.match(uid)
        key, index = (named["session"], int(named["index"])) if named else (f"row {n}", 0)
        asked = text_of(need(row, "input", where), where)
        if key not in sessions:
            sessions[key] = (index, where, row, index, asked)
            continue
        last, last_where, last_row, first, question = sessions[key]
        notes["earlier turns of a session were joined to its last one"] += 1
        if index == last:
            raise DataError(f"{where}: uid {uid!r} was already at {last_where}: the file holds a sample twice")
        if index < first:
            first, question = index, asked
        best = (index, where, row) if index > last else (last, last_where, last_row)
        sessions[key] = (*best, first, question)
    for _, where, row, _, question in sessions.values():
        yield where, row, question


def _outcome(row: dict[str, Any], where: str, options: Options) -> Outcome | None:
    """The metric that was asked for, else `acc` where the reward gave one, else the score."""
    name = options.metric or ("acc" if row.get("acc") is not None else "score")
    return outcome_of_score(need(row, name, where), options.threshold, where)


def _order(path: Path) -> tuple[str, int, str]:
    return (str(path.parent), int(path.stem) if path.stem.isdigit() else -1, path.name)
