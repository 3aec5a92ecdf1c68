"""On a policy whose probabilities are known, the expected gradient of each algorithm is what its formula says."""

import itertools
import math

import pytest
import torch

from limen.train.algorithms import (
    dapo,
    dr_grpo,
    forward_kl,
    greedy_filter,
    grpo,
    nsr,
    overtraining_gate,
    pass_k,
    psr,
    reverse_kl,
    soft_gate,
    w_reinforce,
)
from limen.train.algorithms.direction import reweight
from limen.train.algorithms.entropy_bonus import entropy_bonus, token_entropy

CORRECT = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)


@pytest.fixture
def logits():
    return torch.tensor([0.3, -0.2, 0.9, -1.1], dtype=torch.float64, requires_grad=True)


def expected_gradient(logits, weight_of_group, size):
    """E over groups of `size` independent responses of (1/size) sum_i A_i grad log pi(y_i), by enumeration."""
    logp = torch.log_softmax(logits, 0)
    total = torch.zeros((), dtype=torch.float64)
    for group in itertools.product(range(len(logits)), repeat=size):
        ys = torch.tensor(group)
        a = weight_of_group(CORRECT[ys].unsqueeze(0)).flatten()
        chance = logp.detach()[ys].sum().exp()
        total = total + chance * (a * logp[ys]).sum() / size
    return torch.autograd.grad(total, logits)[0]


def p_gradient(logits):
    p = (torch.softmax(logits, 0) * CORRECT).sum()
    return p.item(), torch.autograd.grad(p, logits)[0]


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_centred_gives_the_reward_gradient(logits):
    """E[(1/G) sum (r_i - mean) grad log pi_i] = (G-1)/G grad p."""
    _, dp = p_gradient(logits)
    close(expected_gradient(logits, lambda r: dr_grpo.centred_advantages(r)[0], 4), 0.75 * dp)


@pytest.mark.parametrize(
    ("function", "factor"),
    [
        (lambda r: psr.psr_advantages(r)[0], 1.0),
        (lambda r: nsr.nsr_advantages(r)[0], 1.0),
        (lambda r: w_reinforce.w_reinforce_advantages(r, 0.25)[0], 1.25),
    ],
)
def test_reinforce_family_is_the_reward_gradient(logits, function, factor):
    """Correct +a, wrong -b: (a + b) grad p, since E[1{wrong} grad log pi] = -grad p. They differ in variance only."""
    _, dp = p_gradient(logits)
    close(expected_gradient(logits, function, 2), factor * dp)


def binomial_weight(p, size, plus_minus):
    """w with E[gradient] = w grad p, when a group with c correct has advantages plus_minus(c) = (A+, A-)."""
    w = 0.0
    for c in range(size + 1):
        chance = math.comb(size, c) * p**c * (1 - p) ** (size - c)
        plus, minus = plus_minus(c)
        w += chance * (c * plus / p - (size - c) * minus / (1 - p)) / size
    return w


def grpo_values(c, size=4):
    if c in (0, size):
        return 0.0, 0.0
    std = math.sqrt(c * (size - c) / (size * (size - 1)))
    return (1 - c / size) / std, -(c / size) / std


def test_grpo_weighs_problems_by_the_binomial(logits):
    p, dp = p_gradient(logits)
    got = expected_gradient(logits, lambda r: grpo.group_advantages(r, eps=0)[0], 4)
    close(got, binomial_weight(p, 4, grpo_values) * dp)


@pytest.mark.parametrize("greedy_is_right", [False, True])
def test_greedy_filter_is_grpo_on_what_the_greedy_answer_fails(greedy_is_right):
    """The screening answer is the mode of the policy, so the indicator is a constant in front of the expectation."""
    values = [0.9, -0.2, 0.3, -1.1] if greedy_is_right else [0.3, -0.2, 0.9, -1.1]
    logits = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    kept = greedy_filter.keep_wrong(CORRECT[logits.argmax()].reshape(1))
    p, dp = p_gradient(logits)
    got = expected_gradient(logits, lambda r: kept * grpo.group_advantages(r, eps=0)[0], 4)
    close(got, (0.0 if greedy_is_right else binomial_weight(p, 4, grpo_values)) * dp)


def test_dynamic_sampling_is_the_mean_over_groups_with_spread(logits):
    """DAPO draws until a group has spread: E[g | 0 < c < G] = E[g] / (1 - p^G - (1-p)^G)."""
    p, dp = p_gradient(logits)
    chance = 1 - p**4 - (1 - p) ** 4

    def kept(r):
        return dapo.keep_informative(r)[:, None] * grpo.group_advantages(r, eps=0)[0] / chance

    close(expected_gradient(logits, kept, 4), binomial_weight(p, 4, grpo_values) / chance * dp)


@pytest.mark.parametrize(("tau", "most"), [(0.0, 4), (0.25, 1), (0.4, 0), (0.45, -1)])
def test_overtraining_gate_cuts_the_sum_over_the_count(logits, tau, most):
    """Only groups with m <= most keep their gradient. By hand, n = 4, k = 3: u(m) = 3 (5-m)(6-m) / (6*7), that is
    2.14, 1.43, .857, .429, .143 for m = 0..4, against tau * 5 = 0, 1.25, 2, 2.25."""
    p, dp = p_gradient(logits)
    want = binomial_weight(p, 4, lambda c: grpo_values(c) if c <= most else (0.0, 0.0))

    def kept(r):
        return overtraining_gate.keep_useful(r, 3, tau)[:, None] * grpo.group_advantages(r, eps=0)[0]

    close(expected_gradient(logits, kept, 4), want * dp)


