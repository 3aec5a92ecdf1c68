"""Speed and accuracy of the verifier `math` beside math-verify's own parse + verify loop, on the same pairs.

    python benchmarks/verify_speed.py DATA/raw/math_cot_100.jsonl [--pairs 8000] [--json]

The 800 completions (100 problems, 8 each, with the labels of the file) become `--pairs` distinct pairs: copy k adds
k to the last run of digits of the gold answer and of the boxed answer where both are the same text, so that a right
answer stays right; in a wrong response the gold alone moves, by 97 k. Labels that docs/results/verifier.md shows to
be wrong are corrected first.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from pathlib import Path

from limen.verify import bench, extract

RIGHT_AFTER_ALL = {("3", i) for i in range(8)} | {("72", 7)}
_DIGITS = re.compile(r"[0-9]+(?!.*[0-9])", re.DOTALL)


def moved(text: str, by: int) -> str:
    """`text` with its last run of digits made `by` larger, leading zeros kept."""
    return _DIGITS.sub(lambda m: str(int(m.group()) + by).zfill(len(m.group())), text, count=1)


def pairs(path: Path, count: int) -> list[bench.Case]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    base = []
    for row in rows:
        for i, (text, label) in enumerate(zip(row["code"], row["score"], strict=True)):
            base.append((i, row["gt"], text, label or (str(row["idx"]), i) in RIGHT_AFTER_ALL))
    found: list[bench.Case] = []
    for copy in range(-(-count // len(base))):
        for i, gold, text, right in base:
            new_gold, new_text = change(gold, text, right, copy) if copy else (gold, text)
            mark = "\n" + "." * copy + " " * i  # makes equal completions of one problem distinct pairs
            found.append(bench.Case(new_gold, new_text + mark, "correct" if right else "wrong"))
    return found[:count]


def change(gold: str, text: str, right: bool, copy: int) -> tuple[str, str]:
    """Other numbers, the same label."""
    if not right:
        return moved(gold, 97 * copy), text
    boxes = extract.boxes(text)
    if not boxes or boxes[-1].content.strip().replace(" ", "") != gold.replace(" ", ""):
        return gold, text
    box = boxes[-1]
    start = text.rindex(box.content, box.start, box.end)
    return moved(gold, copy), text[:start] + moved(box.content, copy) + text[start + len(box.content) :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("completions", type=Path)
    parser.add_argument("--pairs", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    cases = pairs(args.completions, args.pairs)
    distinct = len({(c.gold, c.response) for c in cases})
    own = bench.measure(cases, {"name": "math"}, args.workers, 5.0)
    other = bench.measure_math_verify(cases)
    times = other.seconds / own.seconds
    if args.json:
        rows = [{"name": s.name, "seconds": s.seconds, "accuracy": s.accuracy} for s in (own, other)]
        print(json.dumps({"pairs": len(cases), "distinct": distinct, "times": times, "scores": rows}, indent=1))
        return
    print(f"{len(cases)} pairs, {distinct} distinct, {os.cpu_count()} cores")
    for s in (own, other):
        print(
            f"{s.name:<12} {s.seconds:8.2f} s  {s.pairs_per_second:8,.0f} pairs/s  accuracy {s.accuracy:.5f}  "
            f"false + {s.false_positives}  false - {s.false_negatives}  unjudged {s.failures}"
        )
    print(f"limen is {times:.1f} times as fast")


if __name__ == "__main__":
    main()
