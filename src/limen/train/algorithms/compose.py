"""An algorithm is data: which selector, which advantage, which gates, which extra losses. Names are presets of it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from typing import Any, Literal, get_args

from torch import Tensor

from limen.errors import ConfigError
from limen.train.algorithms import direction, dr_grpo, grpo, nsr, overtraining_gate, pass_k, psr, soft_gate, w_reinforce
from limen.train.algorithms.schedule import overrides, parse_condition

Selector = Literal["all", "greedy_wrong"]
Advantage = Literal["group", "centred", "psr", "nsr", "w_reinforce", "pass_k"]


@dataclass(frozen=True)
class Algorithm:
    """The composition. Fields are explained in docs/training.md; defaults are plain GRPO."""

    selector: Selector = "all"
    refill: bool = False
    refill_limit: int = 8
    """With refill or dynamic sampling: at most so many times the batch is screened or sampled in one step."""
    dynamic_sampling: bool = False
    scale: Literal["nominal", "survivors"] = "nominal"
    advantage: Advantage = "group"
    advantage_eps: float = 1e-6
    w_reinforce_weight: float = 0.1
    pass_k: int = 4
    denominator: Literal["active", "all"] = "active"
    """"active": groups without spread are left out of the loss's denominator too; "all": they count in it."""
    skip_inactive: bool = False
    """Leave rows without a gradient out of the forward and backward passes. Same gradient, less work; TRL's `entropy`
    and clip metrics are then those of the rows that are left."""
    soft_gate: float = 0.0
    overtraining_tau: float = 0.0
    overtraining_k: int = 4
    direction_alpha: float = 0.0
    forward_kl_beta: float = 0.0
    kl_prompts: Literal["batch", "survivors"] = "batch"
    kl_responses: Literal["all", "correct"] = "all"
    kl_estimator: Literal["nll", "k3"] = "nll"
    kl_samples: int = 2
    """Stored base responses per prompt and step in the KL term; 0: all that are stored."""
    reverse_kl_beta: float = 0.0
    reference_reset: int = 0
    """Optimizer steps between two resets of the reverse KL's reference; 0: never."""
    entropy_bonus: float = 0.0
    schedule: tuple[dict[str, Any], ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedule", tuple(_phase(i, p) for i, p in enumerate(self.schedule)))
        _check(self)

    def states(self) -> list[Algorithm]:
        """What it is before and during its schedule: every composition that its phases can bring about.

        Phases with `at` begin in the order of their steps; those with `when` may begin in any."""
        return [replace(self, schedule=(), **overrides(self.schedule, begun)) for begun in _begun(self.schedule)]

    def with_overrides(self, values: dict[str, Any]) -> Algorithm:
        return replace(self, **values) if values else self


_LITERALS = {
    "selector": get_args(Selector),
    "advantage": get_args(Advantage),
    "scale": ("nominal", "survivors"),
    "denominator": ("active", "all"),
    "kl_prompts": ("batch", "survivors"),
    "kl_responses": ("all", "correct"),
    "kl_estimator": ("nll", "k3"),
}
FIELDS = tuple(f.name for f in fields(Algorithm))
FIXED = ("schedule", "reference_reset", "refill_limit")
"""Fields that a schedule cannot set."""


def _check(a: Algorithm) -> None:
    for name, allowed in _LITERALS.items():
        if getattr(a, name) not in allowed:
            raise ConfigError(f"{name}: '{getattr(a, name)}' is not one of {', '.join(allowed)}")
    for name in ("soft_gate", "overtraining_tau", "forward_kl_beta", "reverse_kl_beta", "entropy_bonus", "kl_samples"):
        if getattr(a, name) < 0:
            raise ConfigError(f"{name}: {getattr(a, name)} is below 0")
    if a.refill and a.selector == "all":
        raise ConfigError("refill: true needs a selector that leaves prompts out (selector: greedy_wrong)")
    if a.refill and a.dynamic_sampling:
        raise ConfigError("refill and dynamic_sampling both fill the batch: switch one of them off")
    if a.skip_inactive and (a.denominator == "all" or a.reverse_kl_beta > 0 or a.entropy_bonus > 0):
        raise ConfigError("skip_inactive: with denominator all, a reverse KL or an entropy bonus every row counts")
    if a.pass_k < 1 or a.overtraining_k < 1 or a.refill_limit < 1:
        raise ConfigError("pass_k, overtraining_k and refill_limit must be at least 1")
    for begun in _begun(a.schedule):
        if begun:
            try:
                replace(a, schedule=(), **overrides(a.schedule, begun))
            except ConfigError as error:
                raise ConfigError(f"schedule, once {_named(a.schedule, begun)} has begun: {error}") from error


def _phase(i: int, phase: Any) -> dict[str, Any]:
    """Phase `i` of a schedule with its values as the types of the fields that they set."""
    here = f"schedule[{i}]"
    if not isinstance(phase, dict) or set(phase) not in ({"at", "set"}, {"when", "set"}):
        raise ConfigError(f"{here}: expected {{at: STEP, set: {{...}}}} or {{when: 'key > bound', set: {{...}}}}")
    if "when" in phase:
        parse_condition(str(phase["when"]))
    elif not isinstance(phase["at"], int) or isinstance(phase["at"], bool) or phase["at"] < 0:
        raise ConfigError(f"{here}: at must be an optimizer step (0 or more), not {phase['at']!r}")
    if not isinstance(phase["set"], dict):
        raise ConfigError(f"{here}: set must be a mapping of settings, not {phase['set']!r}")
    unknown = sorted(set(phase["set"]) - (set(FIELDS) - set(FIXED)))
    if unknown:
        raise ConfigError(
            f"{here}: cannot set {', '.join(unknown)}; can set {', '.join(sorted(set(FIELDS) - set(FIXED)))}"
        )
    return {**phase, "set": {k: _typed(f"{here}: {k}", v, getattr(Algorithm, k)) for k, v in phase["set"].items()}}


def _typed(where: str, value: Any, like: Any) -> Any:
    """`value` as the type of the default `like`. YAML reads 1e-4 as a text: a number all the same."""
    if isinstance(value, bool) == isinstance(like, bool):
        if isinstance(value, type(like)):
            return value
        if isinstance(like, float) and isinstance(value, (int, str)):
            with contextlib.suppress(ValueError):
                return float(value)
    raise ConfigError(f"{where} is {value!r}, expected {type(like).__name__}")


def _begun(phases: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Sets of phases that can have begun together. With more than six conditions: none, each alone, or all of them."""
    steps = sorted({int(p["at"]) for p in phases if "at" in p})
    free = [i for i, p in enumerate(phases) if "when" in p]
    sizes = range(len(free) + 1) if len(free) <= 6 else (0, 1, len(free))
    some = [set(c) for n in sizes for c in combinations(free, n)]
    due = [{i for i, p in enumerate(phases) if "at" in p and p["at"] <= step} for step in (-1, *steps)]
    return [sorted(a | b) for a in due for b in some]


def _named(phases: Sequence[dict[str, Any]], begun: Sequence[int]) -> str:
    return " and ".join(f"at {phases[i]['at']}" if "at" in phases[i] else f"'{phases[i]['when']}'" for i in begun)


ALGORITHMS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "greedy_filter": {"selector": "greedy_wrong"},
    "self": {"selector": "greedy_wrong", "forward_kl_beta": 1e-4},
    "psr": {"advantage": "psr"},
    "nsr": {"advantage": "nsr"},
    "w_reinforce": {"advantage": "w_reinforce"},
    "dapo": {"dynamic_sampling": True, "epsilon_high": 0.28},
    "dr_grpo": {"advantage": "centred", "loss_type": "dr_grpo", "denominator": "all"},
    "pass_k": {"advantage": "pass_k"},
    "overtraining_gate": {"overtraining_tau": 0.05},
    "direction": {"direction_alpha": 1.0},
    "forward_kl": {"forward_kl_beta": 0.1},
    "reverse_kl": {"reverse_kl_beta": 1e-3, "reference_reset": 200},
    "entropy_bonus": {"entropy_bonus": 1e-3},
    "soft_gate": {"soft_gate": 1.0},
}
"""Named algorithms: values for `Algorithm`'s fields, and for TRL's `loss_type` and `epsilon_high`."""


def check_group(a: Algorithm, group: int) -> None:
    """Raises `ConfigError` where an estimator over k samples gets groups of fewer: it would never train."""
    for state in a.states():
        if state.advantage == "pass_k" and state.pass_k > group:
            raise ConfigError(
                f"pass_k {state.pass_k} is more than the {group} responses of a group: no group would have an "
                "advantage; lower pass_k or sample larger groups"
            )


def named(name: str) -> dict[str, Any]:
    if name not in ALGORITHMS:
        raise ConfigError(f"algorithm: '{name}' is not known; known are {', '.join(sorted(ALGORITHMS))}")
    return dict(ALGORITHMS[name])


def advantages(a: Algorithm, rewards_PG: Tensor, correct_PG: Tensor) -> tuple[Tensor, Tensor]:
    """Advantages and active rows, (P, G), after the gates. NaN: unjudged (advantage 0, not active)."""
    if a.advantage == "group":
        a_PG, active_PG = grpo.group_advantages(rewards_PG, a.advantage_eps)
    elif a.advantage == "centred":
        a_PG, active_PG = dr_grpo.centred_advantages(rewards_PG)
    elif a.advantage == "pass_k":
        a_PG, active_PG = pass_k.pass_k_advantages(correct_PG, a.pass_k)
    elif a.advantage == "psr":
        a_PG, active_PG = psr.psr_advantages(correct_PG)
    elif a.advantage == "nsr":
        a_PG, active_PG = nsr.nsr_advantages(correct_PG)
    else:
        a_PG, active_PG = w_reinforce.w_reinforce_advantages(correct_PG, a.w_reinforce_weight)
    if a.soft_gate > 0:
        a_PG = a_PG * soft_gate.gate(correct_PG, a.soft_gate)
    if a.overtraining_tau > 0:
        keep_P1 = overtraining_gate.keep_useful(correct_PG, a.overtraining_k, a.overtraining_tau).unsqueeze(1)
        a_PG, active_PG = a_PG * keep_P1, active_PG & keep_P1
    return a_PG, active_PG


def token_advantages(a: Algorithm, advantages_BT: Tensor, old_logprobs_BT: Tensor) -> Tensor:
    """Advantages per token, where the algorithm needs them; (B, T) or (B, 1) in, the same or (B, T) out."""
    if a.direction_alpha == 0:
        return advantages_BT
    return direction.reweight(advantages_BT, old_logprobs_BT, a.direction_alpha)
