"""Steps: predicted against real ones, Adam's split against torch's AdamW, states out of files, coefficients by hand."""

import math
import pickle

import pytest
import torch

from influence_models import PROBE, TRAIN, Table, pair
from limen.dynamics.attribution import attribute, solved_changes, write_csv
from limen.dynamics.influence_adam import AdamState, fresh_adam, load_adam
from limen.dynamics.influence_gradients import Gradients
from limen.dynamics.influence_pairs import choose_groups, choose_probe, policy_batch
from limen.dynamics.influence_step import Batch, compare_step, measure_step, predict_step, theta
from limen.errors import DataError, ModelError
from limen.train.algorithms import grpo


def group_advantages(rewards_PG, correct_PG):
    return grpo.group_advantages(rewards_PG)


WEIGHT = torch.tensor([0.5, -1.0, 0.25], dtype=torch.float64)


def some_state(gradients, steps=3, decay=0.1):
    generator = torch.Generator().manual_seed(5)
    first = 0.1 * torch.randn(gradients.size, generator=generator, dtype=gradients.dtype)
    second = torch.rand(gradients.size, generator=generator, dtype=gradients.dtype) + 0.01
    return AdamState(first, second, steps, 1e-3, (0.9, 0.99), 1e-8, decay)


def test_adams_split_is_the_step_that_adamw_takes():
    """θ' - θ = -η P g + η u, to the last digit, whatever the moments and the decay."""
    gradients = Gradients(Table())
    state, g = some_state(gradients), torch.randn(25, dtype=torch.float64)
    before = theta(gradients)
    parameter = torch.nn.Parameter(before.clone())
    optimizer = torch.optim.AdamW([parameter], lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    optimizer.state[parameter] = {
        "step": torch.tensor(3.0), "exp_avg": state.first_D.clone(), "exp_avg_sq": state.second_D.clone()
    }  # fmt: skip
    parameter.grad = g.clone()
    optimizer.step()
    split = -1e-3 * state.precondition(g) * g + 1e-3 * state.drift(g, before)
    assert torch.allclose(parameter.detach() - before, split, atol=1e-15)


@pytest.mark.parametrize("form", ["sgd", "adam", "fresh adam"])
def test_a_small_step_does_what_the_kernel_says_and_a_large_one_does_not(form):
    gradients = Gradients(Table())
    adam = {"sgd": None, "adam": some_state(gradients), "fresh adam": fresh_adam(gradients, 1e-3)}[form]
    before, probe = theta(gradients), [*PROBE, *TRAIN]
    found = predict_step(gradients, Batch(TRAIN, WEIGHT), probe, adam, lr=1e-4, factors=[1.0, 1e2, 1e4, 1e5])
    assert found.check.lr == 1e-4
    assert found.check.r2 > 0.9999
    assert found.check.slope == pytest.approx(1, abs=1e-2)
    assert torch.allclose(found.measured_M, found.predicted_M, atol=1e-6)
    assert found.sweep[-1].r2 < 0.95
    assert 1e-4 <= found.holds_up_to < found.breaks_at <= 10
    assert torch.equal(theta(gradients), before)
    assert all(p.grad is None for p in gradients.params.values())


def test_a_plain_step_by_hand():
    """Uniform over two actions, one sample of action 0 with coefficient 1: the logits become ±η/2."""
    model = Table(2)
    torch.nn.init.zeros_(model.w)
    gradients, zero, one = Gradients(model), pair("0", (0,), (0,)), pair("1", (0,), (1,))
    found = predict_step(gradients, Batch([zero], torch.ones(1)), [zero, one], lr=0.1, factors=[1.0])
    assert found.predicted_M.tolist() == pytest.approx([0.05, -0.05])
    assert found.measured_M.tolist() == pytest.approx(
        [math.log(2 / (1 + math.exp(-0.1))), math.log(2 / (1 + math.exp(0.1)))], abs=1e-12
    )
    clipped = predict_step(gradients, Batch([zero], torch.ones(1), clip=0.1), [zero, one], lr=0.1, factors=[1.0])
    assert clipped.scale == pytest.approx(0.1 / math.sqrt(0.5), rel=1e-4)  # norm of (1/2, -1/2)
    assert clipped.predicted_M.tolist() == pytest.approx([0.05 * clipped.scale, -0.05 * clipped.scale])


def test_drift_is_measured_apart():
    """Without any gradient an Adam step still moves by its momentum; all of it is drift."""
    gradients = Gradients(Table())
    found = predict_step(gradients, Batch(TRAIN, torch.zeros(3)), PROBE, some_state(gradients), 1e-5, factors=[1.0])
    assert torch.allclose(found.predicted_M, 1e-5 * found.drift_M)
    assert found.check.r2 > 0.999
    assert float(found.drift_M.abs().max()) > 0


@pytest.mark.parametrize("form", ["sgd", "adam"])
def test_on_the_shipped_tiny_base_r2_is_at_least_095_at_a_small_step(form):
    from limen.models import load_model

    gradients = Gradients(load_model("tiny", "cpu").model)
    generator = torch.Generator().manual_seed(0)
    draw = lambda n: torch.randint(3, 13, (n,), generator=generator).tolist()  # noqa: E731
    train = [pair(f"t{i}", draw(6), draw(3)) for i in range(8)]
    probe = [pair(f"p{i}", draw(6), draw(3)) for i in range(24)]
    weight = torch.randn(8, generator=generator) / 8
    adam = None
    if form == "adam":
        second = gradients.total(train, torch.ones(8)).square() + 1e-3
        adam = AdamState(torch.zeros_like(second), second, 100, 0.05, (0.9, 0.99))
    found = predict_step(gradients, Batch(train, weight, 1.0), probe, adam)
    assert found.sweep[0].r2 >= 0.95
    assert found.holds_up_to >= found.sweep[0].lr
    assert found.breaks_at > found.holds_up_to  # and the step size at which it breaks is there
    assert found.noise < 1e-5


def test_r2_by_hand():
    measured, predicted = torch.tensor([1.0, 2.0, 4.0]).double(), torch.tensor([1.0, 2.0, 3.0]).double()
    c = compare_step(0.1, measured, predicted)
    assert c.r2 == pytest.approx(1 - 1 / (14 / 3))
    assert c.slope == pytest.approx(17 / 14)
    assert c.rms == pytest.approx(math.sqrt(7))
    assert c.rank_correlation == pytest.approx(1)
    assert compare_step(0.1, measured, -predicted).rank_correlation == pytest.approx(-1)
    assert math.isnan(compare_step(0.1, torch.ones(3).double(), predicted).r2)


def test_weights_are_put_back_even_where_the_model_fails():
    gradients = Gradients(Table())
    before = theta(gradients)
    with pytest.raises(RuntimeError, match="out of bounds"):
        measure_step(gradients, torch.ones(25, dtype=torch.float64), 0.1, None, [pair("bad", (0,), (99,))])
    assert torch.equal(theta(gradients), before)


def test_a_lora_checkpoint_is_stepped_in_its_adapter_alone(tmp_path):
    peft = pytest.importorskip("peft")
    from limen.models import load_model

    base = load_model("tiny", "cpu")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(base.model, config)
    model.peft_config["default"].base_model_name_or_path = "tiny"
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)  # as the trainer's: one group of weights that decay, one empty
    ids = torch.randint(3, 13, (16, 9), generator=torch.Generator().manual_seed(0))
    for _ in range(5):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    model.save_pretrained(tmp_path)
    base.tokenizer.save_pretrained(tmp_path)
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    gradients = Gradients(load_model(tmp_path, "cpu", merge_adapter=False).model)
    assert gradients.size == sum(p.numel() for p in trained) < 10_000
    pairs = [pair(str(i), row[:6].tolist(), row[6:].tolist()) for i, row in enumerate(ids)]
    adam = load_adam(tmp_path / "optimizer.pt", gradients)
    found = predict_step(gradients, Batch(pairs[:6], torch.tensor([1.0, -1, 1, -1, 1, -1]) / 6), pairs[6:], adam)
    assert max(c.r2 for c in found.sweep) >= 0.95


