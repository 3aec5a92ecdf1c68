"""10 million verdicts in a run folder: written, then measured in a process of its own.

    python benchmarks/measure_scale.py [--problems 500] [--samples 20000] [--shard 100000]

Prints seconds and the peak memory of `limen passk RUN --json` (the whole process).
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from limen.store import VERDICTS, Run
from limen.store.writer import write_table


def write(path: Path, problems: int, samples: int, shard: int) -> None:
    """Verdicts as a run would hold them, every column filled; a p of its own for each problem."""
    run = Run.create(path, "sample", path.name, {})
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 0.6, size=problems)
    names = pa.array([f"problem-{i:05d}" for i in range(problems)])
    outcomes = pa.array(["correct", "wrong", "no_answer", "unjudged"])
    total = problems * samples
    for start in range(0, total, shard):
        row = np.arange(start, min(total, start + shard))
        i, s = row % problems, row // problems
        code = np.where(rng.random(row.size) < p[i], 0, rng.choice([1, 1, 1, 2], row.size)).astype(np.int32)
        code[rng.random(row.size) < 1e-5] = 3

        def same(word: str, size: int = row.size) -> pa.Array:
            return pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, dtype=np.int32)), pa.array([word]))

        columns = {
            "problem_id": pa.DictionaryArray.from_arrays(pa.array(i.astype(np.int32)), names),
            "policy": same("big"),
            "step": pa.array(np.zeros(row.size, dtype=np.int32)),
            "sample_index": pa.array(s.astype(np.int32)),
            "rollout_id": pa.array([f"{x:016x}" for x in row]),
            "verifier": same("math@1"),
            "outcome": pa.DictionaryArray.from_arrays(pa.array(code), outcomes),
            "answer": pa.array(rng.integers(0, 1000, row.size)).cast(pa.string()),
            "rule": same("exact"),
            "true_outcome": pa.nulls(row.size, VERDICTS.field("true_outcome").type),
            "finish_reason": same("eos"),
        }
        table = pa.table([columns[f.name] for f in VERDICTS], schema=VERDICTS)
        write_table(path / "verdicts" / f"{start:012d}.parquet", table)
    run.finish()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--shard", type=int, default=100_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        start = time.perf_counter()
        write(run, args.problems, args.samples, args.shard)
        wrote = time.perf_counter() - start
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "limen", "passk", str(run), "--json"], capture_output=True, text=True, check=True
        )
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        got = json.loads(done.stdout)
    result = {
        "rollouts": args.problems * args.samples,
        "write_seconds": round(wrote, 1),
        "measure_seconds": round(seconds, 1),
        "peak_mb": round(peak),
        "judged": got["samples"]["judged"],
        "unjudged": got["samples"]["unjudged"],
        "pass@1": got["pass_at_k"]["1"],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
