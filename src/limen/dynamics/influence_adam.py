"""Adam's step as a preconditioned one: which linear map stands between a sample's gradient and the change it makes.

With the loss's gradient g, moments m and v before the step, t the step's number (Loshchilov & Hutter, AdamW):

    m' = β1 m + (1-β1) g,  v' = β2 v + (1-β2) g²,  Δθ = -η [ m'/(1-β1^t) / (√(v'/(1-β2^t)) + ε) + λ θ ]

so Δθ = -η P g + η u, with  P = (1-β1)/(1-β1^t) / (√(v'/(1-β2^t)) + ε)  diagonal, and a drift u that no sample of this
batch is the cause of (momentum and weight decay). P holds the batch's own g²: that makes the split exact, and P not
a property of the sample alone.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from limen.dynamics.influence_gradients import Gradients
from limen.errors import ModelError


@dataclass(frozen=True)
class AdamState:
    """Moments (D,) after `steps` optimizer steps, in the order of `Gradients.params`, and what the next step takes."""

    first_D: Tensor
    second_D: Tensor
    steps: int
    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay_D: Tensor | float = 0.0

    def precondition(self, gradient_D: Tensor) -> Tensor:
        """Diagonal of P (D,) for a step whose loss gradient, after clipping, is `gradient_D`."""
        b1, _ = self.betas
        return (1 - b1) / (1 - b1 ** (self.steps + 1)) / self._denominator(gradient_D)

    def drift(self, gradient_D: Tensor, theta_D: Tensor) -> Tensor:
        """u (D,): the part of Δθ/η that momentum and weight decay make."""
        b1, _ = self.betas
        momentum_D = b1 * self.first_D / (1 - b1 ** (self.steps + 1)) / self._denominator(gradient_D)
        return -(momentum_D + self.weight_decay_D * theta_D)

    def _denominator(self, gradient_D: Tensor) -> Tensor:
        _, b2 = self.betas
        second_D = b2 * self.second_D + (1 - b2) * gradient_D.square()
        return (second_D / (1 - b2 ** (self.steps + 1))).sqrt() + self.eps


def fresh_adam(gradients: Gradients, lr: float, **options: Any) -> AdamState:
    """The state before the first step: no moments."""
    zero_D = torch.zeros(gradients.size, dtype=gradients.dtype, device=gradients.device)
    return AdamState(zero_D, zero_D, 0, lr, **options)


def load_adam(file: str | Path, gradients: Gradients, lr: float | None = None) -> AdamState:
    """The state in a checkpoint's `optimizer.pt`, as a Hugging Face Trainer or plain torch wrote it.

    lr: of the step to come; else the one stored (a schedule may have brought it to 0). Only tensors and numbers are
    read. Raises `ModelError` for a file that is missing, is not Adam's, or belongs to other parameters.
    """
    path = Path(file)
    if not path.is_file():
        raise ModelError(f"no optimizer state {path}: Adam's form needs a checkpoint that was saved with its optimizer")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ModelError(f"{path} is not an optimizer state: {str(error).splitlines()[0]}") from error
    entries = state.get("state") if isinstance(state, dict) else None
    if not entries or any("exp_avg_sq" not in e or "exp_avg" not in e for e in entries.values()):
        raise ModelError(f"{path} holds no moments of Adam: use the form sgd, or a checkpoint of an Adam run")
    names = _order(state["param_groups"], entries, gradients, path)
    first, second, decay = {}, {}, {}
    for group in state["param_groups"]:
        for index in group["params"]:
            name = names[index]
            decay[name] = float(group.get("weight_decay", 0.0))
            first[name], second[name] = entries[index]["exp_avg"], entries[index]["exp_avg_sq"]
    group = state["param_groups"][0]
    flat = {
        key: torch.cat([values[n].flatten() for n in gradients.params]).to(gradients.device, gradients.dtype)
        for key, values in (("first", first), ("second", second))
    }
    decays = set(decay.values())
    decay_D: Tensor | float = decays.pop() if len(decays) == 1 else torch.cat(
        [torch.full((p.numel(),), decay[n], dtype=gradients.dtype) for n, p in gradients.params.items()]
    ).to(gradients.device)  # fmt: skip
    steps = int(next(iter(entries.values()))["step"])
    betas = (float(group["betas"][0]), float(group["betas"][1]))
    rate = float(group["lr"]) if lr is None else lr
    return AdamState(flat["first"], flat["second"], steps, rate, betas, float(group["eps"]), decay_D)


def _order(groups: list[Any], entries: Any, gradients: Gradients, path: Path) -> dict[int, str]:
    """Parameter names by their index in the file: weights that decay before those that do not, or the model's order."""
    indices = [i for g in groups for i in g["params"]]
    for names in (_trainer_order(groups, gradients), list(gradients.params)):
        fits = len(names) == len(indices) and all(
            i in entries and tuple(entries[i]["exp_avg"].shape) == tuple(gradients.params[n].shape)
            for i, n in zip(indices, names)
        )
        if fits:
            return dict(zip(indices, names))
    raise ModelError(
        f"{path} holds moments of {len(indices)} parameters that do not fit this model's {len(gradients.params)} "
        "trainable ones: give the checkpoint folder that the file lies in as the model"
    )


def _trainer_order(groups: list[Any], gradients: Gradients) -> list[str]:
    """As `transformers.Trainer` orders them: decaying parameters first, then biases and norms."""
    if len(groups) != 2:
        return []
    from transformers import Trainer

    decaying = set(Trainer.get_decay_parameter_names(None, gradients.model))
    names = list(gradients.params)
    return [n for n in names if n in decaying] + [n for n in names if n not in decaying]
