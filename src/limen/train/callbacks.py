"""What happens between steps: metrics into the run folder, our own state into checkpoints."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from limen.store.metrics import append_metrics
from limen.store.writer import write_json
from limen.train.algorithms.reverse_kl import reset_due

STATE_FILE = "limen_state.json"
"""Written into a checkpoint last of all: a checkpoint without it was not finished."""
REFERENCE_FILE = "limen_reference.safetensors"


class SELFCallback(TrainerCallback):  # type: ignore[misc]
    """Belongs to one `SELFTrainer`."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer._window_trains = False

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.trainer._window_trains:  # no survivors and no KL: AdamW's momentum must not move the policy
            self.trainer.model.zero_grad(set_to_none=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        t = self.trainer
        for key, value in over_processes(t, t._sums).items():
            t._metrics["train"][key].append(value)
        t._sums.clear()
        if t.reference is not None and reset_due(state.global_step, t.algorithm.reference_reset):
            from limen.train.extra_losses import snapshot

            t.reference = snapshot(t.accelerator.unwrap_model(t.model))
        spent = sum(t.counters[k] for k in ("tokens_generated", "tokens_screened", "tokens_stored"))
        if args.token_budget is not None and spent >= args.token_budget:
            control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not logs or "train_runtime" in logs:
            return
        row = {k: v for k, v in logs.items() if isinstance(v, (int, float)) and not (v is None or math.isnan(v))}
        self.trainer.last_metrics = {k: float(v) for k, v in row.items()}
        if state.is_world_process_zero:
            append_metrics(self.trainer.run_path / "metrics.jsonl", {"step": state.global_step, **row})
        for listener in self.trainer.listeners:
            listener(state.global_step, state.max_steps, row)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        t = self.trainer
        if not state.is_world_process_zero:
            return
        if t.recorder is not None:
            t.recorder.flush()
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if t.reference is not None:
            from safetensors.torch import save_file

            save_file({k: v.contiguous() for k, v in t.reference.items()}, folder / REFERENCE_FILE)
        write_json(folder / STATE_FILE, state_of(t))


def over_processes(t: Any, sums: dict[str, float]) -> dict[str, float]:
    """The same in every process: losses averaged, forward tokens added up, all else as the main process has it."""
    if t.accelerator.num_processes == 1:
        return dict(sums)
    everyone = t.gather_rows([sums])
    out = dict(everyone[0])
    for key in sorted(set().union(*everyone)):
        values = [other.get(key, 0.0) for other in everyone]
        if key.startswith("loss_"):
            out[key] = sum(values) / len(values)
        elif key == "tokens/forward":
            out[key] = sum(values)
    return out


def state_of(t: Any) -> dict[str, Any]:
    """What a resumed run needs beside TRL's own state. The picks of base responses and refill prompts are functions of
    (seed, step), so that they need no cursor."""
    return {
        "step": t.state.global_step,
        "seed": t.args.seed,
        "counters": dict(t.counters),
        "begun_phases": list(t.begun_phases),
        "last_metrics": dict(t.last_metrics),
        "parameters": t.fingerprint,
        "generation": [t.args.generation_batch_size, t.num_generations, t.args.steps_per_generation, t.num_iterations],
    }