# -- optimizer.pt ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grouped", [True, False])
def test_moments_come_out_of_a_checkpoint_by_name(tmp_path, grouped):
    """Written as a Trainer does, decaying weights first, and as plain torch does, in the model's order."""
    from transformers import Trainer

    from engine_models import random_model

    model = random_model("llama").model
    named = dict(model.named_parameters())
    decaying = set(Trainer.get_decay_parameter_names(None, model))
    assert 0 < len(decaying) < len(named)
    groups = [
        {"params": [p for n, p in named.items() if n in decaying], "weight_decay": 0.1},
        {"params": [p for n, p in named.items() if n not in decaying], "weight_decay": 0.0},
    ]  # fmt: skip
    optimizer = torch.optim.AdamW(
        groups if grouped else list(named.values()), lr=0.0, betas=(0.8, 0.95), weight_decay=0.1
    )
    model(input_ids=torch.tensor([[2, 3, 4]])).logits.square().sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    gradients = Gradients(model)
    state = load_adam(tmp_path / "optimizer.pt", gradients, lr=1e-4)
    want = torch.cat([optimizer.state[p]["exp_avg_sq"].flatten() for p in named.values()])
    assert torch.equal(state.second_D, want)
    assert (state.steps, state.lr, state.betas) == (1, 1e-4, (0.8, 0.95))
    assert load_adam(tmp_path / "optimizer.pt", gradients).lr == 0.0
    if grouped:
        decay = torch.cat([torch.full((p.numel(),), 0.1 * (n in decaying)) for n, p in named.items()])
        assert torch.equal(state.weight_decay_D, decay)
    else:
        assert state.weight_decay_D == 0.1


