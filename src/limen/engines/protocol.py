"""What every engine promises, and what each declares that it can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from limen.types import FinishReason, Prompt, SamplingParams


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Samples wanted of one prompt: `sample_indices[i]` is to be drawn with `seeds[i]`."""

    prompt: Prompt
    sample_indices: tuple[int, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One finished response, named by (problem_id, sample_index), in whatever order it finished."""

    problem_id: str
    sample_index: int
    seed: int
    token_ids: tuple[int, ...] | None
    text: str
    finish_reason: FinishReason
    logprobs: tuple[float, ...] | None = None
    log_q: float | None = None
    """Log-probability of the response as it was drawn (after temperature and truncation), where it is known: what
    says whether identical responses are more than chance."""


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """A stored response to be scored: ids are concatenated to the prompt's, never re-tokenised."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do. A measurement that needs what is missing is refused with a clear error."""

    token_ids: bool
    """Responses come as the token ids that were sampled."""
    raw_logprobs: bool
    """Log-probabilities at temperature 1, before top-p and top-k."""
    seeds: bool
    """The same seed gives the same response, whatever else is in the batch (up to rounding of the logits)."""
    score: bool
    """Stored responses can be scored."""
    top_k: bool = True
    stop: bool = True
    """Stop strings end a response; the token ids go up to the token that completed one, where there are ids."""


@runtime_checkable
class Engine(Protocol):
    """A policy that can be sampled and scored."""

    name: str
    capabilities: Capabilities

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> Iterator[Sample]:
        """Yield each response once, as it finishes. Distribution: softmax(logits / temperature), truncated by
        top-k then top-p; independent across (problem, sample). Raises `ModelError` before drawing anything
        if a prompt with `max_tokens` does not fit the context."""
        ...

    def score(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """Per-token log-probabilities (nats, float32, <= 0), one array of shape (tokens,) per request."""
        ...
