"""Checkpoints with their samples, and every set of responses scored under every policy that is asked about it."""

from __future__ import annotations

import gc
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from limen.config import SampleSettings
from limen.dynamics.packed import PackedScorer
from limen.dynamics.probe import Judged, ProbePairs, judged
from limen.dynamics.quantities import Scored
from limen.engines.protocol import ScoreRequest
from limen.engines.runner import Runner
from limen.errors import ConfigError, DataError
from limen.store import Run
from limen.store.writer import atomic_write
from limen.types import content_hash, derive_seed


@dataclass(frozen=True)
class Checkpoint:
    """A policy: its name in tables, its training step where known, its model, and a run of its samples, if there is."""

    name: str
    step: int | None
    model: str
    samples: Path | None


def read_checkpoint(text: str) -> Checkpoint:
    """From `RUN` (a folder of `limen sample`, whose settings name the model), `MODEL` or `MODEL@RUN`."""
    model, at, run_folder = text.rpartition("@")
    if at and (Path(run_folder) / "run.json").exists():
        return _with_samples(Run.open(run_folder), model)
    if (Path(text) / "run.json").exists():
        run = Run.open(text)
        if run.info.get("kind") == "train":
            raise ConfigError(
                f"{text} is a training run: give its checkpoints ({text}/checkpoint-50, ...), or runs of `limen "
                "sample` with them"
            )
        if not run.settings.get("model"):
            raise ConfigError(f"{text} does not say which model drew it: give MODEL@{text}")
        return _with_samples(run, str(run.settings["model"]))
    path = Path(text)
    found = re.fullmatch(r"checkpoint-(\d+)", path.name)
    name = f"{path.parent.name} {found[1]}" if found else path.name
    return Checkpoint(name, int(found[1]) if found else None, text, None)


def _with_samples(run: Run, model: str) -> Checkpoint:
    step = run.settings.get("step")
    name = str(run.settings.get("policy") or run.name)
    return Checkpoint(f"{name} {step}" if step else name, step, model, run.path)


def read_checkpoints(texts: Sequence[str]) -> list[Checkpoint]:
    """In the order given, the base first; names made unique."""
    if len(texts) < 2:
        raise ConfigError("give the base and at least one checkpoint")
    found: list[Checkpoint] = []
    for text in texts:
        c = read_checkpoint(text)
        taken = {f.name for f in found}
        name = next(n for n in (c.name, *(f"{c.name} ({i})" for i in range(2, 1000))) if n not in taken)
        found.append(replace(c, name=name))
    return found


def sample_missing(found: Sequence[Checkpoint], settings: Mapping[str, Any], out: Path) -> list[Checkpoint]:
    """Sample every checkpoint that has no samples, all with these settings, into `out/samples/...`."""
    from limen.sampling import sample_run

    done = []
    for i, c in enumerate(found):
        if c.samples is None:
            folder = out / "samples" / f"{i:02d}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', c.name)}"
            values = {**settings, "model": c.model, "policy": c.name, "step": c.step or 0}
            sample_run(SampleSettings.make(**values), folder)
            c = replace(c, samples=folder)
        done.append(c)
    return done


def take_responses(path: Path, most: int, seed: int) -> ProbePairs:
    """At most `most` judged responses of each problem of a run, picked by `seed`, as pairs to score."""
    run = Run.open(path)
    prompts = run.prompts()
    chosen: list[Judged] = []
    for pid, js in sorted(judged(run).items()):
        good = [j for j in js if j.verdict.outcome != "unjudged" and j.rollout.token_ids]
        if len(good) > most:
            at = np.random.default_rng(derive_seed(seed, "responses", pid)).choice(len(good), most, replace=False)
            good = [good[i] for i in sorted(at)]
        if pid in prompts:
            chosen += good
    if not chosen:
        raise DataError(f"{path} holds no judged response with token ids and a stored prompt: sample it with limen")
    return ProbePairs(
        tuple(ScoreRequest(prompts[j.rollout.problem_id].token_ids, j.rollout.token_ids or ()) for j in chosen),
        tuple((j.rollout.problem_id, j.rollout.sample_index) for j in chosen),
        np.array([j.verdict.correct for j in chosen], dtype=bool),
        run.name,
    )


def score_all(
    checkpoints: Sequence[Checkpoint],
    sets: Mapping[str, ProbePairs],
    wanted: Sequence[tuple[str, int]],
    out: Path,
    device: str | None = None,
    dtype: str | None = None,
    batch_tokens: int | None = None,
    say: Any = None,
) -> dict[tuple[str, int], Scored]:
    """Scores of the wanted (set, place of the checkpoint) pairs. Each model is loaded once; what was scored before lies
    in `out/scores` and is read from there."""
    result: dict[tuple[str, int], Scored] = {}
    by_model: dict[int, list[str]] = defaultdict(list)
    for name, place in dict.fromkeys(wanted):
        by_model[place].append(name)
    for place, names in sorted(by_model.items()):
        c = checkpoints[place]
        files = {n: out / "scores" / f"{_key(sets[n], c.model, dtype)}.npz" for n in names}
        if any(not f.exists() for f in files.values()):
            from limen.models import load_model

            if say is not None:
                say(f"scoring under {c.name}")
            runner = Runner(load_model(c.model, device, dtype).model)
            for n, file in files.items():
                if not file.exists():
                    _save(file, PackedScorer(runner, sets[n].request_N, batch_tokens)(entropies=True))
            del runner
            gc.collect()
        for n, file in files.items():
            result[n, place] = _load(file)
    return result


def _key(pairs: ProbePairs, model: str, dtype: str | None) -> str:
    """Names a scoring: the very token ids, the model (a folder with the time it was written) and the precision."""
    folder = Path(model)
    weights = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    stamp = [[w.name, w.stat().st_size, w.stat().st_mtime_ns] for w in weights]
    ids = [[list(r.prompt_ids), list(r.token_ids)] for r in pairs.request_N]
    return content_hash([ids, str(folder.resolve()) if weights else model, stamp, dtype])


def _save(file: Path, scored: Scored) -> None:
    assert scored.entropy_T is not None
    arrays = {"token": scored.token_T, "offset": scored.offset_N, "entropy": scored.entropy_T}

    def write(temp: Path) -> None:
        with temp.open("wb") as f:
            np.savez(f, **arrays)  # type: ignore[arg-type]

    atomic_write(file, write)


def _load(file: Path) -> Scored:
    with np.load(file, allow_pickle=False) as data:
        return Scored(data["token"], data["offset"], data["entropy"])
