"""The bandit: closed forms against autograd and against numbers worked elsewhere; every identity can fail."""

import numpy as np
import pytest

from limen.errors import ConfigError
from limen.lab.bandit import (
    OBJECTIVES,
    ROWS,
    alpha,
    draw_logits,
    draw_x,
    gradient,
    lemma_d1,
    parse_labels,
    push_down_sign,
    run,
    softmax,
    step_with_autograd,
)
from limen.lab.bandit_study import Starts, alpha_of_rarer, claims, spread_table, verdict_of_share


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("start", ["uniform", "peaked"])
def test_lemma_d1_and_our_step_are_what_autograd_does(objective, start):
    x = draw_x(3, None)
    z = draw_logits(start, 3, x)
    eta = 0.5 * float(x @ x)
    auto, _ = step_with_autograd(z, x, {11: 1, 5: 1}, objective)
    assert lemma_d1(z, eta, 11, 5, objective) == pytest.approx(auto, rel=1e-11)
    assert alpha(run(z, {11: 1, 5: 1}, objective, eta)) == pytest.approx(auto, rel=1e-11)
    down, _ = step_with_autograd(z, x, {11: -1}, objective)
    assert alpha(run(z, {11: -1}, objective, eta)) == pytest.approx(down, rel=1e-11)


def test_a_misplaced_parenthesis_is_seen():
    """Eq. 22 as printed, 2(π_j − π_i + 1), is not what happens."""
    z = draw_logits("peaked", 0, draw_x(0))
    pi, e = softmax(z), np.exp(z)
    exponent = 2 * (pi - pi[11] + 1)
    exponent[11], exponent[8] = 0, 2 * (pi[8] - pi[11])
    printed = e.sum() / (np.exp(-1.5 * exponent) * e).sum()
    assert abs(printed / alpha(run(z, {11: 1, 8: 1}, "mle", 1.5))[11] - 1) > 0.1


def test_one_step_from_an_even_start_by_hand():
    """Two of four rewarded, π = 1/4: likelihood moves z by η'(1 − 1/2) and −η'/2; REINFORCE by a quarter of it."""
    for objective, scale in (("mle", 1.0), ("reinforce", 0.25)):
        up = np.exp(0.8 * 0.5 * scale)
        down = np.exp(-0.8 * 0.5 * scale)
        want = np.array([up, up, down, down]) / (2 * up + 2 * down)
        assert run(np.zeros(4), {0: 1, 1: 1}, objective, 0.8)[1] == pytest.approx(want, rel=1e-13)


def test_gradients_sum_to_zero_and_vanish_with_the_probability():
    pi = softmax(np.array([[0.0, 1.0, -800.0], [2.0, 0.0, 1.0]]))
    for objective in OBJECTIVES:
        assert gradient(pi, {0: 1, 2: -1}, objective).sum(-1) == pytest.approx([0, 0], abs=1e-15)
    assert not gradient(pi, {2: 1}, "reinforce")[0].any()
    assert gradient(pi, {2: 1}, "mle")[0, 2] == 1.0


def test_the_fall_of_the_rarer_action_is_not_monotone():
    """Numbers worked apart from this code: π₂ = 0.01, η' = 2.5, the rest even."""
    got = alpha_of_rarer(np.array([0.06, 0.2, 0.5, 0.7, 0.9]))
    assert got == pytest.approx([1.02, 0.94, 0.71, 0.69, 0.83], abs=0.005)


def test_an_even_start_bounds_alpha_by_half_the_actions():
    rows = spread_table(200, (0.0, 1.0))
    even = next(r for r in rows if r["spread"] == 0 and r["objective"] == "mle")
    uneven = next(r for r in rows if r["spread"] == 1 and r["objective"] == "mle")
    assert 20 < even["largest"] <= 25
    assert even["share_60"] == 0 < uneven["share_60"]


def test_sign_of_the_first_order():
    pi = np.array([0.5, 0.3, 0.15, 0.05])
    step = alpha(run(np.log(pi), {2: -1}, "reinforce", 1e-4))
    for i in (0, 1, 3):
        assert np.sign(step[i] - 1) == np.sign(push_down_sign(pi, i, 2))
    assert np.sign(step - 1).tolist() == [1, 1, -1, -1]


def test_claims_are_decided_and_the_start_decides_some_of_them():
    found = claims(60)
    assert {k: v["verdict"] for k, v in found.items() if v["verdict"] != "agrees"} == {"RBP-D-2": "opposite"}
    wild = claims(60, norm2=9.0)
    assert wild["RBP-F9-5"]["verdict"] == "opposite", "above η' = 2 likelihood oscillates"
    assert wild["RBP-LD.1"]["verdict"] == "agrees"


def test_a_share_is_judged_at_both_ends():
    assert [verdict_of_share(s) for s in (0.95, 0.949, 0.051, 0.05)] == [
        "agrees",
        "undetermined",
        "undetermined",
        "opposite",
    ]


def test_starts_keep_their_order_of_peaks():
    pi = softmax(Starts.draw(100).peaked_SV)
    assert (pi[:, 20] > pi[:, 8]).all()
    assert (pi[:, 8] > pi[:, 11]).all()


def test_labels():
    assert parse_labels("11+, 5-") == {11: 1, 5: -1}
    for bad in ("11", "x+", "3+,3-"):
        with pytest.raises(ConfigError):
            parse_labels(bad)
    with pytest.raises(ConfigError, match="no action"):
        run(np.zeros(4), {}, "mle", 1.0)
    with pytest.raises(ConfigError, match="action 9"):
        run(np.zeros(4), {9: 1}, "mle", 1.0)


def test_the_command_writes_what_it_says(tmp_path):
    import csv
    import json

    from limen.lab.bandit_run import run_bandit

    page = run_bandit(tmp_path, seeds=20)
    assert "| RBP-D-2 | opposite |" in page
    assert json.loads((tmp_path / "bandit.json").read_text())["settings"]["seeds"] == 20
    with (tmp_path / "figure9.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["row"] == "5" and r["step"] == "10" and r["objective"] == "mle"]
    x = draw_x(0)
    want = run(draw_logits("peaked", 0, x), ROWS[4].labels, "mle", 0.5 * float(x @ x), 10)[-1]
    assert [float(r["pi"]) for r in rows] == pytest.approx(want, rel=1e-12)
    html = (tmp_path / "bandit.html").read_text()
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert len(html) < 100_000


def test_kernel_between_contexts_is_the_inner_product_of_autograds_gradients():
    import torch

    from limen.lab.bandit_contexts import kernel_row, separate, step_change

    rng = np.random.default_rng(3)
    X, W = rng.standard_normal((4, 5)), rng.standard_normal((5, 50))
    weights = torch.from_numpy(W).requires_grad_()
    log_pi = torch.log_softmax(torch.from_numpy(X) @ weights, -1)
    (own,) = torch.autograd.grad(log_pi[1, 7], weights, retain_graph=True)
    got = kernel_row(X, softmax(X @ W), 1, 7)
    for context, action in ((1, 7), (0, 7), (3, 20)):
        (other,) = torch.autograd.grad(log_pi[context, action], weights, retain_graph=True)
        assert got[context, action] == pytest.approx(float((own * other).sum()), rel=1e-10)
    change = step_change(X, W, 1, 7, 1e-6)
    assert change == pytest.approx(1e-6 * got, abs=1e-10)
    assert separate(3)["verdict"] == "agrees"
