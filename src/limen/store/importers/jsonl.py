"""Anybody's JSONL: one line per sample, or per problem with a list of responses; fields by name.

Names that are understood without a map, the first that is there: problem_id, response, correct, gold, question,
sample, model, step, task, answer, prompt, finish (see `NAMES`). Others: --field response=output --field correct=ok.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from limen.types import FinishReason, content_hash

NAMES = {
    "problem_id": ("problem_id", "id", "idx", "question_id", "task_id"),
    "response": (
        "response",
        "responses",
        "completion",
        "completions",
        "output",
        "outputs",
        "generated",
        "text",
        "code",
    ),
    "correct": ("correct", "is_correct", "score", "scores", "passed", "reward", "acc"),
    "gold": ("gold", "ground_truth", "gt", "target", "reference"),
    "question": ("question", "problem", "prompt"),
    "sample": ("sample_index", "sample", "epoch"),
    "model": ("model", "policy"),
    "step": ("step",),
    "task": ("task", "data_source", "dataset"),
    "answer": ("answer", "extracted", "pred"),
    "prompt": ("prompt",),
    "finish": ("finish_reason", "stop_reason"),
}


def read(paths: Sequence[Path], options: Options, notes: Notes) -> Iterator[LogSample]:
    """Samples of every line."""
    unknown = sorted(set(options.fields) - set(NAMES))
    if unknown:
        raise DataError(f"no field is called {unknown[0]!r}: known are {', '.join(NAMES)}")
    number = Numbering()
    for path in find_files(paths, "*.jsonl", "JSONL files"):
        for where, row in json_rows(path):
            yield from _samples(row, where, options, number)


def _samples(row: dict[str, Any], where: str, options: Options, number: Numbering) -> Iterator[LogSample]:
    get = _Fields(row, where, options.fields)
    question, gold = get("question"), get("gold")
    given = get("problem_id")
    problem = str(given) if given is not None else content_hash([text_of(question, where), gold])
    if given is None and question is None:
        raise DataError(
            f"{where} names no problem: it needs one of {', '.join(NAMES['problem_id'])}, or a question "
            f"(it has: {', '.join(row)}); map it with --field problem_id=NAME"
        )
    responses, grades = _lists(get, where)
    model, step = get("model"), get("step") or 0
    sample, finish = get("sample"), _finish(get("finish"))
    for i, (text, grade) in enumerate(zip(responses, grades)):
        alone = sample is not None and len(responses) == 1
        yield LogSample(
            problem_id=problem,
            sample_index=_whole(sample, where) if alone else number(problem, model, step),
            text=text_of(text, where),
            outcome=outcome_of_score(grade, options.threshold, where),
            answer=str(get("answer") or "") if len(responses) == 1 else _nth(get("answer"), i),
            gold=None if gold is None else str(gold),
            question=text_of(question, where),
            prompt=text_of(get("prompt"), where) or None,
            task=str(get("task") or ""),
            policy=None if model is None else str(model),
            step=_whole(step, where),
            finish=finish,
        )


def _lists(get: _Fields, where: str) -> tuple[list[Any], list[Any]]:
    """Responses and their grades, one of each per sample; grades are None where the line has none."""
    response, grade = get("response"), get("correct")
    if response is None and grade is None:
        raise DataError(
            f"{where} has neither responses nor grades (it has: {', '.join(get.row)}): map them, such as "
            "--field response=NAME or --field correct=NAME"
        )
    if isinstance(response, list) and not all(isinstance(r, Mapping) and "role" in r for r in response):
        grades = grade if isinstance(grade, list) else [grade] * len(response) if len(response) == 1 else None
        if grades is None:
            if grade is not None:
                raise DataError(f"{where}: {len(response)} responses with the single grade {grade!r}")
            grades = [None] * len(response)
        if len(grades) != len(response):
            raise DataError(f"{where}: {len(response)} responses but {len(grades)} grades")
        return response, grades
    if response is None and isinstance(grade, list):
        return [""] * len(grade), grade
    return [response], [grade]


class _Fields:
    """Looks our names up in a line: as mapped, else the first of the usual ones that is there."""

    def __init__(self, row: Mapping[str, Any], where: str, fields: Mapping[str, str]) -> None:
        self.row, self.where, self.fields = row, where, fields

    def __call__(self, name: str) -> Any:
        if name in self.fields:
            return need(self.row, self.fields[name], self.where)
        taken = set(self.fields.values())
        return next((self.row[n] for n in NAMES[name] if n in self.row and n not in taken), None)


def _finish(value: Any) -> FinishReason:
    return "length" if value in ("length", "max_tokens") else "eos"


def _whole(value: Any, where: str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: {value!r} is not a whole number") from error


def _nth(value: Any, i: int) -> str:
    return str(value[i]) if isinstance(value, list) and i < len(value) and value[i] is not None else ""
