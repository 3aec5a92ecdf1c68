"""The quantities of RBP §3–5 as pure functions of log-probabilities. No model, no file, no random numbers.

Axes: `_N` responses (probe pairs), `_T` their tokens one after another, `_P` problems.

A response's log-likelihood is the mean over its tokens by default (RBP eq. 16), or their sum. Everything here takes
the numbers of one policy, or of the policy before and after a change; what the change was (one optimizer step, or the
way from one checkpoint to another) is the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limen.errors import DataError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Scale = Literal["mean", "sum"]


@dataclass(frozen=True)
class Scored:
    """Log-probabilities (nats) of the tokens of N responses: `token_T` one after another, response i being
    `token_T[offset_N[i] : offset_N[i + 1]]`. `entropy_T`: full-vocabulary entropies (nats) where they were taken."""

    token_T: Floats
    offset_N: Ints
    entropy_T: Floats | None = None

    @classmethod
    def of(cls, rows: Sequence[ArrayLike], entropies: Sequence[ArrayLike] | None = None) -> Scored:
        """From one array of token log-probabilities per response."""
        parts = [np.asarray(r, dtype=np.float64).reshape(-1) for r in rows]
        offsets = np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.int64)
        flat = np.concatenate([*parts, np.zeros(0)])
        own = None
        if entropies is not None:
            own = np.concatenate([*(np.asarray(e, dtype=np.float64).reshape(-1) for e in entropies), np.zeros(0)])
        return cls(flat, offsets, own)

    @property
    def tokens_N(self) -> Ints:
        return np.diff(self.offset_N)

    @property
    def sum_N(self) -> Floats:
        """log π(y|x), nats."""
        return segment_sum(self.token_T, self.offset_N)

    @property
    def mean_N(self) -> Floats:
        """log π(y|x) / |y|, nats per token; NaN for an empty response."""
        return _ratio(self.sum_N, self.tokens_N)

    @property
    def entropy_N(self) -> Floats:
        """Mean over a response's tokens of the policy's full-vocabulary entropy, nats."""
        if self.entropy_T is None:
            raise DataError("these scores were taken without entropies: score with entropies=True")
        return _ratio(segment_sum(self.entropy_T, self.offset_N), self.tokens_N)

    def values(self, scale: Scale = "mean") -> Floats:
        return self.mean_N if scale == "mean" else self.sum_N


def segment_sum(value_T: Floats, offset_N: Ints) -> Floats:
    """Sums over the segments between offsets, shape (N,); 0 for an empty one."""
    out = np.zeros(len(offset_N) - 1)
    full = offset_N[1:] > offset_N[:-1]
    if full.any():
        out[full] = np.add.reduceat(value_T, offset_N[:-1][full])
    return out


def change(before: Scored, after: Scored, scale: Scale = "mean") -> Floats:
    """Δ log π(y|x) of every response (RBP eq. 2), nats per token (or in all, with scale "sum"), shape (N,)."""
    _same(before, after)
    return after.values(scale) - before.values(scale)


def interference(change_N: ArrayLike, correct_N: ArrayLike) -> float:
    """Δ⁺ (RBP eq. 5): mean change over the correct responses. Negative: learning made them less likely."""
    d, c = _masked(change_N, correct_N)
    return mean(d[c])


def influence(change_N: ArrayLike) -> float:
    """‖Δ‖ (RBP definition 4.1): mean *square* change over all responses; no root is taken."""
    return mean(np.square(np.asarray(change_N, dtype=np.float64)))


def perplexity(mean_N: ArrayLike) -> float:
    """RBP eq. 6: mean over responses of exp(−log π(y|x)/|y|), from the per-token means."""
    return mean(np.exp(-np.asarray(mean_N, dtype=np.float64)))


def ratios(before: Scored, after: Scored) -> Floats:
    """ρ = π_after / π_before of every token, shape (T,)."""
    _same(before, after)
    return np.exp(after.token_T - before.token_T)


def clip_violation(ratio_T: ArrayLike, epsilon: float = 0.2) -> float:
    """Share of tokens whose ratio lies outside (1 − ε, 1 + ε), whatever the sign of their advantage (RBP fig. 7)."""
    ratio = np.asarray(ratio_T, dtype=np.float64)
    return float((np.abs(ratio - 1) > epsilon).mean()) if ratio.size else float("nan")


def entropy(probs_V: ArrayLike) -> float:
    """Entropy (nats) of a distribution; 0·log 0 = 0."""
    p = np.asarray(probs_V, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(-np.where(p > 0, p * np.log(p), 0.0).sum())


def movers(base_rate_P: ArrayLike, rate_P: ArrayLike, top: int = 64) -> tuple[Ints, Ints]:
    """(D↑, D↓): places of the problems whose mean accuracy rose and fell (RBP eq. 7), the largest changes first, at
    most `top` of each; ties keep the problems' order. Unchanged problems and NaN rates are in neither."""
    delta = np.asarray(rate_P, dtype=np.float64) - np.asarray(base_rate_P, dtype=np.float64)
    order = np.argsort(-np.abs(np.nan_to_num(delta)), kind="stable")
    return order[delta[order] > 0][:top].astype(np.int64), order[delta[order] < 0][:top].astype(np.int64)


