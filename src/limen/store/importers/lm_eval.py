"""lm-evaluation-harness: `samples_TASK_TIME.jsonl`, written with --log_samples.

One line per document and *filter*; all repeats are in `resps[0]`, but only what the filter took (usually the first)
is graded. So lines are taken once per document, whatever the filter, and unless there is just one response per
document none of them has a grade: they are to be judged again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from limen.errors import DataError
from limen.store.importers.base import LogSample, Notes, Options, find_files, need, outcome_of_score
from limen.store.jsonl import json_rows

_NAME = re.compile(r"samples_(?P<task>.+)_\d{4}-\d{2}-\d{2}T[\d.:-]+$")


def read(paths: Sequence[Path], options: Options, notes: Notes) -> Iterator[LogSample]:
    """Samples of every document, once each."""
    seen: dict[tuple[str, Any], tuple[str, list[str]]] = {}
    for path in find_files(paths, "samples_*.jsonl", "lm-eval sample files"):
        named = _NAME.match(path.stem)
        task = named["task"] if named else path.stem
        for where, row in json_rows(path):
            key = (task, need(row, "doc_id", where))
            responses = _responses(row, where)
            if key in seen:
                if seen[key][1] != responses:
                    raise DataError(
                        f"{where}: document {key[1]} of {task} was already at {seen[key][0]} with other responses: "
                        "these are two runs, import them into two folders"
                    )
                notes["lines of other filters on the same responses were skipped"] += 1
                continue
            seen[key] = (where, responses)
            yield from _samples(task, row, responses, where, options)


def _samples(task: str, row: dict[str, Any], responses: list[str], where: str, options: Options) -> Iterator[LogSample]:
    doc = row.get("doc")
    own = doc.get("id") if isinstance(doc, dict) else None
    prompt = _prompt(row)
    question = next((str(doc[k]) for k in ("problem", "question") if k in doc), "") if isinstance(doc, dict) else ""
    for i, text in enumerate(responses):
        outcome = _outcome(row, where, options) if len(responses) == 1 else None
        yield LogSample(
            problem_id=f"{task}:{own if own is not None else row['doc_id']}",
            sample_index=i,
            text=text,
            outcome=outcome,
            gold=None if row.get("target") is None else str(row["target"]),
            question=question or prompt or "",
            prompt=prompt,
            task=task,
        )


def _responses(row: dict[str, Any], where: str) -> list[str]:
    outer = need(row, "resps", where)
    first = outer[0] if isinstance(outer, list) and outer else None
    responses = first if isinstance(first, list) else outer if isinstance(outer, list) else None
    if not responses or not all(isinstance(r, str) for r in responses):
        raise DataError(
            f"{where}: resps does not hold generated text (a multiple-choice or perplexity task?); only "
            "generate_until tasks have samples to measure"
        )
    return list(responses)


def _prompt(row: dict[str, Any]) -> str | None:
    """What the model was given; a chat prompt is a JSON list of messages, which is kept as that text."""
    arguments = row.get("arguments")
    if isinstance(arguments, dict):
        arguments = [list(a.values()) for a in arguments.values()]
    first = arguments[0] if isinstance(arguments, list) and arguments else None
    text = first[0] if isinstance(first, list) and first else None
    return text if isinstance(text, str) or text is None else json.dumps(text, ensure_ascii=False)


def _outcome(row: dict[str, Any], where: str, options: Options) -> Any:
    metrics = [options.metric] if options.metric else row.get("metrics") or ["exact_match"]
    if len(metrics) > 1:
        raise DataError(f"{where} has several metrics ({', '.join(metrics)}): say which one counts (--metric)")
    return outcome_of_score(need(row, metrics[0], where), options.threshold, where)
