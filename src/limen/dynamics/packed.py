"""Scoring the same responses again and again: planned once, then nothing but forward passes.

A probe is scored before and after many optimizer steps. The plan (which prompts run together, where each token's state
lies, which responses are twins) is made once and kept as tensors on the device; a scoring is then a few forward passes
and one copy to the host, with no work per response. Prompts are run once for all their responses, logits live for one
chunk of tokens at a time in float32, as in `limen.engines.scoring`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from limen.dynamics.quantities import Scored
from limen.dynamics.scorer import both, score
from limen.engines.kvcache import new_cache, rows_of
from limen.engines.protocol import ScoreRequest
from limen.engines.runner import Runner, pad_left, pad_right
from limen.engines.scoring import Limits, said
from limen.errors import ModelError

WORTH = 8
"""Tokens that prompts must share at their beginning for these to be run once and apart."""


@dataclass
class _Rows:
    """Responses decoded together after their prompts' cache. `at_N`: place of each response token's state among the
    flattened (rows, 1 + longest) states; `slot_N`: its place among all unique tokens."""

    prompt_B: Tensor
    ids_BT: Tensor | None
    mask_BT: Tensor | None
    positions_BT: Tensor | None
    at_N: Tensor
    target_N: Tensor
    slot_N: Tensor


@dataclass
class _Pack:
    """Prompts run together, padded on the left, and the responses that follow them. `shared_1T`: the tokens that all of
    them begin with (few-shot examples, a system prompt), run once; `ids_BT` is what follows. `mask_BT` covers both."""

    shared_1T: Tensor | None
    ids_BT: Tensor
    mask_BT: Tensor | None
    positions_BT: Tensor
    rows: list[_Rows]


class PackedScorer(Limits):
    """Scores one fixed list of responses under a model whose weights change.

    Where memory runs out (a trainer beside it took more), the plan is made anew with half the batch, and kept so: a
    change measured across such a step has the rounding of two plans in it. Raises `ModelError` for an empty prompt, and
    where one response does not fit.
    """

    def __init__(self, runner: Runner, requests: Sequence[ScoreRequest], batch_tokens: int | None = None) -> None:
        if any(not r.prompt_ids for r in requests):
            raise ModelError("cannot score a response to an empty prompt: put a BOS token into the template")
        super().__init__(runner, batch_tokens)
        self.requests = list(requests)
        self.offset_N = np.concatenate([[0], np.cumsum([len(r.token_ids) for r in requests])]).astype(np.int64)
        self._packs: list[_Pack] | None = None
        self._unique = 0
        self._expand_T = np.zeros(0, dtype=np.int64)

    def __call__(self, entropies: bool = False) -> Scored:
        """Log-probabilities (and entropies) under the model as it is now. The model must be in eval mode."""
        full = [r for r in self.requests if r.token_ids]
        if not full:
            return Scored(np.zeros(0), self.offset_N, np.zeros(0) if entropies else None)
        with torch.inference_mode():
            while True:
                try:
                    return self._scored(full[0], entropies)
                except RuntimeError as error:
                    message = said(error)
                self._packs = None
                self.halve([len(r.prompt_ids) + len(r.token_ids) for r in full], message)

    def _scored(self, first: ScoreRequest, entropies: bool) -> Scored:
        if self._packs is None:
            self._prepare(first)
        if not self._packs:
            return score(self.runner, self.requests, entropies, batch_tokens=self.batch_tokens)
        value_T2 = torch.empty(self._unique, 2, device=self.runner.device)
        for pack in self._packs:
            self._run(pack, value_T2, entropies)
        value = value_T2.cpu().numpy().astype(np.float64)[self._expand_T]
        return Scored(value[:, 0], self.offset_N, value[:, 1] if entropies else None)

    def _prepare(self, first: ScoreRequest) -> None:
        """Plan; no packs where the model needs the plain scorer (recurrent, no padding, more than an output layer)."""
        plain = self.runner.plain_head(first.prompt_ids + first.token_ids)
        self._packs = self._plan() if plain and self.runner.can_pad else []

    def _plan(self) -> list[_Pack]:
        self._unique = 0
        start: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        expand = []
        for r in self.requests:
            pair = tuple(r.prompt_ids), tuple(r.token_ids)
            if pair not in start:
                start[pair] = self._unique
                self._unique += len(pair[1])
            expand.append(np.arange(start[pair], start[pair] + len(pair[1])))
        self._expand_T = np.concatenate(expand)
        groups: dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]] = defaultdict(list)
        for (prompt, response), slot in start.items():
            if response:
                groups[prompt].append((response, slot))
        return [self._pack(prompts, groups) for prompts in _together(sorted(groups, key=len), self.batch_tokens)]

    def _pack(
        self, prompts: list[tuple[int, ...]], groups: dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]]
    ) -> _Pack:
        device = self.runner.device
        shared = _common(prompts)
        ids_BT, mask_BT = pad_left([p[shared:] for p in prompts], device)
        real_BT = torch.ones_like(ids_BT) if mask_BT is None else mask_BT
        positions_BT = shared + (real_BT.cumsum(1) - 1).clamp(min=0)
        shared_1T = torch.tensor([prompts[0][:shared]], device=device) if shared else None
        if mask_BT is not None:
            mask_BT = torch.nn.functional.pad(mask_BT, (shared, 0), value=1)
        rows = [(response, slot, i) for i, p in enumerate(prompts) for response, slot in groups[p]]
        rows.sort(key=lambda r: -len(r[0]))
        width, parts, at = shared + ids_BT.shape[1], [], 0
        while at < len(rows):
            # The cache of the prompt counts too: rows of a long prompt are few, however short their responses.
            count = max(1, self.batch_tokens // (len(rows[at][0]) + width // 4))
            parts.append(self._rows(rows[at : at + count], mask_BT, shared + real_BT.sum(1)))
            at += count
        return _Pack(shared_1T, ids_BT, mask_BT, positions_BT, parts)

    def _rows(
        self, rows: list[tuple[tuple[int, ...], int, int]], prompt_mask: Tensor | None, length_B: Tensor
    ) -> _Rows:
        device = self.runner.device
        prompt_B = torch.tensor([i for _, _, i in rows], device=device)
        longest = len(rows[0][0])
        at: list[int] = []
        slot: list[int] = []
        for b, (response, first, _) in enumerate(rows):
            at += range(b * longest, b * longest + len(response))
            slot += range(first, first + len(response))
        ids = mask = positions = None
        if longest > 1:
            ids, _ = pad_right([r[:-1] or (0,) for r, _, _ in rows], device)
            positions = length_B[prompt_B][:, None] + torch.arange(ids.shape[1], device=device)
            # Padding on the right stands after every real token, where a causal model never looks; that on the left of
            # the prompts must be told.
            if prompt_mask is not None:
                mask = torch.cat([prompt_mask[prompt_B], torch.ones_like(ids)], dim=1)
        tensors = [torch.tensor(x, device=device) for x in (at, [t for r, _, _ in rows for t in r], slot)]
        return _Rows(prompt_B, ids, mask, positions, *tensors)

    def _run(self, pack: _Pack, value_T2: Tensor, entropies: bool) -> None:
        cache = new_cache(self.runner.model)
        if pack.shared_1T is not None:
            positions_1T = torch.arange(pack.shared_1T.shape[1], device=pack.shared_1T.device)[None]
            self.runner.hidden(pack.shared_1T, None, positions_1T, cache)
            first_B = torch.zeros(len(pack.ids_BT), dtype=torch.long, device=pack.ids_BT.device)
            cache = rows_of(cache, first_B, pack.ids_BT.shape[1])
        last_BH = self.runner.hidden(pack.ids_BT, pack.mask_BT, pack.positions_BT, cache)[:, -1]
        for rows in pack.rows:
            hidden_BTH = last_BH[rows.prompt_B][:, None]
            if rows.ids_BT is not None:
                own = rows_of(cache, rows.prompt_B, rows.ids_BT.shape[1])
                rest_BTH = self.runner.hidden(rows.ids_BT, rows.mask_BT, rows.positions_BT, own)
                hidden_BTH = torch.cat([hidden_BTH, rest_BTH], dim=1)
            hidden_NH = hidden_BTH.flatten(0, 1)[rows.at_N]
            for i in range(0, len(hidden_NH), self.chunk):
                part = slice(i, i + self.chunk)
                logits_NV = self.runner.head(hidden_NH[part])
                value_T2[rows.slot_N[part]] = (both if entropies else _chosen)(logits_NV, rows.target_N[part])


def _chosen(logits_NV: Tensor, target_N: Tensor) -> Tensor:
    log_NV = torch.log_softmax(logits_NV, dim=-1, dtype=torch.float32)
    chosen_N = (-torch.nn.functional.nll_loss(log_NV, target_N, reduction="none")).clamp(max=0.0)
    return torch.stack([chosen_N, torch.zeros_like(chosen_N)], dim=1)


def _common(prompts: list[tuple[int, ...]]) -> int:
    """Tokens that all prompts begin with, short of the last of the shortest; 0 where that is not worth a pass."""
    low, high = min(prompts), max(prompts)
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    same = min(same, min(map(len, prompts)) - 1)
    return same if same >= WORTH and len(prompts) > 1 else 0


def _together(prompts: list[tuple[int, ...]], limit: int) -> Iterator[list[tuple[int, ...]]]:
    """Prompts of like length, at most `limit` tokens with padding (or one prompt)."""
    pack: list[tuple[int, ...]] = []
    for prompt in prompts:
        if pack and (len(pack) + 1) * len(prompt) > limit:
            yield pack
            pack = []
        pack.append(prompt)
    if pack:
        yield pack
