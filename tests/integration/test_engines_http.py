"""The HTTP engine against a server that misbehaves: rollouts are complete, unique, and what their seeds say."""

import itertools
import threading
import time

import pytest
from scipy import stats

from fake_server import FakeServer, serving
from limen.config import SampleSettings
from limen.engines import servers
from limen.engines.exact import EOS, CharTokenizer, ExactEngine, ResponsesPolicy
from limen.engines.http import HTTPEngine
from limen.engines.protocol import Engine, SampleRequest, ScoreRequest
from limen.engines.servers import Gate
from limen.errors import ModelError
from limen.sampling import sample_run
from limen.store import Run
from limen.types import Prompt, SamplingParams, derive_seed

TABLE = {"q=": {"ab": 0.5, "a": 0.2, "b": 0.2, "": 0.1}, "r=": {"b": 1.0}}


def exact():
    return ExactEngine(ResponsesPolicy(TABLE), logprobs=True)


def asks(n, texts=("q=",)):
    tokenizer = exact().tokenizer
    return [
        SampleRequest(
            Prompt(f"p{t}", t, tuple(tokenizer.encode(t)), ""),
            tuple(range(n)),
            tuple(derive_seed(0, t, i) for i in range(n)),
        )
        for t in texts
    ]


def client(url, *more, **options):
    options = {"tokenizer": exact().tokenizer, "first_wait": 0.01, "timeout": 1.0, "concurrency": 8, **options}
    return HTTPEngine("m", [url, *more], **options)


def draw(fake, n=60, texts=("q=", "r="), params=None, **options):
    with serving(fake) as url:
        engine = client(url, **options)
        samples = list(engine.sample(asks(n, texts), params or SamplingParams()))
    return engine, samples


def check(samples, n=60, texts=("q=", "r=")):
    """Complete, unique, and what the seed says (the fake server honours seeds)."""
    keys = [(s.problem_id, s.sample_index) for s in samples]
    assert sorted(keys) == sorted((f"p{t}", i) for t in texts for i in range(n))
    assert all(s.text in TABLE[s.problem_id[1:]] for s in samples)


