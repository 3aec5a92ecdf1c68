"""Output files of OpenAI-compatible batch endpoints: one line per request, matched to problems by `custom_id`.

The output knows neither question nor answer: give the problems (--problems). A custom_id is a problem id, or is taken
apart by --id-pattern, such as '(?P<problem>.+)-(?P<sample>[0-9]+)'. Each of a request's `choices` is a sample.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from limen.errors import DataError
from limen.store.importers.base import LogSample, Notes, Numbering, Options, find_files, need, text_of
from limen.store.jsonl import json_rows
from limen.types import FinishReason

_FINISH: dict[str, FinishReason] = {"length": "length", "stop": "eos"}


def read(paths: Sequence[Path], options: Options, notes: Notes) -> Iterator[LogSample]:
    """Samples of every request that succeeded; failed ones are counted in the notes."""
    if not options.problems:
        raise DataError("batch output holds no questions and answers: give the problems with --problems FILE")
    number, pattern = Numbering(), options.pattern()
    seen: dict[str, str] = {}
    for path in find_files(paths, "*.jsonl", "batch output"):
        for where, row in json_rows(path):
            custom = str(need(row, "custom_id", where))
            if custom in seen:
                raise DataError(f"{where}: custom_id {custom!r} was already at {seen[custom]}: a batch in twice?")
            seen[custom] = where
            body = _body(row)
            if body is None:
                notes["requests failed and gave no sample"] += 1
                continue
            problem, sample = custom, None
            if pattern is not None:
                found = pattern.fullmatch(custom)
                if found is None:
                    raise DataError(f"{where}: custom_id {custom!r} does not fit the id pattern {pattern.pattern!r}")
                problem, sample = found["problem"], found.groupdict().get("sample")
            if problem not in options.problems:
                raise DataError(
                    f"{where}: no problem {problem!r} among the {len(options.problems)} given (custom_id {custom!r}): "
                    "give their file, or an --id-pattern that takes the custom_id apart"
                )
            choices = body.get("choices") or []
            for choice in choices:
                alone = sample is not None and len(choices) == 1
                yield LogSample(
                    problem_id=problem,
                    sample_index=int(str(sample)) if alone and str(sample).isdigit() else number(problem),
                    text=_text(choice, where),
                    policy=str(body["model"]) if body.get("model") else None,
                    finish=_FINISH.get(str(choice.get("finish_reason")), "eos"),
                )


def _body(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The answer of a request, or None where it failed."""
    response = row.get("response")
    if row.get("error") or not isinstance(response, Mapping) or response.get("status_code", 200) != 200:
        return None
    body = response.get("body")
    return json.loads(body) if isinstance(body, str) else body if isinstance(body, Mapping) else None


def _text(choice: Mapping[str, Any], where: str) -> str:
    message = choice.get("message")
    if isinstance(message, Mapping):
        return text_of([message], where)
    return text_of(choice.get("text"), where)
