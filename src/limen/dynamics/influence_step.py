"""Proposition 3.1 put to the test: what the kernel predicts of one optimizer step against what the step does.

    Δ log π(y'_j|x'_j) ≈ η Σ_i K_ij a_i + η <u, ∇_j>

a_i: sample i's coefficient in the batch's policy gradient; u: Adam's drift (0 for a plain gradient step). The step is
a real one, of `torch.optim.SGD` or `AdamW`; the weights are put back afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from limen.dynamics.influence_adam import AdamState
from limen.dynamics.influence_gradients import Gradients, Pair
from limen.dynamics.influence_kernel import Kernel, influence_kernel

HOLDS = 0.95
"""R² from which on a prediction counts as holding."""


@dataclass(frozen=True)
class Batch:
    """Training samples with their coefficients: the step climbs Σ_i coefficient_i log π(y_i|x_i), which is reduced as
    the gradients are. `clip`: bound on the gradient's norm, 0: none."""

    pairs: Sequence[Pair]
    coefficient_N: Tensor
    clip: float = 0.0


@dataclass(frozen=True)
class StepCheck:
    """One step size. `rms`: root mean square of the measured change; `slope`: of measured on predicted, through 0;
    `rank_correlation`: Spearman's, which a few large changes do not carry."""

    lr: float
    r2: float
    slope: float
    correlation: float
    rank_correlation: float
    rms: float
    mean_measured: float
    mean_predicted: float


@dataclass(frozen=True)
class Prediction:
    """What one step is made of. `predicted_M` and `measured_M` are at `lr`; `unit_M`: predicted change per unit of η.

    `drift_M`: the part of `unit_M` that is momentum and weight decay. `scale`: the gradient's factor after clipping.
    """

    form: str
    kernel: Kernel
    coefficient_N: Tensor
    drift_M: Tensor
    scale: float
    gradient_norm: float
    lr: float
    sweep: tuple[StepCheck, ...]
    predicted_M: Tensor
    measured_M: Tensor
    noise: float

    @property
    def unit_M(self) -> Tensor:
        return self.scale * (self.coefficient_N @ self.kernel.k_NM) + self.drift_M

    @property
    def check(self) -> StepCheck:
        return next(c for c in self.sweep if c.lr == self.lr)

    @property
    def holds_up_to(self) -> float:
        """Largest step size of the sweep below which every R² is at least 0.95 (from the best one on upwards)."""
        return max((c.lr for c in self._held()), default=float("nan"))

    @property
    def breaks_at(self) -> float:
        """First step size above `holds_up_to` with a lower R²; NaN where the sweep met none."""
        return min((c.lr for c in self.sweep if c.lr > self.holds_up_to), default=float("nan"))

    def _held(self) -> list[StepCheck]:
        start = max(range(len(self.sweep)), key=lambda i: self.sweep[i].r2)
        held: list[StepCheck] = []
        for check in self.sweep[start:]:
            if not check.r2 >= HOLDS:
                break
            held.append(check)
        return held

    def to_json(self) -> dict[str, Any]:
        return {
            "form": self.form, "lr": self.lr, "r2": self.check.r2, "slope": self.check.slope,
            "rank_correlation": self.check.rank_correlation,
            "noise_nats": self.noise, "gradient_norm": self.gradient_norm, "clip_scale": self.scale,
            "holds_up_to": self.holds_up_to, "breaks_at": self.breaks_at, "sweep": [asdict(c) for c in self.sweep],
        }  # fmt: skip


