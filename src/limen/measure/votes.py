"""Distinct answers of each problem of a run, counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from limen.measure.answers import answer_entropy, distinct_at_k, maj_at_k, self_consistency
from limen.measure.passk import Floats, Ints
from limen.measure.reader import RunReader
from limen.measure.unseen import chao1, good_turing

Merge = Callable[[str, list[str]], list[int]]
"""(problem_id, distinct answers) -> a class number for each answer; equal numbers are one answer."""


@dataclass(frozen=True)
class AnswerTable:
    """Answers of judged samples, per problem: how many gave the correct one, each wrong one, or none.

    wrong_P: one array of multiplicities a problem, largest first. Unjudged samples are left out.
    """

    problem_ids: tuple[str, ...]
    correct_P: Ints
    wrong_P: tuple[Ints, ...]
    no_answer_P: Ints

    def multiplicities(self, i: int, absent: bool = True) -> Ints:
        """Of problem i: correct, wrong ones, and (if `absent`) the answerless as one class."""
        tail = [self.no_answer_P[i]] if absent else []
        return np.concatenate([[self.correct_P[i]], self.wrong_P[i], tail]).astype(np.int64)

    @property
    def n_P(self) -> Ints:
        """Judged samples of each problem."""
        wrong = np.array([w.sum() for w in self.wrong_P], dtype=np.int64)
        return self.correct_P + wrong + self.no_answer_P


def answers_from_run(
    path: str | Path,
    policy: str | None = None,
    step: int | None = None,
    verifier: str | None = None,
    merge: Merge | None = None,
) -> AnswerTable:
    """Count the answers of one policy at one step, as `counts_from_run` picks it.

    What the verifier called correct is one answer however it was written; wrong ones are told apart by their text,
    or by `merge` where equivalent spellings are to be one (a verifier can tell).
    """
    with RunReader(path, policy, step, verifier) as reader:
        rows = reader.query(
            """SELECT problem_id::VARCHAR, outcome::VARCHAR, CASE WHEN outcome = 'wrong' THEN trim(answer) ELSE '' END,
                      count(*) FROM {source} WHERE outcome <> 'unjudged' GROUP BY ALL ORDER BY ALL"""
        )
        ids = reader.problem_ids({r[0] for r in rows})
    at = {problem: i for i, problem in enumerate(ids)}
    correct, absent = np.zeros(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=np.int64)
    wrong: list[dict[str, int]] = [{} for _ in ids]
    for problem, outcome, answer, times in rows:
        i = at[problem]
        if outcome == "correct":
            correct[i] += times
        elif outcome == "no_answer":
            absent[i] += times
        else:
            wrong[i][answer] = wrong[i].get(answer, 0) + times
    return AnswerTable(tuple(ids), correct, tuple(_classes(p, w, merge) for p, w in zip(ids, wrong)), absent)


def _classes(problem: str, wrong: dict[str, int], merge: Merge | None) -> Ints:
    times = np.array(list(wrong.values()), dtype=np.int64)
    if merge is not None and len(wrong) > 1:
        labels = np.unique(np.asarray(merge(problem, list(wrong))), return_inverse=True)[1]
        times = np.bincount(labels, weights=times).astype(np.int64)
    return np.sort(times)[::-1]


def maj_table(answers: AnswerTable, k_K: Sequence[int]) -> Floats:
    """maj@k of each problem, shape (P, K). NaN where a problem has fewer than k judged samples."""
    parts = list(zip(answers.correct_P.tolist(), answers.wrong_P, answers.no_answer_P.tolist()))
    rows = [[maj_at_k(c, w, k, none) for k in k_K] for c, w, none in parts]
    return np.array(rows, dtype=np.float64).reshape(len(parts), len(k_K))  # of no k too


def diversity_table(answers: AnswerTable, budget: int) -> dict[str, Floats]:
    """Per problem, shape (P,): answer entropy and distinct answers at `budget` samples, and what was not seen."""
    all_P = [answers.multiplicities(i) for i in range(len(answers.problem_ids))]
    given_P = [answers.multiplicities(i, absent=False) for i in range(len(answers.problem_ids))]
    return {
        "answer_entropy": np.array([answer_entropy(m, budget) if m.sum() else np.nan for m in all_P]),
        "distinct_answers": np.array([distinct_at_k(g, budget, int(n)) for g, n in zip(given_P, answers.no_answer_P)]),
        "self_consistency": np.array([self_consistency(m) for m in given_P]),
        "unseen_mass": np.array([good_turing(m) for m in given_P]),
        "answers_chao1": np.array([chao1(m) for m in given_P]),
    }