def test_states_that_do_not_serve_are_refused(tmp_path):
    gradients, file = Gradients(Table()), tmp_path / "optimizer.pt"
    with pytest.raises(ModelError, match="no optimizer state"):
        load_adam(file, gradients)
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    for optimizer, message in (
        (torch.optim.SGD([parameter], lr=0.1, momentum=0.9), "no moments of Adam"),
        (torch.optim.AdamW([parameter]), "do not fit"),
    ):
        optimizer.step()
        torch.save(optimizer.state_dict(), file)
        with pytest.raises(ModelError, match=message):
            load_adam(file, gradients)
    file.write_bytes(pickle.dumps({"state": print}))
    with pytest.raises(ModelError, match="not an optimizer state"):
        load_adam(file, gradients)


# -- pairs and coefficients --------------------------------------------------------------------------------------------

GROUP = [
    pair("a", (1,), (2, 3), "x"),
    pair("b", (1,), (2,), "x", False, 0.0),
    pair("c", (1,), (4, 4, 4), "x", False, 0.0),
    pair("d", (2,), (1,), "y"),
    pair("e", (2,), (2,), "y"),
]


def test_coefficients_of_grpo_by_hand():
    """Rewards 1, 0, 0: mean 1/3, std 1/√3; tokens 2, 1, 3; the group of equal rewards is not in the denominator."""
    high, low = (2 / 3) * math.sqrt(3), -(1 / 3) * math.sqrt(3)
    sums = {"tokens": [high / 6, low / 6, low / 6], "responses": [high / 2 / 3, low / 3, low / 3 / 3]}
    for normaliser, want in sums.items():
        batch = policy_batch(GROUP, group_advantages, "sum", normaliser)
        assert batch.coefficient_N.tolist() == pytest.approx([*want, 0, 0], rel=1e-5)
        per_mean = policy_batch(GROUP, group_advantages, "mean", normaliser)
        assert per_mean.coefficient_N.tolist() == pytest.approx([want[0] * 2, want[1], want[2] * 3, 0, 0], rel=1e-5)
    constant = policy_batch(GROUP, group_advantages, "sum", 10)
    assert constant.coefficient_N[0] == pytest.approx(high / 50, rel=1e-5)
    with pytest.raises(DataError, match="no gradient"):
        policy_batch(GROUP[3:], group_advantages)


