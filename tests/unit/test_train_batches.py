"""Padded batches: joined, extended by blank rows, emptied; and shares for several processes."""

import torch

from limen.train import batches
from limen.train.base_responses import BaseResponse, BaseResponses, make_batch
from limen.train.generation import share_out


def part(prompt, ids, mask, n):
    return {
        "prompt_ids": torch.tensor(prompt), "prompt_mask": torch.ones(len(prompt), len(prompt[0]), dtype=torch.long),
        "completion_ids": torch.tensor(ids), "completion_mask": torch.tensor(mask),
        "advantages": torch.arange(len(ids)).float() + 1, "num_items_in_batch": torch.tensor(n),
        "extra": list("ab")[: len(ids)],
    }  # fmt: skip


def test_join_pads_prompts_left_and_responses_right():
    one = part([[5, 6]], [[7, 8, 9]], [[1, 1, 1]], 3)
    two = part([[4, 5, 6], [1, 2, 3]], [[8], [9]], [[1], [1]], 2)
    out = batches.join([one, two], pad_id=0)
    assert out["prompt_ids"].tolist() == [[0, 5, 6], [4, 5, 6], [1, 2, 3]]
    assert out["prompt_mask"].tolist() == [[0, 1, 1], [1, 1, 1], [1, 1, 1]]
    assert out["completion_ids"].tolist() == [[7, 8, 9], [8, 0, 0], [9, 0, 0]]
    assert out["completion_mask"].tolist() == [[1, 1, 1], [1, 0, 0], [1, 0, 0]]
    assert out["num_items_in_batch"] == 5
    assert out["extra"] == ["a", "a", "b"]


def test_blank_rows_train_on_nothing():
    out, added = batches.fill_up_to(part([[5], [6]], [[7], [8]], [[1], [1]], 2), 4, pad_id=0)
    assert added == 2
    assert out["completion_mask"].sum() == 2
    assert out["advantages"].tolist() == [1, 2, 0, 0]
    assert out["num_items_in_batch"] == 2
    same, none = batches.fill_up_to(out, 4, 0)
    assert none == 0
    assert same is out


def test_take_keeps_rows_and_scalars():
    out = batches.take(part([[5], [6]], [[7], [8]], [[1], [1]], 2), torch.tensor([False, True]))
    assert out["completion_ids"].tolist() == [[8]]
    assert out["extra"] == ["b"]
    assert out["num_items_in_batch"] == 2


def test_share_out_gives_every_process_as_much():
    """Five survivors among two processes: three each, and the last row of the second only fills up."""
    rows = [{"i": i} for i in range(5)]
    first, second = share_out(rows, 2, 0), share_out(rows, 2, 1)
    assert [r["i"] for r in first[0]] == [0, 1, 2]
    assert [r["i"] for r in second[0]] == [3, 4, 0]
    assert (first[1], second[1]) == ([False] * 3, [False, False, True])
    assert share_out([], 2, 0) == ([], [])


def test_kl_batch_pads_and_fills_up():
    import numpy as np

    responses = [
        BaseResponse(np.array(x, dtype=np.int32), c) for x, c in [([7, 1], True), ([8, 9, 1], False), ([6, 1], True)]
    ]
    base = BaseResponses({"a": responses})
    assert len(base.pick(0, ["a", "unknown"], 0, 0, False)) == 3
    assert all(p.response.correct for p in base.pick(0, ["a"], 0, 0, True))
    batch = make_batch(base.pick(0, ["a"], 0, 0, False), {"a": [3, 4]}, 0, 4, "cpu")
    assert batch.response_ids_BT.tolist() == [[7, 1, 0], [8, 9, 1], [6, 1, 0], [0, 0, 0]]
    assert batch.response_mask_BT.sum(1).tolist() == [2, 3, 2, 0]
    assert batch.tokens == 7
    assert batch.base_logprobs_BT is None
    parts = [batch.part(i, 2) for i in range(2)]
    assert sum(p.response_mask_BT.sum().item() for p in parts) == 7
    assert all(p.tokens == 7 for p in parts), "the denominator is that of the whole batch"


def test_a_process_without_base_responses_has_log_probabilities_all_the_same():
    """k3 reads them in every process; where all rows are masked their value does not matter."""
    empty = make_batch([], {}, 0, 2, "cpu")
    assert empty.tokens == 0
    assert empty.base_logprobs_BT is not None
    assert empty.base_logprobs_BT.shape == empty.response_ids_BT.shape == (2, 1)
