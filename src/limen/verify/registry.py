"""Verifiers by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from limen.errors import ConfigError
from limen.verify.answers import Exact, Math, Numeric
from limen.verify.base import Verifier
from limen.verify.choice import Choice
from limen.verify.countdown import Countdown
from limen.verify.noise import Noise
from limen.verify.python_code import Python
from limen.verify.reasoning import ReasoningGym
from limen.verify.user import UserFunction

VERIFIERS: dict[str, type[Verifier]] = {
    v.name: v for v in (Math, Numeric, Exact, Choice, ReasoningGym, Countdown, Python)
}


def resolve(spec: Mapping[str, Any]) -> Verifier:
    """The verifier of `{"name": ..., setting: value, ...}`. Raises `ConfigError` for unknown names or settings."""
    options = dict(spec)
    name = options.pop("name", None)
    if not isinstance(name, str) or (name not in VERIFIERS and ":" not in name):
        known = ", ".join(sorted(VERIFIERS))
        raise ConfigError(f"no verifier is called {name!r}: use one of {known}, or your own as MODULE:FUNCTION")
    try:
        return VERIFIERS[name](options) if name in VERIFIERS else UserFunction(name, options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"])
        raise ConfigError(f"verifier {name!r}, setting {where!r}: {first['msg']}") from None


def split_noise(spec: Mapping[str, Any]) -> tuple[dict[str, Any], Noise | None]:
    """The verifier's own settings, and the noise to be put on its verdicts (None without)."""
    spec = dict(spec)
    noise = spec.pop("noise", None)
    return spec, None if noise is None else Noise(noise)
