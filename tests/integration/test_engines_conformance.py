"""Every engine passes one suite: exact, transformers, HTTP against a small server and against `transformers serve`."""

import os
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import requests
import torch

import engine_conformance as suite
from engine_models import EOS, random_model
from fake_server import FakeServer, serving
from limen.engines import exact
from limen.engines.hf import TransformersEngine
from limen.engines.http import HTTPEngine
from limen.models import load_model, resolve_model

TABLE = {"q=": {"ab": 0.5, "a": 0.2, "b": 0.2, "": 0.1}, "r=": {"b": 0.6, "aaa": 0.4}}


def model_probs(model):
    @cache
    def next_probs(prompt, prefix):
        with torch.no_grad():
            return torch.softmax(model(torch.tensor([prompt + prefix])).logits[0, -1].double(), -1).numpy()

    return lambda prompt, prefix: np.array(next_probs(prompt, prefix))


def exact_subject():
    engine = exact.ExactEngine(exact.ResponsesPolicy(TABLE), logprobs=True)
    return suite.Subject(engine, engine.tokenizer, engine.policy.next_probs, exact.EOS, tuple(TABLE))


def transformers_subject():
    loaded = random_model(seed=4, sharpness=2.0)
    engine = TransformersEngine(loaded, batch_size=50, logprobs=True)
    probs = model_probs(loaded.model)
    return suite.Subject(engine, loaded.tokenizer, probs, EOS, ("abc", "d", "aaee"), long_text="a" * 64)


@pytest.fixture(scope="module")
def small_server():
    subject = exact_subject()
    with serving(FakeServer(subject.engine)) as url:
        subject.engine = HTTPEngine("m", [url], tokenizer=subject.tokenizer, concurrency=8, first_wait=0.01)
        subject.n = 500
        yield subject


@pytest.fixture(scope="module")
def real_server(tmp_path_factory):
    """`transformers serve` on the shipped tiny model, in a process of its own."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("openai")
    folder = resolve_model("tiny")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("serve") / "log"
    command = [str(Path(sys.executable).with_name("transformers")), "serve", folder]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("w") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        _wait(process, f"http://127.0.0.1:{port}/health", log)
        loaded = load_model("tiny", device="cpu")
        url = f"http://127.0.0.1:{port}/v1"
        engine = HTTPEngine(folder, [url], tokenizer=loaded.tokenizer, concurrency=2)
        eos = loaded.tokenizer.eos_token_id
        texts = ("38+57=", "12*07=")
        yield suite.Subject(
            engine, loaded.tokenizer, model_probs(loaded.model), eos, texts, 100, exact_seeds=False, model=folder
        )
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait(process, url, log):
    started = time.monotonic()
    while time.monotonic() - started < 180:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            if requests.get(url, timeout=2).ok:
                return
        except requests.RequestException:
            time.sleep(0.3)
    pytest.fail("the server did not start in three minutes: " + log.read_text()[-1000:])


SUBJECTS = ["exact", "transformers", "small_server", "real_server"]


@pytest.fixture
def subject(request):
    if request.param == "exact":
        return exact_subject()
    if request.param == "transformers":
        return transformers_subject()
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("subject", SUBJECTS, indirect=True)
@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda c: c.__name__)
def test_conformance(subject, check):
    check(subject)


@pytest.mark.parametrize("subject", SUBJECTS[:3], indirect=True)
@pytest.mark.parametrize("params", suite.PARAMS, ids=["plain", "temperature", "top_p", "top_k"])
def test_distribution(subject, params):
    suite.check_distribution(subject, params)


SLOW = pytest.mark.slow


@pytest.mark.parametrize("params", [suite.PARAMS[0], *(pytest.param(p, marks=SLOW) for p in suite.PARAMS[1:])])
def test_distribution_of_a_real_server(real_server, params):
    suite.check_distribution(real_server, params)


@pytest.mark.parametrize("subject", SUBJECTS, indirect=True)
def test_resume_and_top_up(subject, tmp_path):
    suite.check_resume_and_top_up(subject, tmp_path)
