"""Where vLLM through limen spends what bare vLLM does not: ways between the two, in turn, on one loaded engine.

    python benchmarks/vllm_profile.py --device cuda --out OUT [--shape smollm2] [--rounds 3] [--trace] [--syncs]

Bare vLLM and vLLM through limen differ in how requests are handed over (`LLM.generate` against limen's loop), in their
options, and in who draws. Each way here changes one of these; all run on an engine that has limen's logits processor,
idle where a way does not ask for it.

    bare         LLM.generate, vLLM draws
    bare-greedy  LLM.generate, temperature 0: no draw at all
    bare-limen   LLM.generate, limen draws (torch)
    loop         limen's loop, vLLM draws
    limen        limen's loop, limen draws (torch): what users get
    kernel       the same, one Triton kernel a draw (LIMEN_VLLM_DRAW=kernel); left out where Triton is not

--syncs prints, for one run of the way `limen`, every place where the worker's host waits for the GPU; --trace writes
the worker's torch profile of `bare` and `limen` (OUT/trace-WAY.txt: sums by operation).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engines_gpu import NEW, SHAPES, make_model, prompt_ids

WAYS = ["bare", "bare-greedy", "bare-limen", "loop", "limen", "kernel"]


def use_draw(worker: Any, way: str) -> bool:
    """In the worker: whether the next draws are by the kernel. False where it cannot be had."""
    from limen.engines import vllm_draw

    os.environ[vllm_draw.WAY] = way
    found = [p for p in worker.model_runner.input_batch.logitsprocs.all if isinstance(p, vllm_draw.SeededDraw)]
    for processor in found:
        processor.kernel = vllm_draw._kernel(processor.device)
    return way != "kernel" or any(p.kernel is not None for p in found)


def show_syncs(worker: Any, mode: str) -> None:
    """In the worker: warn at every place where the host waits for the GPU."""
    import torch

    torch.cuda.set_sync_debug_mode(mode)


def start_trace(worker: Any) -> None:
    """In the worker: begin a profile."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    gpu = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    worker.limen_profile = profile(activities=[ProfilerActivity.CPU, *gpu])
    worker.limen_profile.__enter__()


def end_trace(worker: Any) -> str:
    """In the worker: end the profile; its sums by operation, the host's order first and then the device's."""
    import torch

    worker.limen_profile.__exit__(None, None, None)
    found = worker.limen_profile.key_averages()
    device = ["self_cuda_time_total"] if torch.cuda.is_available() else []
    return "\n".join(found.table(sort_by=key, row_limit=40) for key in ["self_cpu_time_total", *device])


