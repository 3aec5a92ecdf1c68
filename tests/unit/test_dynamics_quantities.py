"""The quantities of the learning dynamics on a policy whose probabilities are known, against numbers worked by hand."""

import math

import numpy as np
import pytest

from limen.dynamics.quantities import (
    Scored,
    change,
    clip_violation,
    entropy,
    influence,
    interference,
    movers,
    perplexity,
    ratios,
    summarize,
)
from limen.engines.exact import EOS, ExactEngine, ResponsesPolicy
from limen.engines.protocol import ScoreRequest
from limen.errors import DataError

# The base says 2, 23, 3 with probabilities 1/2, 1/4, 1/4; the trained policy with 1/4, 1/2, 1/4.
BASE, TRAINED = {"2": 0.5, "23": 0.25, "3": 0.25}, {"2": 0.25, "23": 0.5, "3": 0.25}
DRAWN = ["2", "2", "23", "3"]
"""As often as the base says them, so that means over these are expectations under the base."""
CORRECT = [True, True, False, True]
LOG2 = math.log(2)


def scored(table):
    engine = ExactEngine(ResponsesPolicy({"1=": table}))
    prompt = tuple(engine.tokenizer.encode("1="))
    requests = [ScoreRequest(prompt, (*engine.tokenizer.encode(text), EOS)) for text in DRAWN]
    return Scored.of(engine.score(requests))


@pytest.fixture(scope="module")
def pair():
    return scored(BASE), scored(TRAINED)


def test_log_likelihoods_are_the_known_ones(pair):
    base, trained = pair
    np.testing.assert_allclose(np.exp(base.sum_N), [0.5, 0.5, 0.25, 0.25], rtol=1e-6)
    np.testing.assert_allclose(np.exp(trained.sum_N), [0.25, 0.25, 0.5, 0.25], rtol=1e-6)
    assert base.tokens_N.tolist() == [2, 2, 3, 2]


def test_change_per_token_and_in_all(pair):
    np.testing.assert_allclose(change(*pair), [-LOG2 / 2, -LOG2 / 2, LOG2 / 3, 0], atol=1e-6)
    np.testing.assert_allclose(change(*pair, "sum"), [-LOG2, -LOG2, LOG2, 0], atol=1e-6)


def test_interference_is_over_correct_responses_only(pair):
    assert interference(change(*pair), CORRECT) == pytest.approx(-LOG2 / 3, abs=1e-6)
    assert interference(change(*pair, "sum"), CORRECT) == pytest.approx(-2 * LOG2 / 3, abs=1e-6)
    assert math.isnan(interference(change(*pair), [False] * 4))


def test_influence_is_a_mean_square_without_a_root(pair):
    assert influence(change(*pair)) == pytest.approx(LOG2**2 * (2 / 4 + 1 / 9) / 4, abs=1e-6)
    assert influence(change(*pair, "sum")) == pytest.approx(3 / 4 * LOG2**2, abs=1e-6)


def test_perplexity_is_a_mean_of_exponentials(pair):
    # probabilities 1/4, 1/4, 1/2, 1/4 over 2, 2, 3, 2 tokens
    assert perplexity(pair[1].mean_N) == pytest.approx((2 + 2 + 2 ** (1 / 3) + 2) / 4, abs=1e-6)
    assert perplexity(pair[0].mean_N) == pytest.approx((2 * 2**0.5 + 4 ** (1 / 3) + 2) / 4, abs=1e-6)


def test_clip_violations_are_counted_by_token(pair):
    # The end after 2 falls from 2/3 to 1/3 (twice drawn); 3 after 2 rises from 1/3 to 2/3; the other 6 tokens stay.
    np.testing.assert_allclose(ratios(*pair), [1, 0.5, 1, 0.5, 1, 2, 1, 1, 1], rtol=1e-5)
    assert clip_violation(ratios(*pair)) == pytest.approx(3 / 9)
    assert clip_violation(ratios(*pair), 0.6) == pytest.approx(1 / 9)
    assert clip_violation([1.2, 1.25, 0.8, 0.75], 0.21) == pytest.approx(2 / 4)


def test_entropy_of_a_distribution():
    assert entropy([0.5, 0.25, 0.25, 0.0]) == pytest.approx(1.5 * LOG2)
    assert entropy([1.0]) == 0


def test_summary_says_the_same(pair):
    s = summarize(*pair, CORRECT)
    assert s["delta_plus"] == pytest.approx(-LOG2 / 3, abs=1e-6)
    assert s["delta_minus"] == pytest.approx(LOG2 / 3, abs=1e-6)
    assert s["logp_plus"] == pytest.approx(-LOG2, abs=1e-6)  # log(1/4)/2, three times
    assert s["logp_minus"] == pytest.approx(-LOG2 / 3, abs=1e-6)
    assert s["ppl_correct"] == pytest.approx(2, abs=1e-6)
    assert s["ppl_wrong"] == pytest.approx(2 ** (1 / 3), abs=1e-6)
    assert s["clip"] == pytest.approx(1 / 3)
    assert "entropy" not in s


def test_movers_are_sorted_by_size_and_cut():
    up, down = movers([0.5, 0.5, 0.5, 0.2, 0.9, np.nan], [0.6, 0.1, 0.9, 0.2, 0.8, 0.5], top=2)
    assert up.tolist() == [2, 0]
    assert down.tolist() == [1, 4]
    assert movers([0.5, 0.5, 0.5], [0.6, 0.7, 0.9], top=2)[0].tolist() == [2, 1]


def test_empty_responses_have_no_mean_and_others_keep_theirs():
    s = Scored.of([[-1.0, -3.0], [], [-0.5]])
    assert s.sum_N.tolist() == [-4.0, 0.0, -0.5]
    assert np.isnan(s.mean_N[1])
    assert perplexity(s.mean_N) == pytest.approx((math.exp(2) + math.exp(0.5)) / 2)


def test_an_impossible_response_is_infinitely_perplexing():
    assert perplexity(Scored.of([[-1.0], [-math.inf]]).mean_N) == math.inf


def test_scorings_of_other_responses_are_refused():
    with pytest.raises(DataError, match="other responses"):
        change(Scored.of([[-1.0]]), Scored.of([[-1.0, -2.0]]))
    with pytest.raises(DataError, match="one verdict"):
        interference([0.1, 0.2], [True])
