"""What `DynamicsProbe` costs in training: 512 x 4 pairs every 10 steps, beside the step itself.

    python benchmarks/probe_cost.py --device cuda --out DIR [--models tiny,smollm2]

For each model a training without the probe and one with it for each way of scoring (precision of the weights, TF32,
bf16 under autocast, without entropies), with the demo's recipe (tiny) and the preset's (smollm2: 64 x 8 responses of
at most 6 tokens). `share` is what probing adds to the steps between two probes: seconds of a probe / (every x seconds
of a step). The first probe of a run also plans and measures its noise floor, and is shown apart.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from limen.config import SampleSettings
from limen.dynamics.probe import draw_probe
from limen.lab.demo import RECIPE
from limen.provenance import provenance
from limen.train import train
from limen.train.settings import parse_settings

WAYS: dict[str, dict[str, Any] | None] = {
    "no probe": None,
    "weights' precision": {},
    "tf32": {"precision": "tf32"},
    "bf16": {"precision": "bf16"},
    "no entropies": {"entropies": False},
}
SMOLLM2 = {
    "problems": "reasoning_gym:chain_sum?min_terms=2&max_terms=3&min_digits=1&max_digits=2&size=2100&seed=1",
    "template": "chain_sum", "verifier": "reasoning_gym", "optimiser": {"lr": 1e-5, "betas": (0.9, 0.99)},
    "prompts_per_step": 64, "group_size": 8, "max_new_tokens": 6,
}  # fmt: skip


def recipe(model: str) -> dict[str, Any]:
    return {**RECIPE, "problems": "arithmetic:all?split=train"} if model == "tiny" else dict(SMOLLM2)


def probe_set(model: str, out: Path, device: str, size: int) -> Path:
    values = recipe(model)
    problems = f"arithmetic:all?split=train&size={size}" if model == "tiny" else values["problems"]
    settings = SampleSettings.make(
        model=model, problems=problems, limit=size, n=4, temperature=0.9, max_tokens=values["max_new_tokens"],
        template=values["template"], verifier=values["verifier"], device=device, dtype="float32",
    )  # fmt: skip
    folder = out / f"probe-{model}"
    draw_probe(settings, folder, progress=False)
    return folder


def measure(model: str, way: str, probe: Path, args: argparse.Namespace) -> dict[str, Any]:
    folder = args.out / f"{model}-{way.replace(' ', '-').replace(chr(39), '')}"
    extra = WAYS[way]
    values = {
        **recipe(model), "model": model, "device": args.device, "algorithm": "grpo", "steps": args.steps,
        "save_steps": args.steps, "out": str(folder), "record_rollouts": False, "seed": 0,
        "prompts_per_step": args.prompts,
        "probe": None if extra is None else {"run": str(probe), "every": args.every, **extra},
    }  # fmt: skip
    marks: list[float] = []
    train(parse_settings(values), resume=False, progress=lambda *_: marks.append(time.perf_counter()))
    gc.collect()
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    probes = [x for x in lines if "probe/seconds" in x]
    spans = [b - a for a, b in pairwise(marks)]
    row: dict[str, Any] = {"model": model, "way": way, "wall_per_step": sum(spans) / len(spans)}
    row["step"] = statistics.median(s for i, s in enumerate(spans, start=2) if i % args.every or extra is None)
    if probes:
        row["first_probe"] = probes[0]["probe/seconds"]
        row["probe"] = statistics.median(x["probe/seconds"] for x in probes[1:])
        row["noise_max"], row["delta_plus"] = probes[-1]["probe/noise_max"], probes[-1]["probe/delta_plus"]
        row["share"] = row["probe"] / (args.every * row["step"])
    return row


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| model | scoring | step, s | wall per step, s | one probe, s | first probe, s | share | noise floor, nats |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        cells = [r["model"], r["way"], f"{r['step']:.3f}", f"{r['wall_per_step']:.3f}"]
        if "probe" in r:
            cells += [f"{r['probe']:.3f}", f"{r['first_probe']:.2f}", f"{r['share']:.1%}", f"{r['noise_max']:.1e}"]
        else:
            cells += [""] * 4
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True, help="new folder")
    parser.add_argument("--models", default="tiny,smollm2")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--steps", type=int, default=41)
    parser.add_argument("--size", type=int, default=512, help="probe problems, 4 responses each")
    parser.add_argument("--prompts", type=int, default=64, help="prompts of a step, 8 responses each")
    args = parser.parse_args()
    rows = []
    for model in args.models.split(","):
        probe = probe_set(model, args.out, args.device, args.size)
        for way in args.ways.split(","):
            rows.append(measure(model, way, probe, args))
            print(json.dumps(rows[-1]), flush=True)
    result = {"every": args.every, "pairs": 4 * args.size, "rows": rows, "provenance": provenance()}
    (args.out / "probe_cost.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    page = f"{4 * args.size} pairs every {args.every} steps of {args.prompts} x 8 responses, {args.device}.\n\n"
    page += table(rows)
    (args.out / "probe_cost.md").write_text(page, encoding="utf-8")
    print("\n" + page)


if __name__ == "__main__":
    main()
