"""Tasks of Reasoning Gym: `reasoning_gym:chain_sum?min_terms=2&max_terms=3&seed=0&size=100`."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

from limen.errors import DataError
from limen.problems.rows import plain_json
from limen.types import Problem, content_hash


def load_gym(task: str, options: dict[str, str], limit: int | None) -> list[Problem]:
    """The first `size` (default 100; or `limit`, if smaller) distinct problems of a task, from `seed` (default 0).

    Item i of a task depends on seed and i only, so a longer list begins with a shorter one. A question that came
    before is passed over. `metadata` is `{"source_dataset": task, "entry": {question, answer, metadata}, "index": i,
    "config": {...}}`: what the task's own scorer needs, and what makes the entry anew. Raises `DataError` for an
    unknown task, an unknown or impossible option, and where a task has fewer than `size` distinct problems.
    """
    settings: dict[str, Any] = {"seed": 0, "size": 100} | {key: _value(text) for key, text in options.items()}
    size = settings["size"] if limit is None else min(limit, settings["size"])
    if not isinstance(size, int) or size < 1:
        raise DataError(f"reasoning_gym:{task}: size is {settings['size']!r}, expected a whole number of at least 1")
    tries = 20 * size + 100
    dataset = _create(task, {**settings, "size": tries})
    config = plain_json(dataclasses.asdict(dataset.config))
    del config["size"]
    problems: dict[str, Problem] = {}
    for index in range(tries):
        entry = plain_json(dataset[index])
        problem = _problem(task, entry, index, config)
        problems.setdefault(problem.id, problem)
        if len(problems) == size:
            return list(problems.values())
    raise DataError(
        f"reasoning_gym:{task} gives only {len(problems)} distinct problems in {tries} tries with {options}, "
        f"but {size} are asked for: lower size, or widen the options"
    )


def _problem(task: str, entry: dict[str, Any], index: int, config: dict[str, Any]) -> Problem:
    answer = entry.get("answer")
    return Problem(
        id=content_hash([task, entry["question"]]),
        problem=entry["question"],
        answer="" if answer is None else str(answer),
        task=task,
        source="reasoning_gym",
        metadata={"entry": entry, "source_dataset": task, "index": index, "config": config},
    )


def _create(task: str, settings: dict[str, Any]) -> Any:
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    if task not in DATASETS:
        raise DataError(
            f"Reasoning Gym has no task '{task}'{_near(task, list(DATASETS))}: `python -c \"from reasoning_gym.factory "
            'import DATASETS; print(*DATASETS)"` lists them'
        )
    known = [field.name for field in dataclasses.fields(DATASETS[task][1])]
    for key in settings:
        if key not in known:
            raise DataError(f"reasoning_gym:{task} has no option '{key}': expected some of {', '.join(known)}")
    try:
        return reasoning_gym.create_dataset(task, **settings)
    except (AssertionError, TypeError, ValueError) as error:
        raise DataError(f"reasoning_gym:{task} refuses {settings}: {error}") from error


def _near(word: str, words: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, words, 3)
    return f" (near: {', '.join(close)})" if close else ""


def _value(text: str) -> Any:
    """An option as the Python literal that it looks like, else as text; true and false in lower case too."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
