"""SELFTrainer around TRL's GRPOTrainer: batches worked by hand, invariances, and what must not happen."""

import json
import math
from collections import Counter

import pyarrow.parquet as pq
import pytest
import torch

from limen.errors import ConfigError, DataError
from limen.store import Run
from limen.train import generation, screening
from limen.train.algorithms import ALGORITHMS
from train_helpers import (
    BATCH,
    GREEDY,
    SAMPLES,
    digit_reward,
    judge_but_7,
    keep_gradients,
    rows,
    scripted,
    tiny_model,
    tiny_tokenizer,
    trainer,
    warm,
)

TOK = tiny_tokenizer()


def uniform_model():
    """Every token has probability 1/15, whatever came before."""
    model = tiny_model()
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    return model


@pytest.mark.parametrize(("scale", "share"), [("nominal", 0.75), ("survivors", 1.0)])
def test_self_on_a_batch_worked_by_hand(tmp_path, monkeypatch, scale, share):
    made = trainer(
        tmp_path, uniform_model(), BATCH, judge_but_7, per_device_train_batch_size=16, max_steps=1, scale=scale,
        advantage_eps=1e-6, forward_kl_beta=0.5, kl_samples=1, shuffle_dataset=False, logging_steps=1,
    )  # fmt: skip
    scripted(made, GREEDY, SAMPLES, monkeypatch.setattr)
    batch = {}
    original = generation.training_batch

    def keep(t, inputs, sample):
        batch.update(original(t, inputs, sample))
        return dict(batch)

    monkeypatch.setattr(generation, "training_batch", keep)
    made.train()

    assert [TOK.decode(p) for p in batch["prompt_ids"][::4]] == ["1+1=", "1+3=", "1+4="], "survivors: greedy was wrong"
    # a: r = 1,0,0,0: mean 1/4, std 1/2 -> 3/2, -1/2 x3.  c: no spread -> 0.
    # d: judged 1,0,0: mean 1/3, std sqrt(1/3) -> (2/3, -1/3, -, -1/3) / .57735.  Tokens of active rows: 10 + 7 = 17 of
    # all 27 sampled, by which TRL divides; hence the factor 27/17, and the share of survivors 3/4 (nominal).
    a = [1.5, -0.5, -0.5, -0.5]
    s = math.sqrt(1 / 3)
    d = [2 / 3 / s, -1 / 3 / s, 0.0, -1 / 3 / s]
    want = torch.tensor(a + [0.0] * 4 + d) * (27 / 17) * share
    torch.testing.assert_close(batch["advantages"], want, rtol=1e-5, atol=1e-6)

    # loss: ratio 1, so -sum A_i length_i / 27, plus beta x nll; every token costs ln 15 under the uniform model
    policy = -sum(x * n for x, n in zip(a + d, [2, 2, 3, 3, 2, 2, 2, 3])) / 17 * share
    log = json.loads((tmp_path / "limen" / "metrics.jsonl").read_text().splitlines()[0])
    assert log["loss"] == pytest.approx(policy + 0.5 * math.log(15), rel=1e-5)
    assert log["loss_kl"] == pytest.approx(math.log(15), rel=1e-5)
    assert (log["kept"], log["screened"], log["unjudged"], log["greedy_solved"]) == (3, 4, 1, 0.25)
    assert log["active_rows"] == 7
    # rewards over the batch: a .25, c 0, d 1/3 over its judged: 2 right of 11 judged samples; b counts its greedy 1
    assert log["reward_batch"] == pytest.approx((2 / 11 * 3 + 1) / 4)

    run = Run.open(tmp_path / "limen")
    verdicts = run.table("verdicts").to_pylist()
    outcomes = Counter((v["policy"].endswith("@greedy"), v["outcome"]) for v in verdicts)
    assert outcomes == {(False, "correct"): 2, (False, "wrong"): 9, (False, "unjudged"): 1,
                        (True, "correct"): 1, (True, "wrong"): 3}  # fmt: skip
    stored = {(r.problem_id, r.sample_index): r for r in run.rollouts() if not r.policy.endswith("@greedy")}
    assert stored["d", 3].text == "00"
    assert stored["d", 3].token_ids == (2, 2, 1)
    assert stored["d", 3].finish_reason == "eos"


