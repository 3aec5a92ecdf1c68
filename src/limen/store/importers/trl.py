"""TRL: `completions/completions_STEP.parquet` of a trainer with log_completions.

Columns: step, prompt, completion, one per reward function, advantage, and extras. Problems are told apart by their
prompt. The gold answer is there only if it was logged as an extra column (name it: --field gold=NAME). An evaluation
during training overwrites the file of the same step: such a file may hold evaluation samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from limen.errors import DataError
from limen.store.importers.base import LogSample, Notes, Numbering, Options, find_files, need, outcome_of_score, text_of
from limen.types import content_hash

_KNOWN = {"step", "prompt", "completion", "advantage", "images"}


def read(paths: Sequence[Path], options: Options, notes: Notes) -> Iterator[LogSample]:
    """Samples of every step that was logged."""
    for path in find_files(paths, "completions_*.parquet", "TRL completion files"):
        rows = parquet_rows(path)
        number = Numbering()
        for i, row in enumerate(rows):
            where = f"{path} row {i}"
            prompt = text_of(need(row, "prompt", where), where)
            reward = _reward(row, where, options)
            gold_name = options.fields.get("gold")
            gold = need(row, gold_name, where) if gold_name else None
            problem = content_hash([prompt])
            yield LogSample(
                problem_id=problem,
                sample_index=number(problem),
                text=text_of(need(row, "completion", where), where),
                outcome=outcome_of_score(row[reward], options.threshold, where),
                gold=None if gold is None else str(gold),
                question=prompt,
                prompt=prompt,
                step=int(need(row, "step", where)),
            )
        notes[f"reward column of {path.name}: {_reward(rows[0], str(path), options) if rows else 'none'}"] = 1


def _reward(row: dict[str, Any], where: str, options: Options) -> str:
    """The column that grades: the one asked for, or the only one that is a number and not TRL's own."""
    if options.metric:
        need(row, options.metric, where)
        return options.metric
    gold = options.fields.get("gold")
    found = [k for k, v in row.items() if k not in _KNOWN and k != gold and isinstance(v, int | float)]
    if len(found) != 1:
        raise DataError(
            f"{where}: {'several columns' if found else 'no column'} could be the reward "
            f"({', '.join(found) or ', '.join(row)}): say which one tells right from wrong (--metric NAME)"
        )
    return found[0]


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    """All rows of a Parquet file. Raises `DataError` for a file that is not one."""
    try:
        return list(pq.read_table(path).to_pylist())
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file ({str(error).splitlines()[0]})") from error
