"""Tokens per second of limen's scorer against plain full-logits scoring of the same pairs, and the logits of each.

    python benchmarks/score_vs_full.py RUN --model smollm2 --limit 128

RUN is a run of `limen sample`. Plain scoring: prompt and response in one row, right-padded batches in the run's
order, all logits in float32, log-softmax, gather. Tokens are response tokens.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from limen.engines.hf import TransformersEngine
from limen.engines.protocol import ScoreRequest
from limen.engines.runner import pad_right
from limen.engines.scoring import Scorer
from limen.models import load_model
from limen.provenance import provenance
from limen.store import Run


def plain(model, requests, batch) -> tuple[list[np.ndarray], int]:
    """Log-probabilities, and the bytes of the largest logits (and their log-softmax) that existed."""
    values, most = [], 0
    for start in range(0, len(requests), batch):
        part = requests[start : start + batch]
        rows = [r.prompt_ids + r.token_ids for r in part]
        ids, mask = pad_right(rows, model.device)
        with torch.no_grad():
            logits = model(input_ids=ids, attention_mask=mask).logits.float()
            logs = torch.log_softmax(logits[:, :-1], dim=-1)
        most = max(most, logits.numel() * 4 + logs.numel() * 4)
        chosen = logs.gather(2, ids[:, 1:, None])[..., 0]
        for row, r in zip(chosen, part, strict=True):
            values.append(row[len(r.prompt_ids) - 1 : len(r.prompt_ids) - 1 + len(r.token_ids)].numpy())
    return values, most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--limit", type=int, default=128, help="responses; whole problems are taken")
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: on a machine that others load")
    parser.add_argument("--distinct", action="store_true", help="leave out responses that a problem has already")
    args = parser.parse_args()
    clock = time.process_time if args.clock == "cpu" else time.perf_counter
    run = Run.open(args.run)
    prompts = run.prompts()
    rollouts = sorted(run.rollouts(), key=lambda r: (r.problem_id, r.sample_index))[: args.limit]
    requests = [ScoreRequest(prompts[r.problem_id].token_ids, r.token_ids) for r in rollouts]
    if args.distinct:
        requests = list(dict.fromkeys(requests))
    tokens = sum(len(r.token_ids) for r in requests)
    loaded = load_model(args.model, device="cpu")
    engine = TransformersEngine(loaded)
    scorer = Scorer(engine.runner)
    best: dict[str, float] = {}
    bytes_plain: dict[str, int] = {}
    for _ in range(args.repeats):
        for batch in args.batches:
            started = clock()
            want, bytes_plain[str(batch)] = plain(loaded.model, requests, batch)
            best[str(batch)] = max(best.get(str(batch), 0), tokens / (clock() - started))
        started = clock()
        ours = scorer.score(requests)
        best["limen"] = max(best.get("limen", 0), tokens / (clock() - started))
    mine = best.pop("limen")
    fastest = max(best, key=lambda b: best[b])
    longest = max(len(r.token_ids) for r in requests)
    logits = 2 * 4 * engine.runner.vocabulary * min(scorer.chunk, max(tokens, longest))
    print(json.dumps({
        "model": args.model, "responses": len(requests), "tokens": tokens,
        "limen_tokens_per_second": round(mine), "plain_tokens_per_second": {b: round(v) for b, v in best.items()},
        "ratio": round(mine / best[fastest], 2),
        "limen_logit_mib": round(logits / 2**20, 1), "plain_logit_mib": round(bytes_plain[fastest] / 2**20, 1),
        "largest_difference": float(max(np.abs(a - b).max() for a, b in zip(ours, want, strict=True) if len(a))),
        "clock": args.clock, "threads": torch.get_num_threads(), "provenance": provenance(),
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
