"""Uniform numbers and the drawing of tokens, against published numbers and hand-worked distributions."""

import numpy as np
import pytest
import torch
from scipy import stats

from limen.engines.draw import NUCLEUS, draw, token_logprobs, uniforms, uniforms_at
from limen.engines.exact import shape
from limen.errors import ModelError
from limen.types import SamplingParams, derive_seed


def test_uniforms_are_the_splitmix64_sequence():
    # First outputs of the reference implementation (prng.di.unimi.it/splitmix64.c) for seeds 0 and 1234567.
    published = {
        0: [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F],
        1234567: [6457827717110365317, 3203168211198807973, 9817491932198370423],
    }
    for seed, values in published.items():
        want = [(v >> 11) / 2**53 for v in values]
        assert uniforms([seed], 0, 3)[0].tolist() == want
        assert uniforms([seed], 2, 1)[0].tolist() == want[2:]


def test_uniforms_at_any_place_are_those_of_the_sequence():
    seeds = np.array([0, 7, 1234567, 2**64 - 1], dtype=np.uint64)
    positions = np.array([5, 0, 2, 3])
    want = [uniforms([seed], int(position), 1)[0, 0] for seed, position in zip(seeds, positions)]
    assert uniforms_at(seeds, positions).tolist() == want
    assert len(set(want)) == 4


def test_uniforms_are_uniform_along_and_across_seeds():
    seeds = [derive_seed(0, "problem", i) for i in range(4000)]
    u = uniforms(seeds, 0, 8)
    for column in u.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(u.T) - np.eye(8)).max() < 0.06
    assert stats.kstest(uniforms([7], 0, 20_000)[0], "uniform").pvalue > 1e-3


PROBS = np.array([0.4, 0.0, 0.3, 0.15, 0.1, 0.05])
LOGITS = torch.log(torch.tensor(PROBS, dtype=torch.float32))


def frequencies(params, rows=60_000, logits=LOGITS):
    u = torch.from_numpy(uniforms([derive_seed(1, i) for i in range(rows)], 0, 1)[:, 0])
    tokens, log_q = draw(logits.expand(rows, -1), u, params)
    return np.bincount(tokens.numpy(), minlength=len(logits)), tokens.numpy(), log_q.numpy()


# Distributions worked by hand from PROBS.
CASES = [
    (SamplingParams(), [0.4, 0, 0.3, 0.15, 0.1, 0.05]),
    (SamplingParams(temperature=0.5), np.square(PROBS) / np.square(PROBS).sum()),
    (SamplingParams(top_k=2), [4 / 7, 0, 3 / 7, 0, 0, 0]),
    (SamplingParams(top_p=0.7 - 1e-6), [4 / 7, 0, 3 / 7, 0, 0, 0]),
    (SamplingParams(top_p=0.71), [0.4 / 0.85, 0, 0.3 / 0.85, 0.15 / 0.85, 0, 0]),
    (SamplingParams(top_p=0.01), [1, 0, 0, 0, 0, 0]),
    (SamplingParams(top_k=3, top_p=0.8), [4 / 7, 0, 3 / 7, 0, 0, 0]),  # of 0.85, 0.7 is a share of 0.82
    (SamplingParams(temperature=2.0, top_k=4, top_p=0.9), None),
]


@pytest.mark.parametrize(("params", "want"), CASES)
def test_draws_follow_the_shaped_distribution(params, want):
    ours = shape(PROBS, params)
    if want is not None:
        assert ours == pytest.approx(want, abs=1e-9)
    counts, tokens, log_q = frequencies(params)
    assert (counts[ours == 0] == 0).all()
    kept = ours > 0
    if kept.sum() > 1:
        assert stats.chisquare(counts[kept], ours[kept] * counts.sum()).pvalue > 1e-4
    assert log_q == pytest.approx(np.log(ours[tokens]), abs=1e-5)


def test_temperature_zero_is_greedy():
    counts, _, log_q = frequencies(SamplingParams(temperature=0), rows=10)
    assert counts[0] == 10
    assert (log_q == 0).all()


def test_top_p_beyond_the_first_look_sorts_everything():
    flat = torch.zeros(3 * NUCLEUS)
    _, tokens, log_q = frequencies(SamplingParams(top_p=0.9), rows=300, logits=flat)
    assert len(set(tokens.tolist())) > 250
    assert np.exp(log_q) == pytest.approx(1 / (0.9 * 3 * NUCLEUS), rel=1e-2)


def test_u_at_its_limits_stays_in_the_support():
    u = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
    tokens, _ = draw(torch.log(torch.tensor([[0.0, 0.5, 0.5, 0.0]])).expand(2, -1), u, SamplingParams())
    assert tokens.tolist() == [1, 2]


def test_broken_logits_are_one_error():
    for params in (SamplingParams(), SamplingParams(temperature=0)):
        with pytest.raises(ModelError, match="not finite"):
            draw(torch.tensor([[0.0, float("nan")]]), torch.tensor([0.5]), params)


def test_raw_logprobs_are_at_temperature_one_and_never_above_zero():
    values = token_logprobs(LOGITS[None].expand(2, -1), torch.tensor([2, 5]))
    assert values.tolist() == pytest.approx(np.log([0.3, 0.05]), abs=1e-6)
    sure = token_logprobs(torch.tensor([[80.0, 0.0]], dtype=torch.bfloat16), torch.tensor([0]))
    assert float(sure) == 0.0
