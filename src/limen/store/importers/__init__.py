"""Other people's logs as run folders, so that everything that measures a run measures them.

lm-eval       lm-evaluation-harness samples_*.jsonl (--log_samples)
lighteval     details_*.parquet
inspect       inspect_ai .eval and .json logs
trl           completions_*.parquet of a TRL trainer
verl          validation and rollout dumps of both verl trainers
openai-batch  output of OpenAI-compatible batch endpoints
jsonl         one line per sample (or per problem, with lists), fields by name
counts        n and c per problem: `import_counts`
"""

from limen.store.importers.base import LogSample, Notes, Options
from limen.store.importers.counts import import_counts
from limen.store.importers.write import FORMATS, Imported, import_log

__all__ = ["FORMATS", "Imported", "LogSample", "Notes", "Options", "import_counts", "import_log"]
