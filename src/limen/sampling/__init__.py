"""From problems and a model to a run folder: sample, judge, store; killed at any moment, gone on with, topped up.

sample_run(settings, out)      what `limen sample` does
score_run(run, model)          what `limen score` does
"""

from limen.sampling.run import sample_run

__all__ = ["sample_run"]
