"""What every engine has to pass. A `Subject` is an engine with a policy whose distribution is known otherwise."""

import json
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import stats

from limen.config import SampleSettings
from limen.engines.protocol import Engine, SampleRequest, ScoreRequest
from limen.errors import ModelError
from limen.sampling import sample_run
from limen.sampling.alarm import RepeatAlarm
from limen.types import Prompt, SamplingParams, derive_seed


@dataclass
class Subject:
    """`next_probs(prompt_ids, prefix)`: the model's distribution of the next token, from another computation."""

    engine: Any
    tokenizer: Any
    next_probs: Any
    eos: int
    texts: tuple[str, ...]
    n: int = 2000
    exact_seeds: bool = True
    long_text: str = ""
    model: str = "m"
    tolerance: float = 1e-4


def asks(subject, n, texts=None, seed=0):
    requests = []
    for text in texts or subject.texts:
        ids = tuple(subject.tokenizer.encode(text, add_special_tokens=False))
        seeds = tuple(derive_seed(seed, text, i) for i in range(n))
        requests.append(SampleRequest(Prompt(text, text, ids, ""), tuple(range(n)), seeds))
    return requests


def shaped(probs, params):
    """The textbook definition of each option."""
    if params.temperature == 0:
        return np.eye(len(probs))[int(np.argmax(probs))]
    probs = np.exp(np.log(np.maximum(probs, 1e-300)) / params.temperature)
    order = np.argsort(-probs)
    if params.top_k:
        probs[order[params.top_k :]] = 0
    probs = probs / probs.sum()
    if params.top_p < 1:
        keep = int(np.searchsorted(np.cumsum(probs[order]), params.top_p)) + 1
        probs[order[keep:]] = 0
    return probs / probs.sum()


def distribution(subject, text, params):
    """Response text -> probability, multiplied up token by token."""
    prompt = tuple(subject.tokenizer.encode(text, add_special_tokens=False))
    found, stack = Counter(), [((), 1.0)]
    while stack:
        prefix, q = stack.pop()
        for token in np.flatnonzero(probs := shaped(subject.next_probs(prompt, prefix), params)):
            ids, p = (*prefix, int(token)), q * probs[token]
            if p < 1e-9:
                continue
            written = subject.tokenizer.decode(list(ids), skip_special_tokens=True)
            ends = [written.find(s) for s in params.stop if s in written]
            if ends:
                found[written[: min(ends)]] += p
            elif token == subject.eos or len(ids) == params.max_tokens:
                found[written] += p
            else:
                stack.append((ids, p))
    return found


def check_is_an_engine(subject):
    assert isinstance(subject.engine, Engine)
    assert subject.engine.name


def check_complete_and_unique(subject):
    """n divisible by nothing; every sample once, with its own seed."""
    samples = list(subject.engine.sample(asks(subject, 7), SamplingParams(max_tokens=3)))
    keys = [(s.problem_id, s.sample_index) for s in samples]
    assert sorted(keys) == sorted((t, i) for t in subject.texts for i in range(7))
    assert len({s.seed for s in samples}) == len(samples)
    assert list(subject.engine.sample([], SamplingParams(max_tokens=3))) == []


def check_distribution(subject, params):
    text = subject.texts[0]
    counts = Counter(s.text for s in subject.engine.sample(asks(subject, subject.n, [text]), params))
    want = distribution(subject, text, params)
    assert math.isclose(sum(want.values()), 1.0, abs_tol=1e-3)
    assert set(counts) <= set(want)
    often = [t for t, p in want.items() if subject.n * p >= 5]
    observed = [counts[t] for t in often]
    expected = [subject.n * want[t] for t in often]
    if subject.n - sum(expected) >= 5:
        observed.append(subject.n - sum(observed))
        expected.append(subject.n - sum(expected))
    if len(observed) > 1:
        assert stats.chisquare(observed, np.array(expected) * sum(observed) / sum(expected)).pvalue > 1e-4
    else:
        assert stats.binomtest(observed[0], subject.n, min(1.0, expected[0] / subject.n)).pvalue > 1e-4


