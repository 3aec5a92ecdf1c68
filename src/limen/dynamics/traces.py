"""External traces (IL table 2): how likely are somebody else's solutions under the base and under a trained policy?

Questions are grouped by who solves them: both, only the base (shrinkage), only the trained policy (expansion), neither.
The perplexity is over the reasoning tokens of a trace: its field `reasoning`, else what stands between `<think>` and
`</think>`, else the whole `response`. Traces come as text, so they are tokenised with the policy's tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from limen.dynamics.between import Data
from limen.dynamics.checkpoints import score_all
from limen.dynamics.probe import ProbePairs
from limen.dynamics.resample import Resampler
from limen.engines.protocol import ScoreRequest
from limen.errors import DataError
from limen.store import Run
from limen.store.jsonl import json_rows

GROUPS = ("kept", "shrinkage", "expansion", "neither")
SET = "@traces"


@dataclass(frozen=True)
class Trace:
    problem_id: str
    source: str
    text: str


def read_traces(path: Path) -> list[Trace]:
    """JSON lines with `problem_id`, `reasoning` or `response`, and optionally `source` (who wrote it)."""
    if not path.is_file():
        raise DataError(f"{path} is not a file: give JSON lines with problem_id, response (or reasoning) and source")
    found = []
    for where, row in json_rows(path):
        text = row.get("reasoning") or row.get("response")
        if not isinstance(text, str) or row.get("problem_id") is None:
            raise DataError(f"{where} needs problem_id, and response or reasoning as text; it has: {', '.join(row)}")
        found.append(Trace(str(row["problem_id"]), str(row.get("source") or path.stem), reasoning_part(text)))
    if not found:
        raise DataError(f"{path} holds no traces")
    return found


def reasoning_part(text: str) -> str:
    """What stands between `<think>` and `</think>` (the tags may be left open at either end), else all of it."""
    found = re.search(r"(?:<think>)(.*?)(?:</think>|\Z)|\A(.*?)</think>", text, flags=re.S)
    inner = (found[1] or found[2] or "") if found else text
    return inner if inner.strip() else text


def support_groups(base_c: Sequence[int], trained_c: Sequence[int]) -> list[str]:
    """Group of each question from the success counts of the base and of the trained policy."""
    names = {(True, True): "kept", (True, False): "shrinkage", (False, True): "expansion", (False, False): "neither"}
    return [names[b > 0, t > 0] for b, t in zip(base_c, trained_c, strict=True)]


def trace_table(
    d: Data, traces: Sequence[Trace], out: Path, device: str | None, dtype: str | None, say: Any = None
) -> list[dict[str, Any]]:
    """One row per source, group and policy (base and last checkpoint): mean perplexity of the traces, with interval."""
    base, last = d.counts[0], len(d.checkpoints) - 1
    trained = d.counts[last]
    if base is None or trained is None:
        raise DataError("traces are grouped by who solves a question: the base and the last checkpoint need samples")
    at = {p: i for i, p in enumerate(trained.problem_ids)}
    trained_c = [int(trained.c_P[at[p]]) for p in base.problem_ids]
    group_of = dict(zip(base.problem_ids, support_groups(base.c_P.tolist(), trained_c), strict=True))
    known = [t for t in traces if t.problem_id in group_of]
    if not known:
        raise DataError("no trace is of a problem that was sampled: problem_id must be the run's")
    if len(known) < len(traces):
        d.notes.append(f"{len(traces) - len(known)} traces are of problems that were not sampled, and left out")
    samples = d.checkpoints[0].samples
    assert samples is not None
    pairs = _pairs(known, samples, d.checkpoints[0].model)
    scores = score_all(d.checkpoints, {SET: pairs}, [(SET, 0), (SET, last)], out, device, dtype, None, say)
    r = Resampler(list(base.problem_ids), d.draws, d.seed)
    rows = []
    for source in dict.fromkeys(t.source for t in known):
        for group in GROUPS:
            keep = np.array([t.source == source and group_of[t.problem_id] == group for t in known], dtype=bool)
            for place in (0, last):
                ppl = r.mean(np.exp(-scores[SET, place].mean_N), pairs.problem_N, keep)
                name = d.checkpoints[place].name
                rows.append({"source": source, "group": group, "policy": name, "traces": int(keep.sum()), "ppl": ppl})
    return rows


def _pairs(traces: Sequence[Trace], samples: Path, model: str) -> ProbePairs:
    from limen.models import load_tokenizer

    prompts, tokenizer = Run.open(samples).prompts(), load_tokenizer(model)
    requests = [
        ScoreRequest(prompts[t.problem_id].token_ids, tuple(tokenizer.encode(t.text, add_special_tokens=False)))
        for t in traces
    ]
    keys = tuple((t.problem_id, i) for i, t in enumerate(traces))
    return ProbePairs(tuple(requests), keys, np.ones(len(traces), dtype=bool), "traces")
