"""Settings of `limen train`: a typed model of the YAML file. Imports neither torch nor TRL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from limen.config import Settings
from limen.errors import ConfigError

Share = Annotated[float, Field(ge=0, lt=1)]
Weight = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


class AlgorithmSettings(Settings):
    """`name` gives the composition, every other key overrides a part of it (see docs/training.md)."""

    name: str = "self"
    selector: Literal["all", "greedy_wrong"] | None = None
    refill: bool | None = None
    refill_limit: Count | None = None
    dynamic_sampling: bool | None = None
    scale: Literal["nominal", "survivors"] | None = None
    advantage: Literal["group", "centred", "psr", "nsr", "w_reinforce", "pass_k"] | None = None
    advantage_eps: Annotated[float, Field(gt=0)] | None = None
    w_reinforce_weight: Weight | None = None
    pass_k: Count | None = None
    denominator: Literal["active", "all"] | None = None
    skip_inactive: bool | None = None
    soft_gate: Weight | None = None
    overtraining_tau: Weight | None = None
    overtraining_k: Count | None = None
    direction_alpha: float | None = None
    forward_kl_beta: Weight | None = None
    kl_prompts: Literal["batch", "survivors"] | None = None
    kl_responses: Literal["all", "correct"] | None = None
    kl_estimator: Literal["nll", "k3"] | None = None
    kl_samples: Annotated[int, Field(ge=0)] | None = None
    reverse_kl_beta: Weight | None = None
    reference_reset: Annotated[int, Field(ge=0)] | None = None
    entropy_bonus: Weight | None = None
    schedule: list[dict[str, Any]] | None = None
    loss_type: Literal["dapo", "grpo", "dr_grpo"] | None = None
    """Mean over the batch's tokens (default), per-sequence mean, or a constant denominator."""
    epsilon: Weight = 0.2
    epsilon_high: Weight | None = None
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """Bound on the ratio where the advantage is negative (3.0 in the papers)."""

    def config_fields(self) -> dict[str, Any]:
        """Fields for `SELFConfig`, those that are not given left out."""
        given = self.model_dump(
            exclude={"name", "loss_type", "epsilon", "epsilon_high", "dual_clip"}, exclude_none=True
        )
        return {"algorithm": self.name, **given}


class OptimiserSettings(Settings):
    """AdamW. `schedule` runs over all steps after `warmup_steps`; `grad_clip` is of the global norm."""

    lr: Annotated[float, Field(gt=0)] = 1e-6
    betas: tuple[Share, Share] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Weight = 0.0
    schedule: Literal["constant", "constant_with_warmup", "linear", "cosine"] = "constant"
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    grad_clip: Weight = 1.0


class LoraSettings(Settings):
    r: Count = 16
    alpha: Count = 32
    dropout: Share = 0.0
    target_modules: list[str] | Literal["all-linear"] = "all-linear"


class VllmSettings(Settings):
    """`colocate`: in the training process; `server`: `trl vllm-serve` at host:port."""

    mode: Literal["colocate", "server"] = "colocate"
    gpu_memory: Annotated[float, Field(gt=0, lt=1)] = 0.3
    tensor_parallel: Count = 1
    host: str = "127.0.0.1"
    port: int = 8000
    sleep: bool = False


class ProbeSettings(Settings):
    """Probing during training (`limen.dynamics.DynamicsProbe`). `run`: a probe set of `limen probe build`; `every`:
    optimizer steps between two probes; `base`: keep the base in memory and follow the perplexity of the policy's own
    samples under it; `precision`: that of the weights, or "tf32" (CUDA) or "bf16", which are faster and noisier."""

    run: str
    every: Count = 10
    entropies: bool = True
    base: bool = False
    precision: Literal["tf32", "bf16"] | None = None


