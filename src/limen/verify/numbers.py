"""Plain numbers: integers, decimals, e-notation, fractions, thousands separators."""

from __future__ import annotations

import re
from fractions import Fraction

_NUMBER = re.compile(
    r"(?P<sign>[-+]?)\s*(?P<int>\d{1,3}(?:,\d{3})+|\d*)(?P<frac>\.\d*)?"
    r"(?:[eE](?P<e>[-+]?\d{1,4})|\s*(?:\\times|\\cdot|×|\*)\s*10\s*\^\s*\{?\s*(?P<p>[-+]?\d{1,4})\s*\}?)?"
)
_FRACTION = re.compile(r"([-+]?)\s*\\frac\s*\{?\s*(-?\d+)\s*\}?\s*\{?\s*(-?\d+)\s*\}?|([-+]?\d+)\s*/\s*(\d+)")
_LONG = 1000


def number(text: str) -> Fraction | None:
    """The exact value of a plain number or fraction, or None for anything else."""
    text = text.strip().removeprefix("\\$").removeprefix("$").strip()
    if not text or len(text) > _LONG:
        return None
    match = _NUMBER.fullmatch(text)
    if match and (match["int"] or (match["frac"] or ".") != "."):
        digits = match["int"].replace(",", "") or "0"
        fraction = (match["frac"] or ".")[1:]
        value = Fraction(int(digits + fraction), 10 ** len(fraction))
        exponent = int(match["e"] or match["p"] or 0)
        value *= Fraction(10) ** exponent
        return -value if match["sign"] == "-" else value
    match = _FRACTION.fullmatch(text)
    if match:
        top, bottom = (match[2], match[3]) if match[2] is not None else (match[4], match[5])
        if int(bottom) == 0:
            return None
        value = Fraction(int(top), int(bottom))
        return -value if match[1] == "-" else value
    return None


def close(a: Fraction, b: Fraction, relative: float) -> bool:
    """|a - b| <= relative * |b|, exactly; so nothing but 0 is close to 0."""
    return abs(a - b) <= Fraction(relative) * abs(b)