def predict_step(
    gradients: Gradients,
    batch: Batch,
    probe: Sequence[Pair],
    adam: AdamState | None = None,
    lr: float | None = None,
    factors: Sequence[float] | None = None,
    sketch: int | None = None,
    **options: Any,
) -> Prediction:
    """Kernel, prediction and measurement of one step on `batch`, and the same over a range of step sizes.

    adam: state before the step; None: plain gradient ascent. lr: step size; None: Adam's own, or for a plain step the
    one whose predicted change has a root mean square of 0.01 nats. factors: of the sweep, times `lr`; None: half
    decades from 0.01 upwards until the prediction breaks (at most 1000). options: as `influence_kernel` takes them.
    """
    ascent_D = gradients.total(batch.pairs, batch.coefficient_N)
    norm = float(torch.linalg.vector_norm(ascent_D, dtype=torch.float64))
    scale = min(1.0, batch.clip / (norm + 1e-6)) if batch.clip else 1.0
    loss_D = -scale * ascent_D
    scale_D, vectors = None, {}
    if adam is not None:
        scale_D = adam.precondition(loss_D)
        vectors["drift"] = adam.drift(loss_D, theta(gradients))
    kernel = influence_kernel(gradients, batch.pairs, probe, scale_D, sketch, vectors, **options)
    drift_M = kernel.along.get("drift", torch.zeros(len(probe), dtype=torch.float64))
    coefficient_N = batch.coefficient_N.double().cpu()
    unit_M = scale * (coefficient_N @ kernel.k_NM) + drift_M
    if lr is None:
        rms = float(unit_M.square().mean().sqrt())
        lr = adam.lr if adam is not None and adam.lr > 0 else 0.01 / max(rms, 1e-30)
    before_M = gradients.logprobs(probe)
    checks, measured = [], {}
    for factor in [10 ** (h / 2) for h in range(-4, 7)] if factors is None else factors:
        measured[factor] = measure_step(gradients, loss_D, lr * factor, adam, probe) - before_M
        checks.append(compare_step(lr * factor, measured[factor], lr * factor * unit_M))
        if factors is None and factor > 1 and all(not c.r2 >= HOLDS for c in checks[-2:]):
            break
    if 1.0 not in measured:
        measured[1.0] = measure_step(gradients, loss_D, lr, adam, probe) - before_M
        checks.append(compare_step(lr, measured[1.0], lr * unit_M))
    checks.sort(key=lambda c: c.lr)
    return Prediction(
        "sgd" if adam is None else "adam", kernel, coefficient_N, drift_M, scale, norm, lr, tuple(checks),
        lr * unit_M, measured[1.0], _noise(gradients, probe, before_M),
    )  # fmt: skip


def measure_step(
    gradients: Gradients, loss_D: Tensor, lr: float, adam: AdamState | None, probe: Sequence[Pair]
) -> Tensor:
    """log π (M,) of the probe pairs after one real optimizer step; the weights are as before when it returns."""
    params = gradients.params
    kept = [p.detach().clone() for p in params.values()]
    groups, at = [], 0
    for p in params.values():
        p.grad = loss_D[at : at + p.numel()].view_as(p).clone()
        groups.append((p, slice(at, at + p.numel())))
        at += p.numel()
    optimizer: torch.optim.Optimizer
    try:
        if adam is None:
            optimizer = torch.optim.SGD(list(params.values()), lr=lr)
        else:
            decay = [_decay(adam, part) for _, part in groups]
            optimizer = torch.optim.AdamW(
                [{"params": [p], "weight_decay": d} for (p, _), d in zip(groups, decay, strict=True)],
                lr=lr, betas=adam.betas, eps=adam.eps,
            )  # fmt: skip
            for p, part in groups:
                optimizer.state[p] = {
                    "step": torch.tensor(float(adam.steps)),
                    "exp_avg": adam.first_D[part].view_as(p).clone(),
                    "exp_avg_sq": adam.second_D[part].view_as(p).clone(),
                }
        optimizer.step()
        return gradients.logprobs(probe)
    finally:
        with torch.no_grad():
            for p, old in zip(params.values(), kept, strict=True):
                p.copy_(old)
                p.grad = None


def compare_step(lr: float, measured_M: Tensor, predicted_M: Tensor) -> StepCheck:
    """R² = 1 - Σ(measured - predicted)² / Σ(measured - mean)², over probe pairs; NaN where all changed alike."""
    residual = float((measured_M - predicted_M).square().sum())
    spread = float((measured_M - measured_M.mean()).square().sum())
    power = float(predicted_M.square().sum())
    pair = torch.stack([measured_M, predicted_M])
    ranks = torch.stack([v.argsort().argsort().double() for v in pair])
    return StepCheck(
        lr=lr,
        r2=1 - residual / spread if spread > 0 else float("nan"),
        slope=float((measured_M * predicted_M).sum()) / power if power > 0 else float("nan"),
        correlation=float(torch.corrcoef(pair)[0, 1]) if len(measured_M) > 1 else float("nan"),
        rank_correlation=float(torch.corrcoef(ranks)[0, 1]) if len(measured_M) > 1 else float("nan"),
        rms=float(measured_M.square().mean().sqrt()),
        mean_measured=float(measured_M.mean()),
        mean_predicted=float(predicted_M.mean()),
    )


def theta(gradients: Gradients) -> Tensor:
    """The parameters as one vector (D,)."""
    return torch.cat([p.detach().flatten() for p in gradients.params.values()])


def _decay(adam: AdamState, part: slice) -> float:
    value = adam.weight_decay_D
    return float(value[part][0]) if isinstance(value, Tensor) else float(value)


def _noise(gradients: Gradients, probe: Sequence[Pair], before_M: Tensor) -> float:
    """Largest change of a log-probability that batching alone makes, over up to 16 pairs scored one by one."""
    some = range(min(16, len(probe)))
    return max(abs(float(gradients.logprobs([probe[i]])[0]) - float(before_M[i])) for i in some)
