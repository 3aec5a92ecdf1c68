"""`sample_run`: problems, engine, verifier and store in one loop."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from limen.config import EXTENT, SPEED, SampleSettings, differences
from limen.engines.protocol import Engine, Sample, SampleRequest
from limen.errors import ConfigError, ModelError, StoreError
from limen.problems import load_problems
from limen.problems.prompt import render
from limen.progress import Meter
from limen.sampling.alarm import RepeatAlarm
from limen.sampling.engine import find_tokenizer, make_engine, make_template
from limen.sampling.golds import auto_verifier, check_golds
from limen.sampling.recorder import Recorder
from limen.store import Run
from limen.types import Problem, Prompt, Rollout, SamplingParams, derive_seed
from limen.verify import VerifierPool

log = logging.getLogger(__name__)


def sample_run(settings: SampleSettings, out: str | Path, engine: Engine | None = None, progress: bool = True) -> Run:
    """Draw `settings.n` samples of every problem into the run folder `out`, judge and store them.

    What the folder holds already is kept: a run that was killed goes on, and a larger n or limit tops it up.
    engine: transformers with `settings.model`, unless another is given (`model` then only names it).

    Raises `ConfigError` where the folder holds a run with other settings, `DataError` for problems or gold answers
    that cannot be used, `ModelError` for the model; all before anything is sampled. `run.info["last"]` says what
    this call did.
    """
    problems = load_problems(settings.problems, settings.limit, settings.columns, settings.split)
    verifier = auto_verifier(problems) if settings.verifier == "auto" else settings.verifier
    off = verifier == "none"
    with nullcontext() if off else _pool(verifier, settings) as pool:
        if pool is not None and not settings.keep_bad_golds:
            check_golds(problems, pool)
        template = make_template(settings)
        prompts = render(problems, find_tokenizer(settings, engine), template)
        run = _open(settings, Path(out), problems, prompts)
        with _sole_writer(run):
            engine = engine or make_engine(settings)
            params = settings.params(template.stop)
            run.info["engine"] = engine.name
            run.info["verifier"] = None if pool is None else pool.version
            run.save()
            _fill(run, settings, problems, prompts, engine, params, pool, progress)
            run.finish()
    return run


def _fill(
    run: Run,
    settings: SampleSettings,
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    engine: Engine,
    params: SamplingParams,
    pool: VerifierPool | None,
    progress: bool,
) -> None:
    """Judge what an earlier start left unjudged, then sample what is missing."""
    policy, step = settings.policy_name, settings.step
    mine = (ds.field("policy") == policy) & (ds.field("step") == step)
    stored = {(pid, i) for pid, _, _, i in run.keys("rollouts", mine)}
    requests = _requests(run, settings, prompts, stored)
    _check_context(requests, params, engine)
    total = settings.n * len(problems)
    missing = sum(len(r.sample_indices) for r in requests)
    by_id = {p.id: p for p in run.problems()}
    prompt_of = {p.problem_id: p for p in prompts}
    alarm, drawn = RepeatAlarm(), Counter[str]()
    with Recorder(run, by_id, pool, settings.flush_seconds) as recorder:
        if pool is not None:
            for rollout in _unjudged(run, mine, pool.version, stored):
                recorder.add(rollout, stored=True)
        with Meter(f"sampling {run.name}", total, total - missing, progress) as meter:
            for sample in engine.sample(requests, params):
                recorder.add(_rollout(sample, prompt_of[sample.problem_id], policy, step, params, engine.name))
                drawn[sample.problem_id] += 1
                if sample.token_ids is not None and params.temperature > 0:
                    alarm.add(sample.problem_id, sample.token_ids, sample.log_q)
                meter.advance(1, len(sample.token_ids or ()), _note(recorder))
    run.info["last"] = {
        "samples": sum(drawn.values()),
        "tokens": meter.tokens,
        "seconds": round(meter.seconds, 3),
        "tokens_per_second": round(meter.tokens_per_second, 1),
    }
    message = alarm.message(drawn)
    if message is not None:
        run.info.setdefault("alarms", []).append(message)
        log.warning("%s: %s", run.name, message)


def _requests(
    run: Run, settings: SampleSettings, prompts: Sequence[Prompt], stored: set[tuple[str, int]]
) -> list[SampleRequest]:
    """What is missing, each with its own seed: hash of (seed, run, policy, step, problem, sample)."""
    requests = []
    for prompt in prompts:
        pid = prompt.problem_id
        indices = tuple(i for i in range(settings.n) if (pid, i) not in stored)
        who = (run.name, settings.policy_name, settings.step, pid)
        seeds = tuple(derive_seed(settings.seed, *who, i) for i in indices)
        if indices:
            requests.append(SampleRequest(prompt, indices, seeds))
    return requests


def _open(settings: SampleSettings, out: Path, problems: Sequence[Problem], prompts: Sequence[Prompt]) -> Run:
    """A new run folder, or the one that is there if it is of the same settings and problems."""
    wanted = settings.model_dump(mode="json")
    if not (out / "run.json").exists():
        run = Run.create(out, "sample", out.resolve().name, wanted)
        run.write_problems(problems, prompts)
        return run
    run = Run.open(out)
    if run.info.get("kind") != "sample":
        raise StoreError(f"{out} is a run of kind '{run.info.get('kind')}', not of sampling: choose another folder")
    stored = {**SampleSettings.model_construct(model="", problems="").model_dump(mode="json"), **run.settings}
    differ = differences(stored, wanted, EXTENT | SPEED)
    if differ:
        raise ConfigError(
            f"{out} holds a run with other settings ({'; '.join(differ)}): give the same settings to go on with it, or "
            "choose another folder"
        )
    every, all_prompts = _merge(run, out, problems, prompts)
    run = Run.create(out, "sample", run.name, wanted)
    run.info["settings"] = {**wanted, "n": max(settings.n, stored["n"]), "limit": _wider(settings, stored, len(every))}
    run.info["status"] = "running"
    run.write_problems(every, all_prompts)
    run.save()
    return run


def _wider(settings: SampleSettings, stored: dict[str, Any], count: int) -> int | None:
    """The limit that describes what the folder now holds."""
    return None if settings.limit is None or stored["limit"] is None else max(settings.limit, stored["limit"], count)


def _merge(
    run: Run, out: Path, problems: Sequence[Problem], prompts: Sequence[Prompt]
) -> tuple[list[Problem], list[Prompt]]:
    """Stored problems and new ones; refuses what has changed under an id, and lists that are no longer alike."""
    old, old_prompts = {p.id: p for p in run.problems()}, run.prompts()
    new = {p.id: (p, q) for p, q in zip(problems, prompts, strict=True)}
    for pid in old.keys() & new.keys():
        if old[pid].answer != new[pid][0].answer or old_prompts[pid].hash != new[pid][1].hash:
            raise ConfigError(
                f"{out}: problem {pid} has another prompt or answer than when the run began: choose another folder"
            )
    if old.keys() - new.keys() and new.keys() - old.keys():
        raise ConfigError(f"{out}: the problems are others than when the run began: choose another folder")
    extra = [pair for pid, pair in new.items() if pid not in old]
    return [*old.values(), *(p for p, _ in extra)], [*(old_prompts[i] for i in old), *(q for _, q in extra)]


def _unjudged(run: Run, mine: ds.Expression, version: str, stored: set[tuple[str, int]]) -> Iterator[Rollout]:
    judged = {(pid, i) for pid, _, _, i in run.keys("verdicts", mine & (ds.field("verifier") == version))}
    if stored - judged:
        for rollout in run.rollouts(mine):
            if (rollout.problem_id, rollout.sample_index) not in judged:
                yield rollout


def _check_context(requests: Sequence[SampleRequest], params: SamplingParams, engine: Engine) -> None:
    context: int | None = getattr(engine, "context", None)
    if context is None:
        return
    long = [r.prompt for r in requests if len(r.prompt.token_ids) + params.max_tokens > context]
    if long:
        shown = ", ".join(f"{p.problem_id} ({len(p.token_ids)} tokens)" for p in long[:5])
        raise ModelError(
            f"{len(long)} prompts do not fit the model's context of {context} tokens together with max_tokens "
            f"{params.max_tokens}: {shown}{', ...' if len(long) > 5 else ''}. Lower max_tokens, or leave them out"
        )


def _rollout(sample: Sample, prompt: Prompt, policy: str, step: int, params: SamplingParams, engine: str) -> Rollout:
    return Rollout(
        problem_id=sample.problem_id,
        policy=policy,
        step=step,
        sample_index=sample.sample_index,
        seed=sample.seed,
        token_ids=sample.token_ids,
        text=sample.text,
        finish_reason=sample.finish_reason,
        prompt_hash=prompt.hash,
        n_prompt_tokens=len(prompt.token_ids),
        params=params,
        engine=engine,
        logprobs=sample.logprobs,
    )


def _note(recorder: Recorder) -> str:
    judged = sum(recorder.outcomes.values())
    return f"correct {recorder.outcomes['correct'] / judged:.0%}" if judged else ""


def _pool(verifier: Any, settings: SampleSettings) -> VerifierPool:
    return VerifierPool(verifier, workers=settings.verify_workers, deadline=settings.verify_deadline)


@contextmanager
def _sole_writer(run: Run) -> Iterator[None]:
    """Hold the folder's lock; the system lets go of it however this process ends."""
    import fcntl

    with (run.path / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(f"{run.path}: another process is sampling into this folder: wait for it") from error
        yield
