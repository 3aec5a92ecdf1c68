"""Named settings of the verifier `math`: what to do where mathematics leaves a choice. Each has one default."""

from __future__ import annotations

from typing import Literal

from limen.verify.base import Options


class AnswerOptions(Options):
    """Which part of a response is its answer."""

    box: Literal["last", "first"] = "last"
    """Which box counts where there are several."""
    where: Literal["boxed", "marked", "any"] = "any"
    """"boxed": boxes only; "marked": also tags, `####` and phrases such as "the answer is"; "any": also a bare
    answer, which is a response of one line or a last line without prose."""


class MathOptions(AnswerOptions):
    percent: Literal["either", "value", "number"] = "either"
    """10% against a plain number: "either" takes 10 and 0.1, "value" 0.1 only, "number" 10 only."""
    decimal: float = 1e-6
    """Largest relative error of a decimal that stands for a value that has no short decimal (√2, 1/3). A decimal
    against an integer or a short decimal has to agree to 1e-9."""
    rounded_gold: int = 4
    """A gold decimal of at least so many significant digits is taken as rounded: an exact answer that rounds to it
    is correct (gold 0.3333, answer 1/3). 0 switches it off."""
    intervals: bool = True
    """An inequality equals the interval or set that it describes: 0 < x < 5 and (0, 5)."""
    base: Literal["optional", "strict"] = "optional"
    """Gold 52_8: "optional" takes the digits 52 without the subscript; "strict" wants the base or the value."""
    join_boxes: bool = True
    """Where the gold answer is several values, the last boxes that only "and", "or" and commas part count as one
    answer. Without it, the last one alone."""
    bare_tuple: bool = True
    """Values without brackets equal a tuple of them in the same order: 1, 2 and (1, 2)."""
    vector: bool = True
    """A row or column matrix equals the tuple of its entries."""
    units: Literal["optional", "strict"] = "optional"
    """"optional": a unit may be missing on one side, and only two different known units differ; "strict": the
    units must be the same."""
    assignment: bool = True
    """x = 5 equals 5, f(x) = 2x equals 2x, and of a chain of equations between numbers the last side counts."""
