"""The part of vLLM that limen's engine talks to, around a tabular policy: a batch into which requests go and in which
they move, logits processors, finish reasons. What is behind vLLM's own doors is tested where vLLM is."""

import sys
import types
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import torch

from limen.engines import exact
from limen.errors import ModelError


@dataclass
class SamplingParams:
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    max_tokens: int = 16
    stop: list | None = None
    stop_token_ids: list = field(default_factory=list)
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    output_kind: object = None
    extra_args: dict | None = None
    skip_clone: bool = False


class RequestOutputKind(Enum):
    CUMULATIVE = 0
    FINAL_ONLY = 2


class LogitsProcessor:
    pass


def process_dict_updates(entries, update, new_state):
    """As vLLM documents it: added, removed, moved one way."""
    if update is None:
        return False
    removed, added, moved = update
    for index, params, prompt, output in added:
        state = new_state(params, prompt, output)
        if state is None:
            entries.pop(index, None)
        else:
            entries[index] = state
    for index in removed:
        entries.pop(index, None)
    for a, b in moved:
        entries.pop(b, None)
        if a in entries:
            entries[b] = entries.pop(a)
    return True


def install(monkeypatch):
    """Put the module in the place of vLLM for one test."""
    names = ["vllm", "vllm.v1", "vllm.v1.sample", "vllm.v1.sample.logits_processor", "vllm.sampling_params"]
    modules = {name: types.ModuleType(name) for name in [*names, "vllm.v1.sample.logits_processor.builtin"]}
    modules["vllm"].SamplingParams = SamplingParams
    modules["vllm"].LLM = LLM
    modules["vllm.sampling_params"].RequestOutputKind = RequestOutputKind
    modules["vllm.v1.sample.logits_processor"].LogitsProcessor = LogitsProcessor
    modules["vllm.v1.sample.logits_processor.builtin"].process_dict_updates = process_dict_updates
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "limen.engines.vllm_draw", raising=False)


@dataclass
class Request:
    name: str
    prompt: tuple
    params: SamplingParams
    output: list = field(default_factory=list)
    seen: list = field(default_factory=list)
    logprobs: list = field(default_factory=list)


class LLM:
    """A batch of `rows` requests over `policy`. Removing one from the middle moves the last into its place."""

    def __init__(self, policy, rows=7, context=1000, **options):
        from limen.engines.vllm_draw import SeededDraw

        self.options = options
        self.policy, self.rows, self.context = policy, rows, context
        self.draw = SeededDraw(None, torch.device("cpu"), False)
        self.batch, self.waiting, self.aborted = [], [], []
        self.llm_engine = self
        self.model_config = types.SimpleNamespace(max_model_len=context, get_vocab_size=lambda: len(policy.tokenizer))
        self.vllm_config = types.SimpleNamespace(scheduler_config=types.SimpleNamespace(max_num_seqs=rows))

    def add_request(self, name, prompt, params):
        assert prompt["type"] == "token"
        assert len(prompt["prompt_token_ids"]) + params.max_tokens <= self.context
        self.waiting.append(Request(name, tuple(prompt["prompt_token_ids"]), params))

    def abort_request(self, names):
        self.aborted += names
        self.batch, self.waiting = [], [r for r in self.waiting if r.name not in names]
        self.draw.entries.clear()
        self.draw.groups = []

    def has_unfinished_requests(self):
        return bool(self.batch or self.waiting)

    def step(self):
        self._enter()
        if not self.batch:
            return []
        with np.errstate(divide="ignore"):
            raw = [np.log(self.policy.next_probs(r.prompt, tuple(r.output))) for r in self.batch]
        logits = self.draw.apply(torch.tensor(np.array(raw), dtype=torch.float32))
        finished = []
        for request, row, logs in zip(self.batch, logits, raw):
            assert request.params.temperature == 0.0
            token = int(row.argmax())
            request.output.append(token)
            request.seen.append(-1)  # as vLLM's, which plans a step before the tokens of the last have come
            request.logprobs.append({token: types.SimpleNamespace(logprob=float(logs[token]))})
            if (output := self._finished(request)) is not None:
                finished.append((request, output))
        gone = [id(r) for r, _ in finished]
        self.batch = [None if id(r) in gone else r for r in self.batch]
        return [output for _, output in finished]

    def _finished(self, request):
        text = self.policy.tokenizer.decode(request.output)
        reason, stop = None, None
        if request.output[-1] in request.params.stop_token_ids:
            reason, stop = "stop", request.output[-1]
        elif found := [s for s in request.params.stop or () if s in text]:
            assert request.params.detokenize
            reason, stop = "stop", found[0]
        elif len(request.output) == request.params.max_tokens:
            reason = "length"
        if reason is None:
            return None
        logprobs = request.logprobs if request.params.logprobs is not None else None
        one = types.SimpleNamespace(
            token_ids=request.output, finish_reason=reason, stop_reason=stop, logprobs=logprobs, text=""
        )
        return types.SimpleNamespace(request_id=request.name, finished=True, outputs=[one])

    def _enter(self):
        """New requests fill the holes that finished ones left, then the last rows move into what holes remain."""
        holes = [i for i, r in enumerate(self.batch) if r is None]
        changed, added, moved = bool(holes), [], []
        while self.waiting and len(self.batch) - len(holes) < self.rows:
            request = self.waiting.pop(0)
            index = holes.pop(0) if holes else len(self.batch)
            self.batch[index : index + 1] = [request]
            added.append((index, request.params, request.prompt, request.seen))
        removed = list(holes)
        while holes:
            while self.batch and self.batch[-1] is None:
                self.batch.pop()
            if (hole := holes.pop(0)) < len(self.batch):
                moved.append((len(self.batch) - 1, hole))
                self.batch[hole] = self.batch.pop()
        self.draw.update_state((removed, added, moved) if changed or added else None)

    def generate(self, prompts, params, use_tqdm=True):
        outputs = []
        for prompt in prompts:
            ids = tuple(prompt["prompt_token_ids"])
            logs = [None]
            for t in range(1, len(ids)):
                # Like vLLM, give a number for every position; only those behind the prompt are read.
                logs.append({ids[t]: types.SimpleNamespace(logprob=self._log(ids, t))})
            outputs.append(types.SimpleNamespace(prompt_logprobs=logs))
        return outputs

    def _log(self, ids, t):
        for start in range(1, t + 1):
            try:
                return float(np.log(self.policy.next_probs(ids[:start], ids[start:t])[ids[t]]))
            except ModelError:
                continue
        return -1.0


def tabular(responses):
    return exact.ResponsesPolicy(responses)
