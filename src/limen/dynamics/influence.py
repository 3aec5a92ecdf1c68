"""`limen influence`: the influence kernel of a run at each of its checkpoints, what it predicts, and who did what.

At every checkpoint: K between training samples of that step and a fixed set of probe pairs, the spectrum of the
probe pairs' own kernel matrix, predicted against measured change for one real step, and at the end the attribution.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from limen.dynamics.attribution import Effect, attribute, solved_changes
from limen.dynamics.influence_adam import AdamState, fresh_adam, load_adam
from limen.dynamics.influence_gradients import Gradients, Pair, Reduce
from limen.dynamics.influence_kernel import SKETCH_WIDTH, gradient_rows, gram
from limen.dynamics.influence_pairs import (
    BINARY,
    Advantages,
    Normaliser,
    choose_groups,
    choose_probe,
    policy_batch,
    read_pairs,
    training_steps,
)
from limen.dynamics.influence_spectrum import Spectrum, spectrum
from limen.dynamics.influence_step import Prediction, predict_step
from limen.errors import ConfigError, DataError, StoreError
from limen.models import load_model
from limen.store import Run
from limen.store.jsonl import strict_json

log = logging.getLogger(__name__)

Form = Literal["sgd", "adam"]


@dataclass(frozen=True)
class Options:
    """What is measured.

    `train`: training samples of each checkpoint, at most (whole groups); `pairs`: probe pairs, at most; `each`:
    responses of a probe problem; None: all. `sketch`: its width, 0 exact, None as memory allows. `lr`: Adam's step
    size; None: that of the step to come, as the optimizer's state says it, or `base_lr` (the run's) where there is no
    state or a schedule has brought it to 0.
    """

    forms: tuple[Form, ...] = ("sgd", "adam")
    reduce: Reduce = "mean"
    train: int | None = 128
    pairs: int | None = 256
    each: int = 4
    sketch: int | None = None
    lr: float | None = None
    base_lr: float = 1e-6
    seed: int = 0
    device: str | None = None
    dtype: str = "float32"
    block_bytes: int | None = None
    normaliser: Normaliser = "tokens"
    clip: float = 1.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    reward: Mapping[str, float | None] = field(default_factory=lambda: dict(BINARY))


@dataclass(frozen=True)
class Place:
    """Where the kernel is taken: a model, and the training samples (of `rollouts_step`) that go with it."""

    step: int
    model: str
    rollouts_step: int
    optimizer: Path | None = None


@dataclass(frozen=True)
class Point:
    """What was found at one checkpoint."""

    place: Place
    predictions: Mapping[str, Prediction]
    spectrum: Spectrum
    train: Sequence[Pair]
    parameters: int
    vmapped: bool

    @property
    def main(self) -> Prediction:
        """Adam's where it was asked for: the step that the run takes."""
        return self.predictions.get("adam") or self.predictions["sgd"]


@dataclass(frozen=True)
class Influence:
    points: tuple[Point, ...]
    probe: tuple[Pair, ...]
    effects: tuple[Effect, ...]


def find_places(path: str | Path, model: str | None = None, steps: Sequence[int] | None = None) -> list[Place]:
    """Checkpoints of a training run (its start too), or one model for a run of any other kind.

    Raises `ConfigError` where a model is needed or a step is not there, `StoreError` without rollouts.
    """
    run = Run.open(path)
    have = training_steps(path)
    if not have:
        raise StoreError(f"{run.path} holds no rollouts, so there is no training sample: record_rollouts was off?")
    if run.info.get("kind") != "train" or model is not None:
        if model is None:
            raise ConfigError(f"{run.path} is not a training run: say with --model what its gradients are taken of")
        wanted = list(steps) if steps else have[:1]
        _known(wanted, have, run.path)
        return [Place(s, model, s) for s in wanted]
    places = [Place(0, str(run.settings.get("model", "")), have[0])] if have[0] == 0 else []
    for folder in sorted(run.path.glob("checkpoint-*"), key=lambda f: int(f.name.split("-")[1])):
        step = int(folder.name.split("-")[1])
        own = max((s for s in have if s <= step), default=have[0])
        file = folder / "optimizer.pt"
        places.append(Place(step, str(folder), own, file if file.exists() else None))
    if steps:
        _known(steps, [p.step for p in places], run.path)
        places = [p for p in places if p.step in set(steps)]
    if not places:
        raise StoreError(f"{run.path} holds no checkpoint: train with save_steps, or give --model")
    return places


def influence_run(
    path: str | Path,
    probe_path: str | Path,
    advantages: Advantages,
    options: Options | None = None,
    places: Sequence[Place] | None = None,
    probe_policy: str | None = None,
    probe_step: int | None = None,
    verifier: str | None = None,
    progress: Callable[[str], None] = log.info,
) -> Influence:
    """Kernels, spectra, predictions and attribution of a run (see the module). `advantages`: those of its training.

    The probe pairs are of `probe_path`, a run with verdicts; the same at every checkpoint.
    """
    o = options or Options()
    probe = choose_probe(read_pairs(probe_path, probe_policy, probe_step, verifier), o.pairs, o.each, o.seed)
    if not any(p.correct for p in probe):
        raise DataError(
            f"none of the {len(probe)} probe pairs of {probe_path} is correct: nothing solved to be lowered"
        )
    points = []
    for place in places or find_places(path):
        train = choose_groups(
            read_pairs(path, step=place.rollouts_step, verifier=verifier, reward=o.reward), o.train, o.seed
        )
        progress(f"step {place.step}: {len(train)} training samples x {len(probe)} probe pairs under {place.model}")
        points.append(influence_at(place, train, probe, advantages, o))
    chain = [(step, prediction, train, probe) for step, prediction, train in attributed(points)]
    return Influence(tuple(points), tuple(probe), tuple(attribute(chain)))


