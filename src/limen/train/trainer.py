"""`SELFTrainer`: TRL's GRPOTrainer with SELF and its relatives. It overrides by wrapping `super()` only.

    generation   screen greedily -> keep what is wrong -> TRL samples G responses of the survivors -> advantages
    loss         TRL's clipped surrogate on them, plus the forward KL on stored base responses and other extra terms

Every factor that an algorithm puts on the policy loss (the share of survivors, groups without spread left out of the
denominator) is put on the advantages: the surrogate is proportional to them whatever `loss_type` is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer

from limen.train import extra_losses, generation, setup
from limen.train.algorithms.compose import Algorithm, token_advantages
from limen.train.callbacks import SELFCallback
from limen.train.rewards import VerifierReward
from limen.train.shared_prompts import SharedPrompts, prompts_run_once, shared_logprobs


class SELFTrainer(GRPOTrainer):  # type: ignore[misc]
    """In the place of `trl.GRPOTrainer`, with the same arguments, and three more.

    `verifier`: a limen verifier by name ("math", "exact", ...) or mapping; its reward comes first, before
    `reward_funcs`, and decides what is right. `reward`: "binary" (1 / 0) or "rbp" (+1 / -0.5 / -1).
    `prompt_ids`: token ids by prompt text, for prompts that were rendered elsewhere; they are used as they are.

    The training set needs `prompt`; with a verifier `answer`; `problem_id` (or `id`) names rows in the store.
    Raises `ConfigError` for settings that contradict each other.
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        train_dataset: Any = None,
        *,
        verifier: str | Mapping[str, Any] | None = None,
        reward: str = "binary",
        prompt_ids: Mapping[str, Sequence[int]] | None = None,
        **kwargs: Any,
    ) -> None:
        args = setup.checked_args(args, model)
        self.judge_reward, functions = setup.reward_functions(verifier, reward, reward_funcs, args)
        self.known_prompt_ids = {k: list(v) for k, v in (prompt_ids or {}).items()}
        self.algorithm: Algorithm = args.resolved()
        self.counters = {"no_survivors": 0, "unjudged": 0, "screen_unjudged": 0}
        self.counters |= {"tokens_generated": 0, "tokens_screened": 0, "tokens_stored": 0}
        self.begun_phases: list[int] = []
        self.last_metrics: dict[str, float] = {}
        self.recorder: Any = None
        self.base: Any = None
        self.reference: dict[str, Tensor] | None = None
        self._rewards_all = torch.zeros(0)
        self._sums: dict[str, float] = {}
        self._kl_batch: Any = None
        self._captured: dict[str, Any] | None = None
        self._kl_gradient: list[Tensor] | None = None
        self._window_trains = False
        self.shared_prompts: SharedPrompts | None = None
        super().__init__(model=model, reward_funcs=functions, args=args, train_dataset=train_dataset, **kwargs)
        self.eos_ids = setup.eos_ids(self)
        self.pad_id = setup.pad_id(self)
        if isinstance(self.judge_reward, VerifierReward):
            self.judge_reward.is_truncated = self.is_truncated
        setup.check_trainer(self)
        self.add_callback(SELFCallback(self))

    # -- training as a whole ---------------------------------------------------------------------------------

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        checkpoint = setup.begin(self, resume_from_checkpoint)
        try:
            return super().train(checkpoint, *args, **kwargs)
        finally:
            if self.recorder is not None:
                self.recorder.flush()
            setup.close(self)

    # -- generation ------------------------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training:
            return dict(super()._generate_and_score_completions(inputs))
        return generation.training_batch(self, inputs, super()._generate_and_score_completions)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        start = self.clock()
        inputs = super()._prepare_inputs(generation_batch)
        self._prepare_seconds = self.clock() - start
        return inputs

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        start = self.clock()
        rewards: Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._rewards_all = rewards
        self.count("seconds/verify", self.clock() - start)
        return rewards

    def _tokenize_prompts(self, prompts: Any) -> Any:
        if not all(isinstance(p, str) for p in prompts):
            return super()._tokenize_prompts(prompts)
        distinct = list(dict.fromkeys(prompts))  # a group's prompt is the same G times
        ids, *rest = super()._tokenize_prompts(distinct)  # of texts TRL gives nothing else that belongs to one prompt
        found = {p: self.known_prompt_ids.get(p, own) for p, own in zip(distinct, ids, strict=True)}
        return ([found[p] for p in prompts], *rest)

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        with prompts_run_once(self):
            ids, logprobs, *rest = super()._generate_single_turn(*args, **kwargs)
        if self.args.stop_strings:
            ids = [self.cut_response(r) for r in ids]
            if logprobs is not None:
                logprobs = [x[: len(r)] for x, r in zip(logprobs, ids, strict=True)]
        return (ids, logprobs, *rest)

    # -- loss ------------------------------------------------------------------------------------------------

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        start = self.clock()
        forward = self._sums.get("seconds/forward", 0.0)
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        total = self.clock() - start - self._prepare_seconds
        self.count("seconds/backward", total - (self._sums.get("seconds/forward", 0.0) - forward))
        extra_losses.measure_ratio(self)
        return loss

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        if not self.model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)  # type: ignore[no-any-return]
        start = self.clock()
        inputs = dict(inputs)  # TRL keeps its own for the next pass over the same responses
        self._captured = {"inputs": inputs} if extra_losses.needs_capture(self.algorithm) else None
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        captured, self._captured = self._captured, None
        extra_losses.forget_blank(self, inputs)
        loss = loss + extra_losses.extra_loss(self, model, inputs, captured)
        self.count("tokens/forward", float(inputs["completion_mask"].sum()))
        self.count("seconds/forward", self.clock() - start)
        return loss  # type: ignore[no-any-return]

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        out = None
        if self.shared_prompts is not None:
            out = shared_logprobs(self, super()._get_per_token_logps_and_entropies, args, kwargs)
        if out is None:
            out = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._captured is not None and torch.is_grad_enabled() and "logprobs" not in self._captured:
            self._captured["logprobs"], self._captured["entropies"] = out[0], out[1]
            inputs = self._captured["inputs"]
            old = inputs.get("old_per_token_logps")
            a = inputs["advantages"]
            inputs["advantages"] = token_advantages(
                self.algorithm, a.unsqueeze(1) if a.dim() == 1 else a, out[0] if old is None else old
            )
        return out

    # -- small things that the parts above share -------------------------------------------------------------

    def clock(self) -> float:
        """Seconds; on a GPU after what was queued is done."""
        if self.accelerator.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def count(self, key: str, value: float) -> None:
        """Add to a sum over the current optimizer step."""
        self._sums[key] = self._sums.get(key, 0.0) + value

    def problem_id(self, row: Mapping[str, Any]) -> str:
        return setup.problem_id(row)

    def prompt_token_ids(self, prompt: Any) -> list[int]:
        """The very ids that TRL gives the model for this prompt."""
        if isinstance(prompt, str) and prompt in self.known_prompt_ids:
            return self.known_prompt_ids[prompt]
        return list(self._tokenize_prompts([prompt])[0][0])

    def is_truncated(self, ids: Sequence[int]) -> bool:
        return len(ids) >= self.max_completion_length and ids[-1] not in self.eos_ids

    def cut_response(self, ids: list[int]) -> list[int]:
        return setup.cut_response(self, ids)

    def gather_rows(self, rows: Sequence[Any]) -> list[Any]:
        """Rows of all processes, in the order of the processes."""
        if self.accelerator.num_processes == 1:
            return list(rows)
        from accelerate.utils import gather_object

        return list(gather_object(list(rows)))

    def judge_rows(self, rows: list[dict[str, Any]], completions: list[Any], ids: list[list[int]]) -> Tensor:
        """Rewards (rows,) of this process's rows under the first reward function, NaN where unjudged."""
        rewards = self._calculate_rewards(rows, [r["prompt"] for r in rows], completions, ids)
        self._pending_extra_logs.clear()
        self._pending_metrics.clear()
        start = self.accelerator.process_index * len(rows)
        return rewards[start : start + len(rows), 0].float().cpu()

    def local_verdicts(self, reward_B: Tensor) -> list[Any]:
        """Verdicts of the last rewards: the verifier's, or what the reward says."""
        return setup.verdicts(self, reward_B)
