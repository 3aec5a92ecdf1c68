"""Which training problems lowered which solved ones: the kernel summed over the responses of each (RBP prop. 3.1).

    effect(x -> x') = η Σ_{i of x} a_i  mean_{j of x', correct} K_ij

the change of the mean log π(y+|x') that the step owes to training problem x, to first order. Over several checkpoints
the effects add up. Momentum and weight decay are no training problem's doing and are listed apart.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from limen.dynamics.influence_gradients import Pair
from limen.dynamics.influence_step import Prediction


@dataclass(frozen=True)
class Effect:
    """One training problem on one solved probe problem. `effect`: nats; `share`: of all that lowered that problem.

    `train_key`: the training response that contributed most in the effect's direction, `train_correct` and
    `train_coefficient` of it; `probe_key`: the correct response that it moves most.
    """

    train_problem: str
    probe_problem: str
    effect: float
    share: float
    train_key: str
    train_correct: bool | None
    train_coefficient: float
    probe_key: str
    steps: tuple[int, ...]


def attribute(points: Sequence[tuple[int, Prediction, Sequence[Pair], Sequence[Pair]]]) -> list[Effect]:
    """Effects of every training problem on every solved probe problem, most lowering first.

    points: (step, prediction, training pairs, probe pairs) of each checkpoint; the pairs in the kernel's order.
    """
    total: dict[tuple[str, str], float] = defaultdict(float)
    steps: dict[tuple[str, str], set[int]] = defaultdict(set)
    most: dict[tuple[str, str], tuple[float, Pair, float, Pair]] = {}
    for step, prediction, train, probe in points:
        solved = _places(probe, only_correct=True)
        effect_NM = prediction.lr * prediction.scale * prediction.coefficient_N[:, None] * prediction.kernel.k_NM
        for train_id, rows in _places(train).items():
            for probe_id, columns in solved.items():
                part_NM = effect_NM[rows][:, columns] / len(columns)
                value = float(part_NM.sum())
                key = (train_id, probe_id)
                total[key] += value
                steps[key].add(step)
                place = int((part_NM.sum(1) * (1 if value > 0 else -1)).argmax())
                row, column = rows[place], columns[int(part_NM[place].abs().argmax())]
                size = abs(float(part_NM[place].sum()))
                if key not in most or size > most[key][0]:
                    most[key] = (size, train[row], float(prediction.coefficient_N[row]), probe[column])
    lowered: dict[str, float] = defaultdict(float)
    for (_, probe_id), value in total.items():
        lowered[probe_id] += min(value, 0.0)
    effects = [
        Effect(
            train_problem=train_id, probe_problem=probe_id, effect=value,
            share=value / lowered[probe_id] if value < 0 else 0.0,
            train_key=most[train_id, probe_id][1].key, train_correct=most[train_id, probe_id][1].correct,
            train_coefficient=most[train_id, probe_id][2], probe_key=most[train_id, probe_id][3].key,
            steps=tuple(sorted(steps[train_id, probe_id])),
        )
        for (train_id, probe_id), value in total.items()
    ]  # fmt: skip
    return sorted(effects, key=lambda e: e.effect)


def solved_changes(prediction: Prediction, probe: Sequence[Pair]) -> list[dict[str, Any]]:
    """Per solved probe problem: predicted and measured change of the mean log π(y+|x'), and drift's part of it."""
    rows = []
    for problem, columns in _places(probe, only_correct=True).items():
        at = torch.tensor(columns)
        rows.append({
            "probe_problem": problem, "predicted": float(prediction.predicted_M[at].mean()),
            "measured": float(prediction.measured_M[at].mean()),
            "drift": float(prediction.lr * prediction.drift_M[at].mean()), "correct_responses": len(columns),
        })  # fmt: skip
    return sorted(rows, key=lambda r: float(r["measured"]))


def write_csv(effects: Sequence[Effect], file: Path) -> None:
    """Every effect, one a line."""
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(list(Effect.__dataclass_fields__))
        for effect in effects:
            values = asdict(effect)
            writer.writerow([" ".join(map(str, v)) if isinstance(v, tuple) else v for v in values.values()])


def _places(pairs: Sequence[Pair], only_correct: bool = False) -> dict[str, list[int]]:
    places: dict[str, list[int]] = defaultdict(list)
    for i, pair in enumerate(pairs):
        if pair.correct or not only_correct:
            places[pair.problem_id].append(i)
    return places