def attributed(points: Sequence[Point]) -> list[tuple[int, Prediction, Sequence[Pair]]]:
    """(step, prediction, training pairs) that the attribution is summed over.

    Adam's form where moments were stored. Before the first step Adam divides each coordinate by the batch's own
    gradient, so samples that cancel get huge and opposite effects: no ranking. Without stored moments: plain steps.
    """
    warm = [p for p in points if p.place.optimizer is not None and "adam" in p.predictions]
    if warm:
        return [(p.place.step, p.predictions["adam"], p.train) for p in warm]
    return [(p.place.step, p.predictions.get("sgd") or p.main, p.train) for p in points]


def influence_at(
    place: Place, train: Sequence[Pair], probe: Sequence[Pair], advantages: Advantages, o: Options
) -> Point:
    """Everything at one checkpoint."""
    loaded = load_model(place.model, o.device, o.dtype, merge_adapter=False)
    gradients = Gradients(loaded.model, o.reduce, o.block_bytes)
    batch = policy_batch(train, advantages, o.reduce, o.normaliser, o.clip)
    predictions: dict[str, Prediction] = {}
    rows = None
    for form in o.forms:
        if form == "adam" and len(o.forms) > 1 and place.step and place.optimizer is None:
            log.warning("step %d has no optimizer.pt beside %s: the form sgd only", place.step, place.model)
            continue
        adam = _adam(place, gradients, o) if form == "adam" else None
        rate = o.lr if form == "adam" or len(o.forms) == 1 else None
        found = predict_step(gradients, batch, probe, adam, rate, sketch=o.sketch, keep_rows=form == "sgd", seed=o.seed)
        if form == "sgd":
            rows = found.kernel.probe_rows
        predictions[form] = replace(found, kernel=replace(found.kernel, train_rows=None, probe_rows=None))
    if rows is None:
        width = SKETCH_WIDTH if o.sketch is None or o.sketch == 0 else o.sketch
        fits = len(probe) * gradients.size * gradients.dtype.itemsize <= 2 << 30
        rows = gradient_rows(gradients, probe, sketch=0 if fits else width, seed=o.seed)
    return Point(
        place, predictions, spectrum(gram(rows)), batch.pairs, gradients.size, bool(gradients.vmaps)
    )  # fmt: skip


def _adam(place: Place, gradients: Gradients, o: Options) -> AdamState:
    if place.optimizer is not None:
        state = load_adam(place.optimizer, gradients, o.lr)
        return state if state.lr > 0 else replace(state, lr=o.base_lr)
    if place.step:
        raise ConfigError(
            f"step {place.step} has no optimizer.pt beside {place.model}: Adam's form needs its moments; use --form sgd"
        )
    return fresh_adam(gradients, o.lr or o.base_lr, betas=o.betas, eps=o.eps, weight_decay_D=o.weight_decay)


def to_json(found: Influence, solved: int = 50, effects: int = 100) -> dict[str, Any]:
    """All numbers but the kernels themselves; the texts of the responses that the tables name, by key."""
    by_key = {p.key: p for point in found.points for p in point.train} | {p.key: p for p in found.probe}
    listed = [*found.effects[:effects], *found.effects[-effects // 4 :]]
    named = {k for e in listed for k in (e.train_key, e.probe_key)}
    return {
        "points": [_point_json(p, found.probe, solved) for p in found.points],
        "probe_pairs": len(found.probe),
        "probe_correct": sum(bool(p.correct) for p in found.probe),
        "effects": [asdict(e) for e in listed],
        "effects_total": len(found.effects),
        "effects_of": [{"step": s, "form": p.form, "r2": p.check.r2} for s, p, _ in attributed(found.points)],
        "responses": {
            k: {"problem_id": p.problem_id, "correct": p.correct, "text": p.text, "tokens": len(p.token_ids)}
            for k, p in sorted(by_key.items()) if k in named
        },
    }  # fmt: skip


def _point_json(point: Point, probe: Sequence[Pair], solved: int) -> dict[str, Any]:
    return {
        "step": point.place.step, "model": point.place.model, "rollouts_step": point.place.rollouts_step,
        "parameters": point.parameters, "training_samples": len(point.train),
        "vmapped": point.vmapped, "spectrum": point.spectrum.to_json(),
        "predictions": {
            form: {**p.to_json(), **kernel_json(p)} for form, p in point.predictions.items()
        },
        "solved": solved_changes(point.main, probe)[:solved],
    }  # fmt: skip


def kernel_json(p: Prediction) -> dict[str, Any]:
    """Size of the kernel's entries, and of the error that a sketch puts on them."""
    k = p.kernel
    return {
        "sketch": k.width, "k_rms": float(k.k_NM.square().mean().sqrt()),
        "k_positive_share": float((k.k_NM > 0).double().mean()),
        "sketch_error_rms": float(k.error_NM.square().mean().sqrt()),
    }  # fmt: skip


def _known(wanted: Sequence[int], have: Sequence[int], path: Path) -> None:
    missing = sorted(set(wanted) - set(have))
    if missing:
        raise ConfigError(f"{path} has no step {', '.join(map(str, missing))}; it has {', '.join(map(str, have))}")


def write_json(value: Mapping[str, Any], file: Path) -> None:
    """NaN as null, so that any reader takes it."""
    file.write_text(strict_json(value) + "\n", encoding="utf-8")
