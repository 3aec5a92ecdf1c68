"""A schedule switches selector, advantage or weights at a step, or once a measured quantity crosses a bound.

Each phase is `{"at": step, "set": {...}}` or `{"when": "reward_batch > 0.5", "set": {...}}`. A phase that has begun
stays begun (its index is kept in the checkpoint); later phases override earlier ones. Measured quantities are the
keys of the last step's metrics.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

from limen.errors import ConfigError

_OPERATORS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_CONDITION = re.compile(r"^\s*([\w/.\-]+)\s*(>=|<=|>|<)\s*([-+0-9.eE]+)\s*$")


def parse_condition(text: str) -> tuple[str, str, float]:
    """("reward_batch", ">", 0.5). Raises `ConfigError` on anything else."""
    match = _CONDITION.match(text)
    try:
        if match is not None:
            return match[1], match[2], float(match[3])
    except ValueError:
        pass
    raise ConfigError(f"schedule: cannot read 'when: {text}'; expected e.g. 'reward_batch > 0.5' or 'entropy < 0.2'")


def begin_phases(
    phases: Sequence[Mapping[str, Any]], begun: Sequence[int], step: int, metrics: Mapping[str, float]
) -> list[int]:
    """Indices of the phases that have begun by optimizer step `step`, given those begun before."""
    now = set(begun)
    for i, phase in enumerate(phases):
        if "at" in phase and step >= int(phase["at"]):
            now.add(i)
        elif "when" in phase:
            key, sign, bound = parse_condition(str(phase["when"]))
            value = metrics.get(key)
            if value is not None and _OPERATORS[sign](value, bound):
                now.add(i)
    return sorted(now)


def overrides(phases: Sequence[Mapping[str, Any]], begun: Sequence[int]) -> dict[str, Any]:
    """Settings that the begun phases put in force."""
    return {key: value for i in begun for key, value in dict(phases[i]["set"]).items()}
