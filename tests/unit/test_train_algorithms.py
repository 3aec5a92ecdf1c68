"""Each algorithm function against numbers worked by hand or closed forms."""

import math

import pytest
import torch

from limen.errors import ConfigError
from limen.train.algorithms import (
    ALGORITHMS,
    Algorithm,
    direction,
    dr_grpo,
    entropy_bonus,
    forward_kl,
    greedy_filter,
    grpo,
    nsr,
    overtraining_gate,
    pass_k,
    psr,
    reverse_kl,
    schedule,
    self_,
    soft_gate,
    w_reinforce,
)
from limen.train.algorithms.compose import advantages, check_group
from limen.train.algorithms.dapo import keep_informative

NAN = float("nan")


def table(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def close(got, want, tolerance=1e-9):
    torch.testing.assert_close(
        torch.as_tensor(got, dtype=torch.float64), torch.as_tensor(want, dtype=torch.float64),
        rtol=tolerance, atol=tolerance,
    )  # fmt: skip


def test_grpo_by_hand():
    # mean 1/4, squares 9/16 + 3/16 = 3/4, std with G-1 = 1/2: A = (3/4)/(1/2), (-1/4)/(1/2)
    a, active = grpo.group_advantages(table([1, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]), eps=0)
    close(a, [[1.5, -0.5, -0.5, -0.5], [0] * 4, [0] * 4])
    assert active.tolist() == [[True] * 4, [False] * 4, [False] * 4]


def test_grpo_rbp_rewards_by_hand():
    # +1, -0.5, -1, -1: mean -0.375; deviations 1.375, -0.125, -0.625, -0.625; squares sum 2.6875; std sqrt(.895833)
    a, _ = grpo.group_advantages(table([1, -0.5, -1, -1]), eps=1e-6)
    std = math.sqrt(2.6875 / 3)
    close(a, [[d / (std + 1e-6) for d in (1.375, -0.125, -0.625, -0.625)]])


def test_grpo_leaves_unjudged_out_of_its_group():
    # judged 1, 0, 0: mean 1/3, squares 4/9 + 1/9 + 1/9 = 2/3, std sqrt(1/3)
    a, active = grpo.group_advantages(table([1, 0, NAN, 0], [1, NAN, NAN, NAN], [NAN] * 4), eps=0)
    s = math.sqrt(1 / 3)
    close(a, [[2 / 3 / s, -1 / 3 / s, 0, -1 / 3 / s], [0] * 4, [0] * 4])
    assert active.tolist() == [[True, True, False, True], [False] * 4, [False] * 4]


def test_spread_is_exact_where_rounding_makes_a_std():
    rewards = torch.full((1, 7), 0.1, dtype=torch.float32)
    assert not grpo.has_spread(rewards).item()
    assert keep_informative(table([0, 1, 0], [1, 1, 1], [1, NAN, 1], [0, NAN, 1])).tolist() == [
        True,
        False,
        False,
        True,
    ]


def test_dr_grpo_is_centred_only():
    a, active = dr_grpo.centred_advantages(table([1, 0, 0, 0], [1, 1, 1, 1]))
    close(a, [[0.75, -0.25, -0.25, -0.25], [0] * 4])
    assert active.any(1).tolist() == [True, False]


def test_reinforce_family():
    correct = table([1, 0, NAN])
    close(psr.psr_advantages(correct)[0], [[1, 0, 0]])
    close(nsr.nsr_advantages(correct)[0], [[0, -1, 0]])
    a, active = w_reinforce.w_reinforce_advantages(correct, 0.1)
    close(a, [[0.1, -1, 0]], 1e-6)
    assert active.tolist() == [[True, True, False]]
    assert psr.psr_advantages(table([1, 1]))[1].all(), "without a baseline a solved group still trains"


def test_pass_k_by_hand():
    # N=4, 1 correct, k=2: R = 1 - C(3,2)/C(4,2) = 1/2, sigma 1/2; A+ = 1; A- = (1/2 - C(2,1)/C(3,1)) / (1/2) = -1/3
    a, active = pass_k.pass_k_advantages(table([1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]), k=2)
    close(a, [[1, -1 / 3, -1 / 3, -1 / 3], [0] * 4, [0] * 4])
    assert active.any(1).tolist() == [True, False, False], "3 of 4 correct: every pair holds a correct one"


def test_pass_1_is_grpo_with_the_population_std():
    a, _ = pass_k.pass_k_advantages(table([1, 1, 0, 0, 0]), k=1)
    std = math.sqrt(0.4 * 0.6)
    close(a, [[0.6 / std] * 2 + [-0.4 / std] * 3])


def test_pass_k_leaves_unjudged_out():
    with_nan, _ = pass_k.pass_k_advantages(table([1, NAN, 0, 0, 0]), k=2)
    without, _ = pass_k.pass_k_advantages(table([1, 0, 0, 0]), k=2)
    close(with_nan[0, [0, 2, 3, 4]], without[0])
    assert with_nan[0, 1] == 0


def test_overtraining_gate_is_the_posterior_mean():
    """u is the mean of k (1-p)^(k-1) under Beta(m+1, n-m+1): by numerical integration."""
    from scipy.integrate import quad
    from scipy.stats import beta

    for m, n, k in [(0, 8, 4), (3, 8, 4), (8, 8, 2), (5, 16, 8)]:
        mean = quad(lambda p, m=m, n=n, k=k: k * (1 - p) ** (k - 1) * beta.pdf(p, m + 1, n - m + 1), 0, 1)[0]
        close(overtraining_gate.use_of_training(m, n, k), mean, 1e-8)
    # n=8, k=4, tau=.05: bound .45; u(4) = 4*5*6*7/1320 = .636 kept, u(5) = 4*4*5*6/1320 = .364 dropped
    groups = table([1] * 4 + [0] * 4, [1] * 5 + [0] * 3)
    assert overtraining_gate.keep_useful(groups, 4, 0.05).tolist() == [True, False]


def test_direction_by_hand():
    logp = torch.log(table([0.5, 0.9]))
    close(direction.reweight(table([2.0, -1.0]), logp, 2.0), [[2 * 2.0, -1 * 1.2]])


def test_soft_gate_by_hand():
    close(
        soft_gate.gate(table([1, 0, 0, 0], [1, 1, 1, 1], [1, NAN, 0, NAN], [NAN] * 4), 2.0),
        [[0.5625], [0], [0.25], [0]],
    )


def test_forward_kl_by_hand():
    p, b, mask = torch.log(table([0.5, 0.25])), torch.log(table([0.25, 0.25])), table([1.0, 1.0])
    close(forward_kl.nll(p, mask, 2), (math.log(2) + math.log(4)) / 2)
    close(forward_kl.k3(p, b, mask, 2), (2 - math.log(2) - 1) / 2)
    close(forward_kl.k3(p, b, table([0.0, 1.0]), 2), 0)


def test_reverse_kl_and_reset():
    close(reverse_kl.k2(table([0.0, -1.0]), table([-2.0, -1.0]), table([1.0, 1.0]), 2), 1.0)
    assert [s for s in range(7) if reverse_kl.reset_due(s, 3)] == [3, 6]
    assert not reverse_kl.reset_due(5, 0)


def test_entropy_of_a_uniform_policy():
    logits = torch.zeros(2, 3, 7)
    entropy = entropy_bonus.token_entropy(logits)
    close(entropy, torch.full((2, 3), math.log(7)), 1e-6)
    close(entropy_bonus.entropy_bonus(entropy, torch.ones(2, 3), 6), -math.log(7), 1e-6)


def test_self_scale_and_reward():
    assert self_.survivor_scale(3, 4, "nominal") == 0.75
    assert self_.survivor_scale(3, 4, "survivors") == 1
    assert self_.survivor_scale(0, 4, "nominal") == 0
    # 3 survivors with mean reward 0.2, one prompt left out that was right: (0.6 + 1) / 4
    close(self_.batch_reward(0.2, 3, [1.0]), 0.4)


def test_greedy_filter_keeps_what_is_known_to_be_wrong():
    rewards = torch.tensor([1.0, 0.0, NAN, -0.5])
    assert greedy_filter.keep_wrong(rewards).tolist() == [False, True, False, True]
    assert greedy_filter.keep_all(rewards).all()


def test_schedule_latches_and_overrides():
    phases = [
        {"at": 10, "set": {"selector": "all"}},
        {"when": "reward_batch > 0.5", "set": {"forward_kl_beta": 0.3}},
        {"at": 20, "set": {"forward_kl_beta": 0.0}},
    ]
    assert schedule.begin_phases(phases, [], 9, {"reward_batch": 0.5}) == []
    assert schedule.begin_phases(phases, [], 9, {"reward_batch": 0.6}) == [1]
    assert schedule.begin_phases(phases, [1], 10, {}) == [0, 1], "what has begun stays begun"
    assert schedule.overrides(phases, [0, 1]) == {"selector": "all", "forward_kl_beta": 0.3}
    assert schedule.overrides(phases, [0, 1, 2])["forward_kl_beta"] == 0.0


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"selector": "greedy"}, "selector"),
        ({"refill": True}, "refill"),
        ({"selector": "greedy_wrong", "refill": True, "dynamic_sampling": True}, "switch one of them off"),
        ({"forward_kl_beta": -1}, "below 0"),
        ({"schedule": ({"at": 3},)}, "schedule"),
        ({"schedule": ({"at": 3, "set": {"seed": 1}},)}, "cannot set seed"),
        ({"schedule": ({"when": "reward", "set": {}},)}, "reward_batch > 0.5"),
        ({"schedule": ({"at": 3, "set": {"selector": "nope"}},)}, "nope"),
        ({"schedule": ({"at": 3, "set": 5},)}, "must be a mapping"),
        ({"schedule": ({"at": True, "set": {}},)}, "optimizer step"),
        ({"schedule": ({"at": 3, "set": {"forward_kl_beta": "much"}},)}, "forward_kl_beta is 'much', expected float"),
        ({"schedule": ({"at": 3, "set": {"pass_k": 2.5}},)}, "expected int"),
        ({"schedule": ({"at": 3, "set": {"refill": 1}},)}, "expected bool"),
        # each phase fits the start, but not the other
        (
            {
                "selector": "greedy_wrong",
                "schedule": ({"when": "kept < 3", "set": {"refill": True}}, {"at": 9, "set": {"selector": "all"}}),
            },
            "once 'kept < 3' and at 9 has begun: refill",
        ),
    ],
)
def test_contradictions_are_refused(values, says):
    with pytest.raises(ConfigError, match=says):
        Algorithm(**values)


