"""Planning of batches: everything once, within the limits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limen.engines.batching import cache_bytes_per_token, plan, row_budget, without
from limen.engines.protocol import SampleRequest
from limen.types import Prompt


def request(name, length, n):
    return SampleRequest(Prompt(name, "", (1,) * length, ""), tuple(range(n)), tuple(range(100, 100 + n)))


def rows(batches):
    return [(b.requests[i].prompt.problem_id, b.requests[i].sample_indices[p]) for b in batches for i, p in b.rows]


shapes = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 20)), max_size=12)


@settings(max_examples=200, deadline=None)
@given(shapes, st.integers(1, 25), st.integers(1, 100), st.booleans())
def test_every_sample_is_in_exactly_one_batch(shapes, max_rows, max_tokens, may_pad):
    requests = [request(f"p{i}", length, n) for i, (length, n) in enumerate(shapes)]
    batches = plan(requests, max_rows, max_tokens, may_pad)
    got = rows(batches)
    assert sorted(got) == sorted((r.prompt.problem_id, i) for r in requests for i in r.sample_indices)
    for batch in batches:
        lengths = [len(r.prompt.token_ids) for r in batch.requests]
        assert 0 < len(batch.rows) <= max_rows
        assert {i for i, _ in batch.rows} == set(range(len(batch.requests)))
        assert len(lengths) == 1 or len(lengths) * max(lengths) <= max_tokens
        assert may_pad or len(set(lengths)) == 1


def test_problems_fill_up_batches_and_long_prompts_come_first():
    batches = plan([request("short", 2, 3), request("long", 9, 3)], 4, 1000)
    assert [len(b.rows) for b in batches] == [4, 2]
    assert rows(batches)[:3] == [("long", 0), ("long", 1), ("long", 2)]


def test_what_is_left_after_running_out_of_memory():
    (batch,) = plan([request("a", 3, 4), request("b", 3, 4)], 8, 100)
    left = without(batch, {("a", 0), ("a", 1), ("b", 3)}, 2)
    assert sorted(rows(left)) == [("a", 2), ("a", 3), ("b", 0), ("b", 1), ("b", 2)]
    assert max(len(b.rows) for b in left) == 2
    seeds = {(r.prompt.problem_id, i): s for b in left for r in b.requests for i, s in zip(r.sample_indices, r.seeds)}
    assert seeds[("a", 3)] == 103


def test_memory_and_arithmetic_bound_the_rows():
    from transformers import LlamaConfig

    config = LlamaConfig(hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3)
    assert cache_bytes_per_token(config, 4) == 2 * 30 * 3 * 64 * 4
    assert row_budget(1 << 20, 64 << 20, 1, "cuda") == 64
    assert row_budget(1 << 40, 64 << 20, 1, "cuda") == 1
    assert row_budget(1, 1 << 40, 135_000_000, "cpu") == pytest.approx(74, abs=1)