def test_no_survivors_makes_no_policy_step(tmp_path, monkeypatch):
    """Not even by AdamW's momentum; and the batch is counted."""
    model = tiny_model()
    made = trainer(
        tmp_path, model, BATCH, judge_but_7, algorithm="greedy_filter", per_device_train_batch_size=16, max_steps=3
    )
    greedy = dict(GREEDY)
    scripted(made, greedy, {k: ["2$", "4$", "5$", "0$"] for k in GREEDY}, monkeypatch.setattr)
    weights = []

    class Watch:
        def __call__(self, step, total, metrics):
            weights.append(model.model.embed_tokens.weight.detach().clone())
            greedy.update({"1+1=": "2$", "1+2=": "3$", "1+3=": "4$", "1+4=": "5$"})  # from now on all are right

    made.listeners.append(Watch())
    before = model.model.embed_tokens.weight.detach().clone()
    made.train()
    assert not torch.equal(before, weights[0])
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])
    assert made.counters["no_survivors"] == 2
    assert made.state.global_step == 3
    log = [json.loads(x) for x in (tmp_path / "limen" / "metrics.jsonl").read_text().splitlines()]
    assert [x["reward_batch"] for x in log[1:]] == [1.0, 1.0], "all greedy answers were right"
    assert [{k for k in x if k == "entropy" or k.startswith("clip_ratio")} for x in log[1:]] == [set(), set()], (
        "there was no response token to have an entropy"
    )
    assert log[0]["entropy"] > 0


