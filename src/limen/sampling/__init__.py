"""From problems and a model to a run folder: sample, judge, store; killed at any moment, gone on with, topped up.

sample_run(settings, out)      what `limen sample` does
score_run(path, engine, name)  what `limen score` does
"""

from limen.sampling.run import sample_run
from limen.sampling.score import score_run

__all__ = ["sample_run", "score_run"]
