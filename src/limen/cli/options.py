"""What several commands read from their options, and print, in the same way."""

from __future__ import annotations

import json
from typing import Any

import typer

from limen.errors import ConfigError


def numbers(text: str) -> list[int]:
    """`0,1,2` as whole numbers. Raises `ConfigError` for anything else."""
    try:
        return [int(x) for x in text.split(",")]
    except ValueError:
        raise ConfigError(f"expected whole numbers with commas between, such as 0,1,2; came {text!r}") from None


def columns(pairs: list[str]) -> dict[str, str]:
    """`FIELD=NAME` options as a mapping. Raises `ConfigError` for anything else."""
    found = {}
    for pair in pairs:
        field, equals, name = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"--column {pair}: expected FIELD=NAME, such as problem=question")
        found[field] = name
    return found


def verifier_of(text: str) -> str | dict[str, Any]:
    """A verifier's name, or its settings as a JSON object. Raises `ConfigError` where that is no JSON."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        value: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"--verifier {text}: not JSON ({error.msg})") from error
    return value


def print_json(value: Any) -> None:
    """What `--json` prints, of every command: see `limen.store.jsonl.strict_json`."""
    from limen.store.jsonl import strict_json

    typer.echo(strict_json(value))
