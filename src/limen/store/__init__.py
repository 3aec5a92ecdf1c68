"""The run folder: the contract between sampling, verifying, measuring and reporting.

    RUN/run.json                 what this run is: kind, settings, provenance, status
    RUN/problems.parquet         problems with their rendered prompts
    RUN/rollouts/*.parquet       responses as sampled (append-only shards)
    RUN/verdicts/*.parquet       outcomes, keyed by rollout and verifier (append-only)
    RUN/scores/*.parquet         log-likelihoods, keyed by rollout and scorer (append-only)
    RUN/metrics.jsonl            one line per training step, for training runs

Shards appear whole or not at all, so a run can be killed at any moment.
"""

from limen.store.run import Run
from limen.store.schema import PROBLEMS, ROLLOUTS, SCORES, VERDICTS
from limen.store.writer import ShardWriter

__all__ = ["PROBLEMS", "ROLLOUTS", "SCORES", "VERDICTS", "Run", "ShardWriter"]
