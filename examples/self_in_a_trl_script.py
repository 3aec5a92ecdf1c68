"""A TRL script for GRPO, turned into SELF by three lines (marked). Runs on a CPU in about a minute.

python examples/self_in_a_trl_script.py
"""

from datasets import Dataset

from limen.models import load_model
from limen.problems import load_problems
from limen.train import SELFConfig, SELFTrainer  # 1. was: from trl import GRPOConfig, GRPOTrainer


def right(completions, answer, **kwargs):
    """Any reward function of yours: one number per completion, None where it cannot tell."""
    return [float(c == a) for c, a in zip(completions, answer, strict=True)]


loaded = load_model("tiny", device="cpu")
problems = load_problems("arithmetic:all?split=train&size=1500")
dataset = Dataset.from_list([{"prompt": p.problem, "answer": p.answer, "problem_id": p.id} for p in problems])

config = SELFConfig(  # 2. was: GRPOConfig(
    output_dir="runs/self-in-trl",
    forward_kl_beta=0.1,
    per_device_train_batch_size=256,
    num_generations=8,
    max_completion_length=6,
    learning_rate=3e-4,
    lr_scheduler_type="constant",
    max_steps=20,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
)
trainer = SELFTrainer(  # 3. was: GRPOTrainer(
    model=loaded.model,
    reward_funcs=right,
    args=config,
    train_dataset=dataset,
    processing_class=loaded.tokenizer,
)
trainer.train()
print(f"rollouts, verdicts and metrics: {trainer.run_path}")
