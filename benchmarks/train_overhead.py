"""What SELFTrainer costs over TRL's GRPOTrainer, and what SELF saves once problems are solved.

    python benchmarks/train_overhead.py [--threads 1] [--steps 12] [--rounds 4]

Tiny model, 64 prompts x 8 responses x 6 tokens, the same reward function, seeds and settings. Rounds alternate, so
that a busy machine slows both alike; seconds are the process's own (user and system), wall seconds beside them.
Then SELF without refill on a policy that solves a growing share of the prompts greedily, against GRPO on the same.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from typing import Any


def right(completions, answer, **kwargs):
    return [float(c == a) for c, a in zip(completions, answer, strict=True)]


def make(kind: str, steps: int, seed: int, rows: list[dict[str, str]], **options: Any) -> Any:
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from limen.models import load_model
    from limen.train import SELFConfig, SELFTrainer

    loaded = load_model("tiny", device="cpu")
    shared = {
        "output_dir": tempfile.mkdtemp(), "per_device_train_batch_size": 512, "num_generations": 8,
        "max_completion_length": 6, "max_steps": steps, "learning_rate": 1e-6, "lr_scheduler_type": "constant",
        "adam_beta2": 0.99, "loss_type": "dapo", "use_cpu": True, "bf16": False, "gradient_checkpointing": False,
        "report_to": "none", "logging_steps": 1, "save_strategy": "no", "disable_tqdm": True, "seed": seed,
        "optim": "adamw_torch", "beta": 0.0,
    }  # fmt: skip
    if kind == "trl":
        trainer, config = GRPOTrainer, GRPOConfig(**shared)
    else:
        trainer, config = SELFTrainer, SELFConfig(**shared, algorithm=kind, **options)
    made = trainer(
        model=loaded.model, reward_funcs=right, args=config, train_dataset=Dataset.from_list(rows),
        processing_class=loaded.tokenizer,
    )  # fmt: skip
    made.remove_callback(PrinterCallback)
    return made


def seconds(made: Any) -> tuple[list[float], list[float]]:
    """(process, wall) seconds of each step but the first."""
    from transformers import TrainerCallback

    marks = []

    class Watch(TrainerCallback):
        def on_log(self, args, state, control, **kwargs):
            marks.append((time.process_time(), time.perf_counter()))

    made.add_callback(Watch())
    made.train()
    marks = marks[: made.args.max_steps]
    pairs = list(itertools.pairwise(marks))
    return [b[0] - a[0] for a, b in pairs], [b[1] - a[1] for a, b in pairs]


def greedy_solved(rows: list[dict[str, str]]) -> list[bool]:
    """Which problems the base answers greedily."""
    from limen.engines.hf import TransformersEngine
    from limen.engines.protocol import SampleRequest
    from limen.models import load_model
    from limen.types import Prompt, SamplingParams

    loaded = load_model("tiny", device="cpu")
    prompts = [Prompt(r["problem_id"], r["prompt"], tuple(loaded.tokenizer.encode(r["prompt"])), "") for r in rows]
    engine = TransformersEngine(loaded)
    found = engine.sample(
        [SampleRequest(p, (0,), (0,)) for p in prompts], SamplingParams(temperature=0.0, max_tokens=6)
    )
    texts = {s.problem_id: s.text for s in found}
    return [texts[r["problem_id"]] == r["answer"] for r in rows]


def main() -> None:
    import torch

    from limen.problems import load_problems

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=4)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    problems = load_problems("arithmetic:all?split=train&size=3000")
    rows = [{"prompt": p.problem, "answer": p.answer, "problem_id": p.id} for p in problems]

    kinds = {"TRL GRPOTrainer": "trl", "SELFTrainer, grpo": "grpo", "SELFTrainer, grpo, rollouts not stored": "grpo-"}
    spent: dict[str, tuple[list[float], list[float]]] = {k: ([], []) for k in kinds}
    for r in range(a.rounds):
        for name, kind in kinds.items():
            options = {"record_rollouts": False} if kind.endswith("-") else {}
            cpu, wall = seconds(make(kind.rstrip("-"), a.steps, r, rows, **options))
            spent[name][0].extend(cpu)
            spent[name][1].extend(wall)
    first = statistics.median(spent["TRL GRPOTrainer"][0])
    print(f"{'':40} {'CPU s/step':>10} {'wall':>7} {'over TRL':>9}")
    for name, (cpu, wall) in spent.items():
        m = statistics.median(cpu)
        print(f"{name:40} {m:10.3f} {statistics.median(wall):7.3f} {100 * (m / first - 1):8.1f}%")

    solved = greedy_solved(rows)
    right_rows = [r for r, s in zip(rows, solved) if s]
    wrong_rows = [r for r, s in zip(rows, solved) if not s]
    print(
        f"\n{'greedily solved':>16} {'GRPO CPU s':>11} {'SELF CPU s':>11} {'ratio':>6}   (SELF: forward KL, no refill)"
    )
    for share in (0.0, 0.25, 0.5, 0.75):
        n = 640
        mix = right_rows[: int(n * share)] + wrong_rows[: n - int(n * share)]
        grpo = statistics.median(seconds(make("grpo", a.steps, 0, mix))[0])
        self_ = statistics.median(seconds(make("self", a.steps, 0, mix, forward_kl_beta=0.1))[0])
        print(f"{share:16.0%} {grpo:11.3f} {self_:11.3f} {self_ / grpo:6.2f}")


if __name__ == "__main__":
    main()
