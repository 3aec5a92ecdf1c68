"""Scores beside the shown responses: means by hand, and pieces that join to the text."""

import math

import pytest

from limen.report import read_report
from limen.report.likelihood import split_tokens
from limen.store import Run
from limen.store.schema import score_row
from limen.types import Score
from report_synthetic import problems, write_run


def test_scores_of_shown_responses(tmp_path):
    path = write_run(tmp_path / "a", "a", problems(3), [1.0, 0.0, 1.0], 4, 1)
    run = Run.open(path)
    tokens = {r.sample_index: r.token_ids for r in run.rollouts() if r.problem_id == "p001"}
    with run.writer("scores") as out:
        for j in range(4):
            n = len(tokens[j])
            each = (-0.1, -0.2 * j, *[-1.0] * (n - 2))
            out.append(score_row(Score("p001", "a", 0, j, "the base", sum(each), n, each)))
    responses = {r.sample_index: r for r in read_report([path], draws=0).problems[1].responses}
    assert responses[2].scores["the base"] == pytest.approx((-0.5 - (len(tokens[2]) - 2)) / len(tokens[2]))
    assert responses[0].token_scores["the base"] == pytest.approx([-0.1, 0.0] + [-1.0] * (len(tokens[0]) - 2))
    assert responses[0].pieces == [f"[{i}]" for i in tokens[0]]
    assert all(math.isfinite(v) for r in responses.values() for v in r.scores.values())


def test_pieces_join_to_the_text():
    tokenizers = pytest.importorskip("tokenizers")
    words = {"▁the": 0, "▁cat": 1, "s": 2, "▁sat": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="s"))
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    pieces = split_tokens(tokenizer, [0, 1, 2, 3])
    assert pieces == ["the", " cat", "s", " sat"]
    assert "".join(pieces) == tokenizer.decode([0, 1, 2, 3])
