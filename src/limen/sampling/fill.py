"""Filling a run folder with the samples that are missing, alone or beside other processes."""

from __future__ import annotations

import functools
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow.dataset as ds

from limen.config import SampleSettings
from limen.engines.protocol import Engine, Sample, SampleRequest
from limen.errors import ModelError
from limen.progress import Meter
from limen.sampling.alarm import RepeatAlarm
from limen.sampling.leases import LeaseLost, Leases
from limen.sampling.recorder import Recorder
from limen.sampling.stopping import Stopping
from limen.store import Run
from limen.types import Prompt, Rollout, SamplingParams, derive_seed
from limen.verify import VerifierPool

log = logging.getLogger(__name__)

UNIT_SAMPLES = 512
"""About so many samples make a unit that one of several processes leases at a time."""
ADAPTIVE_SAMPLES = 16
"""What a problem is taken to need at most for the size of a unit, where sampling stops early."""


class Filling:
    """One call of `sample_run` on an open run: what is missing, drawn, judged and written."""

    def __init__(
        self,
        run: Run,
        settings: SampleSettings,
        prompts: Sequence[Prompt],
        engine: Engine,
        params: SamplingParams,
        pool: VerifierPool | None,
        progress: bool,
    ) -> None:
        self.run, self.settings, self.prompts = run, settings, prompts
        self.engine, self.params, self.pool = engine, params, pool
        self.policy, self.step = settings.policy_name, settings.step
        self.mine = (ds.field("policy") == self.policy) & (ds.field("step") == self.step)
        self.problems = {p.id: p for p in run.problems()}
        self.alarm, self.drawn = RepeatAlarm(), Counter[str]()
        self._in_unit: set[tuple[str, int]] = set()
        self._given_up: set[tuple[str, int]] = set()
        stored = self._stored()
        prompts = self.prompts = self._fitting(prompts)
        total = settings.n * len(prompts)
        missing = self._requests(prompts, stored)
        done = total - sum(len(r.sample_indices) for r in missing)
        self.meter = Meter(f"sampling {run.name}", total, done, progress)

    def _fitting(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """The prompts that fit the context together with a response; the others stop the run, or are left out of it."""
        context: int | None = getattr(self.engine, "context", None)
        most = self.params.max_tokens
        long = [p for p in prompts if context is not None and len(p.token_ids) + most > context]
        left_out: dict[str, int] = self.run.info.get("left_out", {})
        again = {p.problem_id for p in prompts} & left_out.keys() - {p.problem_id for p in long}
        if again:  # this engine has room for what another had not
            self._leave_out({pid: n for pid, n in left_out.items() if pid not in again})
        if not long:
            return list(prompts)
        shown = ", ".join(f"{p.problem_id} ({len(p.token_ids)} tokens)" for p in long[:5])
        told = (
            f"{len(long)} prompts do not fit the model's context of {context} tokens together with max_tokens "
            f"{most}: {shown}{', ...' if len(long) > 5 else ''}"
        )
        if not self.settings.leave_out_long or len(long) == len(prompts):
            raise ModelError(f"{told}. Lower max_tokens, or leave them out (--leave-out-long)")
        gone = {p.problem_id: len(p.token_ids) for p in long}
        self._leave_out({**self.run.info.get("left_out", {}), **gone})
        log.warning("%s: left out: %s", self.run.name, told)
        return [p for p in prompts if p.problem_id not in gone]

    def _leave_out(self, lengths: dict[str, int]) -> None:
        with self.run.changing() as info:
            info["left_out"] = lengths

    def fill(self) -> None:
        """Judge what an earlier start left unjudged, and sample what is missing."""
        with self.meter:
            if self.settings.share:
                self._shared()
            else:
                self._unit(self.prompts, self._recorder())
        message = self.alarm.message(self.drawn)
        with self.run.changing() as info:
            info["last"] = {
                "samples": sum(self.drawn.values()),
                "tokens": self.meter.tokens,
                "seconds": round(self.meter.seconds, 3),
                "tokens_per_second": round(self.meter.tokens_per_second, 1),
            }
            if message is not None:
                info.setdefault("alarms", []).append(message)
            info["status"] = "done"
        if message is not None:
            log.warning("%s: %s", self.run.name, message)

    def _recorder(self, guard: Callable[[], None] = lambda: None) -> Recorder:
        return Recorder(self.run, self.problems, self.pool, self.settings.flush_seconds, guard)

    def _shared(self) -> None:
        """Unit by unit under leases; each looks anew at what is stored, because others write too."""
        leases = Leases(self.run.path, self.settings.lease_seconds)
        units = self._units()
        for unit in leases.work(list(units)):
            try:
                self._unit(units[unit], self._recorder(functools.partial(leases.check, unit)))
            except LeaseLost as error:
                self._given_up |= self._in_unit
                log.warning("%s", error)

    def _units(self) -> dict[str, list[Prompt]]:
        """Problems in groups of about `UNIT_SAMPLES` samples, by their place in the folder.

        A process that was started with another n or limit must name the same group alike, or two would draw the same
        samples: so the first one settles the size of a group, and a group's name does not depend on what is in it.
        """
        n = self.settings.n if self.settings.stop_after_successes is None else min(self.settings.n, ADAPTIVE_SAMPLES)
        with self.run.changing() as info:
            size = info.setdefault("unit_problems", max(1, UNIT_SAMPLES // n))
        units: defaultdict[str, list[Prompt]] = defaultdict(list)
        place = {pid: i for i, pid in enumerate(self.problems)}
        for prompt in sorted(self.prompts, key=lambda p: place[p.problem_id]):
            units[f"{place[prompt.problem_id] // size:06d}"].append(prompt)
        return units

    def _unit(self, prompts: Sequence[Prompt], recorder: Recorder) -> None:
        self._in_unit = set()
        prompt_of = {p.problem_id: p for p in prompts}
        stored = self._stored(prompt_of)
        stop = self._stopping(prompts, stored)
        with recorder:
            if self.pool is not None:
                for rollout in self._unjudged(prompt_of, stored, self.pool.version):
                    recorder.add(rollout, stored=True)
            if stop is None:
                self._draw(self._requests(prompts, stored), prompt_of, recorder)
                return
            recorder.settle()
            while wanted := stop.wanted(recorder.correct):
                requests = [self._request(prompt_of[pid], indices) for pid, indices in wanted.items()]
                self._draw(requests, prompt_of, recorder)
                recorder.settle()
            self.meter.forgo(stop.spared)

    def _draw(self, requests: list[SampleRequest], prompt_of: dict[str, Prompt], recorder: Recorder) -> None:
        for sample in self.engine.sample(requests, self.params):
            recorder.add(self._rollout(sample, prompt_of[sample.problem_id]))
            key = sample.problem_id, sample.sample_index
            self._in_unit.add(key)
            if key not in self._given_up:  # else it is the same once more, and counted already
                self.drawn[sample.problem_id] += 1
                if sample.token_ids is not None and self.params.temperature > 0:
                    self.alarm.add(sample.problem_id, sample.token_ids, sample.log_q)
            self.meter.advance(1, len(sample.token_ids or ()), _note(recorder))

    def _stopping(self, prompts: Sequence[Prompt], stored: set[tuple[str, int]]) -> Stopping | None:
        """The stopping rule with what the folder says so far, or None where every problem gets n samples."""
        if self.settings.stop_after_successes is None or self.pool is None:
            return None
        mine = self.mine & (ds.field("verifier") == self.pool.version) & (ds.field("outcome") == "correct")
        known = Counter(pid for pid, *_ in self.run.keys("verdicts", mine))
        ids = [p.problem_id for p in prompts]
        return Stopping(self.settings.stop_after_successes, self.settings.n, ids, stored, known)

    def _stored(self, ids: Iterable[str] | None = None) -> set[tuple[str, int]]:
        """(problem, sample) of what the folder holds, of some problems or of all."""
        where = self.mine if ids is None else self.mine & ds.field("problem_id").isin(list(ids))
        return {(pid, i) for pid, _, _, i in self.run.keys("rollouts", where)}

    def _requests(self, prompts: Sequence[Prompt], stored: set[tuple[str, int]]) -> list[SampleRequest]:
        """What is missing of n samples of each."""
        requests = []
        for prompt in prompts:
            indices = tuple(i for i in range(self.settings.n) if (prompt.problem_id, i) not in stored)
            if indices:
                requests.append(self._request(prompt, indices))
        return requests

    def _request(self, prompt: Prompt, indices: tuple[int, ...]) -> SampleRequest:
        """Each sample has a seed of its own: hash of (seed, run, policy, step, problem, sample)."""
        who = (self.run.name, self.policy, self.step, prompt.problem_id)
        return SampleRequest(prompt, indices, tuple(derive_seed(self.settings.seed, *who, i) for i in indices))

    def _unjudged(self, prompt_of: dict[str, Prompt], stored: set[tuple[str, int]], version: str) -> Iterator[Rollout]:
        judged = {(p, i) for p, _, _, i in self.run.keys("verdicts", self.mine & (ds.field("verifier") == version))}
        waiting = {key for key in stored - judged if key[0] in prompt_of}
        if waiting:
            for rollout in self.run.rollouts(self.mine):
                if (rollout.problem_id, rollout.sample_index) in waiting:
                    yield rollout

    def _rollout(self, sample: Sample, prompt: Prompt) -> Rollout:
        return Rollout(
            problem_id=sample.problem_id,
            policy=self.policy,
            step=self.step,
            sample_index=sample.sample_index,
            seed=sample.seed,
            token_ids=sample.token_ids,
            text=sample.text,
            finish_reason=sample.finish_reason,
            prompt_hash=prompt.hash,
            n_prompt_tokens=len(prompt.token_ids),
            params=self.params,
            engine=self.engine.name,
            logprobs=sample.logprobs,
        )


def _note(recorder: Recorder) -> str:
    judged = sum(recorder.outcomes.values())
    return f"correct {recorder.outcomes['correct'] / judged:.0%}" if judged else ""
