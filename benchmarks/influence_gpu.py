"""The influence kernel of a real model: 64 training samples × 256 probe pairs; seconds, memory, and how right it is.

    python benchmarks/influence_gpu.py --device cuda --out DIR [--model smollm2]

Samples both sides first (one-digit sums with frozen few-shot prompts; the tiny model its own arithmetic), unless DIR
holds them. Then: the exact kernel and the sketched one, each timed; the sketch's errors against those it states; one
real SGD step and one real AdamW step, predicted against measured, over a range of step sizes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from limen.cli.influence import run_options
from limen.config import SampleSettings
from limen.dynamics.influence_adam import AdamState
from limen.dynamics.influence_gradients import Gradients
from limen.dynamics.influence_kernel import SKETCH_WIDTH, gradient_rows, gram, influence_kernel
from limen.dynamics.influence_pairs import choose_groups, choose_probe, policy_batch, read_pairs
from limen.dynamics.influence_spectrum import spectrum
from limen.dynamics.influence_step import predict_step
from limen.models import load_model
from limen.provenance import provenance
from limen.sampling import sample_run


def sample(args: argparse.Namespace, part: str, n: int) -> Path:
    """A run of n responses to each of this part's problems."""
    out = args.out / part
    if args.model == "tiny":
        problems, template = f"arithmetic:all?split={'train' if part == 'train' else 'test'}&size=72", "plain"
    else:
        sums = [(a, b) for a in range(2, 10) for b in range(2, 10)]
        rows = [
            {"id": f"{part}-{a}+{b}", "problem": f"{a} + {b} =" if part == "probe" else f"1{a} + {b} =",
             "answer": str(a + b + (0 if part == "probe" else 10))} for a, b in sums
        ]  # fmt: skip
        file = args.out / f"{part}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        problems, template = str(file), "arithmetic"
    settings = SampleSettings.make(
        model=args.model, problems=problems, n=n, max_tokens=6, template=template, device=args.device, policy="base",
        verifier="exact",
        temperature=0.9 if part == "probe" else 1.0,
    )  # fmt: skip
    sample_run(settings, out, progress=False)
    return out


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def timed(device: torch.device, work):
    """(result, seconds, peak GiB on a GPU)."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else float("nan")
    return result, time.perf_counter() - start, peak


def warm_adam(gradients: Gradients, batch, lr: float, parts: int = 8) -> AdamState:
    """Moments as of a run of 100 steps whose gradients were those of single groups of this batch."""
    second = torch.zeros(gradients.size, device=gradients.device)
    size = max(1, len(batch.pairs) // parts)
    for start in range(0, len(batch.pairs), size):
        weight = torch.zeros(len(batch.pairs))
        weight[start : start + size] = batch.coefficient_N[start : start + size] * parts
        second += gradients.total(batch.pairs, weight).square() / parts
    return AdamState(torch.zeros_like(second), second, 100, lr, (0.9, 0.99))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--train", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=256)
    parser.add_argument("--sketch", type=int, default=SKETCH_WIDTH)
    parser.add_argument("--lr", type=float, default=1e-5, help="AdamW's step size")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    runs, sampling, _ = timed(torch.device("cpu"), lambda: (sample(args, "train", 8), sample(args, "probe", 4)))
    say(f"sampled in {sampling:.0f} s")
    train = choose_groups(read_pairs(runs[0]), args.train)
    probe = choose_probe(read_pairs(runs[1]), args.pairs)
    gradients = Gradients(load_model(args.model, args.device, "float32").model)
    device = gradients.device
    batch = policy_batch(train, run_options(runs[0])[1], clip=1.0)
    influence_kernel(gradients, train[:2], probe[:2], sketch=0, keep_rows=False)  # what is settled once
    exact, exact_s, exact_gib = timed(
        device, lambda: influence_kernel(gradients, train, probe, sketch=0, keep_rows=False)
    )
    say(f"exact kernel in {exact_s:.1f} s, vmap {gradients.vmaps}")
    sketched, sketch_s, sketch_gib = timed(
        device, lambda: influence_kernel(gradients, train, probe, sketch=args.sketch, keep_rows=False)
    )
    say(f"sketched kernel in {sketch_s:.1f} s")
    gap = sketched.k_NM - exact.k_NM
    stated = replace(exact, width=args.sketch).error_NM
    unexplained = float(gap.square().sum() / (exact.k_NM - exact.k_NM.mean()).square().sum())
    steps = {}
    for name, adam in (("sgd", None), ("adam", warm_adam(gradients, batch, args.lr))):
        prediction, seconds, gib = timed(device, lambda a=adam: predict_step(
            gradients, batch, probe, a, args.lr if a else None, sketch=0, keep_rows=False
        ))  # fmt: skip
        say(f"{name} step in {seconds:.1f} s, R² {prediction.check.r2:.4f}")
        rough = predict_step(
            gradients, batch, probe, adam, prediction.lr, factors=[1.0], sketch=args.sketch, keep_rows=False
        )
        steps[name] = {**prediction.to_json(), "seconds": seconds, "peak_gib": gib, "r2_sketched": rough.check.r2}
    shape = spectrum(gram(gradient_rows(gradients, probe, sketch=args.sketch)))
    result = {
        "model": args.model, "parameters": gradients.size, "training_samples": len(train), "probe_pairs": len(probe),
        "probe_correct": sum(bool(p.correct) for p in probe), "vmap": gradients.vmaps, "rows": gradients.rows,
        "sampling_seconds": sampling, "exact": {"seconds": exact_s, "peak_gib": exact_gib},
        "sketched": {
            "width": args.sketch, "seconds": sketch_s, "peak_gib": sketch_gib, "r2_of_entries": 1 - unexplained,
            "error_over_stated_rms": float((gap / stated).square().mean().sqrt()),
            "beyond_three_errors": float((gap.abs() > 3 * stated).double().mean()),
            "error_rms_over_k_rms": float(gap.square().mean().sqrt() / exact.k_NM.square().mean().sqrt()),
        },
        "steps": steps, "spectrum": shape.to_json(16), "provenance": provenance(),
    }  # fmt: skip
    (args.out / "influence_gpu.json").write_text(json.dumps(result, indent=1))
    text = table(result)
    (args.out / "influence_gpu.md").write_text(text)
    print(text)


def table(r: dict) -> str:
    """The result as Markdown."""
    s = r["sketched"]
    lines = [
        f"{r['model']}, {r['parameters']:,} parameters, {r['training_samples']} training samples x {r['probe_pairs']} "
        f"probe pairs ({r['probe_correct']} correct), vmap {r['vmap']}, {r['rows']} rows at a time",
        "", "| kernel | seconds | peak GiB | off by, of rms K | of stated error | beyond 3 errors | R² of entries |",
        "|---|---|---|---|---|---|---|",
        f"| exact | {r['exact']['seconds']:.1f} | {r['exact']['peak_gib']:.1f} | 0 | | | 1 |",
        f"| sketch, k={s['width']} | {s['seconds']:.1f} | {s['peak_gib']:.1f} | {s['error_rms_over_k_rms']:.2%} | "
        f"{s['error_over_stated_rms']:.2f} | {s['beyond_three_errors']:.2%} | {s['r2_of_entries']:.5f} |",
        "", "| one real step | step size | R² | with sketch | slope | holds up to | breaks at | noise | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for name, p in r["steps"].items():
        lines.append(
            f"| {name} | {p['lr']:.3g} | {p['r2']:.4f} | {p['r2_sketched']:.4f} | {p['slope']:.3f} | "
            f"{p['holds_up_to']:.3g} | {p['breaks_at']:.3g} | {p['noise_nats']:.1e} | {p['seconds']:.1f} |"
        )
    e = r["spectrum"]
    lines += ["", f"Effective rank of the probe pairs' kernel {e['effective_rank']:.1f} of {e['n']} (of cosines "
              f"{e['effective_rank_cosine']:.1f}), largest eigenvalue {e['top_share']:.1%} of the trace, mean cosine "
              f"{e['mean_cosine']:+.3f}.", ""]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    main()