def test_mean_and_sum_predict_the_same_step():
    """The step is one; only what is predicted of a probe pair is per token or not."""
    model, found = Table(), {}
    for reduce in ("mean", "sum"):
        batch = policy_batch(GROUP, group_advantages, reduce)
        found[reduce] = predict_step(Gradients(model, reduce), batch, PROBE, lr=0.1, factors=[1.0])
    tokens = torch.tensor([len(p.token_ids) for p in PROBE], dtype=torch.float64)
    assert torch.allclose(found["mean"].predicted_M * tokens, found["sum"].predicted_M, atol=1e-8)
    assert torch.allclose(found["mean"].measured_M * tokens, found["sum"].measured_M, atol=1e-8)


def test_groups_stay_whole_and_those_with_a_gradient_come_first():
    assert [p.key for p in choose_groups(GROUP, 4)] == ["a", "b", "c"]
    assert {p.key for p in choose_groups(GROUP, None)} == set("abcde")
    with pytest.raises(DataError, match="smallest group has 2"):
        choose_groups(GROUP, 1)
    assert sorted(p.key for p in choose_probe(GROUP, None, each=2)) == ["a", "b", "d", "e"]
    assert len(choose_probe(GROUP, 3, each=2)) == 2
    with pytest.raises(DataError, match="ask for more"):
        choose_probe(GROUP, 1)


# -- attribution -------------------------------------------------------------------------------------------------------


def test_attribution_sums_the_kernel_over_responses_and_adds_up_to_the_prediction(tmp_path):
    gradients = Gradients(Table())
    found = predict_step(gradients, Batch(TRAIN, WEIGHT), PROBE, lr=0.01, factors=[1.0])
    effects = attribute([(0, found, TRAIN, PROBE)])
    by = {(e.train_problem, e.probe_problem): e for e in effects}
    k = found.kernel.k_NM
    # u has one correct response (d, column 0), v has two (f, g: columns 2, 3)
    assert by["x", "u"].effect == pytest.approx(float(0.01 * (0.5 * k[0, 0] - 1.0 * k[1, 0])))
    assert by["z", "v"].effect == pytest.approx(float(0.01 * 0.25 * (k[2, 2] + k[2, 3]) / 2))
    for problem, columns in (("u", [0]), ("v", [2, 3])):
        total = by["x", problem].effect + by["z", problem].effect
        assert total == pytest.approx(float(found.predicted_M[columns].mean()))
    assert [e.effect for e in effects] == sorted(e.effect for e in effects)
    assert by["z", "v"].train_key == "c"
    assert by["x", "u"].probe_key == "d"
    negative = [e for e in effects if e.effect < 0]
    for problem in {e.probe_problem for e in negative}:
        assert sum(e.share for e in negative if e.probe_problem == problem) == pytest.approx(1)
    twice = attribute([(0, found, TRAIN, PROBE), (7, found, TRAIN, PROBE)])
    assert twice[0].effect == pytest.approx(2 * effects[0].effect)
    assert twice[0].steps == (0, 7)
    write_csv(effects, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().count("\n") == 5
    changes = {c["probe_problem"]: c for c in solved_changes(found, PROBE)}
    assert changes["v"]["correct_responses"] == 2
    assert changes["u"]["measured"] == pytest.approx(float(found.measured_M[0]))