def test_a_phase_may_need_the_one_before_it():
    a = Algorithm(schedule=({"at": 5, "set": {"selector": "greedy_wrong"}}, {"at": 9, "set": {"refill": True}}))
    assert [(s.selector, s.refill) for s in a.states()] == [
        ("all", False), ("greedy_wrong", False), ("greedy_wrong", True)
    ]  # fmt: skip


def test_yaml_reads_1e_4_as_a_text_and_means_a_number():
    a = Algorithm(schedule=({"at": 1, "set": {"forward_kl_beta": "1e-4"}},))
    assert a.states()[1].forward_kl_beta == 1e-4


def test_pass_k_of_more_than_a_group_never_trains_and_is_refused():
    check_group(Algorithm(advantage="pass_k", pass_k=8), 8)
    with pytest.raises(ConfigError, match="pass_k 8 is more than the 4"):
        check_group(Algorithm(pass_k=8, schedule=({"at": 3, "set": {"advantage": "pass_k"}},)), 4)


def test_every_named_algorithm_composes():
    rewards = table([1, 0, 0, 1], [0, 0, 0, 1])
    for name, values in ALGORITHMS.items():
        known = {k: v for k, v in values.items() if k not in ("loss_type", "epsilon_high")}
        a, active = advantages(Algorithm(**known), rewards, rewards)
        assert a.shape == active.shape == rewards.shape, name
        assert torch.isfinite(a).all(), name


def test_gates_compose_with_the_advantage():
    a = Algorithm(soft_gate=1.0, overtraining_tau=0.1, overtraining_k=4, advantage="centred")
    # first group: p-hat 1/4, kept: advantages 3/4 of (.75, -.25 ...); second: u(3;4,4) = 4*2*3*4/(6*7*8) = .286 < .5
    got, active = advantages(a, table([1, 0, 0, 0], [1, 1, 1, 0]), table([1, 0, 0, 0], [1, 1, 1, 0]))
    close(got, [[0.5625, -0.1875, -0.1875, -0.1875], [0] * 4])
    assert active.any(1).tolist() == [True, False]