def check_ends(subject):
    """EOS recorded, finish reasons right, max_tokens and stop strings obeyed, empty responses possible."""
    stop = distribution(subject, subject.texts[0], SamplingParams(max_tokens=3)).most_common(1)[0][0][:1] or "a"
    for params in (SamplingParams(max_tokens=3), SamplingParams(max_tokens=3, stop=(stop,))):
        for s in subject.engine.sample(asks(subject, min(40, subject.n // 10)), params):
            assert not any(x in s.text for x in params.stop)
            assert s.finish_reason in (("eos", "length", "stop") if params.stop else ("eos", "length"))
            if s.token_ids is None:
                continue
            assert 1 <= len(s.token_ids) <= 3
            assert (s.finish_reason == "eos") == (s.token_ids[-1] == subject.eos)
            assert subject.eos not in s.token_ids[:-1]
            if s.finish_reason == "length":
                assert len(s.token_ids) == 3
            if s.logprobs is not None:
                assert len(s.logprobs) == len(s.token_ids)
                assert max(s.logprobs) <= 0


def check_greedy(subject):
    params = SamplingParams(temperature=0, max_tokens=3)
    for text in subject.texts:
        (s,) = subject.engine.sample(asks(subject, 1, [text]), params)
        assert s.text == max(distribution(subject, text, params))


def check_seeds(subject):
    """Other seeds draw otherwise; the same seed draws the same where the engine says so."""
    params = SamplingParams(max_tokens=3)
    text = subject.texts[0]
    n = min(60, subject.n // 5)
    one, two = ([s.text for s in _ordered(subject, n, text, params, seed)] for seed in (0, 1))
    if max(distribution(subject, text, params).values()) < 0.9:
        assert one != two
        assert len(set(one)) > 1
    alarm = RepeatAlarm()
    for s in _ordered(subject, n, text, params, 0):
        if s.token_ids is not None:
            alarm.add(text, s.token_ids, s.log_q)
    assert alarm.message({text: n}) is None
    if subject.exact_seeds:
        assert one == [s.text for s in _ordered(subject, n, text, params, 0)]


def _ordered(subject, n, text, params, seed):
    return sorted(subject.engine.sample(asks(subject, n, [text], seed), params), key=lambda s: s.sample_index)


def check_scores(subject):
    """Log-probabilities of the engine's own samples against the reference computation."""
    if not subject.engine.capabilities.score:
        with pytest.raises(ModelError, match="score"):
            subject.engine.score([ScoreRequest((2,), (2,))])
        return
    requests, want = [], []
    for s in subject.engine.sample(asks(subject, 10), SamplingParams(max_tokens=3)):
        prompt = tuple(subject.tokenizer.encode(s.problem_id, add_special_tokens=False))
        requests.append(ScoreRequest(prompt, s.token_ids))
        want.append([math.log(subject.next_probs(prompt, s.token_ids[:t])[x]) for t, x in enumerate(s.token_ids)])
    for ours, theirs in zip(subject.engine.score(requests), want, strict=True):
        assert ours == pytest.approx(theirs, abs=subject.tolerance)


def check_resume_and_top_up(subject, tmp_path):
    """Broken off in the middle, gone on with, topped up: complete, unique, and (with seeds) the same."""
    file = tmp_path / "p.jsonl"
    rows = [{"id": f"p{i}", "problem": t, "answer": "1"} for i, t in enumerate(subject.texts)]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))

    def settings(n):
        values = {"model": subject.model, "problems": str(file), "template": "plain", "verifier": "exact"}
        return SampleSettings.make(**values, n=n, max_tokens=3)

    with pytest.raises(KeyboardInterrupt):
        sample_run(settings(9), tmp_path / "a" / "run", Breaking(subject.engine, 5), progress=False)
    sample_run(settings(9), tmp_path / "a" / "run", subject.engine, progress=False)
    run = sample_run(settings(11), tmp_path / "a" / "run", subject.engine, progress=False)
    assert run.info["last"]["samples"] == 2 * len(rows)
    total = 11 * len(rows)
    for table in ("rollouts", "verdicts"):
        assert run.table(table).num_rows == len(run.keys(table)) == total
    if subject.exact_seeds:
        whole = sample_run(settings(11), tmp_path / "b" / "run", subject.engine, progress=False)
        texts = [{(r.problem_id, r.sample_index): r.text for r in x.rollouts()} for x in (run, whole)]
        assert texts[0] == texts[1]


class Breaking:
    """The engine, until it has given some samples."""

    def __init__(self, engine, after):
        self.engine, self.after = engine, after
        self.name, self.capabilities = engine.name, engine.capabilities
        self.tokenizer = engine.tokenizer

    def sample(self, requests, params):
        for count, sample in enumerate(self.engine.sample(requests, params)):
            if count == self.after:
                raise KeyboardInterrupt
            yield sample

    def score(self, requests):
        return self.engine.score(requests)


def check_long_prompts_are_refused(subject):
    if subject.long_text:
        with pytest.raises(ModelError, match=r"fit|context|long|maximum"):
            list(subject.engine.sample(asks(subject, 1, [subject.long_text]), SamplingParams(max_tokens=5)))


def check_nonsense_is_refused(subject):
    for params in (SamplingParams(top_p=0.0), SamplingParams(max_tokens=0), SamplingParams(stop=("",))):
        with pytest.raises(ModelError):
            list(subject.engine.sample(asks(subject, 1), params))


PARAMS = [
    SamplingParams(max_tokens=2),
    SamplingParams(max_tokens=2, temperature=0.6),
    SamplingParams(max_tokens=2, temperature=1.3, top_p=0.8),
    SamplingParams(max_tokens=2, top_k=2),
]
CHECKS = [
    check_is_an_engine,
    check_complete_and_unique,
    check_ends,
    check_greedy,
    check_seeds,
    check_scores,
    check_long_prompts_are_refused,
    check_nonsense_is_refused,
]
