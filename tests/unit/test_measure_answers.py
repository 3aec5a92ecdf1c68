"""Votes, entropy and distinct answers against listings of all subsets."""

import itertools
from collections import Counter
from math import comb, log

import numpy as np
import pytest

from limen.measure import answer_entropy, distinct_at_k, maj_at_k, self_consistency
from limen.measure.votes import AnswerTable, maj_table


def samples(correct, wrong, none):
    return ["right"] * correct + [f"w{i}" for i, m in enumerate(wrong) for _ in range(m)] + [None] * none


def listed(correct, wrong, none, k):
    total = 0.0
    for subset in itertools.combinations(samples(correct, wrong, none), k):
        votes = Counter(v for v in subset if v is not None)
        if votes and votes["right"] == max(votes.values()):
            total += 1 / sum(v == votes["right"] for v in votes.values())
    return total / comb(correct + sum(wrong) + none, k)


CASES = [
    (3, [2, 2, 1], 1),
    (1, [1, 1, 1, 1, 1], 0),
    (4, [5], 0),
    (2, [3, 1], 3),
    (5, [], 2),
    (1, [1] * 8, 0),
    (0, [3], 1),
]


@pytest.mark.parametrize(("correct", "wrong", "none"), CASES)
def test_votes_of_every_subset(correct, wrong, none):
    for k in range(1, correct + sum(wrong) + none + 1):
        assert maj_at_k(correct, wrong, k, none) == pytest.approx(listed(correct, wrong, none, k), abs=1e-9)


def test_votes_at_the_ends():
    assert maj_at_k(30, [50, 20], 1) == pytest.approx(0.3)
    assert maj_at_k(40, [40, 20], 100) == 0.5
    assert maj_at_k(41, [40, 19], 100) == 1
    assert maj_at_k(39, [40, 21], 100) == 0
    assert np.isnan(maj_at_k(1, [1], 3))
    assert maj_at_k(0, [], 2, no_answer=4) == 0


def test_votes_of_many_samples_against_random_subsets():
    rng = np.random.default_rng(0)
    wrong = [60, 30, 10, 5] + [1] * 45
    all_votes = np.array(samples(50, wrong, 0))
    won = []
    for _ in range(4000):
        votes = Counter(rng.permutation(all_votes)[:33])
        best = max(votes.values())
        won.append(0.0 if votes["right"] < best else 1 / sum(v == best for v in votes.values()))
    assert abs(np.mean(won) - maj_at_k(50, wrong, 33)) < 3 * np.std(won) / np.sqrt(4000)


def test_two_answers_vote_as_scorio_says():
    from scorio import eval as scorio

    R = np.array([[1] * 7 + [0] * 9, [1] * 12 + [0] * 4])
    for k in (1, 3, 7, 15):  # odd: no ties between two answers
        ours = np.mean([maj_at_k(7, [9], k), maj_at_k(12, [4], k)])
        assert ours == pytest.approx(scorio.maj_at_k(R, k))


def test_entropy_by_hand_and_by_listing():
    assert answer_entropy([4]) == 0
    assert answer_entropy([2, 2]) == pytest.approx(log(2))
    assert answer_entropy([1] * 8) == pytest.approx(log(8))
    assert np.isnan(answer_entropy([], None))
    assert np.isnan(answer_entropy([3], 4))
    own = [4, 2, 1]
    labels = [i for i, m in enumerate(own) for _ in range(m)]
    for size in (1, 3, 6):
        subsets = list(itertools.combinations(labels, size))
        want = np.mean([-sum(v / size * log(v / size) for v in Counter(s).values()) for s in subsets])
        assert answer_entropy(own, size) == pytest.approx(want)
        assert distinct_at_k(own, size) == pytest.approx(np.mean([len(set(s)) for s in subsets]))


def test_entropy_at_a_budget_does_not_depend_on_how_many_were_drawn():
    rng = np.random.default_rng(1)
    share = rng.dirichlet(np.ones(12) * 0.5)
    small = [answer_entropy(rng.multinomial(32, share), 32) for _ in range(600)]
    large = [answer_entropy(rng.multinomial(256, share), 32) for _ in range(200)]
    assert abs(np.mean(small) - np.mean(large)) < 3 * np.hypot(
        np.std(small) / np.sqrt(600), np.std(large) / np.sqrt(200)
    )
    assert answer_entropy(rng.multinomial(4096, share)) > np.mean(small)  # the plain plug-in grows with n


def test_absent_answers_are_no_answers():
    assert distinct_at_k([2, 1], 2, no_answer=1) == pytest.approx((1 - 1 / 6) + 1 / 2)
    assert self_consistency([3, 1]) == 0.75
    assert np.isnan(self_consistency([]))


def test_no_budget_that_the_samples_allow_is_a_table_without_columns():
    answers = AnswerTable(("a", "b"), np.array([1, 0]), (np.array([1]), np.array([2])), np.array([0, 0]))
    assert maj_table(answers, []).shape == (2, 0)
