"""math-verify, with its own timeouts off: only ever called in a worker process that can be killed."""

from __future__ import annotations

import logging
from typing import Any

from limen.verify.base import Decision
from limen.verify.lexer import clean
from limen.verify.reader import strip


def equal(gold: str, answer: str) -> Decision:
    """Ask math-verify about two answers as they were written."""
    import math_verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    config = [math_verify.LatexExtractionConfig(), math_verify.ExprExtractionConfig()]

    def parse(text: str) -> list[Any]:
        text = clean(strip(text))
        return list(
            math_verify.parse(f"${text}$", extraction_config=config, parsing_timeout=None, fallback_mode="no_fallback")
        )

    parsed_gold = parse(gold)
    if not parsed_gold:
        return Decision("unjudged", "gold")
    parsed_answer = parse(answer)
    if not parsed_answer:
        return Decision("wrong", "unreadable")
    same = math_verify.verify(parsed_gold, parsed_answer, timeout_seconds=None, float_rounding=12, strict=True)
    return Decision("correct" if same else "wrong", "math-verify")
