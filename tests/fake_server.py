"""A small OpenAI-compatible server around an engine, which can be told to misbehave."""

import json
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from limen.engines.exact import EOS
from limen.engines.protocol import SampleRequest
from limen.types import Prompt, SamplingParams

EXTRAS = {"top_k", "min_p", "repetition_penalty", "return_token_ids", "add_special_tokens"}


class FakeServer:
    """kind: `vllm` (takes everything), `text` (prompts as text only), `openai` (no extra fields, no token ids).

    context: most tokens of prompt and response, stated in the list of models and kept to; None: no list.
    faults: called with the number of the request (from 0, probing included); returns the name of a fault or None.
    """

    def __init__(self, engine, kind="vllm", faults=lambda number: None, model="m", context=None):
        self.engine, self.kind, self.faults, self.model, self.context = engine, kind, faults, model, context
        self.hang = 3.0
        self.count, self.seen, self.bodies = 0, Counter(), []
        self.lock = threading.Lock()
        self.busy = self.most_busy = 0

    def answer(self, body):
        asked = body["messages"][0]["content"] if "messages" in body else body["prompt"]
        ids = asked if isinstance(asked, list) else self.engine.tokenizer.encode(asked)
        params = SamplingParams(
            body["temperature"], body["top_p"], max(0, body.get("top_k", 0)), body["max_tokens"],
            tuple(body.get("stop", ())),
        )  # fmt: skip
        prompt = Prompt("p", "", tuple(ids), "")
        (sample,) = self.engine.sample([SampleRequest(prompt, (0,), (body["seed"],))], params)
        choice = {
            "index": 0,
            **({"message": {"content": sample.text}} if "messages" in body else {"text": sample.text}),
        }
        choice["finish_reason"] = "length" if sample.finish_reason == "length" else "stop"
        if self.kind != "openai":
            choice["stop_reason"] = params.stop[0] if sample.finish_reason == "stop" else None
            choice["token_ids"] = list(sample.token_ids)
            choice["logprobs"] = {"token_logprobs": list(sample.logprobs)}
        return {"model": self.model, "choices": [choice], "usage": {"prompt_tokens": len(ids)}}

    def refusal(self, body):
        if self.kind == "openai" and (EXTRAS | {"generation_config"}) & set(body):
            return "Unrecognized request argument supplied"
        if self.kind in ("openai", "text") and not isinstance(body.get("prompt", ""), str):
            return "prompt must be a string"
        if body["model"] != "m":
            return "no such model"
        if self.context is not None and len(body["prompt"]) + body["max_tokens"] > self.context:
            return f"this model's maximum context length is {self.context} tokens"
        return None


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        server = self.server.fake
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            number, server.count = server.count, server.count + 1
            server.bodies.append({**body, "key": self.headers.get("Authorization")})
            server.busy += 1
            server.most_busy = max(server.most_busy, server.busy)
        try:
            fault = server.faults(number)
            server.seen[fault] += 1
            self.respond(server, body, fault)
        finally:
            with server.lock:
                server.busy -= 1

    def do_GET(self):
        fake = self.server.fake
        if fake.context is None:
            self.send(404, {})
        else:
            self.send(200, {"data": [{"id": "other"}, {"id": "m", "max_model_len": fake.context}]})

    def respond(self, server, body, fault):
        refusal = server.refusal(body)
        if fault == "stop unheeded":
            body = {**body, "stop": []}
        if fault == "no stop" and body.get("stop"):
            self.send(500, {"error": "stop strings are broken"})
        elif fault in ("500", "429", "502", "503", "401"):
            self.send(int(fault), {"error": "fault"}, {"Retry-After": "0.01"} if fault in ("429", "503") else {})
        elif fault == "hang":
            time.sleep(server.hang)
        elif fault == "close":
            self.connection.close()
        elif fault == "filtered prompt":
            self.send(400, {"error": {"code": "content_filter", "message": "the prompt triggered the filter"}})
        elif refusal:
            self.send(400, {"error": {"message": refusal}})
        else:
            data = server.answer(body)
            choice = data["choices"][0]
            if fault == "no choices":
                data["choices"] = []
            elif fault == "other model":
                data["model"] = "another"
            elif fault == "aborted":
                choice["finish_reason"] = "abort"
            elif fault == "filtered":
                choice["finish_reason"] = "content_filter"
            elif fault == "filtered without text":
                choice.update(finish_reason="content_filter", text=None)
            elif fault == "no text":
                choice["text"] = None
            elif fault == "list":
                data = [data]
            elif fault == "sglang":
                choice["matched_stop"] = choice.pop("stop_reason") or EOS
                del choice["token_ids"], choice["logprobs"]
            elif fault == "second bos":
                data["usage"]["prompt_tokens"] += 1
            self.send(200, data, cut=fault == "cut", garbage=fault == "garbage")

    def send(self, status, data, headers=None, cut=False, garbage=False):
        text = b"<html>" if garbage else json.dumps(data).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text) + (50 if cut else 0)))
        self.end_headers()
        self.wfile.write(text)
        if cut:
            self.close_connection = True

    def log_message(self, *args):
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        """Clients that hang up are part of the tests."""


@contextmanager
def serving(fake):
    """Run the server in threads of this process; yields its address."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.fake = fake
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
