"""The data inside the page: one JSON value for what is always shown, and compressed chunks of problem texts.

Model text is hostile. It reaches the page only as JSON (script elements of type application/json, with every
character escaped that could end one) or as base64 of gzipped JSON; the page's code puts it into text nodes.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from limen.report.model import LABELS, MAIN_KEYS, Curve, Policy, ProblemItem, ReportData, Response, Series
from limen.report.words import p_text

CHUNK = 10
"""Problems whose texts are unpacked together."""
PREVIEW = 200
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_CODE = {"kept": "k", "gained": "g", "lost": "l", "never": "n", "": "-"}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Texts of some problems, packed. `embedded`: inside the page, else in a file beside it."""

    number: int
    packed: str
    embedded: bool


def safe_json(value: Any) -> str:
    """JSON that cannot end or open an HTML element, whatever text is in it. NaN and infinities become null."""
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char, escape in _ESCAPES.items():
        text = text.replace(char, escape)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # a lone surrogate is no UTF-8


def page_data(data: ReportData, slots: Sequence[int], folder: str) -> dict[str, Any]:
    """What the page's code reads at once. `slots`: place of each problem's texts in the chunks."""
    return {
        "folder": folder,
        "chunk_size": CHUNK,
        "live": data.live,
        "policies": [_policy(p) for p in data.policies],
        "contrasts": [
            {
                "policy": c.policy,
                "kept": c.kept,
                "gained": c.gained,
                "lost": c.lost,
                "never": c.never,
                "p_text": p_text(c.p_value),
                "chance_lost": c.chance_lost,
                "chance_gained": c.chance_gained,
                "difference": _curve(c.difference),
                "change": "".join(_CODE[x] for x in c.change_P),
                "verdict": list(c.verdict_P),
                "evidence": list(c.evidence_P),
                "rate": list(c.rate_P),
                "by_budget": [[k, *(_round(x, 4) for x in rest)] for k, *rest in c.by_budget],
            }
            for c in data.contrasts
        ],
        "main_keys": list(MAIN_KEYS),
        "labels": LABELS,
        "training": [
            {
                "name": run.name,
                "policy": run.policy,
                "series": {s.key: _series(s) for s in run.series},
            }
            for run in data.training
        ],
        "problems": {
            "id": [q.id for q in data.problems],
            "task": [q.task for q in data.problems],
            "preview": [_preview(q.problem) for q in data.problems],
            "slot": list(slots),
            "n": [list(p.n_P) for p in data.policies],
            "c": [list(p.correct_P) for p in data.policies],
        },
    }


def interest_order(data: ReportData) -> list[int]:
    """Problems with those first that a reader will open first: lost, then gained, then the largest changes."""

    def key(i: int) -> tuple[int, float, int]:
        changes = {c.change_P[i] for c in data.contrasts}
        first = 0 if "lost" in changes else 1 if "gained" in changes else 2
        shares = [p.correct_P[i] / p.n_P[i] for p in data.policies if p.n_P[i]]
        return first, -(max(shares) - min(shares)) if shares else 0.0, i

    return sorted(range(len(data.problems)), key=key)


def pack(data: ReportData, order: Sequence[int], budget: int) -> list[Chunk]:
    """Chunks of `CHUNK` problems in this order, embedded until `budget` bytes are used."""
    chunks, used = [], 0
    for number, start in enumerate(range(0, len(order), CHUNK)):
        items = [_item(data.problems[i]) for i in order[start : start + CHUNK]]
        raw = json.dumps(_plain(items), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        packed = base64.b64encode(gzip.compress(raw.encode("ascii"), 6, mtime=0)).decode("ascii")
        embedded = used + len(packed) <= budget
        used += len(packed) if embedded else 0
        chunks.append(Chunk(number, packed, embedded))
    return chunks


def _item(q: ProblemItem) -> dict[str, Any]:
    return {
        "problem": q.problem,
        "gold": q.gold,
        "answers": [[list(a) for a in row] for row in q.answers],
        "responses": [_response(r) for r in q.responses],
    }


def _response(r: Response) -> dict[str, Any]:
    out: dict[str, Any] = {
        "p": r.policy,
        "i": r.sample_index,
        "outcome": r.outcome,
        "answer": r.answer,
        "rule": r.rule,
        "finish": r.finish,
        "tokens": r.tokens,
        "text": r.text,
    }
    if r.left_out:
        out |= {"left": r.left_out, "cut": r.cut_at}
    if r.scores:
        out["scores"] = {name: _round(v) for name, v in r.scores.items()}
    if r.token_scores:
        out["tokens_by"] = {name: [_round(v, 3) for v in values] for name, values in r.token_scores.items()}
        out["pieces"] = list(r.pieces)
    return out


def _curve(curve: Curve) -> dict[str, Any]:
    return {
        "k": list(curve.k),
        "v": [_round(x) for x in curve.value],
        "lo": [_round(x) for x in curve.low],
        "hi": [_round(x) for x in curve.high],
    }


def _policy(p: Policy) -> dict[str, Any]:
    return {
        "name": p.name,
        "role": p.role,
        "family": p.family,
        "step": p.step,
        "last": p.last,
        "curve": _curve(p.curve),
        "lengths": _lengths(p),
        "modes": _modes(p),
    }


def _series(s: Series) -> list[Any]:
    return [list(s.step), [_round(v, 6) for v in s.value], [_round(v, 4) for v in s.smooth], s.window]


def _lengths(p: Policy) -> list[list[Any]]:
    return [[x.kind, x.count, *(_round(v) for v in (x.q05, x.q25, x.median, x.q75, x.q95))] for x in p.health.lengths]


def _modes(p: Policy) -> list[float | None] | None:
    """Share of code with its interval; None where it is not known."""
    m = p.measures.get("code_share")
    return None if m is None or math.isnan(m.value) else [_round(m.value), _round(m.low), _round(m.high)]


def _preview(text: str) -> str:
    flat = " ".join(text[: 4 * PREVIEW].split())
    return flat if len(flat) <= PREVIEW else flat[: PREVIEW - 1] + "…"


def _round(x: float, digits: int = 5) -> float | None:
    """Significant digits; None for NaN and infinities."""
    return float(f"{x:.{digits}g}") if math.isfinite(x) else None


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
