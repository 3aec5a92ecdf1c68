"""The records that pass between the parts of limen. Frozen, plain, and without imports of ours.

Axis legend, used as suffixes of array names everywhere:

    _P  problem            _G  member of a group (samples of one problem)
    _T  token              _K  budget k of pass@k
    _B  row of a batch     _V  vocabulary

A *run* is a folder (`limen.store`). A rollout is named by (problem_id, policy, step, sample_index); everything
derived from it (verdicts, scores) carries the same four, so that nothing is ever matched by position.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["correct", "wrong", "no_answer", "unjudged"]
OUTCOMES: tuple[Outcome, ...] = ("correct", "wrong", "no_answer", "unjudged")

FinishReason = Literal["eos", "length", "stop"]
"""`eos`: the end-of-sequence token was sampled (it is part of `token_ids`); `stop`: a stop string was met;
`length`: `max_tokens` were sampled without an end, so the response is truncated and has no answer."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One question with its gold answer.

    `id` is a content hash unless the source gives one. `task` groups problems in tables (a family, a benchmark).
    `metadata` holds JSON values only (a Reasoning Gym entry, unit tests, choices).
    """

    id: str
    problem: str
    answer: str
    task: str = ""
    source: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered problem: the very text and token ids that a model is given.

    `hash` is of the text; two runs whose hashes differ for the same problem used different templates.
    """

    problem_id: str
    text: str
    token_ids: tuple[int, ...]
    hash: str


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn. `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 switch those off.

    `top_p` below 1 or `top_k` above 0 truncates support: reports say so.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 512
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled response.

    `token_ids`: response tokens as sampled, the end-of-sequence token included when it was sampled; `None` where
    a server gives text only. `text` is decoded from them without special tokens. `logprobs`: natural logs of the
    probabilities at temperature 1 without truncation, one per token, where the engine gives them.
    """

    problem_id: str
    policy: str
    step: int
    sample_index: int
    seed: int
    token_ids: tuple[int, ...] | None
    text: str
    finish_reason: FinishReason
    prompt_hash: str
    n_prompt_tokens: int
    params: SamplingParams
    engine: str
    logprobs: tuple[float, ...] | None = None

    @property
    def id(self) -> str:
        return rollout_id(self.problem_id, self.policy, self.step, self.sample_index)

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier says of one response.

    `answer`: the extracted final answer ("" if none); `rule`: the comparison that decided ("exact", "rational",
    "math-verify", ...), or for `unjudged` the reason ("timeout", "memory", "crash", "gold").
    `verifier`: name and version, "math@1". `true_outcome`: the outcome before noise was put on (§6 of the
    definitions), `None` where there was none.
    """

    outcome: Outcome
    answer: str = ""
    rule: str = ""
    verifier: str = ""
    true_outcome: Outcome | None = None

    @property
    def correct(self) -> bool:
        return self.outcome == "correct"


@dataclass(frozen=True, slots=True)
class Score:
    """Log-likelihood of a stored response under a model, at temperature 1, prompt masked.

    `logprob_sum` in nats, clamped at 0 from above; `n_tokens` its tokens; `token_logprobs` one per token.
    """

    problem_id: str
    policy: str
    step: int
    sample_index: int
    scorer: str
    logprob_sum: float
    n_tokens: int
    token_logprobs: tuple[float, ...] | None = None

    @property
    def logprob_mean(self) -> float:
        """Per-token mean (RBP eq. 16). NaN for an empty response."""
        return self.logprob_sum / self.n_tokens if self.n_tokens else float("nan")


def rollout_id(problem_id: str, policy: str, step: int, sample_index: int) -> str:
    """Name of a rollout: the same wherever, and by however many workers, it is sampled."""
    return content_hash([problem_id, policy, step, sample_index])


def content_hash(value: object, digits: int = 16) -> str:
    """Hex digest of a JSON value; independent of key order, process and platform."""
    data = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    return hashlib.blake2b(data, digest_size=digits // 2).hexdigest()


def derive_seed(run_seed: int, *parts: object) -> int:
    """Seed in [0, 2**63) of e.g. (run, problem, sample). Every random draw in limen starts from one of these."""
    return int(content_hash([run_seed, *[str(p) for p in parts]]), 16) >> 1
