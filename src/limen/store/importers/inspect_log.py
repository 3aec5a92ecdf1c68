"""Inspect (inspect_ai): `.eval` and `.json` logs. Complete: every epoch of every sample with its score.

`.eval` is a zip with zstd inside and is read by inspect_ai itself (extra `inspect`); `.json` needs nothing.
An epoch that failed has no score and counts as unjudged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from limen.errors import DataError, MissingExtra
from limen.store.importers.base import LogSample, Notes, Options, need, text_of
from limen.types import FinishReason, Outcome

_VALUES: dict[str, Outcome] = {"C": "correct", "I": "wrong", "P": "wrong", "N": "no_answer"}


def read(paths: Sequence[Path], options: Options, notes: Notes) -> Iterator[LogSample]:
    """Samples of every log; epochs are the sample numbers."""
    for path in _files(paths):
        log = _load(path)
        status = log.get("status")
        if status != "success":
            notes[f"{path.name}: status {status!r}, so it may be incomplete"] = 1
        samples = log.get("samples")
        if not samples:
            raise DataError(f"{path} holds no samples (status {status!r}): was it written with log_samples off?")
        task = str(log.get("eval", {}).get("task") or path.stem)
        for sample in samples:
            yield _sample(sample, task, str(log.get("eval", {}).get("model") or ""), path, options, notes)


def _sample(sample: Mapping[str, Any], task: str, model: str, path: Path, options: Options, notes: Notes) -> LogSample:
    where = f"{path} sample {sample.get('id')!r} epoch {sample.get('epoch')}"
    output = sample.get("output") or {}
    choice = (output.get("choices") or [{}])[0]
    text = output.get("completion") or text_of((choice.get("message") or {}).get("content"), where)
    prompt = text_of(need(sample, "input", where), where)
    target = sample.get("target")
    outcome, answer = _score(sample, where, options)
    if sample.get("error"):
        notes["epochs ended with an error and are unjudged"] += 1
        outcome = "unjudged"
    finish: FinishReason = "length" if choice.get("stop_reason") in ("max_tokens", "model_length") else "eos"
    return LogSample(
        problem_id=f"{task}:{need(sample, 'id', where)}",
        sample_index=int(need(sample, "epoch", where)) - 1,
        text=str(text),
        outcome=outcome,
        answer=answer,
        gold=None if target is None else target if isinstance(target, str) else str(target[0]) if target else None,
        question=prompt,
        prompt=prompt,
        task=task,
        policy=model or None,
        finish=finish,
    )


def _score(sample: Mapping[str, Any], where: str, options: Options) -> tuple[Outcome | None, str]:
    scores = sample.get("scores") or {}
    if options.metric:
        score = need(scores, options.metric, where)
    elif len(scores) > 1:
        raise DataError(f"{where} has several scorers ({', '.join(scores)}): say which one counts (--metric)")
    else:
        score = next(iter(scores.values()), None)
    if score is None:
        return None, ""
    value, answer = score.get("value"), str(score.get("answer") or "")
    if isinstance(value, str) and value in _VALUES:
        return _VALUES[value], answer
    if isinstance(value, bool | int | float):
        return ("correct" if float(value) >= options.threshold else "wrong"), answer
    raise DataError(f"{where}: score {value!r} is neither C/I/P/N nor a number")


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted([*path.rglob("*.eval"), *path.rglob("*.json")])
        elif path.exists():
            found.append(path)
        else:
            raise DataError(f"{path}: no such file or folder")
    if not found:
        raise DataError(f"no inspect logs (*.eval, *.json) in {', '.join(map(str, paths))}")
    return found


def _load(path: Path) -> dict[str, Any]:
    if path.suffix == ".json":
        try:
            log = json.loads(path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path} is not whole JSON: {error}") from error
        if not isinstance(log, dict) or "eval" not in log:
            raise DataError(f"{path} is not an inspect log (no 'eval' in it)")
        return log
    try:
        from inspect_ai.log import read_eval_log
    except ModuleNotFoundError as error:
        raise MissingExtra("inspect-ai", "inspect", f"reading {path.name} (a .json log needs nothing)") from error
    loaded: dict[str, Any] = read_eval_log(str(path)).model_dump(mode="json")
    return loaded
