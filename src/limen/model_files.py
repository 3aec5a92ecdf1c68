"""Whether a model folder holds the weights that it held before: a fingerprint that is cheap for tens of gigabytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from limen.errors import ModelError
from limen.models import NAMED, adapter_base, resolve_model

WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "adapter_model*.bin")
WHOLE = 8 << 20
"""Bytes of a file that is read whole; of larger ones, the header and three pieces of every tensor."""
PIECE = 4096
"""Bytes of a piece."""
PIECES = 1024
"""Pieces of a large file that names no tensors."""
HEADER = 100 << 20
"""Most bytes of a safetensors header (the format's own limit)."""


def fingerprint(name: str | Path) -> dict[str, str] | None:
    """`{file: "SIZE:HASH"}` of a local folder's weights (of a LoRA adapter, its base's too where that is a folder).

    None for what is no folder of the user's: a hub name, `tiny` and its kind. Hashes are of content, never of times: a
    copied folder has the fingerprint of the original. A change within a tensor of a file above 8 MiB that spares the
    beginning, middle and end of every tensor goes unnoticed; training changes all of them.
    Raises `ModelError` where a file cannot be read.
    """
    if str(name) in NAMED or not Path(name).expanduser().is_dir():
        return None
    base, adapter = adapter_base(resolve_model(name))
    found = _folder(Path(adapter)) if adapter else {}
    if Path(base).is_dir():
        found |= {f"base/{file}" if adapter else file: what for file, what in _folder(Path(base)).items()}
    return found


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs, a few words for each file, in order of their names."""
    words = []
    for file in sorted(before.keys() | now.keys()):
        if file not in now:
            words.append(f"{file} is gone")
        elif file not in before:
            words.append(f"{file} is new")
        elif before[file] != now[file]:
            words.append(f"{file} has other content")
    return words


def said(words: Sequence[str], most: int = 3) -> str:
    """What `changed` found, for an error."""
    return "; ".join(words[:most]) + (" and more" if len(words) > most else "")


def _folder(folder: Path) -> dict[str, str]:
    files = sorted({f for pattern in WEIGHTS for f in folder.glob(pattern)})
    try:
        return {f.name: f"{f.stat().st_size}:{_hash(f)}" for f in files}
    except OSError as error:
        raise ModelError(f"cannot read the weights in {folder}: {error}") from error


def _hash(file: Path) -> str:
    size = file.stat().st_size
    digest = hashlib.sha256()
    with file.open("rb") as data:
        if size <= WHOLE:
            digest.update(data.read())
        else:
            for start in _starts(data, size, digest):
                data.seek(start)
                digest.update(data.read(PIECE))
    return digest.hexdigest()[:16]


def _starts(data: BinaryIO, size: int, digest: hashlib._Hash) -> Iterator[int]:
    """Where the pieces of a large file begin; the header of safetensors goes into the digest whole."""
    length = int.from_bytes(data.read(8), "little")
    try:
        header = data.read(length) if length <= min(HEADER, size) else b""
        digest.update(header)
        spans = [v["data_offsets"] for k, v in json.loads(header).items() if k != "__metadata__"]
        spans = [(8 + length + int(a), 8 + length + int(b)) for a, b in spans]
    except (ValueError, TypeError, KeyError, AttributeError):  # not safetensors: pieces at equal distances
        spans = [(size * i // PIECES, size * i // PIECES) for i in range(PIECES)]
    for a, b in sorted(spans):
        start, end = min(max(a, 0), size), min(max(b, 0), size)  # whatever a header claims
        yield from sorted({start, (start + end) // 2, max(start, end - PIECE)})
