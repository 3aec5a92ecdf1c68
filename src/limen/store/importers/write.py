"""From the samples of a log to a run folder."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from limen.errors import ConfigError, DataError, StoreError
from limen.store.importers import inspect_log, jsonl, lighteval, lm_eval, openai_batch, trl, verl
from limen.store.importers.base import Importer, LogSample, Notes, Options
from limen.store.run import Run
from limen.store.schema import rollout_row, verdict_row
from limen.types import Problem, Prompt, Rollout, SamplingParams, Verdict

FORMATS: dict[str, Importer] = {
    "lm-eval": lm_eval.read,
    "lighteval": lighteval.read,
    "inspect": inspect_log.read,
    "trl": trl.read,
    "verl": verl.read,
    "openai-batch": openai_batch.read,
    "jsonl": jsonl.read,
}

_UNKNOWN = SamplingParams(temperature=math.nan, top_p=math.nan, top_k=0, max_tokens=0)


@dataclass(frozen=True)
class Imported:
    """The new run, how many samples of how many problems it holds, and how many the log had graded.

    needs_judging: not every sample had a grade, so none was kept (a mixture of judges is no measurement) and the run
    has to be judged. has_golds: every problem has its answer, so that it can be.
    """

    run: Run
    samples: int
    problems: int
    graded: int
    needs_judging: bool
    has_golds: bool
    notes: tuple[str, ...]


def import_log(
    format: str,
    paths: Sequence[str | Path],
    out: str | Path,
    *,
    name: str | None = None,
    options: Options | None = None,
    keep_grades: bool = True,
) -> Imported:
    """Read a log of `format` into the new run folder `out`.

    name: of the policy where the log gives none (by default the folder's). keep_grades: store the log's own grades
    as verdicts of `FORMAT-log@1` where it graded every sample. Raises `ConfigError` for an unknown format,
    `StoreError` for a folder that is not new, `DataError` for what is wrong with the log.
    """
    if format not in FORMATS:
        raise ConfigError(f"no format is called {format!r}: known are {', '.join(FORMATS)}, counts")
    out, notes, options = Path(out), Notes(), options or Options()
    if out.exists() and any(out.iterdir()):
        raise StoreError(f"{out} is not empty: import into a new folder")
    settings = {"format": format, "paths": [str(p) for p in paths], "threshold": options.threshold}
    existed = out.exists()
    run = Run.create(out, "sample", out.resolve().name, settings)
    writer = _Writer(run, format, name or out.resolve().name, options)
    try:
        for sample in FORMATS[format]([Path(p) for p in paths], options, notes):
            writer.add(sample)
        return writer.finish(notes, keep_grades)
    except BaseException:
        shutil.rmtree(out)  # a folder that holds half a log would be measured as if it were whole
        if existed:
            out.mkdir()
        raise


class _Writer:
    """Collects problems, writes rollouts and grades as they come."""

    def __init__(self, run: Run, format: str, name: str, options: Options) -> None:
        self.run, self.format, self.name, self.options = run, format, name, options
        self.problems: dict[str, Problem] = {}
        self.prompts: dict[str, str | None] = {}
        self.keys: set[tuple[str, str, int, int]] = set()
        self.graded = 0
        self.by_question = {p.problem: p for p in options.problems.values()}
        self.rollouts = run.writer("rollouts", rows=65_536, seconds=math.inf)
        self.verdicts = run.writer("verdicts", rows=65_536, seconds=math.inf)

    def add(self, s: LogSample) -> None:
        s = self._known_problem(s)
        policy = s.policy or self.name
        key = (s.problem_id, policy, s.step, s.sample_index)
        if key in self.keys:
            raise DataError(
                f"sample {s.sample_index} of problem {s.problem_id!r} ({policy}, step {s.step}) occurs twice in the "
                "log: the same samples counted twice would make n a lie. Import each file once"
            )
        self.keys.add(key)
        self._problem(s)
        hashed = _hash(s.prompt) if s.prompt is not None else ""
        rollout = Rollout(
            s.problem_id, policy, s.step, s.sample_index, 0, None, s.text, s.finish, hashed, 0, _UNKNOWN, self.format
        )
        self.rollouts.append(rollout_row(rollout))
        if s.outcome is not None:
            self.graded += 1
            rule = "log" if s.outcome != "unjudged" else "log: no grade"
            verdict = Verdict(s.outcome, s.answer, rule, f"{self.format}-log@1")
            self.verdicts.append(verdict_row(rollout, verdict))

    def finish(self, notes: Notes, keep_grades: bool) -> Imported:
        if not self.keys:
            raise DataError("the log holds no samples")
        golds = all(p.answer for p in self.problems.values())
        ids = list(self.problems)
        texts = [self.prompts[i] for i in ids]
        prompts = None
        if all(t is not None for t in texts):
            prompts = [Prompt(i, t, (), _hash(t)) for i, t in zip(ids, texts) if t is not None]
        self.run.write_problems([self.problems[i] for i in ids], prompts)
        self.rollouts.close()
        needs = self.graded < len(self.keys) or not keep_grades
        if needs:
            shutil.rmtree(self.run.path / "verdicts", ignore_errors=True)
        else:
            self.verdicts.close()
        if len({step for _, _, step, _ in self.keys}) > 1:
            self.run.info["kind"] = "train"  # a step has its own problems; others were not sampled there
        self.run.finish()
        lines = tuple(notes.lines())
        return Imported(self.run, len(self.keys), len(ids), self.graded, needs, golds, lines)

    def _known_problem(self, s: LogSample) -> LogSample:
        """The sample under the id, question and gold of the problems that were given, where they hold it."""
        if not self.options.problems:
            return s
        problem = self.options.problems.get(s.problem_id) or self.by_question.get(s.question)
        if problem is None:
            raise DataError(
                f"problem {s.problem_id!r} of the log is not among the {len(self.options.problems)} problems given, "
                "neither by id nor by question: give the file that the log was made from"
            )
        return replace(
            s, problem_id=problem.id, question=problem.problem, gold=problem.answer, task=problem.task or s.task,
            metadata=problem.metadata,
        )  # fmt: skip

    def _problem(self, s: LogSample) -> None:
        known = self.problems.get(s.problem_id)
        gold = s.gold or ""
        if known is None:
            self.problems[s.problem_id] = Problem(s.problem_id, s.question, gold, s.task, self.format, dict(s.metadata))
            self.prompts[s.problem_id] = s.prompt
            return
        if known.answer != gold:
            raise DataError(
                f"problem {s.problem_id!r} has the answer {gold!r} here and {known.answer!r} before: two problems "
                "share an id, or the log mixes two versions of a data set"
            )
        if s.prompt != self.prompts[s.problem_id]:
            raise DataError(
                f"problem {s.problem_id!r} was given with two different prompts: the log mixes templates, whose "
                "samples are not of one distribution. Import them into folders of their own"
            )


def _hash(text: str) -> str:
    """As limen hashes the prompts that it renders itself."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
