"""Typed settings. An unknown key is an error; every field says its unit; nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from limen.errors import ConfigError
from limen.types import SamplingParams


class Settings(BaseModel):
    """Base of all settings: frozen, and closed to keys that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def make(cls, **values: Any) -> Self:
        """Like the constructor, but with a `ConfigError` of one line that names the key and what is wrong with it."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise ConfigError(explain(error, cls)) from None


class SampleSettings(Settings):
    """What `limen sample` draws. Fields in `SPEED` and `EXTENT` may change when a run is gone on with."""

    model: str = Field(description="name, folder or hub name of a model")
    problems: str = Field(description="file, reasoning_gym:TASK, arithmetic:FAMILY or hub dataset")
    columns: dict[str, str] = Field(default_factory=dict, description="columns that hold id, problem, answer, task")
    split: str | None = Field(None, description="split of a hub dataset")
    limit: int | None = Field(None, ge=1, description="only the first so many problems")
    n: int = Field(1, ge=1, description="samples of each problem")
    stop_after_successes: int | None = Field(None, ge=1, description="sample a problem until so many successes, or n")
    temperature: float = Field(1.0, ge=0, description="0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0, description="0 switches it off")
    max_tokens: int = Field(512, ge=1, description="new tokens of a response")
    stop: tuple[str, ...] = Field((), description="stop strings; the template's own where none is given")
    seed: int = Field(0, ge=0)
    template: str = Field("auto", description="auto, chat, plain, a shipped few-shot template or a YAML file")
    verifier: str | dict[str, Any] = Field("auto", description="auto, a verifier's name, or its settings; none: off")
    logprobs: bool = Field(False, description="store raw log-probabilities of the sampled tokens")
    policy: str | None = Field(None, description="name of the policy in the tables; the model's own name otherwise")
    step: int = Field(0, ge=0, description="training step that the policy stands at")
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    engine: Literal["transformers", "vllm", "http"] = Field("transformers", description="what draws")
    need: tuple[Literal["token_ids", "raw_logprobs", "seeds", "score"], ...] = Field(
        (), description="capabilities that the engine must have, else nothing is sampled"
    )
    decoding: Literal["auto", "plain", "slots", "graphs", "compile"] = Field(
        "auto", description="how transformers decodes: by CUDA graphs where it can, or in the plain way"
    )
    gpus: int | None = Field(None, ge=1, description="GPUs, a process each; otherwise all for vllm, or one")
    ray: bool = Field(False, description="spread the engine over a Ray cluster")
    ray_address: str | None = Field(None, description="address of the cluster; a local one is started otherwise")
    workers: int | None = Field(None, ge=1, description="workers of the Ray cluster; one per GPU or core otherwise")
    url: tuple[str, ...] = Field((), description="addresses of OpenAI-compatible servers, with /v1")
    api: Literal["completions", "chat"] = Field("completions", description="which API of the servers")
    tokenizer: str | None = Field(None, description="the served model's tokenizer: folder or hub name")
    concurrency: int = Field(64, ge=1, description="most requests on their way to servers")
    timeout: float = Field(600.0, gt=0, description="seconds without an answer of a server")
    trust_remote_code: bool = False
    device: str | None = None
    batch_size: int | None = Field(None, ge=1, description="rows decoded together; found from memory otherwise")
    verify_workers: int | None = Field(None, ge=1, description="processes that judge")
    verify_deadline: float = Field(5.0, gt=0, description="seconds for one answer")
    flush_seconds: float = Field(20.0, gt=0, description="most seconds of work that a kill can lose once finished")
    mirror: str | None = Field(None, description="fsspec address (s3://...) that the run folder is copied to")
    share: bool = Field(False, description="several processes fill one run folder, under leases")
    lease_seconds: float = Field(60.0, gt=0, description="without a sign of life, after which a lease is taken over")
    leave_out_long: bool = Field(False, description="leave problems out whose prompt does not fit the context")
    keep_bad_golds: bool = Field(False, description="sample also problems whose gold answer fails its own verifier")

    @field_validator("stop")
    @classmethod
    def _no_empty_stop(cls, stop: tuple[str, ...]) -> tuple[str, ...]:
        if any(not s for s in stop):
            raise ValueError("an empty stop string would stop every response at once")
        return stop

    @model_validator(mode="after")
    def _greedy_once(self) -> Self:
        if self.temperature == 0 and self.n > 1:
            raise ValueError(f"temperature 0 draws the same response every time, but n is {self.n}: use n 1")
        return self

    @model_validator(mode="after")
    def _stop_rule(self) -> Self:
        r = self.stop_after_successes
        if r is not None and self.verifier == "none":
            raise ValueError("stop_after_successes counts correct samples, but verifier is none: name a verifier")
        if r is not None and r >= self.n:
            raise ValueError(f"stop_after_successes {r} with at most {self.n} samples never stops: give a larger n")
        return self

    @model_validator(mode="after")
    def _servers(self) -> Self:
        if self.engine == "http" and not self.url:
            raise ValueError("engine http needs the address of a server: url, such as http://localhost:8000/v1")
        if self.engine != "http" and self.url:
            raise ValueError(f"url is for engine http, but the engine is {self.engine}")
        if self.gpus is not None and (self.engine == "http" or self.ray):
            raise ValueError("gpus is for the engines transformers and vllm without Ray (with Ray: workers)")
        if (self.ray_address or self.workers) and not self.ray:
            raise ValueError("ray_address and workers are for a run over Ray: set ray (--ray)")
        if self.ray and self.engine == "http":
            raise ValueError("engine http needs no Ray: give it every server's url")
        if self.mirror and self.share:
            raise ValueError("several processes that share a folder cannot each mirror it: leave mirror out")
        if self.ray and self.share:
            raise ValueError("with Ray one driver fills the folder: leave share out")
        return self

    @property
    def policy_name(self) -> str:
        return self.policy or Path(self.model).name or self.model

    def params(self, template_stop: tuple[str, ...] = ()) -> SamplingParams:
        """The part that an engine is given."""
        stop = self.stop or template_stop
        return SamplingParams(self.temperature, self.top_p, self.top_k, self.max_tokens, stop)


EXTENT = frozenset({"n", "limit"})
SPEED = frozenset(
    {
        "device",
        "batch_size",
        "verify_workers",
        "verify_deadline",
        "flush_seconds",
        "keep_bad_golds",
        "leave_out_long",
        "need",
        "decoding",
        "gpus",
        "ray",
        "ray_address",
        "workers",
        "url",
        "concurrency",
        "timeout",
        "mirror",
        "share",
        "lease_seconds",
    }
)

S = TypeVar("S", bound=Settings)


def explain(error: ValidationError, kind: type[BaseModel]) -> str:
    """The first thing that is wrong, in one line; for an unknown key, the known ones that are near."""
    import difflib

    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(first["loc"][-1]), list(kind.model_fields), 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(kind.model_fields)}"
        return f"unknown setting '{where}': {hint}"
    message = first["msg"].removeprefix("Value error, ")
    given = "" if first["type"] in ("missing", "value_error") else f" (came {first['input']!r})"
    return f"setting '{where}': {message}{given}" if where else f"settings: {message}{given}"


def differences(stored: Mapping[str, Any], wanted: Mapping[str, Any], free: frozenset[str]) -> list[str]:
    """`key: stored value -> wanted value` for each setting outside `free` that is not the same."""
    keys = [k for k in {**stored, **wanted} if k not in free]
    return [f"{k}: {stored.get(k)!r} -> {wanted.get(k)!r}" for k in keys if stored.get(k) != wanted.get(k)]
