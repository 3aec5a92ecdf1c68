"""One learning step (loss and backward) with prompts run once, against TRL's own way, on the same batch.

    python benchmarks/shared_prompts.py                                  # a small model on the CPU
    python benchmarks/shared_prompts.py --device cuda --shape smollm2 --prompts 64

Random weights of a shape, `--group` responses of `--new` tokens to each of `--prompts` prompts of `--prompt-tokens`.
Both ways run in turn; printed are the seconds of each, their ratio, on a GPU the peak of its memory, and how far the
gradients lie apart. The peer is `GRPOTrainer._get_per_token_logps_and_entropies` of the installed TRL.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import Any

import torch
import trl
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from limen.train import SELFConfig, SELFTrainer

SHAPES = {
    "small": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 8, "num_attention_heads": 8,
              "num_key_value_heads": 4, "vocab_size": 8192},
    "smollm2": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
                "num_key_value_heads": 3, "vocab_size": 49152},
}  # fmt: skip


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--shape", choices=list(SHAPES), default="small")
    p.add_argument("--prompts", type=int, default=8)
    p.add_argument("--group", type=int, default=8)
    p.add_argument("--prompt-tokens", type=int, default=120)
    p.add_argument("--new", type=int, default=8)
    p.add_argument("--runs", type=int, default=5)
    return p.parse_args()


def tokenizer(words: int) -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, models

    core = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, **{f"w{i}": i for i in range(2, words)}}, "<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", padding_side="left")


def make_trainer(o: argparse.Namespace, out: str) -> SELFTrainer:
    torch.manual_seed(0)
    shape = SHAPES[o.shape]
    model = LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=True, eos_token_id=1, pad_token_id=0))
    rows = o.prompts * o.group
    args = SELFConfig(
        output_dir=out, algorithm="grpo", share_prompts=True, per_device_train_batch_size=rows,
        num_generations=o.group, max_completion_length=o.new, use_cpu=o.device == "cpu", bf16=o.device == "cuda",
        gradient_checkpointing=False, report_to="none", save_strategy="no",
    )  # fmt: skip
    data = Dataset.from_list([{"prompt": f"w{i + 2}"} for i in range(o.prompts)])
    reward = [lambda completions, **_: [0.0] * len(completions)]
    return SELFTrainer(model, reward, args, data, processing_class=tokenizer(shape["vocab_size"]))


def step(t: Any, batch: tuple[torch.Tensor, torch.Tensor, int], shared: Any) -> tuple[float, torch.Tensor]:
    """Seconds of one loss and backward pass, and the gradient."""
    t.shared_prompts = shared
    t.model.zero_grad(set_to_none=True)
    start = t.clock()
    logps = t._get_per_token_logps_and_entropies(t.model, *batch, compute_entropy=True)[0]
    logps.mean().backward()
    seconds = t.clock() - start
    return seconds, torch.cat([p.grad.flatten() for p in t.model.parameters()])


def main() -> None:
    o = options()
    with tempfile.TemporaryDirectory() as out:
        t = make_trainer(o, out)
        shared = t.shared_prompts
        prompt = torch.randint(2, SHAPES[o.shape]["vocab_size"], (o.prompts, o.prompt_tokens))
        response = torch.randint(2, SHAPES[o.shape]["vocab_size"], (o.prompts * o.group, o.new))
        ids = torch.cat([prompt.repeat_interleave(o.group, 0), response], 1).to(t.accelerator.device)
        batch = (ids, torch.ones_like(ids), o.new)
        seconds: dict[str, list[float]] = {"trl": [], "shared": []}
        peak, gradient = {}, {}
        for run in range(o.runs + 1):
            for name, way in (("trl", None), ("shared", shared)):
                if o.device == "cuda":
                    torch.cuda.reset_peak_memory_stats()
                took, gradient[name] = step(t, batch, way)
                if run:  # the first is warm-up
                    seconds[name].append(took)
                peak[name] = torch.cuda.max_memory_allocated() / 2**30 if o.device == "cuda" else 0.0
        middle = {k: statistics.median(v) for k, v in seconds.items()}
        apart = float((gradient["shared"] - gradient["trl"]).norm() / gradient["trl"].norm())
        device = torch.cuda.get_device_name() if o.device == "cuda" else "CPU"
        print(f"{o.shape}, {o.prompts} x {o.group} rows of {o.prompt_tokens} + {o.new} tokens, TRL {trl.__version__}")
        print(f"{device}, {time.strftime('%Y-%m-%d')}: medians of {o.runs}, in turn")
        for name in seconds:
            memory = f", peak {peak[name]:.1f} GiB" if o.device == "cuda" else ""
            print(f"  {name:7s} {middle[name]:.3f} s{memory}")
        print(f"  ratio {middle['trl'] / middle['shared']:.2f}; gradients {apart:.1e} apart (relative)")


if __name__ == "__main__":
    main()
