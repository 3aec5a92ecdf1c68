"""One HTML file that opens offline: template, style, code and data, under a policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined

from limen.report.model import ReportData
from limen.report.modes import shows_modes
from limen.report.payload import Chunk, interest_order, pack, page_data, safe_json
from limen.report.tables import tables
from limen.report.words import headline, verdicts

EMBED_BYTES = 3_500_000
"""Of packed problem texts inside the page; the rest goes into files beside it, read when a problem is opened."""


def render_page(
    data: ReportData, folder: str, embed_bytes: int = EMBED_BYTES, refresh: bool = False
) -> tuple[str, list[Chunk]]:
    """The page, and the chunks that must lie in `folder` beside it. `refresh`: the page is served and may poll."""
    order = interest_order(data)
    slots = [0] * len(order)
    for slot, i in enumerate(order):
        slots[i] = slot
    chunks = pack(data, order, embed_bytes)
    style, script = asset("page.css"), _script()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    html = environment.from_string(asset("page.html.j2")).render(
        data=data,
        headline=headline(data),
        verdicts=verdicts(data),
        tables={t.key: t for t in tables(data)},
        style=style,
        script=script,
        policy=content_policy(style, script, refresh),
        payload=safe_json({**page_data(data, slots, folder), "refresh": refresh}),
        chunks=[c for c in chunks if c.embedded],
        plural=_plural,
        windows=" or ".join(sorted({str(s.window) for t in data.training for s in t.series if s.smooth}, key=int)),
        checkpoints=any(not p.last for p in data.policies),
        modes=shows_modes(data),
    )
    return html, [c for c in chunks if not c.embedded]


def content_policy(style: str, script: str, refresh: bool = False) -> str:
    """Nothing is loaded or run but this very style and code. `strict-dynamic` lets that code (and it alone) add the
    files of responses that lie beside the page; markup cannot."""
    parts = [
        "default-src 'none'",
        f"script-src '{_hash(script)}' 'strict-dynamic'",
        f"style-src '{_hash(style)}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*parts, "connect-src 'self'"] if refresh else parts)


def chunk_file(chunk: Chunk) -> str:
    """Content of `chunk-N.js`: a call with base64, so that no text is ever part of code."""
    return f'limenChunk({chunk.number},"{chunk.packed}");\n'


def asset(name: str) -> str:
    return resources.files("limen.report").joinpath("assets", name).read_text(encoding="utf-8")


def _script() -> str:
    """All code as one function, in the order of the files' names."""
    folder = resources.files("limen.report").joinpath("assets", "js")
    files: Sequence[Any] = sorted((f for f in folder.iterdir() if f.name.endswith(".js")), key=lambda f: f.name)
    code = "".join(f.read_text(encoding="utf-8") for f in files)
    return f'\n(() => {{\n"use strict";\n{code}}})();\n'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _plural(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"