class TrainSettings(Settings):
    """One training run. Units: steps are optimizer steps, lengths are tokens, temperatures divide logits."""

    model: str = "tiny"
    device: str | None = None
    precision: Literal["float32", "bf16"] | None = None
    """Compute precision; weights stay float32. bf16 on a GPU and float32 on the CPU unless given."""
    problems: str = "arithmetic:all?split=train"
    limit: Count | None = None
    max_prompt_tokens: Count | None = None
    """Problems with longer prompts are left out, and counted. Without it one that does not fit is an error."""
    columns: dict[str, str] = Field(default_factory=dict)
    split: str | None = None
    template: str = "auto"
    verifier: str | dict[str, Any] = "auto"
    """A verifier's name, or a mapping of its settings; auto: what problems of this source need."""
    verifier_workers: Count | None = None
    verifier_deadline: Annotated[float, Field(gt=0)] = 5.0
    """Seconds for one answer."""
    reward: Literal["binary", "rbp"] = "binary"
    algorithm: AlgorithmSettings = AlgorithmSettings()
    base_responses: str | None = None
    """Run folder of `limen sample` with the base model; else `base_n` per problem are drawn before training."""
    base_n: Count = 4
    optimiser: OptimiserSettings = OptimiserSettings()
    prompts_per_step: Count = 64
    group_size: Annotated[int, Field(ge=2)] = 8
    accumulation: Count = 1
    """Micro-batches that a step's responses are cut into."""
    share_prompts: bool = False
    """Run each prompt of a micro-batch once for all its responses, sampling and learning: for long prompts, short
    responses."""
    iterations: Count = 1
    """Optimizer steps on the same responses."""
    max_new_tokens: Count = 512
    temperature: Annotated[float, Field(gt=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    stop: list[str] | None = None
    """Stop strings; those of the template unless given."""
    steps: Count = 500
    token_budget: Count | None = None
    """Training ends after the step that brings the generated tokens to this (groups, screening and the stored base
    responses), if `steps` did not end it before. The schedule of the learning rate still runs over `steps`."""
    weights_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """How far on the way from the base to the policy as trained the run's model lies (WiSE-FT, `limen interpolate`).
    Below 1 the latter is in RUN/model-trained. The training knows nothing of it."""
    save_steps: Count = 100
    keep_checkpoints: Count = 2
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    out: str = "runs/train"
    name: str | None = None
    """Policy name in the store; the folder's name unless given."""
    record_rollouts: bool = True
    gradient_checkpointing: bool = False
    grad_ratio_steps: Annotated[int, Field(ge=0)] = 10
    probe: ProbeSettings | None = None
    """Follow what each step does to a probe set. It changes nothing in the training."""
    trackers: list[Literal["tensorboard", "trackio", "wandb"]] = Field(default_factory=list)
    lora: LoraSettings | None = None
    vllm: VllmSettings | None = None

    @field_validator("algorithm", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _consistent(self) -> TrainSettings:
        rows = self.prompts_per_step * self.group_size
        if rows % self.accumulation:
            raise ValueError(
                f"accumulation: {rows} responses a step cannot be cut into {self.accumulation} equal parts"
            )
        if self.save_steps % self.iterations:
            raise ValueError(
                f"save_steps {self.save_steps} must be a multiple of iterations {self.iterations}: a checkpoint "
                "between two steps on the same responses cannot be resumed exactly"
            )
        if self.vllm and self.device == "cpu":
            raise ValueError("vllm needs a GPU, but device is cpu")
        return self

    @property
    def policy(self) -> str:
        return self.name or Path(self.out).name


def parse_settings(values: Mapping[str, Any], where: str = "settings") -> TrainSettings:
    """Typed settings. Raises `ConfigError` naming every key that is unknown or out of range."""
    try:
        return TrainSettings(**values)
    except ValidationError as error:
        raise ConfigError(f"{where}: " + "; ".join(_problem(e) for e in error.errors())) from error


def load_settings(file: str | Path, overrides: Mapping[str, Any] | None = None) -> TrainSettings:
    """Settings from a YAML file, with `overrides` (dotted keys: `algorithm.name`) put over it."""
    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"no settings file {path}")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a mapping of settings, came {type(values).__name__}")
    for key, value in (overrides or {}).items():
        _put(values, key.split("."), value)
    return parse_settings(values, str(path))


def _put(values: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        inner = values.get(key)
        values[key] = {"name": inner} if isinstance(inner, str) else dict(inner or {})
        values = values[key]
    values[keys[-1]] = value


def _problem(error: Any) -> str:
    key = ".".join(str(p) for p in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"unknown key '{key}'{_near(key)}"
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{key}: {message} (came {error['input']!r})" if key else message


def _near(key: str) -> str:
    import difflib

    inner = {"algorithm": AlgorithmSettings, "optimiser": OptimiserSettings, "lora": LoraSettings,
             "vllm": VllmSettings, "probe": ProbeSettings}  # fmt: skip
    model: Any = inner.get(key.split(".")[0] if "." in key else "", TrainSettings)
    near = difflib.get_close_matches(key.split(".")[-1], model.model_fields, n=1)
    return f" (did you mean '{near[0]}'?)" if near else f"; known keys: {', '.join(model.model_fields)}"
