"""The arms of `limen lab frontier`: algorithms between GRPO (high pass@1) and SELF (high pass@n), as one table.

A schedule's `at` is a share of the steps (a float) here, and becomes a step when the length of a training is known, so
that one arm means the same at equal updates and at equal tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from limen.errors import ConfigError
from limen.lab.demo import ALGORITHMS as DEMO

EXPLORE, FINAL = (10, 11, 12), (0, 1, 2)
"""Training seeds on which arms may be looked at and chosen, and those on which the chosen ones are judged."""

KL: dict[str, Any] = {"forward_kl_beta": 0.2, "kl_samples": 2}


@dataclass(frozen=True)
class Arm:
    """`algorithm`: settings of the algorithm; `train`: other settings of the training that it changes. `seen`: seeds
    on which earlier studies of the same recipe have shown this very arm (docs/results/methods.md). `parent`: the arm
    whose trained weights this one takes, at `share` of their way from the base (`limen.interpolation`); itself it
    trains nothing."""

    name: str
    words: str
    algorithm: Mapping[str, Any]
    train: Mapping[str, Any] = field(default_factory=dict)
    seen: tuple[int, ...] = ()
    parent: str | None = None
    share: float = 1.0

    def settings(self, steps: int) -> dict[str, Any]:
        """What `train_policy` puts over the recipe, for a training of `steps`."""
        algorithm = dict(self.algorithm)
        if "schedule" in algorithm:
            algorithm["schedule"] = [_phase(p, steps) for p in algorithm["schedule"]]
        return {**self.train, "algorithm": algorithm}


def _phase(phase: Mapping[str, Any], steps: int) -> dict[str, Any]:
    if "at" not in phase:
        return dict(phase)
    return {**phase, "at": max(1, round(float(phase["at"]) * steps))}


def _kl(beta: float, name: str = "forward_kl", **more: Any) -> dict[str, Any]:
    return {"name": name, **KL, "forward_kl_beta": beta, **more}


def _then(at: float, **values: Any) -> list[dict[str, Any]]:
    return [{"at": at, "set": values}]


_TRAINED = (
    Arm("grpo", "GRPO", {"name": "grpo"}, seen=FINAL),
    Arm("self", "greedy filter, forward KL nll .2", DEMO["self"], seen=FINAL),
    Arm("self-refill", "the same, with refill", {**DEMO["self"], "refill": True}),
    Arm("self-k3", "greedy filter, forward KL k3 .2", {**DEMO["self"], "kl_estimator": "k3"}),
    Arm("nll-0.2", "GRPO + forward KL nll .2", _kl(0.2), seen=FINAL),
    Arm("nll-0.5", "GRPO + forward KL nll .5", _kl(0.5)),
    Arm("nll-1", "GRPO + forward KL nll 1", _kl(1.0)),
    Arm("nll-2", "GRPO + forward KL nll 2", _kl(2.0)),
    Arm("nll-0.5-few", "the same as nll-0.5, 1 stored response a problem", _kl(0.5, kl_samples=1), {"base_n": 1}),
    Arm("nll-1-few", "the same as nll-1, 1 stored response a problem", _kl(1.0, kl_samples=1), {"base_n": 1}),
    Arm("nll-2-few", "the same as nll-1-few, nll 2", _kl(2.0, kl_samples=1), {"base_n": 1}),
    Arm("k3-0.2", "GRPO + forward KL k3 .2", _kl(0.2, kl_estimator="k3")),
    Arm("k3-0.5", "GRPO + forward KL k3 .5", _kl(0.5, kl_estimator="k3")),
    Arm("k3-1", "GRPO + forward KL k3 1", _kl(1.0, kl_estimator="k3")),
    Arm("k3-2", "GRPO + forward KL k3 2", _kl(2.0, kl_estimator="k3")),
    Arm("correct-0.5", "GRPO + nll .5 on right stored responses only", _kl(0.5, kl_responses="correct")),
    Arm(
        "self-then-grpo",
        "SELF for half of the steps, then GRPO + nll .3",
        {**DEMO["self"], "schedule": _then(0.5, selector="all", forward_kl_beta=0.3)},
    ),
    Arm(
        "grpo-then-self",
        "GRPO + nll .2 for half of the steps, then SELF",
        _kl(0.2, schedule=_then(0.5, selector="greedy_wrong")),
    ),
    Arm("nll-rising", "GRPO + nll .2, for the last third nll 1", _kl(0.2, schedule=_then(2 / 3, forward_kl_beta=1.0))),
    Arm("nll-falling", "GRPO + nll 1, for the last third nll .2", _kl(1.0, schedule=_then(2 / 3, forward_kl_beta=0.2))),
    Arm("gate-nll-0.2", "soft gate (1 - p) + nll .2", _kl(0.2, "soft_gate")),
    Arm("gate-nll-1", "soft gate (1 - p) + nll 1", _kl(1.0, "soft_gate")),
    Arm(
        "gate-nll-0.5-few",
        "soft gate (1 - p) + nll .5, 1 stored response a problem",
        _kl(0.5, "soft_gate", kl_samples=1),
        {"base_n": 1},
    ),
    Arm("pass-k", "pass@4 training", {"name": "pass_k", "pass_k": 4}, seen=FINAL),
    Arm("pass-k-nll-0.2", "pass@4 training + nll .2", _kl(0.2, "pass_k", pass_k=4)),
    Arm("pass-2-nll-0.5", "pass@2 training + nll .5", _kl(0.5, "pass_k", pass_k=2)),
    Arm("dapo-nll-0.5", "DAPO + forward KL nll .5", _kl(0.5, "dapo")),
    Arm("dapo-nll-1", "DAPO + forward KL nll 1", _kl(1.0, "dapo")),
    Arm(
        "dapo-nll-1-few",
        "the same as dapo-nll-1, 1 stored response a problem",
        _kl(1.0, "dapo", kl_samples=1),
        {"base_n": 1},
    ),
)
SHARES = (0.9, 0.8, 0.6)
MIXED = ("grpo", "nll-0.5", "k3-1")
"""Arms whose weights are also looked at part of the way from the base."""


def mixed(arm: Arm, share: float) -> Arm:
    """The arm's trained policy at `share` of the way from the base's weights."""
    words = f"{arm.name}, weights at {share:g} of their way from the base"
    return Arm(f"{arm.name}-mix-{share:g}", words, arm.algorithm, arm.train, parent=arm.name, share=share)


ARMS: dict[str, Arm] = {arm.name: arm for arm in _TRAINED}
ARMS |= {made.name: made for name in MIXED for share in SHARES for made in [mixed(ARMS[name], share)]}


def pick(names: str) -> list[Arm]:
    """`all`, or names with commas between; GRPO is always among them, since the prize is measured from it, and so is
    the parent of every arm that has one. Parents come first."""
    wanted = list(ARMS) if names == "all" else [x.strip() for x in names.split(",")]
    unknown = [x for x in wanted if x not in ARMS]
    if unknown:
        raise ConfigError(f"unknown arm '{unknown[0]}': expected some of {', '.join(ARMS)}")
    parents = [p for x in wanted if (p := ARMS[x].parent)]
    found = [ARMS[x] for x in dict.fromkeys(["grpo", *parents, *wanted])]
    return sorted(found, key=lambda arm: arm.parent is not None)


def check_seeds(seeds: Sequence[int], explore: bool) -> None:
    """Seeds of exploration are never those of the final table. Raises `ConfigError`."""
    other = FINAL if explore else EXPLORE
    both = sorted(set(seeds) & set(other))
    if both:
        kind, use = ("an exploration", EXPLORE) if explore else ("the final table", FINAL)
        raise ConfigError(
            f"seed {both[0]} is not for {kind}: take {', '.join(map(str, use))} or others, so that no arm is judged "
            "on a seed that it was chosen on"
        )
