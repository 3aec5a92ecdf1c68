"""What an engine lacks is refused before anything is drawn, and what it has is recorded."""

import json

import pytest

from engine_models import random_model
from fake_server import FakeServer, serving
from limen.config import SampleSettings
from limen.engines import exact
from limen.engines.hf import TransformersEngine
from limen.engines.http import HTTPEngine
from limen.engines.needs import needs_of, require
from limen.engines.protocol import Capabilities
from limen.errors import ConfigError, DataError, ModelError
from limen.sampling import sample_run, score_run
from limen.types import SamplingParams

NOTHING = Capabilities(False, False, False, False, top_k=False, stop=False)


class Lacking:
    name = "lacking"
    capabilities = NOTHING
    tokenizer = exact.CharTokenizer("q=ab")

    def sample(self, requests, params):
        raise AssertionError("nothing may be drawn")

    def score(self, requests):
        raise AssertionError("nothing may be scored")


def settings(tmp_path, **more):
    file = tmp_path / "p.jsonl"
    file.write_text(json.dumps({"id": "p", "problem": "q=", "answer": "a"}) + "\n")
    values = {"model": "m", "problems": str(file), "template": "plain", "verifier": "exact", "max_tokens": 3, "n": 2}
    return SampleSettings.make(**{**values, **more})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"logprobs": True}, r"log-probabilities \(logprobs\) needs 'raw_logprobs'"),
        ({"top_k": 5}, "top_k 5 needs 'top_k'"),
        ({"stop": ("b",)}, r"stop strings \['b'\] needs 'stop'"),
        ({"need": ("token_ids",)}, "need=token_ids needs 'token_ids'"),
        ({"need": ("seeds",)}, "need=seeds needs 'seeds'"),
    ],
)
def test_what_is_lacking_is_refused_before_anything_is_drawn(tmp_path, more, said):
    with pytest.raises(ModelError, match=said):
        sample_run(settings(tmp_path, **more), tmp_path / "run", Lacking(), progress=False)


def test_the_same_settings_pass_where_nothing_is_lacking(tmp_path):
    policy = exact.ResponsesPolicy({"q=": {"a": 0.5, "b": 0.5}})
    engine = exact.ExactEngine(policy, logprobs=True)
    more = {"logprobs": True, "top_k": 5, "stop": ("b",), "need": ("token_ids", "seeds", "raw_logprobs", "score")}
    run = sample_run(settings(tmp_path, **more), tmp_path / "run", engine, progress=False)
    assert run.info["capabilities"] == dict.fromkeys(
        ("token_ids", "raw_logprobs", "seeds", "score", "top_k", "stop"), True
    )


def test_a_server_is_looked_at_first(tmp_path):
    """A server of text only: refused where ids are needed, and taken where they are not."""
    policy = exact.ResponsesPolicy({"q=": {"a": 0.5, "b": 0.5}})
    server = FakeServer(exact.ExactEngine(policy, logprobs=True), kind="openai")
    with serving(server) as url:
        engine = HTTPEngine("m", [url], tokenizer=policy.tokenizer, first_wait=0.01)
        with pytest.raises(ModelError, match="token_ids"):
            sample_run(settings(tmp_path, need=("token_ids",)), tmp_path / "a", engine, progress=False)
        run = sample_run(settings(tmp_path), tmp_path / "b", engine, progress=False)
    assert run.info["capabilities"]["token_ids"] is False
    assert run.info["capabilities"]["top_k"] is False
    with pytest.raises(DataError, match="2 of 2 responses are stored as text only"):
        score_run(run.path, exact.ExactEngine(policy), "s", progress=False)


def test_engines_that_draw_alike_go_on_with_each_other_s_run(tmp_path):
    policy = exact.ResponsesPolicy({"q=": {"a": 0.5, "b": 0.5}})
    sample_run(settings(tmp_path), tmp_path / "run", exact.ExactEngine(policy), progress=False)
    run = sample_run(
        settings(tmp_path, n=5, engine="vllm"), tmp_path / "run", exact.ExactEngine(policy), progress=False
    )
    assert run.table("rollouts").num_rows == 5
    with pytest.raises(ConfigError, match="engine: 'vllm' -> 'http'"):
        sample_run(settings(tmp_path, n=9, engine="http", url=("http://x/v1",)), tmp_path / "run", progress=False)


def test_scoring_needs_an_engine_that_scores(tmp_path):
    with pytest.raises(ModelError, match="scoring needs 'score'"):
        score_run(tmp_path, Lacking(), "s", progress=False)


def test_unknown_needs():
    with pytest.raises(ModelError, match="unknown capability 'wings'"):
        require(Lacking(), {"wings": "flying"})
    with pytest.raises(ConfigError, match="need"):
        SampleSettings.make(model="m", problems="p", need=("wings",))
    assert needs_of(SamplingParams()) == {}


def test_every_engine_declares_all():
    assert TransformersEngine(random_model()).capabilities == Capabilities(True, True, True, True, True, True)


def test_more_gpus_than_there_are(monkeypatch):
    from limen.sampling.engine import local_engine

    for name in ("transformers", "vllm"):
        with pytest.raises(ConfigError, match="gpus is 64, but"):
            local_engine(SampleSettings.make(model="tiny", problems="p", engine=name, gpus=64))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"gpus": 2, "engine": "http", "url": ("http://x/v1",)}, "gpus is for the engines"),
        ({"workers": 2}, "set ray"),
        ({"ray": True, "share": True}, "leave share out"),
        ({"ray": True, "engine": "http", "url": ("http://x/v1",)}, "needs no Ray"),
    ],
)
def test_settings_that_contradict_each_other(more, said):
    with pytest.raises(ConfigError, match=said):
        SampleSettings.make(model="m", problems="p", **more)
