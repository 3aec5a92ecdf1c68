"""What was not seen: the mass and the number of answers that the samples have missed.

Arguments are multiplicities of distinct answers of one problem: [5, 2, 1, 1] is nine samples, four answers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from limen.measure.passk import Ints, as_counts


def _seen(multiplicities: ArrayLike) -> tuple[Ints, int, int, int]:
    m = as_counts(np.atleast_1d(np.asarray(multiplicities)), "multiplicities")
    m = m[m > 0]
    return m, int(m.sum()), int((m == 1).sum()), int((m == 2).sum())


def good_turing(multiplicities: ArrayLike) -> float:
    """Probability that the next sample is an answer not seen yet: f1 / n (Good 1953). NaN without samples.

    Its expectation is that probability averaged over n - 1 samples.
    """
    _, n, f1, _ = _seen(multiplicities)
    return f1 / n if n else float("nan")


def chao1(multiplicities: ArrayLike) -> float:
    """Lower bound on the number of answers the policy can give: D + (n-1)/n * f1 (f1-1) / (2 (f2+1)) (Chao 1984).

    The bias-corrected form, which also stands where no answer was seen twice. NaN without samples.
    """
    m, n, f1, f2 = _seen(multiplicities)
    return float(m.size + (n - 1) / n * f1 * (f1 - 1) / (2 * (f2 + 1))) if n else float("nan")
