"""vLLM as an engine: offline, on one GPU of this process; `open_vllm` puts one on every visible GPU.

Requests go to vLLM one by one, each with its own seed, as their predecessors finish, ordered by prompt so that its
prefix cache serves all samples of a problem; finished responses are yielded as they come.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.config import SampleSettings
from limen.engines.protocol import Capabilities, Engine, Sample, SampleRequest, ScoreRequest
from limen.engines.requests_check import check_requests
from limen.engines.stops import StopStrings
from limen.errors import ConfigError, MissingExtra, ModelError
from limen.types import FinishReason, SamplingParams

log = logging.getLogger(__name__)

DRAW = "limen.engines.vllm_draw:SeededDraw"
WORKER = "limen.engines.vllm_draw.DrawWorker"
KEY = "limen"
"""Key in vLLM's `extra_args`: [seed, temperature, top_p, top_k]."""
AHEAD = 4
"""Requests that wait in vLLM, as a multiple of those that run: enough to keep it busy, and bounded in memory."""
GPU_MEMORY = 0.9
"""Most of a GPU's memory that vLLM takes; less where others use the GPU too."""
SEEDS = {"limen": "seeded by limen's own draw", "vllm": "seeded by vLLM's own generators"}


class VLLMEngine:
    """Samples and scores with vLLM (tested with 0.22.1).

    llm: a `vllm.LLM` made with `llm_options`. tokenizer: the model's, for texts. eos_ids: every token that ends a
    response. logprobs: return raw log-probabilities (at temperature 1, before top-p and top-k).
    draws: `limen` draws by (seed, position) inside vLLM, the same responses as the transformers engine but for
    rounding of the logits; `vllm` gives each request's seed to vLLM's own sampler, which is slower.
    """

    name = "vllm"

    def __init__(
        self, llm: Any, tokenizer: Any, eos_ids: Sequence[int], logprobs: bool = False, draws: str = "limen"
    ) -> None:
        if draws not in SEEDS:
            raise ModelError(f"draws is '{draws}', expected one of {', '.join(SEEDS)}")
        self.llm, self.tokenizer, self.eos_ids = llm, tokenizer, tuple(eos_ids)
        self.logprobs, self.draws = logprobs, draws
        self.capabilities = Capabilities(token_ids=True, raw_logprobs=True, seeds=True, score=True)
        config = llm.llm_engine.model_config
        self.context = int(config.max_model_len)
        self.vocabulary = int(config.get_vocab_size())
        self.rows = int(getattr(llm.llm_engine.vllm_config.scheduler_config, "max_num_seqs", 256))
        self._count = 0

    @classmethod
    def load(
        cls,
        name: str,
        dtype: str | None = None,
        logprobs: bool = False,
        trust_remote_code: bool = False,
        draws: str = "limen",
        **options: Any,
    ) -> VLLMEngine:
        """Engine for a model by name, as `limen.models.load_model` takes it, on the first visible GPU.

        options: further arguments of `vllm.LLM`. Raises `MissingExtra` without vLLM, `ModelError` where it fails.
        """
        from limen.models import load_tokenizer, resolve_model

        _environment()
        try:
            from vllm import LLM
        except ImportError as error:
            raise MissingExtra("vllm", "vllm", "the engine vllm") from error
        source = resolve_model(name)
        tokenizer = load_tokenizer(name, trust_remote_code)
        given = llm_options(source, dtype, trust_remote_code, draws) | options
        given.setdefault("gpu_memory_utilization", free_share())
        try:
            llm = LLM(**given)
        except (RuntimeError, ValueError, OSError) as error:
            raise ModelError(f"vLLM cannot load '{name}': {_first_line(error)}") from error
        if draws == "limen" and not all(llm.collective_rpc("limen_lengths_suffice")):
            log.info(
                "this vLLM waits for every step's tokens before the next step: sampling is slower than it could be"
            )
        return cls(llm, tokenizer, eos_of(source, tokenizer), logprobs, draws)

    # -- sampling ------------------------------------------------------------------------------------------

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> Iterator[Sample]:
        """Yield each response once, as it finishes; see `limen.engines.protocol.Engine.sample`."""
        check_requests(requests, params, self.context, self.vocabulary)
        return self._sample([r for r in requests if r.sample_indices], params)

    def _sample(self, requests: list[SampleRequest], params: SamplingParams) -> Iterator[Sample]:
        engine = self.llm.llm_engine
        stops = StopStrings(self.tokenizer, (), 0)
        shared = self._shared(params)
        jobs = iter([(r, i) for r in requests for i in range(len(r.sample_indices))])
        going: dict[str, tuple[SampleRequest, int]] = {}
        try:
            while True:
                while len(going) < AHEAD * self.rows and (job := next(jobs, None)) is not None:
                    request, i = job
                    name = self._name()
                    going[name] = job
                    given = self._own(shared, params, request.seeds[i])
                    engine.add_request(name, self._prompt(request.prompt.token_ids), given)
                if not going:
                    return
                outputs = [o for o in engine.step() if o.finished and o.request_id in going]
                ids_NT = [list(o.outputs[0].token_ids) for o in outputs]
                for output, ids, text in zip(outputs, ids_NT, stops.decode_many(ids_NT), strict=True):
                    yield self._read(*going.pop(output.request_id), output.outputs[0], ids, text, params)
        finally:
            if going:
                engine.abort_request(list(going))

    def _name(self) -> str:
        self._count += 1
        return f"limen-{self._count}"

    def _prompt(self, ids: Sequence[int]) -> dict[str, Any]:
        return {"type": "token", "prompt_token_ids": list(ids)}

    def _shared(self, params: SamplingParams) -> Any:
        """What vLLM is told of all requests. Every option is said: a model's own defaults must not come in.

        Made once: checking the options of each request, and copying them in depth, would take longer than a step of a
        small model for every few requests."""
        from vllm import SamplingParams as Theirs
        from vllm.sampling_params import RequestOutputKind

        own = self.draws == "limen"
        return Theirs(
            n=1,
            temperature=0.0 if own else params.temperature,
            top_p=1.0 if own else params.top_p,
            top_k=0 if own else params.top_k,
            min_p=0.0,
            repetition_penalty=1.0,
            max_tokens=params.max_tokens,
            stop=list(params.stop) or None,
            stop_token_ids=list(self.eos_ids),
            logprobs=0 if self.logprobs else None,
            detokenize=bool(params.stop),
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,
        )

    def _own(self, shared: Any, params: SamplingParams, seed: int) -> Any:
        """`shared` with what one request has for itself: its seed."""
        given = copy.copy(shared)
        if self.draws == "limen":
            given.extra_args = {KEY: [seed, params.temperature, params.top_p, params.top_k]}
        else:
            given.seed = seed % 2**63
        return given

    def _read(
        self, request: SampleRequest, i: int, output: Any, ids: list[int], text: str, params: SamplingParams
    ) -> Sample:
        reason = self._reason(request, output, ids)
        if reason == "stop":
            ends = [at for s in params.stop if (at := text.find(s)) >= 0]
            text = text[: min(ends)] if ends else text
        logprobs = _logprobs(output.logprobs, ids) if self.logprobs else None
        plain = params.temperature == 1 and params.top_p == 1 and params.top_k == 0
        return Sample(
            problem_id=request.prompt.problem_id,
            sample_index=request.sample_indices[i],
            seed=request.seeds[i],
            token_ids=tuple(ids),
            text=text,
            finish_reason=reason,
            logprobs=logprobs,
            log_q=sum(logprobs) if logprobs is not None and plain else None,
        )

    def _reason(self, request: SampleRequest, output: Any, ids: list[int]) -> FinishReason:
        if output.finish_reason == "length":
            return "length"
        if output.finish_reason != "stop":
            raise ModelError(
                f"vLLM broke off a response to problem {request.prompt.problem_id} ({output.finish_reason}): run the "
                "same command again, which goes on from what is stored"
            )
        return "stop" if isinstance(output.stop_reason, str) else "eos"

    # -- scoring -------------------------------------------------------------------------------------------

    def score(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """Log-probabilities of stored responses, as vLLM gives them for a prompt; float32, clamped at 0 from above."""
        from vllm import SamplingParams as Theirs

        params = Theirs(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        whole = [(*r.prompt_ids, *r.token_ids) for r in requests]
        for ids in whole:
            if len(ids) + 1 > self.context:
                raise ModelError(f"{len(ids)} tokens of prompt and response do not fit vLLM's context {self.context}")
        outputs = self.llm.generate([{"prompt_token_ids": list(ids)} for ids in whole], params, use_tqdm=False)
        scores = []
        for request, ids, output in zip(requests, whole, outputs, strict=True):
            start = len(request.prompt_ids)
            values = [output.prompt_logprobs[t][ids[t]].logprob for t in range(start, len(ids))]
            scores.append(np.minimum(np.array(values, dtype=np.float32), 0.0))
        return scores


def llm_options(source: str, dtype: str | None, trust_remote_code: bool, draws: str = "limen") -> dict[str, Any]:
    """Arguments of `vllm.LLM` that limen's promises rest on."""
    options: dict[str, Any] = {
        "model": source,
        "dtype": dtype or _own_dtype(),
        "trust_remote_code": trust_remote_code,
        "seed": 0,
        "enable_prefix_caching": True,
        "generation_config": "vllm",
        "logprobs_mode": "raw_logprobs",
        "disable_log_stats": True,
    }
    return options | ({"logits_processors": [DRAW], "worker_extension_cls": WORKER} if draws == "limen" else {})


def _own_dtype() -> str:
    """As the transformers engine: bfloat16 on a GPU, float32 on the CPU."""
    import torch

    return "bfloat16" if torch.cuda.device_count() else "float32"


def _environment() -> None:
    """vLLM reads these when it is imported. FlashInfer's sampler ignores seeds, the second model runner has no place
    for a draw of our own."""
    for key, value in {
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }.items():
        os.environ.setdefault(key, value)


def eos_of(source: str, tokenizer: Any) -> tuple[int, ...]:
    """Every token that ends a response: the model's generation settings or its config, and the tokenizer's own."""
    from transformers import AutoConfig, GenerationConfig

    try:
        found = GenerationConfig.from_pretrained(source).eos_token_id
    except OSError:
        found = AutoConfig.from_pretrained(source).eos_token_id
    ids: set[int] = set()
    for value in (found, getattr(tokenizer, "eos_token_id", None)):
        ids |= set(value) if isinstance(value, (list, tuple)) else set() if value is None else {int(value)}
    return tuple(sorted(ids))


def free_share() -> float:
    """Share of the first visible GPU that vLLM may take: of what is free, all but room for the draw."""
    try:
        from vllm.third_party import pynvml
    except ImportError:
        return GPU_MEMORY
    first = (os.environ.get("CUDA_VISIBLE_DEVICES") or "0").split(",")[0]
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(int(first))
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    except (pynvml.NVMLError, ValueError):
        return GPU_MEMORY
    share = float(memory.free) / float(memory.total)
    return round(max(0.05, min(GPU_MEMORY, share - 0.04)), 3)


def open_vllm(settings: SampleSettings) -> Engine:
    """vLLM on the visible GPUs: in this process on one, in a process for each on several."""
    import torch

    from limen.engines.processes import spread_over_gpus

    if settings.device not in (None, "cuda", "cpu"):
        raise ConfigError(f"device '{settings.device}' with engine vllm: choose GPUs by CUDA_VISIBLE_DEVICES and gpus")
    count = settings.gpus or max(1, torch.cuda.device_count())
    return load_from(settings) if count == 1 else spread_over_gpus(settings, count)


def load_from(settings: SampleSettings) -> VLLMEngine:
    """One vLLM for these settings, on the first visible GPU."""
    options: dict[str, Any] = {"max_num_seqs": settings.batch_size} if settings.batch_size else {}
    return VLLMEngine.load(settings.model, settings.dtype, settings.logprobs, settings.trust_remote_code, **options)


def _logprobs(found: Any, ids: Sequence[int]) -> tuple[float, ...] | None:
    """Raw log-probability of each sampled token, out of vLLM's list of {token: Logprob}."""
    if found is None:
        return None
    values = [float(found[t][token].logprob) for t, token in enumerate(ids)]
    if not np.isfinite(values).all():
        raise ModelError("the model's logits are not finite: its weights are broken, or the precision is too low")
    return tuple(min(0.0, value) for value in values)


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
