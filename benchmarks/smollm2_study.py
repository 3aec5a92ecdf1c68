"""SmolLM2-135M-Instruct on sums, chains, equations and products: base, GRPO, greedy filter, SELF, W-REINFORCE.

    python benchmarks/smollm2_study.py --export     # once, where reasoning_gym is installed
    python benchmarks/smollm2_study.py --device cuda --out DIR --jobs 4 --seconds 540 [--collect SMALL.tar.gz]
    python benchmarks/smollm2_study.py --out DIR --from SMALL.tar.gz             # the page, elsewhere

One slice of `--seconds`; the same command again goes on: finished runs are skipped, a run that was cut goes on from its
last checkpoint where DIR is still there. With `--from FILE --go-on` a fresh machine starts from the finished runs of
another. `--methods` takes arms of `limen lab frontier` too. Prints what guessing would score beside the results.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from limen.cli.options import numbers
from limen.lab.policies import Study
from limen.lab.slices import unpack
from limen.lab.smollm2_page import write_page
from limen.lab.smollm2_study import METHODS, SmolStudy, collect, run_one, run_study
from limen.lab.smollm2_tasks import export

PROBLEMS = Path(__file__).with_name("smollm2_problems.jsonl")


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, default=Path("runs/smollm2"))
    p.add_argument("--device", default="cpu")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--seconds", type=float)
    p.add_argument("--seeds", default="0,1,2")
    p.add_argument("--methods", default=",".join(METHODS))
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("-n", type=int, default=256)
    p.add_argument("--limit", type=int)
    p.add_argument("--prompts", type=int, default=64)
    p.add_argument("--group", type=int, default=8)
    p.add_argument("--probe", type=int, default=256)
    p.add_argument("--every", type=int, default=10)
    p.add_argument("--train-limit", type=int)
    p.add_argument("--base", default="smollm2")
    p.add_argument("--problems", type=Path, default=PROBLEMS)
    p.add_argument("--export", action="store_true", help="write the problems and end")
    p.add_argument("--collect", type=Path)
    p.add_argument("--from", dest="source", type=Path)
    p.add_argument("--go-on", action="store_true")
    p.add_argument("--only", help=argparse.SUPPRESS)
    return p.parse_args()


def main() -> None:
    o = options()
    if o.export:
        print(f"wrote {export(o.problems)} problems to {o.problems}")
        return
    study = Study(o.out, o.steps, o.n, o.base, o.device, o.limit)
    s = SmolStudy(study, o.problems, o.prompts, o.group, o.probe, o.every, o.train_limit)
    if o.only:
        run_one(s, o.only, numbers(o.seeds)[0])
        return
    if o.source:
        print(f"{len(unpack(o.source, o.out))} files from {o.source}")
    if o.source and not o.go_on:
        print(write_page(o.out))
    else:
        command = [sys.executable, str(Path(__file__)), "--out", str(o.out), "--device", o.device, "--base", o.base]
        for key in ("steps", "prompts", "group", "probe", "every", "problems"):
            command += [f"--{key}", str(getattr(o, key))]
        command += ["-n", str(o.n), *(["--limit", str(o.limit)] if o.limit else [])]
        command += ["--train-limit", str(o.train_limit)] if o.train_limit else []
        print(run_study(s, o.methods.split(","), numbers(o.seeds), command, o.jobs, o.seconds))
    if o.collect:
        print(f"wrote {o.collect} ({collect(o.out, o.collect):,} bytes)")


if __name__ == "__main__":
    main()
