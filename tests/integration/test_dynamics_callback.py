"""`DynamicsProbe` in a plain Trainer, TRL's GRPOTrainer and limen's: right numbers, and a training left as it was."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from limen.dynamics import DynamicsProbe, ProbePairs
from limen.engines.protocol import ScoreRequest
from limen.report.progress import read_progress
from limen.report.training import read_training
from train_helpers import digit_reward, rows, tiny_model, tiny_tokenizer, trainer


def probe_pairs(n=12):
    """Sums with answers, right ones first and a wrong one for each, as token ids with the end."""
    tok = tiny_tokenizer()
    requests, keys, correct = [], [], []
    for r in rows(n):
        for j, answer in enumerate((r["answer"], str((int(r["answer"]) + 3) % 10))):
            requests.append(ScoreRequest(tuple(tok.encode(r["prompt"])), (*tok.encode(answer), 1)))
            keys.append((r["problem_id"], j))
            correct.append(j == 0)
    return ProbePairs(tuple(requests), tuple(keys), np.array(correct), "sums")


class Weights(TrainerCallback):
    """Copies of the weights after every step; 0: before the first."""

    def __init__(self):
        self.at = {}

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.at[state.global_step] = {k: v.detach().clone() for k, v in model.state_dict().items()}

    on_step_end = on_train_begin


def directly(weights, pairs):
    """Per-token mean log-probability of each pair under these weights."""
    model = tiny_model()
    model.load_state_dict(weights)
    model.eval()
    out = []
    for r in pairs.request_N:
        ids = torch.tensor([[*r.prompt_ids, *r.token_ids]])
        with torch.no_grad():
            logs = torch.log_softmax(model(input_ids=ids).logits[0].double(), -1)
        at = torch.arange(len(r.prompt_ids) - 1, ids.shape[1] - 1)
        out.append(float(logs[at, ids[0, len(r.prompt_ids) :]].mean()))
    return np.array(out)


def probed(folder):
    lines = [json.loads(x) for x in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return {x["step"]: x for x in lines if "probe/delta_plus" in x}


def check(lines, weights, pairs):
    for step, row in lines.items():
        before, after = directly(weights[step - 1], pairs), directly(weights[step], pairs)
        delta = after - before
        assert row["probe/delta_plus"] == pytest.approx(delta[pairs.correct_N].mean(), abs=3e-6)
        assert row["probe/influence"] == pytest.approx((delta**2).mean(), rel=1e-3, abs=1e-9)
        assert row["probe/logp_plus"] == pytest.approx(after[pairs.correct_N].mean(), abs=3e-6)
        assert row["probe/ppl_wrong"] == pytest.approx(np.exp(-after[~pairs.correct_N]).mean(), rel=1e-4)
        assert row["probe/noise_max"] < 1e-5
        # one of the two responses of each problem is right, so all correct ones are of seldom solved problems
        assert row["probe/delta_plus_rare"] == row["probe/delta_plus"]
        assert row["probe/logp_plus_rare"] == row["probe/logp_plus"]


def plain_trainer(out, callbacks, steps=4):
    tok = tiny_tokenizer()
    ids = [[*tok.encode(r["prompt"] + r["answer"]), 1] for r in rows()]
    data = Dataset.from_list([{"input_ids": i, "labels": i} for i in ids])
    args = TrainingArguments(
        output_dir=str(out), max_steps=steps, per_device_train_batch_size=16, learning_rate=2e-3, use_cpu=True,
        report_to="none", save_strategy="no", disable_tqdm=True, seed=5, lr_scheduler_type="constant",
    )  # fmt: skip
    made = Trainer(model=tiny_model(), args=args, train_dataset=data, callbacks=callbacks)
    made.remove_callback(PrinterCallback)
    return made


def test_plain_trainer(tmp_path):
    pairs, weights = probe_pairs(), Weights()
    plain_trainer(tmp_path / "a", [DynamicsProbe(pairs, every=2), weights]).train()
    lines = probed(tmp_path / "a" / "limen")
    assert sorted(lines) == [1, 2, 4]
    check(lines, weights.at, pairs)
    assert lines[4]["probe/lr"] == pytest.approx(2e-3)
    assert "probe/clip_batch" not in lines[4]
    without = Weights()
    plain_trainer(tmp_path / "b", [without]).train()
    assert all(torch.equal(v, without.at[4][k]) for k, v in weights.at[4].items())
    table = pq.read_table(tmp_path / "a" / "limen" / "dynamics" / "step-00000004.parquet")
    assert table.num_rows == len(pairs)
    gain = (np.array(table["logprob_after"]) - np.array(table["logprob_before"])) / np.array(table["n_tokens"])
    assert gain[np.array(table["correct"])].mean() == pytest.approx(lines[4]["probe/delta_plus"], abs=1e-9)
    assert read_progress(tmp_path / "a" / "limen").status == "done"


@pytest.mark.parametrize("own", [True, False], ids=["SELFTrainer", "GRPOTrainer"])
def test_trainers_that_sample(tmp_path, own):
    pairs, weights = probe_pairs(), Weights()

    def make(out, callbacks):
        if own:
            return trainer(out, algorithm="grpo", callbacks=callbacks, max_steps=3)
        from trl import GRPOConfig, GRPOTrainer

        args = GRPOConfig(
            output_dir=str(out), per_device_train_batch_size=16, gradient_accumulation_steps=2, num_generations=4,
            max_completion_length=3, max_steps=3, learning_rate=1e-3, use_cpu=True, bf16=False, report_to="none",
            save_strategy="no", logging_steps=1, disable_tqdm=True, seed=1, lr_scheduler_type="constant", beta=0.0,
            gradient_checkpointing=False, top_k=0,
        )  # fmt: skip
        made = GRPOTrainer(
            model=tiny_model(), reward_funcs=digit_reward, args=args, train_dataset=Dataset.from_list(rows()),
            processing_class=tiny_tokenizer(), callbacks=callbacks,
        )  # fmt: skip
        made.remove_callback(PrinterCallback)
        return made

    base = tiny_model()  # before the trainer seeds what it samples with
    made = make(tmp_path / "a", [weights])
    probe = DynamicsProbe(pairs, every=1, base=base).attach(made)
    batches = []
    original = probe._batch_row
    probe._batch_row = lambda scorer, before: batches.append(scorer.requests) or original(scorer, before)
    made.train()
    lines = probed(tmp_path / "a" / "limen")
    assert sorted(lines) == [1, 2, 3]
    check(lines, weights.at, pairs)
    for step, requests in zip((1, 2, 3), batches, strict=True):
        assert len(requests) == 32
        batch = ProbePairs(tuple(requests), (), np.zeros(32, dtype=bool))
        assert lines[step]["probe/ppl_own"] == pytest.approx(
            np.exp(-directly(weights.at[step - 1], batch)).mean(), rel=1e-4
        )
        under = np.exp(-directly(weights.at[0], batch)).mean()
        assert lines[step]["probe/ppl_own_under_base"] == pytest.approx(under, rel=1e-4)
        assert 0 <= lines[step]["probe/clip_batch"] <= 1
    without = Weights()
    make(tmp_path / "b", [without]).train()
    assert all(torch.equal(v, without.at[3][k]) for k, v in weights.at[3].items())
    series = {s.key: s for s in read_training(tmp_path / "a" / "limen", [], []).series}
    assert list(series["probe/delta_plus"].step) == [1, 2, 3]
    shown = read_progress(tmp_path / "a" / "limen").metrics
    assert shown["probe/delta_plus"] == pytest.approx(lines[3]["probe/delta_plus"])
    assert math.isfinite(shown["probe/clip"])


def test_mixed_precision_keeps_the_fast_way_and_the_precision_of_the_weights(tmp_path):
    """The trainer's autocast is around `model.forward` alone; scoring goes past it, on the plan made once."""
    pairs, seen = probe_pairs(), Weights()
    made = trainer(tmp_path, tiny_model(), algorithm="grpo", bf16=True, max_steps=1, callbacks=[seen])
    probe = DynamicsProbe(pairs, every=1, run_dir=tmp_path / "probe").attach(made)
    made.train()
    assert probe._scorer._packs, "no plan: every response is scored on its own"
    rows_N = pq.read_table(tmp_path / "probe" / "dynamics" / "step-00000001.parquet").to_pydict()
    means = np.array(rows_N["logprob_after"]) / np.array(rows_N["n_tokens"])
    np.testing.assert_allclose(means, directly(seen.at[1], pairs), atol=1e-5)


def test_what_lies_after_the_checkpoint_is_forgotten_on_resume(tmp_path):
    pairs = probe_pairs(4)
    whole = plain_trainer(tmp_path / "whole", [DynamicsProbe(pairs, every=1)])
    whole.train()
    made = plain_trainer(tmp_path / "cut", [DynamicsProbe(pairs, every=1)])
    made.args.save_strategy, made.args.save_steps = "steps", 2
    made.train()
    made = plain_trainer(tmp_path / "cut", [DynamicsProbe(pairs, every=1)])
    made.train(resume_from_checkpoint=str(tmp_path / "cut" / "checkpoint-2"))
    a, b = probed(tmp_path / "whole" / "limen"), probed(tmp_path / "cut" / "limen")
    clock = ("probe/seconds", "probe/noise_mean", "probe/noise_max")
    assert {s: {k: v for k, v in r.items() if k not in clock} for s, r in a.items()} == {
        s: {k: v for k, v in r.items() if k not in clock} for s, r in b.items()
    }
    text = (tmp_path / "cut" / "limen" / "metrics.jsonl").read_text()
    assert text.count('"step": 3,') == 1
