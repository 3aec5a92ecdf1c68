"""Does a worker more add speed? The same requests over 1, 2, ... workers: a Ray cluster on this machine, or GPUs.

    python benchmarks/spread_speed.py --workers 1 2 [--model smollm2 ...] [--way gpus]

Each worker has one thread (or, with `--way gpus`, one GPU). Opening the workers and a first small draw are not counted.
Prints tokens a second, the ratio to one worker, and whether all gave the very same responses.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

from limen.config import SampleSettings
from limen.engines.protocol import SampleRequest
from limen.models import load_tokenizer
from limen.problems import load_problems
from limen.sampling.engine import opened
from limen.types import Prompt, SamplingParams, derive_seed


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    p.add_argument("--way", choices=["ray", "gpus"], default="ray")
    p.add_argument("--model", default="tiny")
    p.add_argument("--engine", choices=["transformers", "vllm"], default="transformers")
    p.add_argument("--problems", default="arithmetic:all?split=test&size=64")
    p.add_argument("-n", type=int, default=512)
    p.add_argument("--max-tokens", type=int, default=6)
    p.add_argument("--repeats", type=int, default=3)
    return p.parse_args()


def settings_of(o: argparse.Namespace, workers: int) -> SampleSettings:
    """The same run over so many workers."""
    device = None if o.engine == "vllm" else "cuda" if o.way == "gpus" else "cpu"
    spread = {"gpus": workers} if o.way == "gpus" else {"ray": True, "workers": workers}
    return SampleSettings.make(
        model=o.model, problems=o.problems, n=o.n, max_tokens=o.max_tokens, template="plain", engine=o.engine,
        device=device, **spread,
    )  # fmt: skip


def requests(o: argparse.Namespace, n: int) -> list[SampleRequest]:
    tokenizer = load_tokenizer(o.model)
    made = []
    for problem in load_problems(o.problems):
        ids = tuple(tokenizer(problem.problem, add_special_tokens=False)["input_ids"])
        seeds = tuple(derive_seed(0, problem.id, i) for i in range(n))
        made.append(SampleRequest(Prompt(problem.id, problem.problem, ids, "plain"), tuple(range(n)), seeds))
    return made


def main() -> None:
    o = options()
    params, first, told = SamplingParams(max_tokens=o.max_tokens), None, {}
    for workers in o.workers:
        rates = []
        with opened(settings_of(o, workers)) as engine:
            list(engine.sample(requests(o, 8 * workers), params))
            for _ in range(o.repeats):
                start = time.perf_counter()
                samples = list(engine.sample(requests(o, o.n), params))
                rates.append(sum(len(s.token_ids) for s in samples) / (time.perf_counter() - start))
        drawn = {(s.problem_id, s.sample_index): s.token_ids for s in samples}
        first = drawn if first is None else first
        told[workers] = sorted(rates)[len(rates) // 2]
        ratio, same = told[workers] / told[o.workers[0]], drawn == first
        print(f"{workers} workers: {told[workers]:,.0f} tok/s, {ratio:.2f} times; same responses: {same}", flush=True)


if __name__ == "__main__":
    main()
