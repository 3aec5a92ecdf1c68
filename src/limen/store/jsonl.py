"""JSON lines, with a clear error for the line that is not whole (count files and logs come through here), and JSON that
any reader takes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from limen.errors import DataError


def json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`FILE:N`, object) of each line that is not blank. Raises `DataError` on cut-off or other JSON."""
    with path.open("rb") as lines:
        for number, raw in enumerate(lines, start=1):
            where = f"{path}:{number}"
            if not raw.strip():
                continue
            try:
                row = json.loads(raw)
            except (json.JSONDecodeError, UnicodeDecodeError) as error:
                cut = "" if raw.endswith(b"\n") else " (the last line has no end: the file seems cut off)"
                raise DataError(f"{where} is not whole JSON{cut}: {error}; mend or drop that line") from error
            if not isinstance(row, dict):
                raise DataError(f"{where} is a {type(row).__name__}, expected an object with named fields")
            yield where, row


def strict_json(value: Any) -> str:
    """Indented JSON, keys in the order given. NaN and infinities, which JSON does not have, become null."""
    return json.dumps(_finite(value), indent=1, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
