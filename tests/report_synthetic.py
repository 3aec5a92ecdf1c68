"""Run folders with known success probabilities, written through the store, for the tests of the report."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from limen.store import Run
from limen.store.schema import TABLES, rollout_row, verdict_row
from limen.store.writer import write_table
from limen.types import Problem, Prompt, Rollout, SamplingParams, Verdict, content_hash, derive_seed

Text = Callable[[str, int, bool], str]

HOSTILE = (
    "<script>window.pwned=1</script>",
    "</script><script>window.pwned=2</script>",
    "<img src=x onerror=window.pwned=3>",
    '"><svg onload=window.pwned=4>',
    "<!--<script>--><iframe srcdoc='<script>parent.pwned=5</script>'></iframe>",
    "\u202egnitirw sdrawkcab\u202c \u2066isolate\u2069 \u200bzero\u2028line\u2029para",
    "\\def\\a{\\a\\a}\\a $" + "{" * 5000 + "$ \\input{/etc/passwd}",
    "{{ 7*7 }} {% raw %} ${7*7} `x` | cell | [a](javascript:window.pwned=6)",
)


def problems(count: int) -> list[Problem]:
    tasks = ("addition", "products", "equations")
    return [
        Problem(f"p{i:03d}", f"What is {i} + {2 * i + 1}? Give the number alone.", str(3 * i + 1), task=tasks[i % 3])
        for i in range(count)
    ]


def plain_text(problem: str, sample: int, correct: bool) -> str:
    return f"Let me add the two numbers step by step.\nThe answer is \\boxed{{{problem if correct else sample % 7}}}."


def write_run(
    path: Path,
    name: str,
    items: Sequence[Problem],
    probability: Sequence[float],
    n: int,
    seed: int,
    text: Text = plain_text,
    params: SamplingParams | None = None,
    model: str | None = None,
    done: bool = True,
    policy: str | None = None,
    step: int = 0,
) -> Path:
    """A sampling run in which sample j of problem i is correct with probability[i], independently."""
    params = params or SamplingParams(max_tokens=64)
    settings = {"model": model or name, "temperature": params.temperature, "top_p": params.top_p, "top_k": params.top_k}
    run = Run.create(path, "sample", name, {**settings, "max_tokens": params.max_tokens, "n": n})
    prompts = [Prompt(p.id, p.problem, (1, 2, 3), content_hash(p.problem)) for p in items]
    run.write_problems(items, prompts)
    rng, lengths = random.Random(seed), random.Random(seed + 1000)
    with run.writer("rollouts") as rollouts, run.writer("verdicts") as verdicts:
        for p, prompt, q in zip(items, prompts, probability, strict=True):
            for j in range(n):
                correct = rng.random() < q
                body = text(p.answer, j, correct)
                r = Rollout(
                    p.id,
                    policy or name,
                    step,
                    j,
                    derive_seed(seed, p.id, j),
                    tuple(range(4, lengths.randrange(14, 40 if correct else 90))),
                    body,
                    "eos",
                    prompt.hash,
                    3,
                    params,
                    "exact",
                )
                answer = p.answer if correct else str(j % 7)
                outcome = "correct" if correct else "wrong"
                rollouts.append(rollout_row(r))
                verdicts.append(verdict_row(r, Verdict(outcome, answer, "exact", "exact@1")))
    if done:
        run.finish()
    return path


def write_training(path: Path, name: str, steps: int = 60) -> Path:
    run = Run.create(path, "train", name, {"algorithm": name})
    rng = random.Random(name)
    rows = [
        {
            "step": s,
            "loss": 0.3 * 0.97**s + rng.gauss(0, 0.01),
            "reward": 0.3 + 0.2 * (1 - 0.95**s) + rng.gauss(0, 0.02),
            "entropy": 1.2 * 0.98**s + 0.1,
            "grad_norm": 0.8 + rng.gauss(0, 0.05),
            "kept": 40 + rng.randrange(9),
            "seconds/generate": 0.4,
            "seconds/backward": 0.2,
        }
        for s in range(1, steps + 1)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    run.finish()
    return path


def paradox(folder: Path, count: int = 120, n: int = 64, seed: int = 0) -> dict[str, Path]:
    """base, a second draw of it, GRPO (sharper, loses hard ones), SELF (a little better everywhere), two trainings."""
    items = problems(count)
    rng = random.Random(seed)
    base = [min(0.98, max(0.005, rng.betavariate(0.55, 1.6))) for _ in items]
    grpo = [0.0 if q < 0.07 and rng.random() < 0.75 else min(0.99, 1.6 * q) for q in base]
    gentle = [min(0.99, 1.15 * q + 0.01) for q in base]
    runs = {
        "base": write_run(folder / "base", "base", items, base, n, seed + 1, model="tiny"),
        "GRPO": write_run(folder / "grpo", "GRPO", items, grpo, n, seed + 2),
        "SELF": write_run(folder / "self", "SELF", items, gentle, n, seed + 3),
        "control": write_run(folder / "base2", "base, drawn again", items, base, n, seed + 4, model="tiny"),
    }
    runs["train GRPO"] = write_training(folder / "train-grpo", "GRPO")
    runs["train SELF"] = write_training(folder / "train-self", "SELF")
    return runs


def write_large(path: Path, name: str, count: int, n: int, seed: int, words: int = 120) -> Path:
    """A large sampling run, written by columns: `count` problems of `n` samples, texts of `words` words."""
    items = problems(count)
    run = Run.create(path, "sample", name, {"model": name, "temperature": 1.0, "top_p": 1.0, "max_tokens": 512, "n": n})
    run.write_problems(items, [Prompt(p.id, p.problem, (1, 2), content_hash(p.problem)) for p in items])
    rng = np.random.default_rng(seed)
    bag = [f"word{i}" for i in range(3000)]
    rate = rng.beta(0.4, 1.0, size=count)
    for start in range(0, count, 50):
        here = items[start : start + 50]
        rows = len(here) * n
        ids = [p.id for p in here for _ in range(n)]
        index = list(range(n)) * len(here)
        right = rng.random(rows) < np.repeat(rate[start : start + 50], n)
        texts = [" ".join(bag[i] for i in row) for row in rng.integers(0, 3000, size=(rows, words))]
        key = {"problem_id": ids, "policy": [name] * rows, "step": [0] * rows, "sample_index": index}
        key["rollout_id"] = [f"{i}-{j}" for i, j in zip(ids, index, strict=True)]
        rollouts = {**key, "text": texts, "seed": list(range(start * n, start * n + rows)), "n_tokens": [words] * rows}
        verdicts = {**key, "verifier": ["math@1"] * rows, "outcome": np.where(right, "correct", "wrong").tolist()}
        verdicts["answer"] = rng.integers(0, 40, size=rows).astype(str).tolist()
        for table, columns in (("rollouts", rollouts), ("verdicts", verdicts)):
            schema = TABLES[table]
            made = [
                pa.array(columns[f.name], type=f.type) if f.name in columns else pa.nulls(rows, f.type) for f in schema
            ]
            write_table(path / table / f"{start:06d}.parquet", pa.Table.from_arrays(made, schema=schema))
    run.finish()
    return path