def mean(values: ArrayLike) -> float:
    """Mean of what is not NaN (an empty response has no per-token mean); NaN where nothing is left."""
    v = np.asarray(values, dtype=np.float64)
    v = v[~np.isnan(v)]
    return float(v.mean()) if v.size else float("nan")


def summarize(before: Scored, after: Scored, correct_N: ArrayLike, epsilon: float = 0.2) -> dict[str, float]:
    """Everything about one change of policy on one set of responses.

    `delta_plus` Δ⁺, `delta_minus` the same over wrong responses, `influence` ‖Δ‖ (per-token means; `_sum`: of sums),
    `logp_plus`, `logp_minus` mean log π(y⁺) and log π(y⁻) after the change (nats per token), `ppl`, `ppl_correct`,
    `ppl_wrong` after it, `clip` the share of tokens with |ρ−1| > ε, `entropy` after it where it was taken.
    """
    delta_N = change(before, after)
    _, right = _masked(delta_N, correct_N)
    sums_N, after_N = change(before, after, "sum"), after.mean_N
    out = {
        "delta_plus": mean(delta_N[right]),
        "delta_minus": mean(delta_N[~right]),
        "delta_plus_sum": mean(sums_N[right]),
        "influence": influence(delta_N),
        "influence_sum": influence(sums_N),
        "logp_plus": mean(after_N[right]),
        "logp_minus": mean(after_N[~right]),
        "ppl": perplexity(after_N),
        "ppl_correct": perplexity(after_N[right]),
        "ppl_wrong": perplexity(after_N[~right]),
        "clip": clip_violation(ratios(before, after), epsilon),
    }
    if after.entropy_T is not None:
        out["entropy"] = mean(after.entropy_N)
    return out


def _ratio(a: Floats, n: Ints) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(n > 0, a / n, np.nan)


def _same(before: Scored, after: Scored) -> None:
    if not np.array_equal(before.offset_N, after.offset_N):
        raise DataError(
            f"the two scorings are of other responses ({len(before.offset_N) - 1} and {len(after.offset_N) - 1}, or of "
            "other lengths): score the same token ids under both policies"
        )


def _masked(change_N: ArrayLike, correct_N: ArrayLike) -> tuple[Floats, Bools]:
    d, c = np.asarray(change_N, dtype=np.float64), np.asarray(correct_N, dtype=bool)
    if d.shape != c.shape:
        raise DataError(f"{d.size} changes but {c.size} verdicts: give one verdict for each response")
    return d, c
