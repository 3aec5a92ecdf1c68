"""Datasets of the Hugging Face hub by name, with the columns and splits of the papers' benchmarks built in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from limen.errors import DataError
from limen.problems.load import check_unique
from limen.problems.rows import row_to_problem
from limen.types import Problem


@dataclass(frozen=True)
class Source:
    """How a hub dataset is read: `answer_after` is a marker behind which the final answer stands."""

    config: str | None = None
    split: str = "test"
    columns: Mapping[str, str] = field(default_factory=dict)
    answer_after: str = ""


KNOWN = {
    "agentica-org/DeepScaleR-Preview-Dataset": Source(split="train"),
    "math-ai/aime24": Source(columns={"answer": "solution"}),
    "math-ai/aime25": Source(),
    "HuggingFaceH4/MATH-500": Source(columns={"id": "unique_id"}),
    "math-ai/minervamath": Source(columns={"problem": "question"}),
    "math-ai/amc23": Source(columns={"problem": "question"}),
    "Hothan/OlympiadBench": Source(
        "OE_TO_maths_en_COMP", "train", columns={"problem": "question", "answer": "final_answer"}
    ),
    "openai/gsm8k": Source("main", columns={"problem": "question"}, answer_after="####"),
}


def load_hub(
    name: str, options: dict[str, str], limit: int | None, columns: Mapping[str, str], split: str | None
) -> list[Problem]:
    """Problems of a hub dataset, from the hub or its local cache. Only `config`, `split` and `revision` are options.

    Raises `DataError` where the dataset, its config or its split cannot be had.
    """
    unknown = sorted(set(options) - {"config", "split", "revision"})
    if unknown:
        raise DataError(f"{name}: unknown option '{unknown[0]}', expected config, split or revision")
    source = KNOWN.get(name, Source())
    config = options.get("config", source.config)
    split = split or options.get("split", source.split)
    rows = _rows(name, config, split, options.get("revision"))
    problems: list[Problem] = []
    where: list[str] = []
    for number, row in enumerate(rows):
        place = f"{name}/{split} row {number}"
        if source.answer_after:
            row = _cut_answer(dict(row), (columns or source.columns).get("answer", "answer"), source.answer_after)
        problems.append(row_to_problem(row, columns or source.columns, place, source=name, task=name.split("/")[-1]))
        where.append(place)
        if limit is not None and len(problems) == limit:
            break
    if not problems:
        raise DataError(f"{name}: split '{split}' holds no rows")
    check_unique(problems, where)
    return problems


def _rows(name: str, config: str | None, split: str, revision: str | None) -> Any:
    import datasets
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return datasets.load_dataset(name, config, split=split, revision=revision)
    except (OSError, ValueError, HfHubHTTPError, datasets.exceptions.DatasetsError) as error:
        raise DataError(
            f"cannot load the hub dataset '{name}' (config {config}, split {split}): {_first_line(error)}. Check the "
            "name and the network, or save it as a JSONL file with problem and answer and give that"
        ) from error


def _cut_answer(row: dict[str, Any], column: str, marker: str) -> dict[str, Any]:
    text = str(row.get(column) or "")
    if marker in text:
        row[column] = text.rsplit(marker, 1)[1].strip()
        row["solution"] = text.rsplit(marker, 1)[0].strip()
    return row


def _first_line(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error)).strip()[:200]
