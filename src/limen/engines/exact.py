"""The exact engine: policies whose every probability is known, behind the protocol of all engines.

It is the keystone of the tests. What sampling, judging and measuring make of its samples can be held against closed
forms: the probability of a response, pass@k, the flips that chance makes, entropies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from limen.engines.protocol import Capabilities, Sample, SampleRequest, ScoreRequest
from limen.engines.requests_check import check_params
from limen.errors import ModelError
from limen.types import FinishReason, SamplingParams

PAD, EOS = 0, 1
Probs = NDArray[np.float64]


class CharTokenizer:
    """One token per character of `alphabet`; id 0 pads, id 1 ends. Enough of a tokenizer to render prompts."""

    chat_template = None
    bos_token_id = None
    pad_token_id, eos_token_id = PAD, EOS

    def __init__(self, alphabet: str) -> None:
        self.alphabet = "".join(sorted(set(alphabet)))
        self._ids = {c: i + 2 for i, c in enumerate(self.alphabet)}

    def __len__(self) -> int:
        return len(self.alphabet) + 2

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        missing = sorted(set(text) - set(self.alphabet))
        if missing:
            raise ModelError(f"the exact policy has no token for {missing[0]!r}")
        return [self._ids[c] for c in text]

    def decode(self, token_ids: Sequence[int], **options: object) -> str:
        return "".join(self.alphabet[i - 2] for i in token_ids if i > EOS)


class TabularPolicy(Protocol):
    """Known probabilities of the next token, at temperature 1."""

    tokenizer: CharTokenizer

    def next_probs(self, prompt_ids: tuple[int, ...], prefix: tuple[int, ...]) -> Probs:
        """Distribution over the vocabulary, shape (V,), after the prompt and the tokens drawn so far."""
        ...


class ResponsesPolicy:
    """A list of whole responses for each prompt, each with its probability.

    responses: prompt text -> response text -> probability (each prompt's sum to 1). Token probabilities follow from
    it: of all responses that begin so, the share that goes on with the token (or ends).
    """

    def __init__(self, responses: Mapping[str, Mapping[str, float]]) -> None:
        self.tokenizer = CharTokenizer("".join(p + "".join(rs) for p, rs in responses.items()))
        self.responses = {p: dict(rs) for p, rs in responses.items()}
        self._mass: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
        for prompt, table in responses.items():
            if not math.isclose(sum(table.values()), 1.0, abs_tol=1e-9) or min(table.values()) < 0:
                raise ModelError(f"probabilities of the responses to {prompt!r} are not a distribution")
            mass: dict[tuple[int, ...], float] = {}
            for text, p in table.items():
                ids = (*self.tokenizer.encode(text), EOS)
                for end in range(len(ids) + 1):
                    mass[ids[:end]] = mass.get(ids[:end], 0.0) + p
            self._mass[tuple(self.tokenizer.encode(prompt))] = mass

    def next_probs(self, prompt_ids: tuple[int, ...], prefix: tuple[int, ...]) -> Probs:
        if prompt_ids not in self._mass:
            raise ModelError(f"the exact policy does not know the prompt {self.tokenizer.decode(prompt_ids)!r}")
        mass = self._mass[prompt_ids]
        total = mass.get(prefix, 0.0)
        if total == 0.0:
            raise ModelError("the exact policy never begins a response so: nothing follows it")
        return np.array([mass.get((*prefix, i), 0.0) / total for i in range(len(self.tokenizer))])


class MarkovPolicy:
    """The next token depends on the last one alone (on the prompt's last token at first).

    alphabet: V-2 characters in sorted order; transition_VV: row i holds the probabilities that follow token i, with
    columns for padding (0: never), end (1) and the characters.
    """

    def __init__(self, alphabet: str, transition_VV: Probs) -> None:
        self.tokenizer = CharTokenizer(alphabet)
        size = len(self.tokenizer)
        if transition_VV.shape != (size, size) or not np.allclose(transition_VV[2:].sum(axis=1), 1.0):
            raise ModelError(f"expected a transition matrix of shape ({size}, {size}) whose rows sum to 1")
        self.transition_VV = transition_VV

    def next_probs(self, prompt_ids: tuple[int, ...], prefix: tuple[int, ...]) -> Probs:
        probs: Probs = self.transition_VV[(prompt_ids + prefix)[-1]]
        return probs


def shape(probs_V: Probs, params: SamplingParams) -> Probs:
    """The distribution that is drawn from: temperature, then top-k, then top-p, then made to sum to 1."""
    if params.temperature == 0:
        greedy: Probs = np.eye(len(probs_V))[int(np.argmax(probs_V))]
        return greedy
    with np.errstate(divide="ignore"):
        logits = np.log(probs_V) / params.temperature
    shaped = np.exp(logits - logits.max())
    order = np.argsort(-shaped, kind="stable")
    if params.top_k:
        shaped[order[params.top_k :]] = 0.0
    shaped /= shaped.sum()
    if params.top_p < 1:
        before = np.cumsum(shaped[order]) - shaped[order]
        shaped[order[before >= params.top_p]] = 0.0
    result: Probs = shaped / shaped.sum()
    return result


class ExactEngine:
    """Samples and scores a tabular policy, and knows the distribution of what it samples."""

    name = "exact"
    capabilities = Capabilities(token_ids=True, raw_logprobs=True, seeds=True, score=True)

    def __init__(self, policy: TabularPolicy, logprobs: bool = False) -> None:
        self.policy = policy
        self.tokenizer = policy.tokenizer
        self.logprobs = logprobs

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> Iterator[Sample]:
        """Yield each response once. Draws by inverse CDF from (seed, position), as the transformers engine does."""
        check_params(params)
        return self._sample(requests, params)

    def _sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> Iterator[Sample]:
        from limen.engines.draw import uniforms

        for request in requests:
            u_NT = uniforms(request.seeds, 0, params.max_tokens)
            rows = np.arange(len(request.seeds))
            for row, ids, reason, log_q in self._grow(request.prompt.token_ids, (), 0.0, rows, u_NT, params):
                text = self._cut(ids, params)
                logprobs = self._score(request.prompt.token_ids, ids) if self.logprobs else None
                yield Sample(
                    request.prompt.problem_id,
                    request.sample_indices[row],
                    request.seeds[row],
                    ids,
                    text,
                    reason,
                    None if logprobs is None else tuple(logprobs.tolist()),
                    log_q,
                )

    def _grow(
        self,
        prompt: tuple[int, ...],
        prefix: tuple[int, ...],
        log_q: float,
        rows: NDArray[np.int64],
        u_NT: Probs,
        params: SamplingParams,
    ) -> Iterator[tuple[int, tuple[int, ...], FinishReason, float]]:
        """Rows that share a prefix draw their next token together."""
        probs_V = shape(self.policy.next_probs(prompt, prefix), params)
        cdf_V = np.cumsum(probs_V)
        drawn = np.searchsorted(cdf_V, u_NT[rows, len(prefix)] * cdf_V[-1], side="right")
        for token in np.unique(drawn):
            ids, q = (*prefix, int(token)), log_q + math.log(probs_V[token])
            reason = self._reason(ids, params)
            if reason is None:
                yield from self._grow(prompt, ids, q, rows[drawn == token], u_NT, params)
            else:
                yield from ((int(row), ids, reason, q) for row in rows[drawn == token])

    def _reason(self, ids: tuple[int, ...], params: SamplingParams) -> FinishReason | None:
        if ids[-1] == EOS:
            return "eos"
        text = self.tokenizer.decode(ids)
        if any(s in text for s in params.stop):
            return "stop"
        return "length" if len(ids) >= params.max_tokens else None

    def _cut(self, ids: tuple[int, ...], params: SamplingParams) -> str:
        text = self.tokenizer.decode(ids)
        ends = [at for s in params.stop if (at := text.find(s)) >= 0]
        return text[: min(ends)] if ends else text

    def score(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """Exact log-probabilities at temperature 1."""
        return [self._score(tuple(r.prompt_ids), tuple(r.token_ids)).astype(np.float32) for r in requests]

    def _score(self, prompt: tuple[int, ...], ids: tuple[int, ...]) -> Probs:
        with np.errstate(divide="ignore"):
            logs = [np.log(self.policy.next_probs(prompt, ids[:t])[ids[t]]) for t in range(len(ids))]
        return np.array(logs, dtype=np.float64)

    def distribution(self, prompt_ids: tuple[int, ...], params: SamplingParams) -> dict[tuple[int, ...], float]:
        """Every response that can be drawn (as token ids) with its probability; they sum to 1."""
        found: dict[tuple[int, ...], float] = {}
        stack: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
        while stack:
            prefix, q = stack.pop()
            probs_V = shape(self.policy.next_probs(prompt_ids, prefix), params)
            for token in np.flatnonzero(probs_V):
                ids, p = (*prefix, int(token)), q * float(probs_V[token])
                if self._reason(ids, params) is None:
                    stack.append((ids, p))
                else:
                    found[ids] = p
        return found

    def success(self, prompt_ids: tuple[int, ...], params: SamplingParams, correct: Callable[[str], bool]) -> float:
        """Probability that one sample is correct, and finished. pass@k is then 1 - (1 - p)^k."""
        return sum(
            p
            for ids, p in self.distribution(prompt_ids, params).items()
            if self._reason(ids, params) != "length" and correct(self._cut(ids, params))
        )