def gradient(tmp_path, model, micro, accumulation, monkeypatch, **options):
    """Gradient of the first step, before clipping, as one vector; responses are fixed."""
    made = trainer(
        tmp_path, model, BATCH, judge_but_7, per_device_train_batch_size=micro,
        gradient_accumulation_steps=accumulation, max_steps=1, max_grad_norm=1e9, kl_samples=3, base_n=3,
        shuffle_dataset=False, **options,
    )  # fmt: skip
    scripted(made, GREEDY, SAMPLES, monkeypatch.setattr)
    got = keep_gradients(made, monkeypatch.setattr)
    made.train()
    monkeypatch.undo()
    return got[-1]


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "self", "forward_kl_beta": 0.3},
        {"algorithm": "grpo", "forward_kl_beta": 0.3, "kl_estimator": "k3", "entropy_bonus": 0.1},
        {"algorithm": "self", "forward_kl_beta": 0.0, "loss_type": "grpo"},
        {"algorithm": "grpo", "loss_type": "dr_grpo", "advantage": "centred", "reverse_kl_beta": 0.1},
        {"algorithm": "grpo", "direction_alpha": 1.0},
    ],
)
def test_the_gradient_does_not_depend_on_how_the_batch_is_cut(tmp_path, monkeypatch, options):
    """Cut into 1, 2 and 8 micro-batches; three survivors of four responses are 12 rows, which 8 do not divide."""
    model = tiny_model(3)
    start = {k: v.clone() for k, v in model.state_dict().items()}
    grads = []
    for i, (micro, accumulation) in enumerate([(16, 1), (8, 2), (2, 8)]):
        model.load_state_dict(start)
        model.zero_grad()
        grads.append(gradient(tmp_path / str(i), model, micro, accumulation, monkeypatch, **options))
    assert grads[0].norm() > 1e-3
    for other in grads[1:]:
        torch.testing.assert_close(other, grads[0], rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_algorithm_trains(tmp_path, algorithm):
    model, data = tiny_model(), rows()
    warm(model, data, 60)
    made = trainer(tmp_path, model, data, algorithm=algorithm, max_steps=2, base_n=2)
    made.train()
    lines = [json.loads(x) for x in (tmp_path / "limen" / "metrics.jsonl").read_text().splitlines()]
    assert [x["step"] for x in lines] == [1, 2]
    assert all(math.isfinite(x["loss"]) for x in lines)
    assert {
        "reward_batch",
        "kept",
        "seconds/generate",
        "seconds/forward",
        "seconds/backward",
        "tokens/generate",
    } <= set(lines[0])


@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
def test_rows_without_a_gradient_can_be_skipped(tmp_path, monkeypatch, loss_type):
    """Five of sixteen rows have none (a group without spread, an unjudged response): the gradient is the same."""
    model = tiny_model(3)
    start = {k: v.clone() for k, v in model.state_dict().items()}
    grads = []
    for name, micro, accumulation in [("all", 16, 1), ("skip", 16, 1), ("cut", 4, 4)]:
        model.load_state_dict(start)
        model.zero_grad()
        options = {"algorithm": "grpo", "loss_type": loss_type, "skip_inactive": name != "all"}
        grads.append(gradient(tmp_path / name, model, micro, accumulation, monkeypatch, **options))
    for other in grads[1:]:
        torch.testing.assert_close(other, grads[0], rtol=1e-3, atol=2e-6)
    logs = [json.loads((tmp_path / n / "limen" / "metrics.jsonl").read_text().splitlines()[0]) for n in ("all", "skip")]
    assert logs[1]["tokens/forward"] == logs[0]["tokens/forward"] - 4 * 2 - 2


def test_refill_screens_until_the_batch_is_full(tmp_path, monkeypatch):
    data = rows(64)
    made = trainer(tmp_path, tiny_model(), data, algorithm="self", refill=True, max_steps=2, base_n=1)
    monkeypatch.setattr(screening, "_greedy_transformers", half_right(data))
    made.train()
    log = [json.loads(x) for x in (tmp_path / "limen" / "metrics.jsonl").read_text().splitlines()]
    assert [x["kept"] for x in log] == [8, 8]
    assert all(x["screened"] > 8 for x in log)
    run = Run.open(tmp_path / "limen")
    groups = Counter((r.step, r.problem_id) for r in run.rollouts() if not r.policy.endswith("@greedy"))
    assert set(groups.values()) == {4}
    assert all(int(p[1:]) % 2 == 1 for _, p in groups), "only problems with a wrong greedy answer"


def half_right(data):
    answers = {r["prompt"]: r["answer"] for r in data if int(r["problem_id"][1:]) % 2 == 0}

    def fake(t, prompt_ids):
        return [[TOK.convert_tokens_to_ids(answers.get(TOK.decode(p), "=")), 1] for p in prompt_ids]

    return fake


def test_dynamic_sampling_fills_the_batch_with_groups_that_have_spread(tmp_path):
    model, data = tiny_model(), rows()
    warm(model, data, 150)
    made = trainer(tmp_path, model, data, algorithm="dapo", max_steps=1, refill_limit=6)
    kept = {}
    original = made._prepare_inputs

    def keep(x):
        out = original(x)
        kept.update(out)
        return out

    made._prepare_inputs = keep
    made.train()
    assert made.epsilon_high == 0.28
    a = kept["advantages"]
    assert len(a) <= 32
    assert (a[kept["completion_mask"].sum(1) > 0] != 0).all(), "no row without a gradient is trained on"
    log = json.loads((tmp_path / "limen" / "metrics.jsonl").read_text().splitlines()[0])
    assert log["active_rows"] == (a != 0).sum()


def test_stop_strings_cut_tokens_and_text(tmp_path, monkeypatch):
    made = trainer(tmp_path, uniform_model(), BATCH, judge_but_7, algorithm="grpo", per_device_train_batch_size=16,
                   max_steps=1, stop_strings=["="], max_completion_length=5)  # fmt: skip
    scripted(made, GREEDY, {k: ["2=00$", "0$", "3=3$", "00000"] for k in GREEDY}, monkeypatch.setattr)
    made.train()
    stored = {r.sample_index: r for r in Run.open(tmp_path / "limen").rollouts() if r.problem_id == "a"}
    assert (stored[0].text, len(stored[0].token_ids), stored[0].finish_reason) == ("2", 2, "stop")
    assert (stored[3].text, stored[3].finish_reason) == ("00000", "length")


def test_gradient_ratio_by_hand(tmp_path, monkeypatch):
    """The two logged norms are those of the two terms trained alone."""
    model = tiny_model(5)
    start = {k: v.clone() for k, v in model.state_dict().items()}
    grads = {}
    for name, beta in [("both", 0.3), ("policy", 0.0)]:
        model.load_state_dict(start)
        model.zero_grad()
        grads[name] = gradient(tmp_path / name, model, 16, 1, monkeypatch, algorithm="self", forward_kl_beta=beta)
    log = json.loads((tmp_path / "both" / "limen" / "metrics.jsonl").read_text().splitlines()[0])
    assert log["grad_norm_rl"] == pytest.approx(float(grads["policy"].norm()), rel=1e-3)
    assert log["grad_norm_kl"] == pytest.approx(float((grads["both"] - grads["policy"]).norm()), rel=1e-3)
    assert log["grad_ratio_kl_rl"] == pytest.approx(log["grad_norm_kl"] / log["grad_norm_rl"])


def test_schedule_switches_the_filter_off(tmp_path):
    made = trainer(tmp_path, algorithm="greedy_filter", max_steps=3, schedule=[{"at": 2, "set": {"selector": "all"}}])
    made.train()
    log = [json.loads(x) for x in (tmp_path / "limen" / "metrics.jsonl").read_text().splitlines()]
    assert ["greedy_solved" in x for x in log] == [True, True, False]
    assert [x["phase"] for x in log] == [0, 0, 1]


def test_blank_micro_batches_do_not_dilute_the_entropy(tmp_path, monkeypatch):
    """One survivor of four in 8 micro-batches: four hold one row each, the others none."""
    made = trainer(tmp_path, uniform_model(), BATCH, judge_but_7, algorithm="greedy_filter", max_steps=1,
                   per_device_train_batch_size=2, gradient_accumulation_steps=8)  # fmt: skip
    scripted(made, {**GREEDY, "1+3=": "4$", "1+4=": "5$"}, SAMPLES, monkeypatch.setattr)
    made.train()
    log = json.loads((tmp_path / "limen" / "metrics.jsonl").read_text().splitlines()[0])
    assert log["entropy"] == pytest.approx(math.log(15), rel=1e-5)


def test_a_second_pass_over_the_same_responses_weighs_directions_once(tmp_path, monkeypatch):
    """Nothing moves at learning rate 0, so both passes have the same gradient."""
    made = trainer(tmp_path, tiny_model(3), BATCH, judge_but_7, algorithm="direction", per_device_train_batch_size=16,
                   max_steps=2, num_iterations=2, learning_rate=0.0, max_grad_norm=1e9)  # fmt: skip
    scripted(made, GREEDY, SAMPLES, monkeypatch.setattr)
    got = keep_gradients(made, monkeypatch.setattr)
    made.train()
    assert got[0].norm() > 1e-3
    torch.testing.assert_close(got[1], got[0])


def test_reverse_kl_is_0_at_its_reference_whatever_the_temperature(tmp_path, monkeypatch):
    made = trainer(tmp_path, tiny_model(3), BATCH, judge_but_7, algorithm="reverse_kl", per_device_train_batch_size=16,
                   max_steps=1, temperature=0.5)  # fmt: skip
    scripted(made, GREEDY, SAMPLES, monkeypatch.setattr)
    made.train()
    log = json.loads((tmp_path / "limen" / "metrics.jsonl").read_text().splitlines()[0])
    assert log["loss_reverse_kl"] == pytest.approx(0.0, abs=1e-10)


def test_groups_that_dynamic_sampling_leaves_out_are_in_no_denominator(tmp_path, monkeypatch):
    """The entropy bonus is a mean over the tokens that are trained on: c ln 15 under the uniform model."""
    made = trainer(tmp_path, uniform_model(), BATCH, judge_but_7, algorithm="dapo", per_device_train_batch_size=16,
                   max_steps=1, entropy_bonus=0.5, refill_limit=1)  # fmt: skip
    scripted(made, GREEDY, {**SAMPLES, "1+2=": ["0$"] * 4}, monkeypatch.setattr)
    batch = {}
    original = generation.training_batch
    monkeypatch.setattr(generation, "training_batch", lambda *a: batch.update(original(*a)) or dict(batch))
    made.train()
    log = json.loads((tmp_path / "limen" / "metrics.jsonl").read_text().splitlines()[0])
    policy = -float((batch["advantages"] * batch["completion_mask"].sum(1)).sum() / batch["num_items_in_batch"])
    assert log["loss"] == pytest.approx(policy - 0.5 * math.log(15), rel=1e-5)


def test_greedy_answers_are_given_without_dropout(tmp_path):
    made = trainer(tmp_path, algorithm="greedy_filter")
    made.model.train()
    seen = []
    made.model.generate, own = (lambda **k: seen.append(made.model.training) or own(**k)), made.model.generate
    screening.greedy(made, [[2, 3, 4]])
    assert (seen, made.model.training) == ([False], True)


# -- bad input ---------------------------------------------------------------------------------------------------------


def raising(completions, **kwargs):
    raise KeyError("x")


@pytest.mark.parametrize(
    ("reward", "says"),
    [
        (raising, "raised KeyError"),
        (lambda completions, **k: [1.0], "1 rewards for"),
        (lambda completions, **k: 0.5, "expected a list"),
        (lambda completions, **k: ["good"] * len(completions), "'good'"),
        (lambda completions, **k: [float("inf")] * len(completions), "finite"),
    ],
)
def test_bad_reward_functions(tmp_path, reward, says):
    made = trainer(tmp_path, reward=reward, max_steps=1)
    with pytest.raises(DataError, match=says):
        made.train()


def test_nan_rewards_are_unjudged_and_counted(tmp_path):
    made = trainer(
        tmp_path, algorithm="grpo", max_steps=1, reward=lambda completions, **k: [float("nan")] * len(completions)
    )
    made.train()
    log = json.loads((tmp_path / "limen" / "metrics.jsonl").read_text().splitlines()[0])
    assert (log["unjudged"], log["active_rows"], log["loss"]) == (32, 0, 0)
    outcomes = Run.open(tmp_path / "limen").table("verdicts").column("outcome").to_pylist()
    assert set(outcomes) == {"unjudged"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "steps_per_generation": 3}, "multiple"),
        ({"save_strategy": "steps", "save_steps": 3, "num_iterations": 2}, "cycle of 2"),
        ({"algorithm": "selv"}, "not known"),
        ({"max_completion_length": 80}, "context of 64"),
        ({"forward_kl_beta": 0.0, "base_responses": "x"}, "never be used"),
        ({"base_responses": "/nowhere"}, "not a limen run"),
        ({"algorithm": "pass_k", "pass_k": 5}, "more than the 4 responses"),
        ({"algorithm": "grpo",
          "schedule": [{"at": 1, "set": {"forward_kl_beta": 0.1, "kl_responses": "correct"}}]}, "needs a verifier"),
    ],
)  # fmt: skip
def test_contradictions(tmp_path, options, says):
    with pytest.raises((ConfigError, ValueError), match=says):
        trainer(tmp_path, **options).train()


