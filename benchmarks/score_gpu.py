"""limen's scorer against the bare forward pass without the output layer, full logits, a fused kernel, and vLLM.

    python benchmarks/score_gpu.py --device cuda --out DIR [--model smollm2]

Pairs: prompts of 64 random tokens, responses of 64 to 192, all different; and 64 responses to each of few prompts.
Tokens are those of prompts and responses, as if nothing were shared. Every way is measured in this one run, best of
--repeats; vLLM and cut-cross-entropy only where they can be imported. Differences are of per-token means, against the
scorer, in nats.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from pathlib import Path

import numpy as np
import torch

from limen.engines.protocol import ScoreRequest
from limen.engines.runner import Runner, pad_right
from limen.engines.scoring import Scorer
from limen.models import load_model
from limen.provenance import provenance


def make_requests(count: int, vocabulary: int, prompts: int, seed: int = 0) -> list[ScoreRequest]:
    """`count` different responses to `prompts` different prompts."""
    rng = np.random.default_rng(seed)
    heads = [tuple(rng.integers(2, vocabulary, 64).tolist()) for _ in range(prompts)]
    lengths = rng.integers(64, 193, count)
    return [
        ScoreRequest(heads[i % prompts], tuple(rng.integers(2, vocabulary, n).tolist())) for i, n in enumerate(lengths)
    ]


def batches(runner: Runner, requests: list[ScoreRequest], batch_tokens: int) -> list[torch.Tensor]:
    """Token ids of the same rows, sorted and cut as the scorer does, on the device already."""
    rows = sorted(((r.prompt_ids + r.token_ids)[:-1] for r in requests), key=len, reverse=True)
    cut, start = [], 0
    while start < len(rows):
        end = start + max(1, batch_tokens // (len(rows[start]) + 1))
        cut.append(pad_right(rows[start:end], runner.device)[0])
        start = end
    return cut


def bare(runner: Runner, ids: list[torch.Tensor]) -> None:
    """The model without its output layer, and nothing else."""
    with torch.inference_mode():
        for ids_BT in ids:
            runner.hidden(ids_BT)


def full_logits(model, requests: list[ScoreRequest], batch: int) -> list[np.ndarray]:
    """All logits in float32, log-softmax, gather; right-padded batches in the order given."""
    values = []
    for start in range(0, len(requests), batch):
        part = requests[start : start + batch]
        ids, mask = pad_right([r.prompt_ids + r.token_ids for r in part], model.device)
        with torch.inference_mode():
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits.float()
            logs = torch.log_softmax(logits[:, :-1], dim=-1).gather(2, ids[:, 1:, None])[..., 0].cpu().numpy()
        for row, r in zip(logs, part, strict=True):
            values.append(row[len(r.prompt_ids) - 1 : len(r.prompt_ids) - 1 + len(r.token_ids)])
    return values


def measure(cuda: bool, repeats: int, tokens: int, work):
    """(what `work` gave, {tokens_per_second, peak_gib}), best of `repeats` after one to warm up."""
    result, best = work(), 0.0
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        if cuda:
            torch.cuda.synchronize()
        best = max(best, tokens / (time.perf_counter() - start))
    peak = torch.cuda.max_memory_allocated() / 2**30 if cuda else float("nan")
    return result, {"tokens_per_second": best, "peak_gib": peak}


def gap(a, b) -> float:
    """Largest difference of per-token means."""
    return float(max(abs(x.mean(dtype=np.float64) - y.mean(dtype=np.float64)) for x, y in zip(a, b, strict=True)))


def with_transformers(args, cuda: bool):
    """Everything that transformers runs: (rows, requests, their tokens, their scores). The model is gone afterwards."""
    loaded = load_model(args.model, args.device)
    runner = Runner(loaded.model)
    alone = make_requests(args.count, runner.vocabulary, args.count)
    shared = make_requests(args.count, runner.vocabulary, max(1, args.count // 64), seed=1)
    tokens, tokens_shared = (sum(len(r.prompt_ids) + len(r.token_ids) for r in x) for x in (alone, shared))
    rows: dict[str, dict[str, float]] = {}
    ways = {"limen": "logits"} | ({"limen, cut-cross-entropy": "cce"} if cuda and _have("cut_cross_entropy") else {})
    ours = None
    for size in args.batch_tokens:
        ids = batches(runner, alone, size)
        _, rows[f"bare forward, no head ({size})"] = measure(cuda, args.repeats, tokens, lambda x=ids: bare(runner, x))
        for name, head in ways.items():
            scorer = Scorer(runner, batch_tokens=size, head=head)
            values, row = measure(cuda, args.repeats, tokens, lambda s=scorer: s.score(alone))
            ours = values if ours is None else ours
            row |= {"of_bare": row["tokens_per_second"] / rows[f"bare forward, no head ({size})"]["tokens_per_second"],
                    "gap": gap(values, ours)}  # fmt: skip
            rows[f"{name} ({size})"] = row
    values, rows["limen, 64 responses a prompt"] = measure(
        cuda, args.repeats, tokens_shared, lambda: Scorer(runner).score(shared)
    )
    single = [v for r in shared[:256] for v in Scorer(runner).score([r])]
    rows["limen, 64 responses a prompt"]["gap"] = gap(values[:256], single)
    for batch in args.batches:
        values, row = measure(cuda, 1, tokens, lambda b=batch: full_logits(loaded.model, alone, b))
        rows[f"full logits (batch {batch})"] = {**row, "gap": gap(values, ours)}
    return rows, alone, tokens, ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--count", type=int, default=4096)
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[16_384, 65_536])
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    cuda = args.device.startswith("cuda")
    rows, alone, tokens, ours = with_transformers(args, cuda)
    if cuda and _have("vllm"):
        torch.cuda.empty_cache()
        rows["vLLM prompt log-probabilities"] = vllm(args, alone, tokens, ours)
    best = max(r["of_bare"] for r in rows.values() if "of_bare" in r)
    result = {"model": args.model, "pairs": args.count, "tokens": tokens, "rows": rows, "best_of_bare": best,
              "provenance": provenance()}  # fmt: skip
    (args.out / "score_gpu.json").write_text(json.dumps(result, indent=1))
    text = table(result)
    (args.out / "score_gpu.md").write_text(text)
    print(text)


def vllm(args, requests, tokens, ours) -> dict[str, float]:
    """vLLM on the same pairs; its noise: 64 of them one by one."""
    from limen.engines.vllm import VLLMEngine

    scorer = VLLMEngine.load(args.model, draws="vllm", gpu_memory_utilization=0.5, max_model_len=512)
    values, row = measure(True, 1, tokens, lambda: scorer.score(requests))
    single = [v for r in requests[:64] for v in scorer.score([r])]
    return {**row, "peak_gib": float("nan"), "gap": gap(values, ours), "noise": gap(values[:64], single)}


def table(r: dict) -> str:
    """The result as Markdown."""
    lines = [f"{r['model']}, {r['pairs']} pairs, {r['tokens']:,} tokens", "",
             "| way | tokens/s | of the bare forward | peak GiB | largest gap to limen, nats a token |",
             "|---|---|---|---|---|"]  # fmt: skip
    for name, row in r["rows"].items():
        share = f"{row['of_bare']:.0%}" if "of_bare" in row else ""
        off = f"{row['gap']:.1e}" if "gap" in row else ""
        lines.append(f"| {name} | {row['tokens_per_second']:,.0f} | {share} | {row['peak_gib']:.2f} | {off} |")
    return "\n".join([*lines, "", f"best: {r['best_of_bare']:.0%} of the bare forward", ""])


def _have(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


if __name__ == "__main__":
    main()
