"""Tokens per second of the engines on one GPU, random weights of a real shape: 64-token prompts, 128 new tokens.

    python benchmarks/engines_gpu.py --device cuda --out OUT --shape smollm2
    python benchmarks/engines_gpu.py --device cuda --out OUT --shape qwen1.5b --parts generate graphs vllm bare

Each part runs in a process of its own, so that one that fails is reported and the others go on. A part draws each load
`--runs` times on other prompts; the first run ("cold") includes what an engine captures or compiles on the way.

    generate   transformers' own `generate`, 512 rows at once
    static     the same with its static cache (compiled by transformers where it does so)
    plain      limen's transformers engine, decoding=plain
    graphs     limen's transformers engine, decoding=graphs (what auto takes on a GPU)
    compile    the same with the forward pass through torch.compile
    vllm       vLLM through limen, drawn by limen's rule: a response is a function of its seed
    vllm-kernel  the same, each draw one Triton kernel (LIMEN_VLLM_DRAW=kernel)
    vllm-seeds vLLM through limen, drawn by vLLM's own seeded generators
    bare       vLLM's `LLM.generate`, no seeds, nothing of limen
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PARTS = ["generate", "graphs", "vllm", "bare", "plain", "compile", "vllm-kernel", "vllm-seeds", "static"]
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
SHAPES = {
    name: {**dict(zip(SIZES, sizes)), "vocab_size": words}
    for name, sizes, words in [
        ("smollm2", (576, 1536, 30, 9, 3), 49152),
        ("qwen1.5b", (1536, 8960, 28, 12, 2), 151936),
        ("tiny", (128, 256, 2, 2, 1), 1024),
    ]
}
LOADS = [(512, 1), (16, 256)]
PROMPT, NEW = 64, 128
MARK = "RESULT "


def main() -> None:
    args = parse()
    if args.part:
        return run_part(args)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    started, results = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or str(Path(scratch) / "model")
        subprocess.run([sys.executable, __file__, *passed(args), "--folder", folder, "--part", "make"], check=True)
        for part in args.parts:
            left = args.budget - (time.monotonic() - started)
            results[part] = spawn(args, part, folder, min(left, args.part_seconds))
            (out / f"engines-{args.shape}.json").write_text(json.dumps(report(args, results), indent=1) + "\n")
            print(f"{part}: {json.dumps(results[part])[:300]}", flush=True)
    table = markdown(args, results)
    (out / f"engines-{args.shape}.md").write_text(table)
    print("\n" + table)


def spawn(args: argparse.Namespace, part: str, folder: str, seconds: float) -> dict:
    """Run one part; what it measured, or why it did not."""
    if seconds < 20:
        return {"failed": "no time left"}
    command = [sys.executable, __file__, *passed(args), "--folder", folder, "--part", part]
    started = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
        found = [json.loads(line[len(MARK) :]) for line in text.splitlines() if line.startswith(MARK)]
        return {"failed": f"took longer than {seconds:.0f} s", **(found[-1] if found else {})}
    found = [json.loads(line[len(MARK) :]) for line in done.stdout.splitlines() if line.startswith(MARK)]
    result = found[-1] if found else {}
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).strip().splitlines() if line.strip()]
        Path(args.out, f"engines-{args.shape}-{part}.log").write_text("\n".join(lines[-150:]))
        result["failed"] = lines[-1][:300] if lines else f"exit {done.returncode}"
    result["seconds_all"] = round(time.monotonic() - started, 1)
    return result


def passed(args: argparse.Namespace) -> list[str]:
    more = ["--prompts", str(args.prompts)] if args.prompts else []
    return ["--device", args.device, "--out", args.out, "--shape", args.shape, "--runs", str(args.runs), *more]


# -- one part ----------------------------------------------------------------------------------------------


def run_part(args: argparse.Namespace) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if args.part == "make":
        return make_model(args)
    started = time.perf_counter()
    draw = opener(args)
    result: dict = {"start_seconds": round(time.perf_counter() - started, 1)}
    for prompts, n in loads(args):
        speeds = []
        for number in range(args.runs if n == 1 or (args.part in ("graphs", "compile") and args.runs > 1) else 1):
            ids = prompt_ids(args, prompts, seed=1000 * n + number)
            before = time.perf_counter()
            tokens = draw(ids, n)
            speeds.append(round(tokens / (time.perf_counter() - before)))
            result[f"{prompts}x{n}"] = {"cold": speeds[0], "warm": max(speeds[1:] or speeds), "tokens": tokens}
            print(MARK + json.dumps(result), flush=True)


def loads(args: argparse.Namespace) -> list[tuple[int, int]]:
    return [(args.prompts, 1), (max(1, args.prompts // 8), 8)] if args.prompts else LOADS


def prompt_ids(args: argparse.Namespace, count: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    top = SHAPES[args.shape]["vocab_size"]
    return [[rng.randrange(10, top) for _ in range(PROMPT)] for _ in range(count)]


def opener(args: argparse.Namespace):
    """A function (prompts, n) -> tokens drawn, with its engine loaded."""
    if args.part in ("generate", "static"):
        return plain_generate(args)
    if args.part == "bare":
        return bare(args)
    from limen.engines.protocol import SampleRequest
    from limen.types import Prompt, SamplingParams, derive_seed

    engine = limen_engine(args)
    params = SamplingParams(max_tokens=NEW)

    def draw(ids, n):
        requests = []
        for j, p in enumerate(ids):
            seeds = tuple(derive_seed(0, j, i) for i in range(n))
            requests.append(SampleRequest(Prompt(f"p{j}", "", tuple(p), ""), tuple(range(n)), seeds))
        tokens = sum(len(s.token_ids) for s in engine.sample(requests, params))
        fast = getattr(engine, "fast", None)
        if fast is not None and args.part != "plain" and not fast.usable:
            raise RuntimeError(f"fell back to plain decoding: {fast.reason}")
        return tokens

    return draw


def limen_engine(args: argparse.Namespace):
    if args.part.startswith("vllm"):
        from limen.engines.vllm import VLLMEngine

        os.environ["LIMEN_VLLM_DRAW"] = "kernel" if args.part == "vllm-kernel" else "torch"
        draws = "vllm" if args.part == "vllm-seeds" else "limen"
        return VLLMEngine.load(args.folder, None, draws=draws, max_model_len=256)
    from limen.engines.hf import TransformersEngine
    from limen.models import load_model

    way = {"graphs": "graphs", "compile": "compile", "plain": "plain"}[args.part]
    if args.device == "cpu":
        way = {"graphs": "slots", "compile": "slots"}.get(way, way)
    return TransformersEngine(load_model(args.folder, args.device), decoding=way)


def plain_generate(args: argparse.Namespace):
    import torch

    from limen.models import load_model

    model = load_model(args.folder, args.device).model
    options = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": NEW}
    if args.part == "static":
        options["cache_implementation"] = "static"

    def draw(ids, n):
        rows, tokens = [p for p in ids for _ in range(n)], 0
        for start in range(0, len(rows), 512):
            batch = torch.tensor(rows[start : start + 512], device=model.device)
            with torch.no_grad():
                out = model.generate(input_ids=batch, attention_mask=torch.ones_like(batch), **options)
            tokens += count_tokens(out[:, PROMPT:].tolist())
        return tokens

    return draw


def count_tokens(rows: list[list[int]]) -> int:
    """Up to and with the first end of sequence (token 1); what is padded behind it is no token."""
    return sum(row.index(1) + 1 if 1 in row else len(row) for row in rows)


def bare(args: argparse.Namespace):
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    from vllm import LLM, SamplingParams

    llm = LLM(model=args.folder, dtype="bfloat16" if args.device == "cuda" else "float32", max_model_len=256,
              generation_config="vllm")  # fmt: skip

    def draw(ids, n):
        params = SamplingParams(n=n, temperature=1.0, max_tokens=NEW)
        outputs = llm.generate([{"prompt_token_ids": p} for p in ids], params, use_tqdm=False)
        return sum(len(c.token_ids) for o in outputs for c in o.outputs)

    return draw


def make_model(args: argparse.Namespace) -> None:
    """Random weights of the shape, and a word-level tokenizer of as many words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    shape = SHAPES[args.shape]
    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2} | {f"w{i}": i for i in range(3, shape["vocab_size"])}
    core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", model_max_length=2048
    )
    tokenizer.save_pretrained(args.folder)
    kinds = {"qwen1.5b": (Qwen2Config, Qwen2ForCausalLM)}
    config, model = kinds.get(args.shape, (LlamaConfig, LlamaForCausalLM))
    torch.manual_seed(0)
    ends = {"eos_token_id": 1, "pad_token_id": 0, "bos_token_id": None}
    small = model(config(**shape, tie_word_embeddings=True, max_position_embeddings=2048, **ends))
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    small.to(dtype).save_pretrained(args.folder)
    print(f"{args.shape}: {sum(p.numel() for p in small.parameters()):,} parameters", flush=True)