def test_plain_grpo_config_is_refused(tmp_path):
    from trl import GRPOConfig

    from limen.train import SELFTrainer

    with pytest.raises(ConfigError, match="SELFConfig"):
        SELFTrainer(tiny_model(), digit_reward, GRPOConfig(str(tmp_path), use_cpu=True, bf16=False))


# -- base responses ----------------------------------------------------------------------------------------------------


def test_base_responses_are_stored_once_and_used_as_given(tmp_path):
    data = rows(16)
    first = trainer(tmp_path / "one", tiny_model(), data, max_steps=1, base_n=3, per_device_train_batch_size=16)
    first.train()
    folder = tmp_path / "one" / "limen" / "base"
    base = Run.open(folder)
    assert base.info["status"] == "done"
    assert Counter(r.problem_id for r in base.rollouts()) == {f"p{i}": 3 for i in range(16)}
    second = trainer(tmp_path / "two", tiny_model(), data, max_steps=1, base_responses=str(folder), kl_estimator="k3",
                     per_device_train_batch_size=16)  # fmt: skip
    second.train()
    assert not (tmp_path / "two" / "limen" / "base").exists()
    assert all(r.logprobs is not None for rs in second.base.by_problem.values() for r in rs)
    log = json.loads((tmp_path / "two" / "limen" / "metrics.jsonl").read_text().splitlines()[0])
    assert log["loss_kl"] == pytest.approx(0, abs=1e-5), "k3 at the base itself"


