"""The problems of the study on SmolLM2: four tasks, frozen few-shot prompts, and what guessing would score.

The questions are written once (`benchmarks/smollm2_study.py --export`) and kept in a file, so that a study needs no
Reasoning Gym. All answers are whole numbers, judged as text (`exact`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from limen.errors import DataError
from limen.measure.passk import Floats
from limen.types import content_hash

TRAIN, TEST = 525, 75
"""Problems of each task."""
STOP = ["\n"]
MAX_TOKENS = 8
"""SmolLM2 writes a token for each digit: a space, up to four digits and a sign, the end of the line."""

SOURCES: dict[str, str] = {
    "sum": "{a} + {b} =",
    "chain_sum": "reasoning_gym:chain_sum?min_terms=3&max_terms=3&min_digits=1&max_digits=1&seed=1",
    "equation": "Solve x + {a} = {sum} for x.",
    "product": "reasoning_gym:products?min_terms=2&max_terms=2&min_digits=1&max_digits=2&seed=1",
}
"""Where the questions of each task come from: Reasoning Gym, or a form of our own for two-digit a and b (the answer is
a + b, or b)."""

_CHAIN = "State the final answer to the following arithmetic problem: {} ="
_PRODUCT = "Solve the following multiplication: {}. Give only the result as your final answer."
SHOTS: dict[str, tuple[tuple[str, str], ...]] = {
    "sum": (("34 + 25 =", "59"), ("18 + 67 =", "85"), ("52 + 71 =", "123")),
    "chain_sum": (
        (_CHAIN.format("3 + 5 + 1"), "9"),
        (_CHAIN.format("9 - 2 + 4"), "11"),
        (_CHAIN.format("1 - 7 - 2"), "-8"),
    ),
    "equation": (
        ("Solve x + 34 = 59 for x.", "25"),
        ("Solve x + 18 = 85 for x.", "67"),
        ("Solve x + 52 = 123 for x.", "71"),
    ),
    "product": (
        (_PRODUCT.format("4 * 13"), "52"),
        (_PRODUCT.format("21 * 30"), "630"),
        (_PRODUCT.format("7 * 8"), "56"),
    ),
}
"""Frozen: a change makes another study."""


def prompt(task: str, question: str) -> str:
    """The whole prompt of one question; the answer is to follow on the same line."""
    shots = "".join(f"Problem: {q}\nAnswer: {a}\n\n" for q, a in SHOTS[task])
    return f"{shots}Problem: {question}\nAnswer:"


def key(task: str, question: str, answer: str) -> tuple[str, ...]:
    """What two questions share that are each other's twin: the same numbers and signs, in whatever order; of an
    equation the two numbers that are added."""
    parts = re.findall(r"\d+|[-+*/]", question)
    return (task, *sorted([parts[1], answer] if task == "equation" else parts))


def draw(task: str, train: int, test: int) -> list[dict[str, str]]:
    """Questions of one task, the test set first: no twin of a test question, and of a shot, is in the training set."""
    taken = {key(task, q, a) for q, a in SHOTS[task]}
    rows: list[dict[str, str]] = []
    for question, answer in _questions(task, 4 * (train + test)):
        own = key(task, question, answer)
        if own in taken or not re.fullmatch(r"-?\d+", answer):
            continue
        taken.add(own)
        split = "test" if len(rows) < test else "train"
        rows.append({"id": content_hash([task, question]), "task": task, "split": split, "question": question,
                     "answer": answer})  # fmt: skip
        if len(rows) == train + test:
            return rows
    raise DataError(f"{task} gives only {len(rows)} questions that differ, {train + test} are needed")


def _questions(task: str, size: int) -> list[tuple[str, str]]:
    form = SOURCES[task]
    if not form.startswith("reasoning_gym"):
        pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
        order = np.random.default_rng(1).permutation(len(pairs))
        return [
            (form.format(a=a, b=b, sum=a + b), str(b if task == "equation" else a + b))
            for a, b in (pairs[i] for i in order)
        ]
    from limen.problems import load_problems

    try:
        found = load_problems(f"{SOURCES[task]}&size={size}")
    except DataError:  # fewer distinct ones than asked for
        found = load_problems(f"{SOURCES[task]}&size={size // 2}")
    return [(p.problem, p.answer) for p in found]


def export(file: Path, train: int = TRAIN, test: int = TEST) -> int:
    """Write the questions of all tasks; returns how many."""
    by_task = [draw(task, train, test) for task in SOURCES]
    rows = [row for group in zip(*by_task, strict=True) for row in group]  # tasks in turn: any beginning holds all
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return len(rows)


def write_problems(file: Path, out: Path) -> dict[str, Path]:
    """The rendered training and test problems as JSONL files in `out`, by split. Raises `DataError` where `file` is
    missing or not what `export` writes."""
    if not file.is_file():
        raise DataError(f"no {file}: make it with --export where reasoning_gym is installed")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]
    paths = {}
    for split in ("train", "test"):
        own = [r for r in rows if r["split"] == split]
        if not own:
            raise DataError(f"{file} holds no {split} problems")
        lines = [{"id": r["id"], "task": r["task"], "problem": prompt(r["task"], r["question"]), "answer": r["answer"]}
                 for r in own]  # fmt: skip
        paths[split] = out / f"{split}.jsonl"
        text = "".join(json.dumps(x) + "\n" for x in lines)
        if not paths[split].exists() or paths[split].read_text(encoding="utf-8") != text:
            out.mkdir(parents=True, exist_ok=True)
            paths[split].write_text(text, encoding="utf-8")
    return paths


# -- what guessing scores --------------------------------------------------------------------------------------------


def commonest(train: Sequence[str], test: Sequence[str]) -> tuple[str, float]:
    """The commonest training answer (of equals the first), and its share of the test answers: its pass@k for all k."""
    answer = Counter(train).most_common(1)[0][0]
    return answer, sum(a == answer for a in test) / len(test)


def pooled_guess(answers: Sequence[Mapping[str, int]], golds: Sequence[str], ks: Sequence[int]) -> Floats:
    """pass@k, shape (len(ks),), of a guesser that draws from the answers given to all *other* problems of the task.

    answers: for each problem how often each answer came (an unfinished response counts under ""). What a problem's own
    responses hit is left out, so that only the form of the answers is known, and nothing of the question."""
    total: Counter[str] = Counter()
    for a in answers:
        total.update(a)
    size = sum(total.values())
    p = np.array([
        (total[g] - own.get(g, 0)) / max(1, size - sum(own.values())) for own, g in zip(answers, golds, strict=True)
    ])  # fmt: skip
    return np.array([float((1 - (1 - p) ** k).mean()) for k in ks])


def answers_of(run: Path) -> dict[str, dict[str, int]]:
    """By problem, how often each answer came in a sampled run: the text without spaces at its ends, "" where it was
    cut off at the token limit."""
    from limen.store import Run

    table = Run.open(run).table("rollouts", ["problem_id", "text", "finish_reason"])
    found: dict[str, Counter[str]] = {}
    columns: list[list[Any]] = [table.column(i).to_pylist() for i in range(3)]
    for pid, text, reason in zip(*columns, strict=True):
        found.setdefault(pid, Counter())["" if reason == "length" else text.strip()] += 1
    return {pid: dict(c) for pid, c in found.items()}
