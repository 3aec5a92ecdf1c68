"""Counts from a run folder: reads the verdict columns that are needed, never a response."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from limen.measure.counts import CountTable
from limen.measure.reader import RunReader, text_of

_COUNTS = """
SELECT problem_id::VARCHAR AS problem_id,
       count(*) FILTER (outcome <> 'unjudged') AS n,
       count(*) FILTER (outcome = 'correct') AS c,
       count(*) FILTER (outcome = 'unjudged') AS unjudged,
       count(*) FILTER (outcome = 'no_answer') AS no_answer,
       count(*) FILTER (finish_reason = 'length' AND outcome <> 'unjudged') AS truncated
FROM {source} GROUP BY problem_id
"""


def counts_from_run(
    path: str | Path, policy: str | None = None, step: int | None = None, verifier: str | None = None
) -> CountTable:
    """Success counts of one policy at one step under one verifier.

    Each may be left out where the run holds only one of it; else the `DataError` lists what is there. Samples
    without a verdict, and those that the verifier could not judge, count as unjudged. In a sampling run every
    problem of the run has a row (n = 0 where nothing is sampled yet), so that pass@k is of the same problems
    for every k; in a training run the rows are the problems that were sampled at that step.
    """
    with RunReader(path, policy, step, verifier) as reader:
        rows = {row[0]: row[1:] for row in reader.query(_COUNTS)}
        sampled = {} if reader.stop else reader.sampled()
        ids = reader.problem_ids([*rows, *sampled])
        group, run = reader.group, reader.run
    counts = np.array([rows.get(i, (0, 0, 0, 0, 0)) for i in ids], dtype=np.int64).reshape(len(ids), 5)
    n, c, unjudged, no_answer, truncated = counts.T
    waiting = np.maximum(np.array([sampled.get(i, 0) for i in ids], dtype=np.int64) - n - unjudged, 0)
    notes = []
    if out := run.info.get("left_out", {}).keys() - set(ids):
        notes.append(f"{run.name}: {len(out)} problems were left out of sampling, their prompts being too long")
    if waiting.sum():
        notes.append(f"{run.name}: {int(waiting.sum())} samples have no verdict of {group.verifier} yet")
    if (n == 0).any():
        notes.append(f"{run.name}: {int((n == 0).sum())} of {len(ids)} problems have no judged sample")
    problems = run.problem_table().select(["problem_id", "task", "prompt_hash"]).to_pylist()
    tasks, hashes = text_of(problems, "task"), text_of(problems, "prompt_hash")
    return CountTable.of(
        f"{run.name} step {group.step}" if run.info.get("kind") == "train" else run.name,
        ids,
        n,
        c,
        unjudged=unjudged + waiting,
        no_answer=no_answer,
        truncated=truncated,
        task=[tasks.get(i, "") for i in ids],
        prompt_hash_P=tuple(hashes.get(i, "") for i in ids),
        policy=group.policy,
        step=group.step,
        verifier=group.verifier,
        stop=reader.stop,
        sampling=_sampling(run.settings),
        notes=tuple(notes + _sampling_notes(run.name, run.settings)),
    )


def _sampling(settings: dict[str, Any]) -> dict[str, Any]:
    keep = ("temperature", "top_p", "top_k", "max_tokens")
    return {k: v for k, v in settings.items() if k in keep}


def _sampling_notes(name: str, settings: dict[str, Any]) -> list[str]:
    """Sampling that cuts the tail off cuts support off too."""
    cut = []
    if float(settings.get("top_p") or 1.0) < 1:
        cut.append(f"top-p {settings['top_p']}")
    if int(settings.get("top_k") or 0) > 0:
        cut.append(f"top-k {settings['top_k']}")
    return [f"{name}: sampled with {' and '.join(cut)}, which truncates support"] if cut else []