def test_soft_gate_multiplies_by_what_is_unsolved(logits):
    p, dp = p_gradient(logits)
    want = binomial_weight(p, 4, lambda c: tuple((1 - c / 4) ** 2 * a for a in grpo_values(c)))
    got = expected_gradient(logits, lambda r: grpo.group_advantages(r, eps=0)[0] * soft_gate.gate(r, 2.0), 4)
    close(got, want * dp)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_pass_k_is_the_gradient_of_pass_at_k(logits, k):
    """E[(k/N) sum_i sigma A_i grad log pi_i] = (1 - k/N) grad pass@k, pass@k = 1 - (1-p)^k."""
    size = 4

    def unscaled(r):
        a, _ = pass_k.pass_k_advantages(r, k)
        mean = 1 - math.comb(size - int(r.sum()), k) / math.comb(size, k)
        return a * math.sqrt(mean * (1 - mean))

    p, dp = p_gradient(logits)
    got = k * expected_gradient(logits, unscaled, size)
    close(got, (1 - k / size) * k * (1 - p) ** (k - 1) * dp)


def test_direction_is_the_gradient_of_a_concave_reward(logits):
    """E[(1 + alpha (1 - pi)) A grad log pi] = grad sum_y A(y) (pi + alpha (pi - pi^2 / 2))."""
    a = torch.tensor([1.0, -0.5, 0.25, 2.0], dtype=torch.float64)
    logp = torch.log_softmax(logits, 0)
    weights = reweight(a, logp, 0.7)
    got = torch.autograd.grad((logp.detach().exp() * weights * logp).sum(), logits)[0]
    pi = torch.softmax(logits, 0)
    want = torch.autograd.grad((a * (pi + 0.7 * (pi - pi**2 / 2))).sum(), logits)[0]
    close(got, want)


class TwoTokens:
    """An autoregressive tabular policy over responses of two tokens out of three."""

    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.first = torch.randn(3, dtype=torch.float64, generator=generator).requires_grad_()
        self.second = torch.randn(3, 3, dtype=torch.float64, generator=generator).requires_grad_()

    def parameters(self):
        return [self.first, self.second]

    def logprobs(self):
        """(9 responses, 2 tokens)."""
        one, two = torch.log_softmax(self.first, 0), torch.log_softmax(self.second, 1)
        return torch.stack([torch.stack([one[i], two[i, j]]) for i in range(3) for j in range(3)])


def forward_kl_gradient(policy, base):
    b, p = base.logprobs().detach().sum(1), policy.logprobs().sum(1)
    return torch.autograd.grad((b.exp() * (b - p)).sum(), policy.parameters())


@pytest.mark.parametrize("estimator", ["nll", "k3"])
def test_forward_kl_gradient_is_the_exact_one(estimator):
    """The expectation over y ~ base of the estimator's gradient is that of KL(base || policy), two tokens long."""
    policy, base = TwoTokens(1), TwoTokens(2)
    logp, logb = policy.logprobs(), base.logprobs().detach()
    chance = logb.sum(1).exp()
    ones = torch.ones(1, 2, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(9):
        rows = logp[i : i + 1], logb[i : i + 1]
        loss = forward_kl.nll(rows[0], ones, 1.0) if estimator == "nll" else forward_kl.k3(*rows, ones, 1.0)
        total = total + chance[i] * loss
    got = torch.autograd.grad(total, policy.parameters())
    for x, y in zip(got, forward_kl_gradient(policy, base)):
        close(x, y)


def test_k3_does_not_pull_at_the_base_and_nll_does():
    policy = TwoTokens(3)
    logp = policy.logprobs()
    ones = torch.ones(1, 2, dtype=torch.float64)
    k3 = torch.autograd.grad(forward_kl.k3(logp[:1], logp[:1].detach(), ones, 1.0), policy.first, retain_graph=True)[0]
    nll = torch.autograd.grad(forward_kl.nll(logp[:1], ones, 1.0), policy.first)[0]
    assert k3.abs().max() == 0
    assert nll.abs().max() > 0.01


def test_reverse_kl_gradient_is_the_exact_one_for_one_token(logits):
    """And the sampled k3's is not: it is the forward KL's (TRL#4967)."""
    ref = torch.log_softmax(torch.tensor([0.1, 0.4, -0.3, 0.0], dtype=torch.float64), 0)
    logp = torch.log_softmax(logits, 0)
    chance = logp.detach().exp()
    exact = torch.autograd.grad((logp.exp() * (logp - ref)).sum(), logits, retain_graph=True)[0]
    one = torch.ones(1, 1, dtype=torch.float64)
    k2 = sum(chance[i] * reverse_kl.k2(logp[i].view(1, 1), ref[i].view(1, 1), one, 1.0) for i in range(4))
    close(torch.autograd.grad(k2, logits, retain_graph=True)[0], exact)
    d = ref - logp
    k3 = torch.autograd.grad((chance * (d.exp() - d - 1)).sum(), logits)[0]
    assert (k3 - exact).abs().max() > 0.01


def test_entropy_bonus_is_the_entropy_gradient(logits):
    loss = entropy_bonus(token_entropy(logits.view(1, 1, -1)), torch.ones(1, 1), 1.0)
    got = torch.autograd.grad(loss, logits)[0]
    pi = torch.softmax(logits.detach(), 0)
    h = -(pi * pi.log()).sum()
    torch.testing.assert_close(got, pi * (pi.log() + h), rtol=1e-5, atol=1e-6)
