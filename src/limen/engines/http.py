"""Any OpenAI-compatible server, or several: vLLM, SGLang, `transformers serve`, hosted ones.

One request per sample, each with its own seed (servers with prefix caching compute a prompt once all the same).
What a server understands is found with one small request, and what it does not honour is said.
"""

from __future__ import annotations

import itertools
import logging
import queue
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.engines.protocol import Capabilities, Sample, SampleRequest, ScoreRequest
from limen.engines.requests_check import check_params
from limen.engines.servers import Client, Dialect, Gate, Refused, Retry, with_retries
from limen.errors import ModelError
from limen.types import FinishReason, Prompt, SamplingParams

log = logging.getLogger(__name__)

LONG = (
    ". If its prompt is too long: lower max_tokens or leave the problem out; with --tokenizer, --leave-out-long does "
    "that where the server states its context"
)
FILTERED = "content_filter"
"""Finish reason, or code of a refusal, of a server whose moderation cut a response, or would not have its prompt."""
LET_GO = 1.0
"""Seconds that requests on their way get to come back when sampling is broken off."""


class HTTPEngine:
    """Samples over the completions or chat API of one or several servers of the same model.

    model: the name that the servers know the model by. urls: base addresses, with `/v1`. api: `completions` sends
    the rendered prompt (as token ids where the server takes them); `chat` sends the prompt's text as one user turn.
    tokenizer: the model's own, needed where prompts are rendered by a chat template, and to send token ids.
    concurrency: most requests on their way; the number adapts below it. tries: attempts of one request.
    timeout: seconds without an answer. Keys come from LIMEN_API_KEY or OPENAI_API_KEY.
    """

    name = "http"

    def __init__(
        self,
        model: str,
        urls: Sequence[str],
        api: str = "completions",
        tokenizer: Any = None,
        concurrency: int = 64,
        tries: int = 8,
        timeout: float = 600.0,
        first_wait: float = 0.5,
    ) -> None:
        if not urls:
            raise ModelError("no server is given: pass its address, such as http://localhost:8000/v1")
        if api not in ("completions", "chat"):
            raise ModelError(f"api is '{api}', expected completions or chat")
        self.model, self.api, self.tokenizer = model, api, tokenizer
        self.clients = [Client(url, timeout) for url in urls]
        self.gate = Gate(min(8, concurrency), concurrency)
        self.concurrency, self.tries, self.first_wait = concurrency, tries, first_wait
        self.dialect = Dialect(ids=tokenizer is not None and api == "completions")
        self.capabilities = Capabilities(token_ids=False, raw_logprobs=False, seeds=False, score=False, top_k=False)
        self.context: int | None = None
        """Most tokens of prompt and response together, where the servers say so (known once `prepare` was called) and
        prompts are counted in the model's own tokens."""
        self._served: str | None = None
        self._probed: set[tuple[bool, bool]] = set()
        self._lock = threading.Lock()

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> Iterator[Sample]:
        """Yield each response once, as it arrives; see `limen.engines.protocol.Engine.sample`.

        Raises `ModelError` where the server refuses, fails `tries` times, or changes its model.
        """
        check_params(params)
        for request in requests:
            if not request.prompt.text:
                raise ModelError(f"problem {request.prompt.problem_id}: its prompt is empty")
        return self._sample([r for r in requests if r.sample_indices], params)

    def prepare(self, prompt: Prompt, params: SamplingParams) -> None:
        """Find out with a small request what the servers can do; `capabilities` hold from then on."""
        check_params(params)
        self._probe(prompt, params)

    def score(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """Servers do not score. Raises `ModelError`."""
        raise ModelError("a server cannot score stored responses: use the transformers engine (limen score --model)")

    def _sample(self, requests: list[SampleRequest], params: SamplingParams) -> Iterator[Sample]:
        if not requests:
            return
        self._probe(requests[0].prompt, params)
        jobs = iter([(r, i) for r in requests for i in range(len(r.sample_indices))])
        left = sum(len(r.sample_indices) for r in requests)
        results: queue.Queue[Sample | ModelError] = queue.Queue()
        stop, lock = threading.Event(), threading.Lock()

        def work(number: int) -> None:
            while not stop.is_set():
                with lock:
                    job = next(jobs, None)
                if job is None:
                    return
                try:
                    sample = self._one(*job, params, number, stop)
                except ModelError as error:
                    results.put(error)
                    return
                if sample is not None:
                    results.put(sample)

        # Daemons: a user who breaks off does not wait for a server that hangs, nor does the end of the process.
        threads = [
            threading.Thread(target=work, args=(number,), name=f"limen-http-{number}", daemon=True)
            for number in range(min(self.concurrency, left))
        ]
        for thread in threads:
            thread.start()
        try:
            while left:
                try:
                    item = results.get(timeout=1.0)
                except queue.Empty:
                    if not any(thread.is_alive() for thread in threads) and results.empty():
                        raise RuntimeError("a thread of the HTTP engine failed; its traceback is above") from None
                    continue
                if isinstance(item, ModelError):
                    raise item
                left -= 1
                yield item
        finally:
            stop.set()
            until = time.monotonic() + LET_GO
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))

    def _one(
        self, request: SampleRequest, i: int, params: SamplingParams, worker: int, stop: threading.Event
    ) -> Sample | None:
        seed = request.seeds[i]

        def attempt(number: int) -> Sample:
            client = self.clients[(worker + number) % len(self.clients)]
            try:
                with self.gate:
                    choice = self._ask(client, request.prompt, params, seed)
            except Retry as error:
                if error.busy:
                    self.gate.overloaded()
                raise
            except Refused as error:
                if FILTERED in error.said:
                    raise _filtered(
                        request.prompt, f", sample {request.sample_indices[i]}", "does not take the prompt"
                    ) from error
                hint = LONG if error.status in (400, 413, 422) else ""
                raise ModelError(f"problem {request.prompt.problem_id}: {error}{hint}") from error
            self.gate.good()
            return self._read(request, i, choice, params)

        sample: Sample | None = with_retries(attempt, self.tries, stop, random.Random(seed), self.first_wait)
        return sample

    def _ask(self, client: Client, prompt: Prompt, params: SamplingParams, seed: int) -> dict[str, Any]:
        """One choice of one request, the model's name and the number of prompt tokens checked."""
        chat = self.api == "chat"
        body = {"model": self.model, **self.dialect.body(params, seed, chat, self._eos_ids())}
        if chat:
            body["messages"] = [{"role": "user", "content": prompt.text}]
        else:
            body["prompt"] = list(prompt.token_ids) if self.dialect.ids else self._text(prompt)
            if self.dialect.extras == "vllm" and not self.dialect.ids and self.tokenizer is not None:
                body["add_special_tokens"] = False
        data = client.post("/chat/completions" if chat else "/completions", body)
        choices = data.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise Retry("an answer without a choice")
        self._check_model(data.get("model"))
        usage = data.get("usage") or {}
        count = usage.get("prompt_tokens")
        if self.tokenizer is not None and not chat and count not in (None, 0, len(prompt.token_ids)):
            raise ModelError(
                f"the server counts {count} tokens in a prompt that has {len(prompt.token_ids)}: it tokenises it in "
                "its own way (another tokenizer, or a second BOS), so it is not the same prompt"
            )
        choice: dict[str, Any] = choices[0]
        return choice

    def _text(self, prompt: Prompt) -> str:
        """The text that the server's own tokenizer turns into the prompt's ids: without BOS where it adds one."""
        tokenizer = self.tokenizer
        if tokenizer is None or self.dialect.extras == "vllm":
            return prompt.text
        bos = getattr(tokenizer, "bos_token", None) or ""
        for text in (prompt.text, prompt.text.removeprefix(bos)):
            if tuple(tokenizer.encode(text)) == prompt.token_ids:
                return text
        raise ModelError(
            f"problem {prompt.problem_id}: the server takes prompts as text only, and would read this one as other "
            "tokens than the template gives: use a plain or few-shot template, or another server"
        )

    def _eos_ids(self) -> tuple[int, ...]:
        eos = getattr(self.tokenizer, "eos_token_id", None)
        return () if eos is None else (int(eos),)

    def _check_model(self, served: Any) -> None:
        if not served:
            return
        with self._lock:
            if self._served is None:
                self._served = str(served)
            if served != self._served:
                raise ModelError(
                    f"the server now answers as '{served}' and did as '{self._served}' before: all samples of a run "
                    "must come from one model. What is stored is from the first"
                )

    def _probe(self, prompt: Prompt, params: SamplingParams) -> None:
        """Find out with small requests what the servers understand, and declare it. Once per kind of request."""
        kind = (bool(params.stop), bool(params.top_k))
        if kind in self._probed:
            return
        if self.tokenizer is not None and self.api == "completions":
            stated = [c for client in self.clients if (c := client.context(self.model)) is not None]
            self.context = min(stated, default=None)
        small = SamplingParams(params.temperature, params.top_p, params.top_k, 2, params.stop)
        rng, stop = random.Random(0), threading.Event()
        for client in self.clients:
            choice = self._learn(client, prompt, params, small, rng, stop)
        ids = isinstance(choice.get("token_ids"), list)
        raw = self.dialect.logprobs and _logprobs(choice) is not None and ids
        # vLLM and SGLang draw each request with a generator of its own; elsewhere a seed is a best effort at most.
        # OpenAI's fields have no top_k; without stop strings of the server's own, responses are cut here.
        seeds = self.dialect.seed and self.dialect.extras == "vllm"
        top_k = self.dialect.extras != "openai"
        self.capabilities = Capabilities(ids, raw, seeds, score=False, top_k=top_k, stop=True)
        self._probed.add(kind)
        log.info("server dialect %s, %s", self.dialect, self.capabilities)
        if not ids:
            log.warning("the server returns text without token ids: responses are stored as text, and cannot be scored")

    def _learn(
        self,
        client: Client,
        prompt: Prompt,
        params: SamplingParams,
        small: SamplingParams,
        rng: random.Random,
        stop: threading.Event,
    ) -> dict[str, Any]:
        """Weaken the dialect until this server takes it; its answer."""

        def attempt(number: int) -> dict[str, Any]:
            return self._ask(client, prompt, small, 1)

        while True:
            # A server that fails for good on stop strings must not cost all the patience there is.
            tries = min(3, self.tries) if params.stop and self.dialect.stop else self.tries
            try:
                choice: dict[str, Any] = with_retries(attempt, tries, stop, rng, self.first_wait)
            except Refused as error:
                if FILTERED in error.said:
                    raise _filtered(prompt, "", "does not take the prompt") from error
                if error.status not in (400, 422):
                    raise
                self.dialect = self.dialect.weaker(params, error.said)
            except ModelError:
                if not params.stop or not self.dialect.stop:
                    raise
                self.dialect = replace(self.dialect, stop=False)  # some servers fail on stop strings
            else:
                return choice

    def _read(self, request: SampleRequest, i: int, choice: dict[str, Any], params: SamplingParams) -> Sample:
        if choice.get("finish_reason") == FILTERED:  # before the text is looked for, which may be missing
            raise _filtered(request.prompt, f", sample {request.sample_indices[i]}", "cut the response")
        ids = choice.get("token_ids")
        text = choice.get("text") if self.api == "completions" else (choice.get("message") or {}).get("content")
        if not isinstance(text, str):
            raise Retry("a choice without text")
        token_ids = tuple(int(t) for t in ids) if isinstance(ids, list) else None
        reason = self._reason(choice, params, token_ids)
        ends = [at for s in params.stop if (at := text.find(s)) >= 0]
        if ends:  # not sent, or left unheeded: the response ends here all the same
            reason, token_ids, text = "stop", self._cut_ids(token_ids, params), text[: min(ends)]
        plain = params.temperature == 1 and params.top_p == 1 and params.top_k == 0
        values = _logprobs(choice) if token_ids is not None else None
        if values is not None:
            values = values[: len(token_ids or ())] if len(values) >= len(token_ids or ()) else None
        return Sample(
            problem_id=request.prompt.problem_id,
            sample_index=request.sample_indices[i],
            seed=request.seeds[i],
            token_ids=token_ids,
            text=text,
            finish_reason=reason,
            logprobs=values if self.dialect.extras == "vllm" or plain else None,
            log_q=sum(values) if values is not None and plain else None,
        )

    def _cut_ids(self, token_ids: tuple[int, ...] | None, params: SamplingParams) -> tuple[int, ...] | None:
        """The tokens up to the one that completes a stop string; None where no tokenizer can tell."""
        if token_ids is None or self.tokenizer is None:
            return None
        for end in range(1, len(token_ids) + 1):
            text = self.tokenizer.decode(list(token_ids[:end]), skip_special_tokens=True)
            if any(s in text for s in params.stop):
                return token_ids[:end]
        return token_ids

    def _reason(
        self, choice: dict[str, Any], params: SamplingParams, token_ids: tuple[int, ...] | None
    ) -> FinishReason:
        said = choice.get("finish_reason")
        if said == "length":
            return "length"
        if said != "stop":
            raise Retry(f"finish reason '{said}': the response was broken off")
        if not params.stop or not self.dialect.stop:
            return "eos"
        for name in ("stop_reason", "matched_stop"):  # as vLLM and SGLang call it
            if name in choice:
                return "stop" if isinstance(choice[name], str) else "eos"
        return "eos" if token_ids and token_ids[-1] in self._eos_ids() else "stop"


def _filtered(prompt: Prompt, sample: str, what: str) -> ModelError:
    """Trying again until moderation lets one pass would draw from another distribution than the model's, and neither a
    response that is cut nor none at all is a sample of it."""
    return ModelError(
        f"problem {prompt.problem_id}{sample}: the server's content filter {what} ({FILTERED}), so there is no sample "
        "of the model. Switch the filter off at the server and give the same command again (what was finished is "
        "stored), or leave the problem out"
    )


def _logprobs(choice: dict[str, Any]) -> tuple[float, ...] | None:
    """Log-probabilities of the sampled tokens, in the form of either API; None where there are none."""
    found = choice.get("logprobs")
    if not isinstance(found, dict):
        return None
    values = found.get("token_logprobs")
    if values is None and isinstance(found.get("content"), list):
        values = [entry.get("logprob") for entry in found["content"]]
    if not values or any(v is None for v in values):
        return None
    return tuple(min(0.0, float(v)) for v in itertools.islice(values, None))
