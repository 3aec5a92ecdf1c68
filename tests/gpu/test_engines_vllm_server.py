"""`vllm serve`, a real server that gives token ids and log-probabilities, passes the suite over HTTP."""

import os
import socket
import subprocess
import sys
import time

import pytest
import requests
import torch

import engine_conformance as suite
from limen.engines.http import HTTPEngine
from limen.models import load_tokenizer
from vllm_model import CONTEXT, TEXTS, probabilities, reference_model, save_model

pytest.importorskip("vllm")
CPU = os.environ.get("LIMEN_VLLM_CPU") == "1"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not CPU and not torch.cuda.device_count(), reason="needs a CUDA device"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    folder = save_model(tmp_path_factory.mktemp("model"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager", "--max-model-len", str(CONTEXT)]
    command += ["--logprobs-mode", "raw_logprobs", "--generation-config", "vllm"]
    command += [] if CPU else ["--gpu-memory-utilization", "0.2"]
    log = tmp_path_factory.mktemp("serve") / "log"
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        wait(process, f"http://127.0.0.1:{port}/health", log)
        tokenizer = load_tokenizer("tiny")
        engine = HTTPEngine(str(folder), [f"http://127.0.0.1:{port}/v1"], tokenizer=tokenizer, concurrency=32)
        probs = probabilities(reference_model(folder))
        # The same seed draws the same but for rounding, which depends on what else is in the server's batch.
        yield suite.Subject(
            engine, tokenizer, probs, tokenizer.eos_token_id, TEXTS, n=500, exact_seeds=False, model=str(folder)
        )
    finally:
        process.terminate()
        process.wait(timeout=60)


def wait(process, url, log):
    started = time.monotonic()
    while time.monotonic() - started < 400:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            if requests.get(url, timeout=2).ok:
                return
        except requests.RequestException:
            time.sleep(0.5)
    pytest.fail("the server did not start: " + log.read_text()[-2000:])


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda c: c.__name__)
def test_conformance(subject, check):
    check(subject)


@pytest.mark.parametrize("params", suite.PARAMS, ids=["plain", "temperature", "top_p", "top_k"])
def test_distribution(subject, params):
    suite.check_distribution(subject, params)


def test_what_it_can(subject):
    capabilities = subject.engine.capabilities
    assert capabilities.token_ids
    assert capabilities.raw_logprobs
    assert capabilities.top_k


def test_resume_and_top_up(subject, tmp_path):
    suite.check_resume_and_top_up(subject, tmp_path)
