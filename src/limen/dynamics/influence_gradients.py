"""Per-sample gradients ∇_θ log π(y|x) of a causal LM, exact, a block of rows at a time.

`torch.func.vmap` where the model allows it, one backward pass per sample where it does not; which of the two is
settled once, by comparing them on the first pairs. Rows are padded on the right: a causal model never looks there.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from limen.engines.batching import available_memory
from limen.errors import ModelError

Reduce = Literal["mean", "sum"]

BLOCK_BYTES = {"cpu": 64 << 20, "cuda": 8 << 30}
"""Gradient rows that exist at one time, beside those that are kept."""


@dataclass(frozen=True)
class Pair:
    """A prompt and a response. `key`: its rollout id; `correct`: its verdict, None where it has none; `reward`: NaN
    where unjudged."""

    key: str
    problem_id: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str = ""
    correct: bool | None = None
    reward: float = float("nan")


class Gradients:
    """Gradients of one model's log-likelihoods by its trainable parameters, flattened to D numbers.

    reduce: `mean`, per token (RBP eq. 16), or `sum` over the response. The model is used as it is, in eval mode.
    Tied parameters count once. Raises `ModelError` for an empty prompt or response, or nothing to differentiate by.
    """

    def __init__(self, model: Any, reduce: Reduce = "mean", block_bytes: int | None = None) -> None:
        self.model = model.eval()
        self.reduce = reduce
        self.params = {n: p for n, p in model.named_parameters() if p.requires_grad}
        if not self.params:
            raise ModelError("the model has no trainable parameters: there is nothing to take a gradient by")
        self.device: torch.device = next(iter(self.params.values())).device
        self.dtype = next(iter(self.params.values())).dtype
        self.size = sum(p.numel() for p in self.params.values())
        room = block_bytes or BLOCK_BYTES.get(self.device.type, 64 << 20)
        if block_bytes is None and self.device.type == "cuda":
            room = min(room, available_memory(self.device) // 8)
        self.rows = max(1, min(64, room // (self.size * self.dtype.itemsize)))
        self.vmaps: bool | None = None

    def blocks(self, pairs: Sequence[Pair]) -> Iterator[tuple[list[int], Tensor]]:
        """(places in `pairs`, gradients (B, D)); every pair occurs once. A block's memory is used again."""
        if self.vmaps is None:
            self.vmaps = self._can_vmap(pairs[:2])
        for places in _by_length(pairs, self.rows):
            chosen = [pairs[i] for i in places]
            yield places, (self._vmapped(chosen) if self.vmaps else self._looped(chosen))

    def total(self, pairs: Sequence[Pair], weight_N: Tensor) -> Tensor:
        """Σ_i weight_i ∇ log π(y_i|x_i), shape (D,), by ordinary backward passes."""
        total_D = torch.zeros(self.size, dtype=self.dtype, device=self.device)
        for places in _by_length(pairs, 32):
            kept = [i for i in places if float(weight_N[i])]
            if kept:
                value = self._values([pairs[i] for i in kept]) @ weight_N[kept].to(self.device, self.dtype)
                total_D += self._flat(torch.autograd.grad(value, list(self.params.values()), allow_unused=True))
        return total_D

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def logprobs(self, pairs: Sequence[Pair]) -> Tensor:
        """log π(y|x) of each pair (N,), float64 on the CPU, reduced as the gradients are."""
        out_N = torch.zeros(len(pairs), dtype=torch.float64)
        for places in _by_length(pairs, 64):
            out_N[places] = self._values([pairs[i] for i in places]).double().cpu()
        return out_N

    def _values(self, pairs: Sequence[Pair]) -> Tensor:
        ids_BT, mask_BT = self._tensors(pairs)
        return _logprob(self.model(input_ids=ids_BT[:, :-1], use_cache=False).logits, ids_BT, mask_BT)

    def _tensors(self, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
        """Token ids (B, T), and the weight (B, T-1) of each predicted token: 1 or 1/|y| in the response, else 0."""
        width = max(len(p.prompt_ids) + len(p.token_ids) for p in pairs)
        ids_BT = torch.zeros(len(pairs), width, dtype=torch.long)
        mask_BT = torch.zeros(len(pairs), width - 1, dtype=self.dtype)
        for i, p in enumerate(pairs):
            if not p.prompt_ids or not p.token_ids:
                raise ModelError(f"response {p.key}: an empty prompt or response has no gradient")
            start, end = len(p.prompt_ids), len(p.prompt_ids) + len(p.token_ids)
            ids_BT[i, :end] = torch.tensor(p.prompt_ids + p.token_ids)
            mask_BT[i, start - 1 : end - 1] = 1.0 if self.reduce == "sum" else 1.0 / len(p.token_ids)
        return ids_BT.to(self.device), mask_BT.to(self.device)

    def _flat(self, grads: Sequence[Tensor | None]) -> Tensor:
        parts = [(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(self.params.values(), grads)]
        return torch.cat(parts)

    def _looped(self, pairs: Sequence[Pair]) -> Tensor:
        out_BD = torch.empty(len(pairs), self.size, dtype=self.dtype, device=self.device)
        for i, pair in enumerate(pairs):
            value = self._values([pair])[0]
            out_BD[i] = self._flat(torch.autograd.grad(value, list(self.params.values()), allow_unused=True))
        return out_BD

    def _vmapped(self, pairs: Sequence[Pair]) -> Tensor:
        ids_BT, mask_BT = self._tensors(pairs)
        params = {n: p.detach() for n, p in self.params.items()}

        def value(values: dict[str, Tensor], ids_T: Tensor, mask_T: Tensor) -> Tensor:
            out = functional_call(
                self.model, values, args=(), kwargs={"input_ids": ids_T[None, :-1], "use_cache": False}
            )
            return _logprob(out.logits, ids_T[None], mask_T[None])[0]

        with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There is a performance drop")
            grads = vmap(grad(value), in_dims=(None, 0, 0))(params, ids_BT, mask_BT)
        out_BD = torch.empty(len(pairs), self.size, dtype=self.dtype, device=self.device)
        at = 0
        for name, p in self.params.items():
            out_BD[:, at : at + p.numel()] = grads[name].reshape(len(pairs), -1)
            at += p.numel()
        return out_BD

    def _can_vmap(self, pairs: Sequence[Pair]) -> bool:
        want_BD = self._looped(pairs)
        try:
            got_BD = self._vmapped(pairs)
        except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError, AttributeError):
            return False  # data-dependent control flow, an operator without a batching rule, ...
        norm = torch.linalg.vector_norm
        gap = float(norm(want_BD - got_BD, dtype=torch.float64) / norm(want_BD, dtype=torch.float64).clamp(min=1e-30))
        return gap < (1e-3 if self.dtype == torch.float32 else 1e-8 if self.dtype == torch.float64 else 5e-2)


def _logprob(logits_BTV: Tensor, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
    logits_BTV = logits_BTV if logits_BTV.dtype == torch.float64 else logits_BTV.float()
    chosen_BT = logits_BTV.gather(2, ids_BT[:, 1:, None])[..., 0] - torch.logsumexp(logits_BTV, -1)
    return (chosen_BT * mask_BT).sum(-1)


def _by_length(pairs: Sequence[Pair], most: int) -> Iterator[list[int]]:
    """Places of at most `most` pairs of like length, longest first."""
    order = sorted(range(len(pairs)), key=lambda i: -(len(pairs[i].prompt_ids) + len(pairs[i].token_ids)))
    for start in range(0, len(order), most):
        yield order[start : start + most]