def test_picks_are_a_function_of_seed_and_step(tmp_path):
    made = trainer(tmp_path, tiny_model(), rows(16), max_steps=1, base_n=4, per_device_train_batch_size=16)
    made.train()

    def picks(seed, step):
        return [
            (p.problem_id, p.response.token_ids.tobytes()) for p in made.base.pick(step, ["p1", "p2"], seed, 2, False)
        ]

    assert picks(1, 5) == picks(1, 5)
    assert len(picks(1, 5)) == 4
    assert len({tuple(picks(1, s)) for s in range(20)}) > 1


def test_lora_trains_only_the_adapter(tmp_path):
    peft = pytest.importorskip("peft")
    model = tiny_model()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    data = rows()
    made = trainer(tmp_path, model, data, algorithm="self", forward_kl_beta=0.1, reverse_kl_beta=0.01, max_steps=2,
                   peft_config=lora, learning_rate=1e-2)  # fmt: skip
    made.train()
    after = made.model.state_dict()
    base = {k: v for k, v in after.items() if "lora" not in k}
    assert all(
        torch.equal(v, before[k.replace("base_model.model.", "").replace(".base_layer", "")]) for k, v in base.items()
    )
    assert any(v.abs().max() > 0 for k, v in after.items() if "lora_B" in k)


def test_tensorboard_gets_our_metrics(tmp_path):
    pytest.importorskip("tensorboard")
    made = trainer(tmp_path, max_steps=1, report_to=["tensorboard"])
    made.train()
    files = list(tmp_path.rglob("events.out.tfevents.*"))
    assert files
    assert b"kept" in files[0].read_bytes()


def test_rollouts_of_a_step_are_what_was_trained_on(tmp_path):
    made = trainer(tmp_path, algorithm="grpo", max_steps=2)
    made.train()
    run = Run.open(tmp_path / "limen")
    rollouts = pq.read_table(run.shards("rollouts")[0]).to_pylist()
    assert Counter(r["step"] for r in rollouts) == {0: 32, 1: 32}
    assert run.keys("rollouts") == run.keys("verdicts")
    assert {r["temperature"] for r in rollouts} == {1.0}
