"""A training with a budget of tokens ends after the step that spends it, and stays ended."""

from limen.lab.frontier import tokens_by_step
from limen.train import train
from limen.train.settings import parse_settings


def values(out, **more):
    return parse_settings(
        {
            "model": "tiny", "device": "cpu", "problems": "arithmetic:add?split=train&size=12", "template": "plain",
            "verifier": "exact", "algorithm": {"name": "self", "forward_kl_beta": 0.2, "kl_samples": 1}, "base_n": 1,
            "prompts_per_step": 6, "group_size": 2, "max_new_tokens": 6, "steps": 4, "save_steps": 4, "out": str(out),
            "record_rollouts": False, "grad_ratio_steps": 0, **more,
        }
    )  # fmt: skip


def test_training_ends_with_its_tokens(tmp_path):
    whole = train(values(tmp_path / "whole"))
    by_step = tokens_by_step(whole.path / "metrics.jsonl")
    spent = whole.info["counters"]
    assert len(by_step) == whole.info["steps_done"] == 4
    assert sum(by_step) == spent["tokens_generated"] + spent["tokens_screened"]
    assert spent["tokens_screened"] > 0
    assert 12 * 2 <= spent["tokens_stored"] <= 12 * 6  # one response of 2 to 6 tokens for each of 12 problems

    budget = spent["tokens_stored"] + sum(by_step[:2]) - 1  # spent within the second step
    short = train(values(tmp_path / "short", token_budget=budget))
    assert short.info["steps_done"] == 2
    assert tokens_by_step(short.path / "metrics.jsonl") == by_step[:2]
    assert (short.path / "model" / "config.json").exists()
    again = train(values(tmp_path / "short", token_budget=budget))  # ended is ended: nothing is trained further
    assert again.info["steps_done"] == 2
    assert len(tokens_by_step(again.path / "metrics.jsonl")) == 2
