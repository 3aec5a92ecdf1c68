"""Tokens per second of limen's transformers engine against plain `generate` at its best batch size.

    python benchmarks/sample_vs_generate.py --model tiny --problems 'arithmetic:all?size=16' -n 64 --max-tokens 6
    python benchmarks/sample_vs_generate.py --model smollm2 --template chain_sum --max-tokens 12 \
        --problems 'reasoning_gym:chain_sum?min_terms=2&max_terms=3&max_digits=1' --limit 16 -n 64

Both draw n samples of the same prompts in the same process, in turns; the best of `--repeats` counts for each.
With `--clock cpu` a second is one of processor time, so that other jobs on the machine do not count.
Tokens are those of the responses, the end-of-sequence token included, what `generate` pads left out.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from limen.engines.hf import TransformersEngine
from limen.engines.protocol import SampleRequest
from limen.models import load_model
from limen.problems import load_problems
from limen.problems.prompt import load_template, render
from limen.provenance import provenance
from limen.types import SamplingParams, derive_seed

clock = time.perf_counter


def main() -> None:
    global clock
    args = parse()
    clock = time.process_time if args.clock == "cpu" else time.perf_counter
    torch.set_num_threads(args.threads)
    loaded = load_model(args.model)
    template = load_template(args.template)
    prompts = render(load_problems(args.problems, args.limit), loaded.tokenizer, template)
    rows = len(prompts) * args.n
    result = {"model": args.model, "prompts": len(prompts), "n": args.n, "max_tokens": args.max_tokens, "generate": {}}
    engine = TransformersEngine(loaded)
    params = SamplingParams(max_tokens=args.max_tokens)
    requests = [
        SampleRequest(p, tuple(range(args.n)), tuple(derive_seed(0, p.problem_id, i) for i in range(args.n)))
        for p in prompts
    ]
    best = dict.fromkeys(["limen", *args.batches], 0.0)
    for _ in range(args.repeats):
        for batch in args.batches:
            if batch <= rows:
                best[batch] = max(
                    best[batch], generate(loaded, prompts, args.n, batch, args.max_tokens, engine.eos_ids)
                )
        started = clock()
        tokens = sum(len(s.token_ids or ()) for s in engine.sample(requests, params))
        best["limen"] = max(best["limen"], tokens / (clock() - started))
    result["limen"] = round(best.pop("limen"))
    result["generate"] = {str(b): round(v) for b, v in best.items() if v}
    result["ratio"] = round(result["limen"] / max(result["generate"].values()), 2)
    result["clock"], result["threads"], result["provenance"] = args.clock, args.threads, provenance()
    print(json.dumps(result, indent=1))


def generate(loaded, prompts, n, batch, max_tokens, eos_ids) -> float:
    """Tokens per second of `generate`, each prompt repeated n times, `batch` rows at once."""
    tokenizer, model = loaded.tokenizer, loaded.model
    rows = [list(p.token_ids) for p in prompts for _ in range(n)]
    rows.sort(key=len)
    started, tokens = clock(), 0
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        width = max(map(len, part))
        ids = torch.tensor([[tokenizer.pad_token_id] * (width - len(r)) + r for r in part], device=model.device)
        mask = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in part], device=model.device)
        with torch.no_grad():
            out = model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=max_tokens,
            )
        for row in out[:, width:].tolist():
            ends = [i for i, token in enumerate(row) if token in eos_ids]
            tokens += (ends[0] + 1) if ends else len(row)
    return tokens / (clock() - started)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--problems", default="arithmetic:all?size=16")
    parser.add_argument("--template", default="auto")
    parser.add_argument("--limit", type=int)
    parser.add_argument("-n", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=6)
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 128, 256, 512, 1024, 2048])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: on a machine that others load")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


if __name__ == "__main__":
    main()
