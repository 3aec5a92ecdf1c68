"""lighteval: `details_TASK_TIME.parquet`, written with --save-details.

Columns doc, model_response, metric (structs). All samples of a document are in `model_response.text`, while `metric`
is one number for all of them: with more than one sample none is graded, and they are to be judged again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from limen.errors import DataError
from limen.store.importers.base import LogSample, Notes, Options, find_files, need, outcome_of_score, text_of
from limen.store.importers.trl import parquet_rows

_NAME = re.compile(r"details_(?P<task>.+)_\d{4}-\d{2}-\d{2}T[\d.:-]+$")


def read(paths: Sequence[Path], options: Options, notes: Notes) -> Iterator[LogSample]:
    """Samples of every document."""
    for path in find_files(paths, "details_*.parquet", "lighteval detail files"):
        named = _NAME.match(path.stem)
        for i, row in enumerate(parquet_rows(path)):
            where = f"{path} row {i}"
            doc, response = _struct(row, "doc", where), _struct(row, "model_response", where)
            task = str(doc.get("task_name") or (named["task"] if named else path.stem))
            texts = response.get("text") or []
            if isinstance(texts, str):
                texts = [texts]
            if not texts:
                raise DataError(f"{where}: no generated text (a log-likelihood task?): nothing to measure")
            prompt = text_of(response.get("input"), where) or None
            graded = _outcome(row, where, options) if len(texts) == 1 else None
            for j, text in enumerate(texts):
                yield LogSample(
                    problem_id=f"{task}:{doc.get('id') or i}",
                    sample_index=j,
                    text=str(text),
                    outcome=graded,
                    gold=_gold(doc, where),
                    question=str(doc.get("query") or ""),
                    prompt=prompt,
                    task=task,
                )


def _struct(row: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    value = need(row, name, where)
    if not isinstance(value, Mapping):
        raise DataError(f"{where}: {name} is a {type(value).__name__}, expected a struct: details of another version?")
    return value


def _gold(doc: Mapping[str, Any], where: str) -> str | None:
    """choices[gold_index]; of several golds the first."""
    choices, index = doc.get("choices"), doc.get("gold_index")
    first = index[0] if isinstance(index, list) and index else index
    if not choices or not isinstance(first, int):
        return None
    if not 0 <= first < len(choices):
        raise DataError(f"{where}: gold_index {first} of {len(choices)} choices")
    return str(choices[first])


def _outcome(row: Mapping[str, Any], where: str, options: Options) -> Any:
    metric = {k: v for k, v in _struct(row, "metric", where).items() if v is not None}
    if options.metric:
        return outcome_of_score(need(metric, options.metric, where), options.threshold, where)
    return outcome_of_score(next(iter(metric.values())), options.threshold, where) if len(metric) == 1 else None
