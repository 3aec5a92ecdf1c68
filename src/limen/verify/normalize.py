"""One spelling for what is written in many ways. Text in, text out, linear time."""

from __future__ import annotations

import re

_DROP = re.compile(r"\\(?:left|right|displaystyle|textstyle|,|!|;|:|quad|qquad| )(?![A-Za-z])|\\(?=\s)")
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mathbf|textit|mbox|rm|operatorname|bf)\s*\{([^{}]*)\}")
_SPACE = re.compile(r"\s+")


def normalize(text: str) -> str:
    """Strip what does not change the meaning: delimiters, emphasis, spacing commands, text wrappers."""
    text = text.strip().strip("*").strip()
    for left, right in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if text.startswith(left) and text.endswith(right) and len(text) > len(left):
            text = text[len(left) : -len(right)].strip()
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("−", "-")
    text = _TEXT.sub(r"\1", text)
    text = _DROP.sub("", text).rstrip(".").strip()
    return _SPACE.sub(" ", text)