# -- output ------------------------------------------------------------------------------------------------


def report(args: argparse.Namespace, results: dict) -> dict:
    from limen.provenance import provenance

    return {"shape": args.shape, "prompt": PROMPT, "new": NEW, "results": results, "provenance": provenance()}


def markdown(args: argparse.Namespace, results: dict) -> str:
    names = [f"{p}x{n}" for p, n in loads(args)]
    base = {name: results.get("bare", {}).get(name, {}).get("warm") for name in names}
    head = "".join(f" {n} tok/s | cold | of bare vLLM |" for n in names)
    lines = [f"| {args.shape} |{head} start s |", "|---|" + "---|" * (3 * len(names) + 1)]
    for part, result in results.items():
        cells = ""
        for name in names:
            found = result.get(name)
            ratio = f"{found['warm'] / base[name]:.2f}" if found and base[name] else ""
            cells += f" {found['warm']:,} | {found['cold']:,} | {ratio} |" if found else " | | |"
        why = f" ({result['failed'][:120]})" if "failed" in result else ""
        lines.append(f"| {part}{why} |{cells} {result.get('start_seconds', '')} |")
    return "\n".join(lines) + "\n"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--out", required=True)
    parser.add_argument("--shape", choices=list(SHAPES), default="smollm2")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--runs", type=int, default=2, help="runs of each load; the first is called cold")
    parser.add_argument("--budget", type=float, default=560, help="seconds for everything; parts beyond are left out")
    parser.add_argument("--part-seconds", type=float, default=240)
    parser.add_argument("--prompts", type=int, help="smaller loads: so many prompts once, an eighth of them 8 times")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
