"""Seeded bootstrap, vectorised over draws, problems and k.

Resampling problems with replacement covers everything that varies from one benchmark to the next: which problems
are in it and how their samples fell, because each problem brings its own sampling noise along.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, stdtrit

from limen.measure.passk import Floats

_CHUNK = 4_000_000  # most array elements of a block of draws


def problem_weights(M: int, draws: int, rng: np.random.Generator) -> Floats:
    """How often each problem is drawn, over M: shape (draws, M), rows sum to 1."""
    out = np.empty((draws, M))
    kind = np.uint16 if M <= 65536 else np.int64
    rows = max(1, 65_536 // M)  # blocks that stay in the processor's cache
    start_R = (np.arange(rows) * M)[:, None]
    for first in range(0, draws, rows):
        size = min(rows, draws - first)
        pick = rng.integers(0, M, size=(size, M), dtype=kind) + start_R[:size]
        np.multiply(
            np.bincount(pick.ravel(), minlength=size * M).reshape(size, M), 1 / M, out=out[first : first + size]
        )
    return out


@lru_cache(maxsize=1)
def _seeded_weights(M: int, draws: int, seed: int) -> Floats:
    """Kept from one call to the next: the curves of a comparison are all resampled with the same draws."""
    return problem_weights(M, draws, np.random.default_rng(seed))


def problem_means(value_PK: Floats, draws: int, seed: int) -> Floats:
    """Means over problems drawn with replacement, shape (draws, K). The same seed draws the same problems, so
    two policies with the problems in one order are resampled in pairs."""
    M = value_PK.shape[0]
    if draws * M <= _CHUNK:
        return np.asarray(_seeded_weights(M, draws, seed) @ value_PK)
    rng = np.random.default_rng(seed)
    block = max(1, _CHUNK // M)
    parts = [problem_weights(M, min(block, draws - start), rng) @ value_PK for start in range(0, draws, block)]
    return np.concatenate(parts)


def t_tail(df: ArrayLike, level: float, factor: float = 1.0) -> Floats:
    """Lower tail to read off a bootstrap distribution so that its width is that of a t interval with df."""
    wide = stdtrit(np.maximum(np.asarray(df, dtype=np.float64), 1.0), (1 - level) / 2) * factor
    return np.asarray(ndtr(wide))


def t_percentiles(means_DK: Floats, M: int, level: float) -> tuple[Floats, Floats]:
    """Percentile interval, widened for the number of problems (Hesterberg 2015, "expanded percentile").

    The plain percentile interval of a mean is too narrow by sqrt((M-1)/M) and by normal for t quantiles, which
    matters for 30 problems. NaN columns stay NaN.
    """
    if M < 2:
        nan = np.full(means_DK.shape[1], math.nan)
        return nan, nan.copy()
    tail = float(t_tail(M - 1, level, math.sqrt(M / (M - 1))))
    low, high = np.quantile(means_DK, [tail, 1 - tail], axis=0)
    return low, high
