"""Agreement of the verifier `math`, and of math-verify alone, with the labels that real completions came with.

    python benchmarks/verify_agreement.py DATA        the folder with raw/ and ../cases/ in it

Prints one line per set, then every pair on which limen and the label differ. docs/results/verifier.md has who is right.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from limen.verify import bench

MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


def rows(path: Path) -> Iterator[dict]:
    return (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def outcome(label: bool) -> str:
    return "correct" if label else "wrong"


def completions(folder: Path) -> list[bench.Case]:
    return [
        bench.Case(row["gt"], text, outcome(score), f"problem {row['idx']}, completion {i}")
        for row in rows(folder / "raw" / "math_cot_100.jsonl")
        for i, (text, score) in enumerate(zip(row["code"], row["score"], strict=True))
    ]


def solutions(folder: Path) -> list[bench.Case]:
    return [
        bench.Case(row["ground_truth"].rsplit("A: ")[-1], row[m]["solution"], outcome(row[m]["is_correct"]), m)
        for row in rows(folder / "raw" / "example_model_solutions.jsonl")
        for m in MODELS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    sets = {
        "verifier_cases": bench.read_cases(folder.parent / "cases" / "verifier_cases.jsonl"),
        "limen's own cases": bench.own_cases(),
        "math_cot_100": completions(folder),
        "gsm8k solutions": solutions(folder),
    }
    missed: list[tuple[str, dict[str, str]]] = []
    columns = f"{'right':>10}{'false +':>9}{'false -':>9}"
    print(f"{'set':<20}{'pairs':>7}   limen:{columns}   math-verify:{columns}")
    for name, cases in sets.items():
        own, other = bench.measure(cases, {"name": "math"}, None, 20.0), bench.measure_math_verify(cases)
        cells = [f"{s.right:>10}{s.false_positives:>9}{s.false_negatives:>9}" for s in (own, other)]
        print(f"{name:<20}{len(cases):>7}   {'':6}{cells[0]}   {'':12}{cells[1]}", flush=True)
        missed += [(name, miss) for miss in own.misses]
    for name, miss in missed:
        print(f"{name}: {miss['kind']}: label {miss['expected']}, limen {miss['got']} ({miss['rule']}); "
              f"gold {miss['gold']!r}, response ends {miss['response'][-70:]!r}")  # fmt: skip


if __name__ == "__main__":
    main()
