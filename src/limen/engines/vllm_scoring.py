"""Scoring by vLLM's prompt log-probabilities: another way to the numbers of `limen.engines.scoring`, for a GPU.

vLLM runs its own kernels in its own batches, so its scores differ from transformers' by more than either's rounding
(vllm-project/vllm#18352, #15420): never compare scores of the one with scores of the other. `limen score` prints the
noise floor of whichever is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.engines.protocol import Capabilities, Sample, SampleRequest, ScoreRequest
from limen.errors import MissingExtra, ModelError
from limen.models import resolve_model
from limen.types import SamplingParams


class VllmScorer:
    """Scores stored responses with vLLM. It does not sample.

    model: a name as `limen.models.load_model` takes it. dtype: `auto` unless given. options: of `vllm.LLM`.
    llm: one that is there already, instead of a new one.
    """

    name = "vllm-prompt-logprobs"
    capabilities = Capabilities(token_ids=True, raw_logprobs=True, seeds=False, score=True)

    def __init__(self, model: str, dtype: str | None = None, llm: Any = None, **options: Any) -> None:
        try:
            from vllm import LLM
            from vllm import SamplingParams as Params
        except ImportError as error:
            raise MissingExtra("vllm", "vllm", "scoring with vLLM") from error
        if llm is None:
            # Raw: before temperature and truncation, whatever the model's generation settings say.
            settings = {"logprobs_mode": "raw_logprobs", "dtype": dtype or "auto", "trust_remote_code": False}
            llm = LLM(model=resolve_model(model), **{**settings, **options})
        self.llm = llm
        self.params = Params(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> Iterator[Sample]:
        """Refused."""
        raise ModelError("this engine only scores: sample with --engine vllm of `limen sample`, or transformers")

    def score(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """Per-token log-probabilities; see `limen.engines.protocol.Engine.score`."""
        result = [np.zeros(0, dtype=np.float32) for _ in requests]
        if any(not r.prompt_ids for r in requests):
            raise ModelError("cannot score a response to an empty prompt: put a BOS token into the template")
        places = [i for i, r in enumerate(requests) if r.token_ids]
        if not places:
            return result
        context = getattr(getattr(self.llm, "model_config", None), "max_model_len", None)
        longest = max(len(requests[i].prompt_ids) + len(requests[i].token_ids) for i in places)
        if context is not None and longest + 1 > context:
            raise ModelError(
                f"a prompt with its response is {longest} tokens long, and vLLM adds one more, but its context is "
                f"{context}: raise max_model_len, or score with transformers"
            )
        prompts = [{"prompt_token_ids": [*requests[i].prompt_ids, *requests[i].token_ids]} for i in places]
        outputs = self.llm.generate(prompts, self.params, use_tqdm=False)
        for i, output in zip(places, outputs, strict=True):
            result[i] = _values(requests[i], output.prompt_logprobs)
        return result


def _values(request: ScoreRequest, prompt_logprobs: Any) -> NDArray[np.float32]:
    start = len(request.prompt_ids)
    if prompt_logprobs is None or len(prompt_logprobs) != start + len(request.token_ids):
        came = "none" if prompt_logprobs is None else str(len(prompt_logprobs))
        raise ModelError(
            f"vLLM gave {came} prompt log-probabilities for {start + len(request.token_ids)} tokens: this version does "
            "not score prompts; use transformers"
        )
    values = [prompt_logprobs[start + i][token].logprob for i, token in enumerate(request.token_ids)]
    return np.minimum(np.asarray(values, dtype=np.float32), 0.0)
