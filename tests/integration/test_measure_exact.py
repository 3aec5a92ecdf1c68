"""The whole way on a policy whose every probability is known: sampled, judged, stored, measured; with closed forms."""

import json
from math import log

import numpy as np
import pytest

from limen.config import SampleSettings
from limen.engines.exact import ExactEngine, ResponsesPolicy
from limen.measure import compare, counts_from_run, describe, same_policy_flips, summary
from limen.sampling import sample_run

N = 128
RATES = (0.0, 0.004, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)
PROMPTS = [f"{i}+{i}=" for i in range(1, len(RATES) + 1)]


def responses(i, p):
    """The right answer with probability p; the rest on two wrong ones, 3 to 1."""
    table = {str(2 * (i + 1)): p, "7": 0.75 * (1 - p), "55": 0.25 * (1 - p)}
    return {text: q for text, q in table.items() if q > 0}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exact")
    rows = [{"id": str(i), "problem": prompt, "answer": str(2 * (i + 1))} for i, prompt in enumerate(PROMPTS)]
    (folder / "p.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    engine = ExactEngine(ResponsesPolicy({q: responses(i, p) for i, (q, p) in enumerate(zip(PROMPTS, RATES))}), True)
    out = []
    for seed in (0, 1):
        settings = SampleSettings(
            model="exact", problems=str(folder / "p.jsonl"), n=N, template="plain", verifier="exact", seed=seed,
            max_tokens=4, verify_workers=1, logprobs=True,
        )  # fmt: skip
        out.append(sample_run(settings, folder / f"run{seed}", engine=engine, progress=False).path)
    return out


def test_pass_at_k(runs):
    p = np.array(RATES)
    for run in runs:
        curve = summary(counts_from_run(run), [1, 8, 32], draws=200, over="samples").curve
        for k, value in zip(curve.k_K.tolist(), curve.value_K):
            q = (1 - p) ** k
            # spread of the estimator: at most that of N/k independent blocks of k samples
            error = np.sqrt((q * (1 - q) * k / N).sum()) / p.size
            assert abs(value - (1 - q).mean()) < 3 * error


def test_support_of_one_policy_with_itself(runs):
    got = compare(*(counts_from_run(r) for r in runs), draws=50)
    q = (1 - np.array(RATES)) ** N
    each_way = (q * (1 - q)).sum()
    spread = np.sqrt((q * (1 - q) * (1 - q * (1 - q))).sum())
    assert abs(got.support.E - each_way) < 3 * spread
    assert abs(got.support.S - each_way) < 3 * spread
    assert got.support.mcnemar_p > 0.05
    assert not {"shrunk", "expanded"} & set(got.questions.verdict_P.tolist())
    for run in runs:
        t = counts_from_run(run)
        half = (1 - np.array(RATES)) ** (N // 2)
        assert same_policy_flips(t.n_P, t.c_P).each_way == pytest.approx((half * (1 - half)).sum(), abs=1.0)


def test_entropy_votes_and_length(runs):
    got = describe(runs[0], draws=50)
    for i, p in enumerate(RATES):
        # 7 is right for no problem, so the classes are the right answer, 7 and 55 (one token each but 55)
        table = responses(i, p)
        truth = -sum(q * log(q) for q in table.values())
        bias = (len(table) - 1) / (2 * 32)  # Miller-Madow: what a plug-in of 32 samples misses
        assert abs(got.per_problem["answer_entropy"][i] - (truth - bias)) < 0.25
        tokens = sum(q * (len(text) + 1) for text, q in table.items())
        assert abs(got.per_problem["tokens"][i] - tokens) < 3 * 0.5 / np.sqrt(N) + 1e-9
        # every response is decided at its first token or two: -log p over its tokens, end included
        entropy = -sum(q * log(q) / (len(text) + 1) for text, q in table.items())
        assert abs(got.per_problem["token_entropy"][i] - entropy) < 0.2
    assert got.per_problem[f"maj@{N}"][[0, -1]].tolist() == [0, 1]
    assert got.per_problem["maj@1"] == pytest.approx(counts_from_run(runs[0]).c_P / N)
