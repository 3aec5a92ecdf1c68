"""Talking to OpenAI-compatible servers: retries, adaptive concurrency, and what each kind of server understands."""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import requests

from limen.errors import ModelError
from limen.types import SamplingParams

log = logging.getLogger(__name__)

RETRY_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
CONNECT = 10.0
"""Seconds to get a connection in."""
TELL_EVERY = 30.0
"""Seconds between two warnings that requests are tried again."""


class Retry(Exception):
    """An attempt failed in a way that may pass; `wait` seconds are what the server asked for, if it did."""

    def __init__(self, what: str, wait: float | None = None, busy: bool = False) -> None:
        super().__init__(what)
        self.wait, self.busy = wait, busy


class Gate:
    """How many requests may be on their way: one more after as many successes, half after a sign of overload."""

    def __init__(self, start: int, most: int) -> None:
        self.limit, self.most = float(min(start, most)), most
        self._busy = 0
        self._change = threading.Condition()
        self._halved = 0.0

    def __enter__(self) -> None:
        with self._change:
            while self._busy >= int(self.limit):
                self._change.wait()
            self._busy += 1

    def __exit__(self, *error: object) -> None:
        with self._change:
            self._busy -= 1
            self._change.notify_all()

    def good(self) -> None:
        with self._change:
            self.limit = min(float(self.most), self.limit + 1.0 / self.limit)
            self._change.notify_all()

    def overloaded(self) -> None:
        with self._change:
            if time.monotonic() - self._halved > 1.0:  # one burst of refusals is one sign
                self.limit, self._halved = max(1.0, self.limit / 2), time.monotonic()


@dataclass(frozen=True)
class Dialect:
    """What a server understands beyond the OpenAI fields, found by `limen.engines.http` by trying.

    extras: `vllm` (sampling options, token ids and special tokens by name; SGLang takes them too), `transformers`
    (a whole generation config as one field), `openai` (nothing). ids: prompts may be lists of token ids.
    logprobs, seed, stop: those fields are taken (without stop, responses are cut where they arrive).
    """

    extras: str = "vllm"
    ids: bool = True
    logprobs: bool = True
    seed: bool = True
    stop: bool = True

    def body(self, params: SamplingParams, seed: int, chat: bool, eos_ids: tuple[int, ...] = ()) -> dict[str, Any]:
        """Fields of a request but for model and prompt. Every option is said: servers have defaults of their own."""
        body: dict[str, Any] = {"max_tokens": params.max_tokens, "temperature": params.temperature}
        body |= {"top_p": params.top_p}
        if self.seed:
            body["seed"] = seed % 2**31
        if params.stop and self.stop:
            body["stop"] = list(params.stop)
        if self.logprobs:
            body |= {"logprobs": True} if chat else {"logprobs": 0 if self.extras == "vllm" else 1}
        if self.extras == "vllm":
            body |= {"top_k": params.top_k or -1, "min_p": 0.0, "repetition_penalty": 1.0}
            body |= {"return_token_ids": True}
        elif self.extras == "transformers":
            config: dict[str, Any] = {"do_sample": params.temperature > 0, "top_k": params.top_k}
            config |= {"temperature": params.temperature or 1.0, "top_p": params.top_p}
            config |= {"max_new_tokens": params.max_tokens}
            if eos_ids:
                config["eos_token_id"] = list(eos_ids)
            body["generation_config"] = json.dumps(config)
        return body

    def weaker(self, params: SamplingParams, said: str) -> Dialect:
        """The next dialect to try after the server refused this one. Raises `ModelError` where none is left."""
        if self.ids and ("prompt" in said or self.extras != "vllm"):
            return replace(self, ids=False)
        if self.extras == "vllm":
            return replace(self, extras="transformers", logprobs=False)
        if self.extras == "transformers":
            if params.top_k:
                raise ModelError("this server has no top_k: leave it out, or use another server")
            return replace(self, extras="openai", logprobs=True)
        if self.logprobs:
            return replace(self, logprobs=False)
        if self.seed:
            return replace(self, seed=False)
        raise ModelError(f"the server refuses the request, however it is put: {said}")


