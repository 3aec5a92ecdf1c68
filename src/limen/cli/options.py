"""What several commands read from their options in the same way."""

from __future__ import annotations

from limen.errors import ConfigError


def numbers(text: str) -> list[int]:
    """`0,1,2` as whole numbers. Raises `ConfigError` for anything else."""
    try:
        return [int(x) for x in text.split(",")]
    except ValueError:
        raise ConfigError(f"expected whole numbers with commas between, such as 0,1,2; came {text!r}") from None
