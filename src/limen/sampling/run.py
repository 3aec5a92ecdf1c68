"""`sample_run`: problems, engine, verifier and store in one loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from limen.config import EXTENT, SPEED, SampleSettings, differences
from limen.engines.needs import as_json, needs_of, prepare, require
from limen.engines.protocol import Engine
from limen.errors import ConfigError, StoreError
from limen.model_files import changed, fingerprint, said
from limen.problems import load_problems
from limen.problems.prompt import render
from limen.provenance import provenance
from limen.sampling.engine import make_template, opened, prompt_tokenizer
from limen.sampling.fill import Filling
from limen.sampling.golds import auto_verifier, check_golds
from limen.sampling.repair import drop_orphans
from limen.store import Run
from limen.store.mirror import Mirror, mirrored
from limen.store.run import file_lock
from limen.types import Problem, Prompt
from limen.verify import VerifierPool

SAME_DRAW = {"transformers", "vllm"}
"""Engines that draw the same response from the same seed, so that one may go on with the other's run (every rollout
says which drew it)."""


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
        prompts = render(problems, prompt_tokenizer(settings, engine), template)
        mirror = Mirror(settings.mirror) if settings.mirror else None
        if mirror is not None:
            mirror.pull(Path(out))
        # An engine that is given holds weights of its own; a server's are not here to be looked at.
        weights = fingerprint(settings.model) if engine is None and settings.engine != "http" else None
        with (
            _held(settings, Path(out), problems, prompts, weights) as run,
            mirrored(run.path, mirror, settings.flush_seconds),
            opened(settings, engine) as engine,
        ):
            params = settings.params(template.stop)
            prepare(engine, prompts, params)
            require(engine, needs_of(params, settings.logprobs, settings.need))
            with run.changing() as info:
                info.update(engine=engine.name, capabilities=as_json(engine))
                info["verifier"] = None if pool is None else pool.version
            Filling(run, settings, prompts, engine, params, pool, progress).fill()
    return run


@contextmanager
def _held(
    settings: SampleSettings,
    out: Path,
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    weights: dict[str, str] | None,
) -> Iterator[Run]:
    """The run folder, new or gone on with, under its lock. One that cannot be used now is left as it is."""
    fresh = not (out / "run.json").exists()
    run = Run.create(out, "sample", out.resolve().name, settings.model_dump(mode="json")) if fresh else Run.open(out)
    if run.info.get("kind") != "sample":
        raise StoreError(f"{out} is a run of kind '{run.info.get('kind')}', not of sampling: choose another folder")
    unused = fresh or _unused(run)
    with _lock(run, settings.share):
        with run.changing() as info:
            _same_weights(run, info, settings, weights, unused)
            _go_on(run, info, settings, problems, prompts, unused)
            if not fresh:
                info.setdefault("sessions", []).append(provenance())
        drop_orphans(run, alone=not settings.share)
        yield run


def _go_on(
    run: Run,
    info: dict[str, Any],
    settings: SampleSettings,
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    unused: bool,
) -> None:
    """Bring the folder's settings and problems up to these. Raises `ConfigError` where they are others."""
    wanted = settings.model_dump(mode="json")
    stored = {**SampleSettings.model_construct(model="", problems="").model_dump(mode="json"), **run.settings}
    if {stored["engine"], wanted["engine"]} <= SAME_DRAW:
        stored["engine"] = wanted["engine"]
    differ = differences(stored, wanted, EXTENT | SPEED)
    if differ and not unused:
        raise ConfigError(
            f"{run.path} holds a run with other settings ({'; '.join(differ)}): give the same settings to go on with "
            "it, or choose another folder"
        )
    info["status"] = "running"
    if differ:
        info["settings"] = wanted
        run.write_problems(problems, prompts)
        return
    every, all_prompts = _merge(run, run.path, problems, prompts)
    info["settings"] = {**wanted, "n": max(settings.n, stored["n"]), "limit": _wider(settings, stored, len(every))}
    run.write_problems(every, all_prompts)


def _same_weights(
    run: Run, info: dict[str, Any], settings: SampleSettings, weights: dict[str, str] | None, unused: bool
) -> None:
    """Refuse a model folder that holds other weights than when the run began, and keep in run.json what it holds now.
    Raises `ConfigError`. Runs that older versions began have nothing to compare with."""
    before = info.get("weights")
    # Another model is another setting, which is refused as one.
    if weights is not None and before and not unused and run.settings.get("model") == settings.model:
        words = changed(before, weights)
        if words:
            raise ConfigError(
                f"{run.path} was drawn with other weights than {settings.model} holds now ({said(words)}), "
                "and one run is of one policy: sample into another folder, or bring the weights back"
            )
    if unused:
        info.pop("weights", None)
    if weights:
        info["weights"] = weights


def _unused(run: Run) -> bool:
    """Whether an earlier start failed before its first sample and nobody is at work: its settings bind nothing."""
    if run.shards("rollouts"):
        return False
    try:
        with _lock(run, share=False):
            return True
    except StoreError:
        return False


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


def _pool(verifier: Any, settings: SampleSettings) -> VerifierPool:
    if settings.ray:
        from limen.sampling.cluster_judges import ClusterJudges

        return ClusterJudges(verifier, settings)
    return VerifierPool(verifier, workers=settings.verify_workers, deadline=settings.verify_deadline)


@contextmanager
def _lock(run: Run, share: bool) -> Iterator[None]:
    """Hold the folder's lock, alone or with others that share."""
    with ExitStack() as held:
        try:
            held.enter_context(file_lock(run.path / ".lock", share, wait=False))
        except BlockingIOError as error:
            raise StoreError(
                f"{run.path}: another process is sampling into this folder: wait for it, or start all of them with "
                "--share"
            ) from error
        yield