class Client:
    """Posts to one server. A `Retry` says that trying again may help, a `ModelError` that it will not."""

    def __init__(self, url: str, timeout: float) -> None:
        self.url = url.rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise ModelError(
                f"server address '{url}' must begin with http:// or https:// (such as http://host:8000/v1)"
            )
        self.timeout = timeout
        self._local = threading.local()

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON object that the server answers. Raises `Refused` for 4xx that repeating would not mend."""
        session = self._session()
        try:
            answer = session.post(f"{self.url}{path}", json=body, timeout=(CONNECT, self.timeout))
            data = answer.json() if answer.status_code == 200 else None
        except requests.ConnectTimeout as error:
            raise Retry(f"no connection to {self.url} in {CONNECT:.0f} s") from error
        except requests.Timeout as error:
            raise Retry(f"no answer of {self.url} in {self.timeout:.0f} s", busy=True) from error
        except requests.JSONDecodeError as error:
            raise Retry(f"an answer of {self.url} that is not JSON ({error.msg})") from error
        except requests.RequestException as error:
            raise Retry(f"{type(error).__name__} at {self.url}: {str(error)[:200]}") from error
        if answer.status_code in RETRY_STATUS:
            busy = answer.status_code in (429, 503, 529)
            said = f"status {answer.status_code} of {self.url}: {answer.text[:200]}"
            raise Retry(said, _retry_after(answer), busy)
        if answer.status_code != 200:
            raise Refused(answer.status_code, answer.text[:500])
        if not isinstance(data, dict):
            raise Retry(f"an answer that is no JSON object ({type(data).__name__})")
        return data

    def context(self, model: str) -> int | None:
        """Most tokens of prompt and response, where the server's list of models states it (vLLM and SGLang do)."""
        try:
            answer = self._session().get(f"{self.url}/models", timeout=CONNECT)
            models = answer.json()["data"] if answer.status_code == 200 else []
            stated = [m["max_model_len"] for m in models if m.get("id") == model and m.get("max_model_len")]
            return int(stated[0]) if stated else None
        except (requests.RequestException, KeyError, TypeError, AttributeError, ValueError):
            return None  # a server need not have the list; one that is down is told of by the first request

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
            key = os.environ.get("LIMEN_API_KEY") or os.environ.get("OPENAI_API_KEY")
            if key:
                session.headers["Authorization"] = f"Bearer {key}"
        return session


_KEY = " (the key is read from LIMEN_API_KEY or OPENAI_API_KEY)"
HINTS = {401: _KEY, 403: _KEY, 404: " (is the address right, with /v1, and the model's name the server's own for it?)"}


class Refused(ModelError):
    """The server will not do what was asked: status 400 and its kind."""

    def __init__(self, status: int, said: str) -> None:
        hint = HINTS.get(status, "")
        super().__init__(f"the server refuses: status {status}: {said}{hint}")
        self.status, self.said = status, said


class _Told:
    """Warns of what happens often, now and then."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def tell(self, message: str, *values: object) -> None:
        if time.monotonic() - self._last >= TELL_EVERY:
            self._last = time.monotonic()
            log.warning(message, *values)


_TOLD = _Told()


def with_retries(
    attempt: Callable[[int], Any], tries: int, stop: threading.Event, rng: random.Random, first: float = FIRST_WAIT
) -> Any:
    """Call `attempt(number)` until it returns; wait twice as long after each `Retry`, with jitter.

    Raises `ModelError` after `tries` attempts. Returns None if `stop` is set meanwhile.
    """
    wait = first
    for number in range(tries):
        if stop.is_set():
            return None
        try:
            return attempt(number)
        except Retry as error:
            if number + 1 == tries:
                raise ModelError(
                    f"the server failed {tries} times in a row, last with {error}. What was finished is stored; when "
                    "the server works again, the same command goes on"
                ) from error
            pause = error.wait if error.wait is not None else wait * (0.5 + rng.random())
            _TOLD.tell("%s: trying again in %.1f s (attempt %d of %d)", error, pause, number + 2, tries)
            stop.wait(pause)
            wait = min(LONGEST_WAIT, wait * 2)
    return None


def _retry_after(answer: requests.Response) -> float | None:
    text = answer.headers.get("Retry-After", "")
    return min(float(text), 120.0) if text.replace(".", "", 1).isdigit() else None
