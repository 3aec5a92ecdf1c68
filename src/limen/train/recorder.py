"""Training rollouts and verdicts, written into the run folder as any other samples are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.compute as pc
import pyarrow.parquet as pq

from limen.problems.prompt import text_hash
from limen.store import Run
from limen.store.metrics import keep_metrics
from limen.store.schema import rollout_row, verdict_row
from limen.store.writer import write_table
from limen.types import FinishReason, Rollout, SamplingParams, Verdict

GREEDY = "@greedy"
"""Suffix of the policy name of the screening's greedy responses, so that they never count as samples."""


@dataclass(frozen=True)
class Response:
    """One training response, as it goes from the processes to the store."""

    problem_id: str
    sample_index: int
    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    prompt_text: str
    n_prompt_tokens: int
    verdict: Verdict


class Recorder:
    """Appends to a run's `rollouts` and `verdicts`; `flush` at checkpoints, so that the two never drift apart."""

    def __init__(self, run: Run, policy: str, seed: int, params: SamplingParams, engine: str) -> None:
        self.policy, self.seed, self.params, self.engine = policy, seed, params, engine
        self.greedy_params = SamplingParams(0.0, 1.0, 0, params.max_tokens, params.stop)
        self.rollouts = run.writer("rollouts", rows=16384, seconds=120.0)
        self.verdicts = run.writer("verdicts", rows=16384, seconds=120.0)
        self._hashes: dict[str, str] = {}

    def add(self, step: int, responses: Sequence[Response], greedy: bool = False) -> None:
        """Responses that the policy gave after `step` optimizer steps."""
        for r in responses:
            rollout = Rollout(
                problem_id=r.problem_id,
                policy=self.policy + GREEDY if greedy else self.policy,
                step=step,
                sample_index=r.sample_index,
                seed=self.seed,
                token_ids=r.token_ids,
                text=r.text,
                finish_reason=r.finish_reason,
                prompt_hash=self._hash(r.prompt_text),
                n_prompt_tokens=r.n_prompt_tokens,
                params=self.greedy_params if greedy else self.params,
                engine=self.engine,
            )
            self.rollouts.append(rollout_row(rollout))
            self.verdicts.append(verdict_row(rollout, r.verdict))

    def flush(self) -> None:
        self.rollouts.flush()
        self.verdicts.flush()

    def _hash(self, text: str) -> str:
        if text not in self._hashes:
            self._hashes[text] = text_hash(text)
        return self._hashes[text]


def forget_after(run: Run, step: int) -> None:
    """Before a resumed run goes on from `step`: drop what was recorded from that step on, which will be made anew."""
    for table in ("rollouts", "verdicts"):
        for file in run.shards(table):
            steps = pq.read_table(file, columns=["step"]).column("step")
            if pc.max(steps).as_py() < step:
                continue
            kept = pq.read_table(file).filter(pc.field("step") < step)
            if len(kept):
                write_table(file, kept)
            else:
                file.unlink()
    keep_metrics(run.path / "metrics.jsonl", step)
