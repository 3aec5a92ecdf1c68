"""`SELFConfig`: TRL's GRPOConfig and what SELF and its relatives add to it. Importing this imports TRL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trl import GRPOConfig

from limen.errors import ConfigError
from limen.train.algorithms.compose import FIELDS, Algorithm, check_group, named


@dataclass
class SELFConfig(GRPOConfig):  # type: ignore[misc]
    """Everything of `trl.GRPOConfig`, and the fields below.

    `algorithm` names a composition ("self" unless given; "grpo" is plain GRPO); any field of it that is set here
    (not None) overrides it. Fields are those of `limen.train.algorithms.Algorithm`, where they are explained.

    `correct_above`: a response is right when its reward under the first reward function is above this (for the
    screening, p̂, PSR and their like). `base_responses`: a run folder that `limen sample` made with the base model;
    without it `base_n` responses per training prompt are drawn once before training. `run_dir`: where rollouts,
    verdicts, metrics and base responses are stored (default: `limen/` in `output_dir`); `record_rollouts` false
    keeps only the metrics. `grad_ratio_steps`: optimizer steps between two measurements of ‖g_KL‖/‖g_RL‖ (each costs
    one backward pass of the KL term; 0: never). `token_budget`: training ends after the step that brings the generated
    tokens (groups, screening, stored base responses) to this number. `share_prompts`: each prompt of a
    micro-batch is run once for all its responses, sampling and learning (`limen.train.shared_prompts`): faster, and
    with less memory, where prompts are long and responses short. One process, no gradient checkpointing; the same
    gradient up to rounding.
    """

    algorithm: str = "self"
    selector: str | None = field(default=None, metadata={"help": "all or greedy_wrong."})
    refill: bool | None = field(default=None, metadata={"help": "Screen until the batch is full of survivors."})
    refill_limit: int | None = field(default=None, metadata={"help": "Screen at most so many batches a step."})
    dynamic_sampling: bool | None = field(default=None, metadata={"help": "Sample until all groups have spread."})
    scale: str | None = field(default=None, metadata={"help": "nominal or survivors."})
    advantage: str | None = field(default=None, metadata={"help": "group, centred, psr, nsr, w_reinforce, pass_k."})
    advantage_eps: float | None = field(default=None, metadata={"help": "Added to the std of a group."})
    w_reinforce_weight: float | None = field(default=None, metadata={"help": "Weight of correct responses."})
    pass_k: int | None = field(default=None, metadata={"help": "k of pass@k training."})
    denominator: str | None = field(default=None, metadata={"help": "active or all."})
    skip_inactive: bool | None = field(default=None, metadata={"help": "No passes over rows without a gradient."})
    soft_gate: float | None = field(default=None, metadata={"help": "Exponent s of (1 - p)^s; 0: off."})
    overtraining_tau: float | None = field(default=None, metadata={"help": "Bound of the overtraining gate; 0: off."})
    overtraining_k: int | None = field(default=None, metadata={"help": "k of the overtraining gate."})
    direction_alpha: float | None = field(default=None, metadata={"help": "Direction reweighting; 0: off."})
    forward_kl_beta: float | None = field(default=None, metadata={"help": "Weight of the forward KL, per token."})
    kl_prompts: str | None = field(default=None, metadata={"help": "batch or survivors."})
    kl_responses: str | None = field(default=None, metadata={"help": "all or correct."})
    kl_estimator: str | None = field(default=None, metadata={"help": "nll or k3."})
    kl_samples: int | None = field(default=None, metadata={"help": "Base responses per prompt and step; 0: all."})
    reverse_kl_beta: float | None = field(default=None, metadata={"help": "Weight of the reverse KL, per token."})
    reference_reset: int | None = field(default=None, metadata={"help": "Steps between resets of its reference."})
    entropy_bonus: float | None = field(default=None, metadata={"help": "Weight of the token entropy."})
    schedule: list[dict[str, Any]] | None = field(default=None, metadata={"help": "Phases; see docs/training.md."})

    correct_above: float = field(default=0.0, metadata={"help": "Right: first reward function above this."})
    base_responses: str | None = field(default=None, metadata={"help": "Run folder with base responses."})
    base_n: int = field(default=4, metadata={"help": "Base responses per prompt, drawn where none are given."})
    run_dir: str | None = field(default=None, metadata={"help": "Run folder (default: output_dir/limen)."})
    run_name_in_store: str | None = field(default=None, metadata={"help": "Policy name of the stored rollouts."})
    record_rollouts: bool = field(default=True, metadata={"help": "Store every training rollout with its verdict."})
    grad_ratio_steps: int = field(default=10, metadata={"help": "Steps between measurements of the gradient ratio."})
    token_budget: int | None = field(default=None, metadata={"help": "End once so many tokens are generated."})
    share_prompts: bool = field(default=False, metadata={"help": "Run each prompt once for all its responses."})
    stop_strings: list[str] | None = field(default=None, metadata={"help": "A response ends where one of them does."})

    def __post_init__(self) -> None:
        preset = named(self.algorithm)
        if "epsilon_high" in preset and getattr(self, "epsilon_high", None) is None:
            self.epsilon_high: float | None = preset["epsilon_high"]
        if getattr(self, "loss_type", None) == type(self).__dataclass_fields__["loss_type"].default:
            self.loss_type: str = preset.get("loss_type", self.loss_type)
        super().__post_init__()
        algorithm = self.resolved()
        check_group(algorithm, self.num_generations)
        self._check_cycle()
        if self.grad_ratio_steps < 0 or self.base_n < 1:
            raise ConfigError(
                f"grad_ratio_steps {self.grad_ratio_steps} must be 0 or more, base_n {self.base_n} 1 or more"
            )
        if self.base_responses and not any(a.forward_kl_beta for a in algorithm.states()):
            raise ConfigError("base_responses is given but forward_kl_beta is 0, so they would never be used")
        if any(a.skip_inactive for a in algorithm.states()) and (self.beta or getattr(self, "entropy_coef", 0.0)):
            raise ConfigError("skip_inactive: with TRL's beta or entropy_coef every row counts")
        if getattr(self, "use_liger_kernel", False):
            raise ConfigError("use_liger_kernel: its fused loss leaves out the extra terms; switch it off")

    def resolved(self) -> Algorithm:
        """The algorithm in force before any schedule."""
        values = {k: v for k, v in named(self.algorithm).items() if k in FIELDS}
        values.update({k: v for k in FIELDS if (v := getattr(self, k)) is not None})
        if "schedule" in values:
            values["schedule"] = tuple(values["schedule"])
        return Algorithm(**values)

    @property
    def cycle(self) -> int:
        """Optimizer steps that one generation serves. Checkpoints fall on its multiples only."""
        micro = int(self.steps_per_generation) * int(self.num_iterations)
        return max(1, micro // int(self.gradient_accumulation_steps))

    def _check_cycle(self) -> None:
        ga, micro = self.gradient_accumulation_steps, self.steps_per_generation * self.num_iterations
        if micro % ga and ga % micro:
            raise ConfigError(
                f"steps_per_generation x num_iterations ({micro}) and gradient_accumulation_steps ({ga}): one must "
                "be a multiple of the other, or an optimizer step would mix halves of two generations"
            )
        saving = str(getattr(self.save_strategy, "value", self.save_strategy)) == "steps"
        if saving and (self.save_steps < 1 or self.save_steps % self.cycle):
            raise ConfigError(
                f"save_steps {self.save_steps}: expected a multiple of the generation cycle of {self.cycle} optimizer "
                "steps (steps_per_generation x num_iterations / gradient_accumulation_steps); a checkpoint inside a "
                "cycle cannot be resumed exactly"
            )