def test_token_ids_logprobs_and_seeds_where_the_server_gives_them():
    fake = FakeServer(exact())
    engine, samples = draw(fake, n=400, texts=("q=",))
    check(samples, 400, ("q=",))
    assert isinstance(engine, Engine)
    assert engine.capabilities.token_ids
    assert engine.capabilities.raw_logprobs
    texts = [s.text for s in samples]
    counts = [texts.count(t) for t in TABLE["q="]]
    assert stats.chisquare(counts, [400 * p for p in TABLE["q="].values()]).pvalue > 1e-4
    for s in samples:
        assert s.token_ids[-1] == EOS
        assert s.finish_reason == "eos"
        assert sum(s.logprobs) == pytest.approx(s.log_q)
    assert len({b["seed"] for b in fake.bodies} - {1}) == 400  # 1 is the probing request's
    # Nothing is left to the server's defaults.
    assert {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"} <= set(fake.bodies[-1])


TRANSIENT = ["500", "502", "429", "503", "hang", "close", "cut", "garbage", "no choices", "aborted", "no text", "list"]


@pytest.mark.parametrize("fault", TRANSIENT)
def test_faults_that_pass_lose_and_double_nothing(fault):
    """The first request (the probing one) fails, and a third of the others (of those that hang, fewer)."""
    every = 40 if fault == "hang" else 3

    def faults(number):
        return fault if number == 0 or derive_seed(0, fault, number) % every == 0 else None

    fake = FakeServer(exact(), faults=faults)
    _, samples = draw(fake, n=30)
    check(samples, 30)
    assert fake.seen[fault] >= 2
    _, plain = draw(FakeServer(exact()), n=30)
    by_key = {(s.problem_id, s.sample_index): s.token_ids for s in plain}
    assert all(by_key[(s.problem_id, s.sample_index)] == s.token_ids for s in samples)


def test_one_of_two_servers_is_down():
    with serving(FakeServer(exact())) as up:
        engine = client("http://127.0.0.1:9/v1", up)
        engine.clients = engine.clients[::-1]
        engine._probed.add((False, False))  # the engine found out when both were up
        check(list(engine.sample(asks(30, ("q=", "r=")), SamplingParams())), 30)


LASTING = [
    ("500", "failed 3 times in a row, last with status 500"),
    ("401", "status 401.*LIMEN_API_KEY"),
    ("second bos", "counts 3 tokens in a prompt that has 2"),
    ("close", "failed 3 times in a row"),
]


@pytest.mark.parametrize(("fault", "message"), LASTING)
def test_faults_that_stay_end_the_run_with_one_error(fault, message):
    with pytest.raises(ModelError, match=message):
        draw(FakeServer(exact(), faults=lambda number: fault), tries=3)


FILTERS = [
    ("filtered", "cut the response"),
    ("filtered without text", "cut the response"),
    ("filtered prompt", "does not take the prompt"),
]


@pytest.mark.parametrize(("fault", "message"), FILTERS)
def test_a_content_filter_is_told_of_at_once_and_not_tried_again(fault, message, tmp_path):
    """Sample by sample; the sixth after the probing request is filtered, and what came before is stored."""
    file = tmp_path / "p.jsonl"
    file.write_text('{"id": "q", "problem": "q=", "answer": "ab"}\n')
    settings = SampleSettings.make(model="m", problems=str(file), n=20, template="plain", verifier="exact")
    fake = FakeServer(exact(), faults=lambda number: fault if number == 6 else None)
    with (
        serving(fake) as url,
        pytest.raises(ModelError, match=f"problem q, sample 5: .*content filter {message}") as told,
    ):
        sample_run(settings, tmp_path / "run", client(url, concurrency=1), progress=False)
    assert "leave the problem out" in str(told.value)
    assert fake.seen[fault] == 1
    assert "in a row" not in str(told.value)
    assert {r.sample_index for r in Run.open(tmp_path / "run").rollouts()} == set(range(5))
    with serving(FakeServer(exact())) as url:
        run = sample_run(settings, tmp_path / "run", client(url), progress=False)
    assert sorted(r.sample_index for r in run.rollouts()) == list(range(20))


def test_a_filtered_first_prompt_is_no_matter_of_how_it_is_put():
    fake = FakeServer(exact(), faults=lambda number: "filtered prompt")
    with pytest.raises(ModelError, match="problem pq=: the server's content filter does not take the prompt"):
        draw(fake)
    assert fake.count == 1


def test_a_model_that_changes_between_calls_ends_the_run():
    fake = FakeServer(exact(), faults=lambda number: "other model" if number > 20 else None)
    with pytest.raises(ModelError, match="now answers as 'another' and did as 'm'"):
        draw(fake)


def test_what_breaks_in_the_middle_is_gone_on_with(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text('{"id": "q", "problem": "q=", "answer": "ab"}\n{"id": "r", "problem": "r=", "answer": "b"}\n')
    settings = SampleSettings.make(model="m", problems=str(file), n=40, template="plain", verifier="exact")
    with (
        serving(FakeServer(exact(), faults=lambda number: "500" if number > 25 else None)) as url,
        pytest.raises(ModelError, match="in a row"),
    ):
        sample_run(settings, tmp_path / "run", client(url, tries=2), progress=False)
    with serving(FakeServer(exact())) as url:
        run = sample_run(settings, tmp_path / "run", client(url), progress=False)
    assert 0 < run.info["last"]["samples"] < 80
    assert run.table("rollouts").num_rows == len(run.keys("rollouts")) == 80
    want = sample_run(settings, tmp_path / "other" / "run", exact(), progress=False)
    # The server sees 31 bits of the seed, so compare counts of judged outcomes and not texts.
    assert run.table("verdicts").num_rows == want.table("verdicts").num_rows == 80


def test_a_server_of_text_only_gets_text_and_the_fact_is_known():
    fake = FakeServer(exact(), kind="openai")
    engine, samples = draw(fake)
    check(samples)
    assert not engine.capabilities.token_ids
    assert {s.token_ids for s in samples} == {None}
    assert {s.logprobs for s in samples} == {None}
    assert fake.bodies[-1]["prompt"] in TABLE
    assert "top_k" not in fake.bodies[-1]
    with pytest.raises(ModelError, match="no top_k"):
        draw(FakeServer(exact(), kind="openai"), params=SamplingParams(top_k=2))


def test_a_server_that_takes_options_but_no_token_ids_as_prompt():
    fake = FakeServer(exact(), kind="text")
    engine, samples = draw(fake)
    check(samples)
    assert engine.dialect.extras == "vllm"
    assert not engine.dialect.ids
    assert engine.capabilities.token_ids


def test_stop_strings_and_length():
    params = SamplingParams(max_tokens=2, stop=("b",))
    _, samples = draw(FakeServer(exact()), n=200, texts=("q=",), params=params)
    reasons = {s.finish_reason for s in samples}
    assert reasons == {"eos", "stop"}
    assert all("b" not in s.text for s in samples)
    _, samples = draw(FakeServer(exact()), n=50, texts=("q=",), params=SamplingParams(max_tokens=1))
    assert {s.finish_reason for s in samples} == {"eos", "length"}


def test_a_server_that_fails_on_stop_strings_is_not_sent_any():
    fake = FakeServer(exact(), faults=lambda number: "no stop")
    params = SamplingParams(stop=("b",))
    engine, samples = draw(fake, n=100, texts=("q=",), params=params, tries=2)
    assert not engine.dialect.stop
    assert not any("b" in s.text for s in samples)
    for s in samples:
        assert s.finish_reason == ("eos" if s.token_ids[-1] == EOS else "stop")
        assert len(s.token_ids) == len(s.logprobs)
    assert {s.text for s in samples if s.finish_reason == "stop"} == {"a", ""}


def test_requests_on_their_way_adapt_to_the_server():
    gate = Gate(4, 64)
    for _ in range(200):
        gate.good()
    grown = gate.limit
    gate.overloaded()
    gate.overloaded()  # the same burst
    assert 15 < grown < 64
    assert gate.limit == grown / 2
    fake = FakeServer(exact())
    draw(fake, n=100, concurrency=3)
    assert fake.most_busy <= 3


def test_the_key_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("LIMEN_API_KEY", "secret")
    fake = FakeServer(exact())
    draw(fake, n=2)
    assert {b["key"] for b in fake.bodies} == {"Bearer secret"}


def test_no_server_and_nonsense_are_refused():
    with pytest.raises(ModelError, match="no server"):
        HTTPEngine("m", [])
    with pytest.raises(ModelError, match="must begin with http"):
        HTTPEngine("m", ["localhost:8000"])
    with pytest.raises(ModelError, match="cannot score"):
        client("http://127.0.0.1:9/v1").score([ScoreRequest((1,), (2,))])
    with pytest.raises(ModelError, match="failed 2 times"):
        list(client("http://127.0.0.1:9/v1", tries=2).sample(asks(1), SamplingParams()))


def test_breaking_off_leaves_no_threads():
    with serving(FakeServer(exact())) as url:
        samples = client(url).sample(asks(500), SamplingParams())
        list(itertools.islice(samples, 5))
        samples.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("limen-http")]


def test_stop_strings_that_a_server_does_not_heed_end_a_response_here():
    """It runs on to its length behind the stop string, and is none the less not truncated."""
    params = SamplingParams(max_tokens=2, stop=("a",))
    _, samples = draw(FakeServer(exact(), faults=lambda number: "stop unheeded"), n=60, texts=("q=",), params=params)
    _, heeded = draw(FakeServer(exact()), n=60, texts=("q=",), params=params)
    by_key = {s.sample_index: s for s in samples}
    assert {s.finish_reason for s in samples} == {"eos", "stop"}
    for s in heeded:
        other = by_key[s.sample_index]
        assert (s.text, s.finish_reason, s.token_ids) == (other.text, other.finish_reason, other.token_ids)


def test_what_ended_a_response_is_read_in_sglang_s_words_too():
    params = SamplingParams(max_tokens=2, stop=("b",))
    _, samples = draw(FakeServer(exact(), faults=lambda number: "sglang"), n=60, texts=("q=",), params=params)
    reasons = {(s.text, s.finish_reason) for s in samples}
    assert reasons == {("a", "eos"), ("a", "stop"), ("", "eos"), ("", "stop")}


def test_breaking_off_does_not_wait_for_a_server_that_hangs():
    fake = FakeServer(exact(), faults=lambda number: "hang" if number > 5 else None)
    fake.hang = 20.0
    with serving(fake) as url:
        samples = client(url, timeout=600.0).sample(asks(50), SamplingParams())
        list(itertools.islice(samples, 2))
        start = time.monotonic()
        samples.close()
        assert time.monotonic() - start < 5


def test_a_bug_in_a_thread_is_not_a_slow_server(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    with serving(FakeServer(exact())) as url:
        engine = client(url)
        monkeypatch.setattr(engine, "_read", lambda *args: 1 / 0)
        with pytest.raises(RuntimeError, match="thread of the HTTP engine"):
            list(engine.sample(asks(3), SamplingParams()))


def test_a_server_that_is_down_says_so_before_it_ends(caplog, monkeypatch):
    monkeypatch.setattr(servers._TOLD, "_last", float("-inf"))
    with pytest.raises(ModelError, match=r"failed 3 times.*127.0.0.1:9.*the same command goes on"):
        list(client("http://127.0.0.1:9/v1", tries=3).sample(asks(1), SamplingParams()))
    assert len([r for r in caplog.records if "trying again" in r.message]) == 1


def chat_settings(tmp_path, **change):
    file = tmp_path / "p.jsonl"
    file.write_text('{"id": "q", "problem": "q=", "answer": "ab"}\n{"id": "r", "problem": "r=", "answer": "b"}\n')
    values = {"model": "m", "problems": str(file), "n": 5, "verifier": "exact", "engine": "http", "max_tokens": 5}
    return SampleSettings.make(**{**values, **change})


class Templated(CharTokenizer):
    """A tokenizer with a chat template, which a server puts on by itself."""

    chat_template = "a"

    def apply_chat_template(self, turns, **options):
        return f"<user>{turns[0]['content']}</user>"


def test_over_a_chat_api_the_chat_template_is_left_to_the_server(tmp_path):
    fake = FakeServer(exact())
    alphabet = "".join(TABLE) + "ab<user>/"
    with serving(fake) as url:
        engine = client(url, api="chat", tokenizer=Templated(alphabet))
        settings = chat_settings(tmp_path, api="chat", url=(url,), template=str(turn(tmp_path)))
        run = sample_run(settings, tmp_path / "run", engine, progress=False)
    assert {b["messages"][0]["content"] for b in fake.bodies} == set(TABLE)
    assert run.table("rollouts").num_rows == 10


def turn(tmp_path):
    file = tmp_path / "turn.yaml"
    file.write_text('kind: chat\nuser: "{problem}"\n')
    return file


def test_a_prompt_too_long_for_the_server_is_left_out_where_it_states_its_context(tmp_path):
    fake = FakeServer(exact(), context=7)
    settings = chat_settings(tmp_path, template="plain", url=("http://127.0.0.1:9",))
    file = tmp_path / "p.jsonl"
    file.write_text('{"id": "l", "problem": "q=q=q=", "answer": "b"}\n' + file.read_text())
    with serving(fake) as url:
        with pytest.raises(ModelError, match=r"1 prompts do not fit.*context of 7.*l \(6 tokens\)"):
            sample_run(settings, tmp_path / "run", client(url), progress=False)
        assert sum(b["max_tokens"] > 2 for b in fake.bodies) == 0
        left = settings.model_copy(update={"leave_out_long": True})
        run = sample_run(left, tmp_path / "run", client(url), progress=False)
    assert run.info["left_out"] == {"l": 6}
    assert {r.problem_id for r in run.rollouts()} == {"q", "r"}