def main() -> None:
    args = parse()
    os.environ |= {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1", "HF_HUB_OFFLINE": "1"}  # functions sent to our own worker
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = str(Path(scratch) / "model")
        make_model(SimpleNamespace(shape=args.shape, folder=folder, device=args.device))
        from limen.engines.vllm import VLLMEngine

        engine = VLLMEngine.load(folder, None, max_model_len=256)
    rpc = engine.llm.collective_rpc
    ways = [w for w in args.ways if w != "kernel" or all(rpc(use_draw, args=("kernel",)))]
    rows = measure(args, engine, ways)
    if args.syncs:
        rpc(use_draw, args=("torch",))
        rpc(show_syncs, args=("warn",))
        run(args, engine, "limen", seed=77)
        rpc(show_syncs, args=("default",))
    for way in ("bare", "limen") if args.trace else ():
        rpc(use_draw, args=("torch",))
        rpc(start_trace)
        run(args, engine, way, seed=78)
        (out / f"trace-{way}.txt").write_text(rpc(end_trace)[0])
    report(args, out, rows)
    end()


def end() -> None:
    """Leave at once: after a profile vLLM's process may wait at its end for good."""
    import psutil

    sys.stdout.flush()
    for child in psutil.Process().children(recursive=True):
        child.kill()
    os._exit(0)


def measure(args: argparse.Namespace, engine: Any, ways: list[str]) -> dict[str, dict[str, list[float]]]:
    """Seconds of each way and load, round by round; the order is drawn anew in each round, the first round is cold."""
    rows: dict[str, dict[str, list[float]]] = {w: {} for w in ways}
    for turn in range(args.rounds + 1):
        for way in random.Random(turn).sample(ways, len(ways)):
            engine.llm.collective_rpc(use_draw, args=("kernel" if way == "kernel" else "torch",))
            for load in args.loads:
                seconds, tokens = run(args, engine, way, seed=turn, load=load)
                if turn:
                    rows[way].setdefault(load, []).append(tokens / seconds)
                print(f"round {turn}, {way}, {load}: {tokens / seconds:,.0f} tok/s", flush=True)
    return rows


def run(args: argparse.Namespace, engine: Any, way: str, seed: int, load: str | None = None) -> tuple[float, int]:
    """Seconds and tokens of one load by one way."""
    from limen.engines.protocol import SampleRequest
    from limen.types import Prompt, SamplingParams, derive_seed

    prompts, n = map(int, (load or args.loads[0]).split("x"))
    ids = prompt_ids(args, prompts, seed=1000 * n + seed)
    params = SamplingParams(max_tokens=args.new)
    seeds = [[derive_seed(seed, j, i) for i in range(n)] for j in range(prompts)]
    if way.startswith("bare"):
        theirs, texts = bare_options(args, way, [s for own in seeds for s in own]), ids
        if way != "bare":  # vLLM takes no n beside temperature 0
            texts = [p for p in ids for _ in range(n)]
        else:
            theirs.n = n
        start = time.perf_counter()
        outputs = engine.llm.generate([{"prompt_token_ids": p} for p in texts], theirs, use_tqdm=False)
        return time.perf_counter() - start, sum(len(c.token_ids) for o in outputs for c in o.outputs)
    engine.draws = "vllm" if way == "loop" else "limen"
    requests = [
        SampleRequest(Prompt(f"p{j}", "", tuple(p), ""), tuple(range(n)), tuple(seeds[j])) for j, p in enumerate(ids)
    ]
    own, engine._own = engine._own, (lambda shared, *_: shared) if way == "loop" else engine._own
    try:
        start = time.perf_counter()
        tokens = sum(len(s.token_ids) for s in engine.sample(requests, params))
        return time.perf_counter() - start, tokens
    finally:
        engine._own, engine.draws = own, "limen"


def bare_options(args: argparse.Namespace, way: str, seeds: list[int]) -> Any:
    """vLLM's own options; for limen's draw one set for each request."""
    from vllm import SamplingParams as Theirs

    from limen.engines.vllm import KEY

    if way != "bare-limen":
        return Theirs(temperature=0.0 if way == "bare-greedy" else 1.0, max_tokens=args.new)
    return [Theirs(temperature=0.0, max_tokens=args.new, extra_args={KEY: [s, 1.0, 1.0, 0]}) for s in seeds]


def report(args: argparse.Namespace, out: Path, rows: dict[str, dict[str, list[float]]]) -> None:
    from limen.provenance import provenance

    doc = {"shape": args.shape, "new": args.new, "tokens_per_second": rows, "provenance": provenance()}
    (out / f"vllm-profile-{args.shape}.json").write_text(json.dumps(doc, indent=1) + "\n")
    lines = ["| way |" + "".join(f" {x}: tok/s, each round | of bare |" for x in args.loads)]
    lines.append("|---|" + "---|---|" * len(args.loads))
    for way, found in rows.items():
        cells = ""
        for load in args.loads:
            best = max(found[load])
            ratio = f"{best / max(rows['bare'][load]):.2f}" if "bare" in rows else ""
            cells += f" {' '.join(f'{x:,.0f}' for x in found[load])} | {ratio} |"
        lines.append(f"| {way} |{cells}")
    (out / f"vllm-profile-{args.shape}.md").write_text("\n".join(lines) + "\n")
    print("\n" + "\n".join(lines))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--out", required=True)
    parser.add_argument("--shape", choices=list(SHAPES), default="smollm2")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--loads", nargs="+", default=["512x1", "16x256"], help="PROMPTSxSAMPLES")
    parser.add_argument("--new", type=int, default=NEW, help="new tokens")
    parser.add_argument("--rounds", type=int, default=3, help="after the first, cold one")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--syncs", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
