"""The softmax bandit of RBP's appendix D: one context, V actions, a linear policy, REINFORCE against likelihood.

Logits are z = Wᵀx with W of shape (d, V), so a gradient step on W moves them by η' = η‖x‖² times the gradient in z
(eq. 24): all that follows works on z of shape (V,), or (S, V) for many starts at once, in float64.

Labels map an action to its sign, +1 (rewarded) or −1 (pushed down). The objectives (eq. 19, with signs):

    REINFORCE    J = Σ s_y π_y          ∇_z J = Σ s_y π_y (e_y − π)
    likelihood   J = Σ s_y log π_y      ∇_z J = Σ s_y (e_y − π)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from limen.errors import ConfigError

Floats = NDArray[np.float64]
Objective = Literal["reinforce", "mle"]
Labels = Mapping[int, int]
Start = Literal["uniform", "peaked"]

OBJECTIVES: tuple[Objective, ...] = ("reinforce", "mle")
V, D, ETA = 50, 5, 0.5
"""Actions, features and step size of the paper."""

X_NORM2 = 3.0
"""‖x‖² unless given, so η' = 1.5: below 2, where ten likelihood steps settle instead of oscillating."""

SPREAD = 0.1
"""Standard deviation of the entries of W: the near-uniform start."""

PEAKS = {20: 6.0, 8: 4.8, 11: 3.0}
"""Logits added at the peaked start. The greedy action (20) carries no label; of the two that do, 8 is the commoner."""

PEAK_JITTER = 0.2


@dataclass(frozen=True)
class Row:
    """A row of figure 9. `watched`: the action that the paper's text speaks of beside the labels."""

    number: int
    start: Start
    labels: Labels
    steps: int
    watched: int
    title: str


ROWS = (
    Row(1, "uniform", {11: 1, 5: 1}, 1, 5, "near uniform, 11 and 5 rewarded"),
    Row(2, "uniform", {11: -1}, 1, 5, "near uniform, 11 pushed down"),
    Row(3, "peaked", {11: -1}, 1, 8, "peaked, 11 pushed down"),
    Row(4, "peaked", {11: 1, 8: 1}, 1, 8, "peaked, 11 and 8 rewarded"),
    Row(5, "peaked", {11: 1, 8: 1}, 10, 8, "peaked, 11 and 8 rewarded, ten steps"),
)


def softmax(z: Floats) -> Floats:
    """Probabilities over the last axis."""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    out: Floats = e / e.sum(axis=-1, keepdims=True)
    return out


def gradient(pi: Floats, labels: Labels, objective: Objective) -> Floats:
    """∇_z J, shape of `pi`."""
    out = np.zeros_like(pi)
    for action, sign in labels.items():
        weight = sign * (pi[..., action] if objective == "reinforce" else np.ones_like(pi[..., action]))
        out -= weight[..., None] * pi
        out[..., action] += weight
    return out


def run(z: Floats, labels: Labels, objective: Objective, eta: float | Floats, steps: int = 1) -> Floats:
    """Probabilities after 0 … `steps` steps of size η' = `eta` (a number, or one for each start).

    Shape (steps + 1, …, V). Raises `ConfigError` for actions that do not exist and for signs other than ±1.
    """
    check_labels(labels, z.shape[-1])
    eta_ = np.asarray(eta, dtype=np.float64)[..., None]
    path = [softmax(z)]
    for _ in range(steps):
        z = z + eta_ * gradient(path[-1], labels, objective)
        path.append(softmax(z))
    return np.stack(path)


def check_labels(labels: Labels, actions: int) -> None:
    if not labels:
        raise ConfigError("no action has a label: give some as ACTION+ or ACTION-, such as 11+,5+")
    for action, sign in labels.items():
        if not 0 <= action < actions:
            raise ConfigError(f"action {action} is not one of the {actions} actions 0 … {actions - 1}")
        if sign not in (1, -1):
            raise ConfigError(f"the label of action {action} is {sign}: expected +1 (rewarded) or -1 (pushed down)")


def parse_labels(text: str) -> dict[int, int]:
    """`11+,5+` or `11-` as labels. Raises `ConfigError` for anything else."""
    labels: dict[int, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        if part[-1] not in "+-" or not part[:-1].isdecimal():
            raise ConfigError(f"label '{part}': expected an action and a sign, such as 11+ or 11-")
        if int(part[:-1]) in labels:
            raise ConfigError(f"action {part[:-1]} has two labels")
        labels[int(part[:-1])] = 1 if part[-1] == "+" else -1
    return labels


def alpha(path: Floats) -> Floats:
    """α = π after the last step over π before the first (lemma D.1), per action."""
    out: Floats = path[-1] / path[0]
    return out


def draw_x(seed: int, norm2: float | None = X_NORM2) -> Floats:
    """x ∼ N(0, I_d), scaled to ‖x‖² = `norm2` (None: as drawn). Shape (d,)."""
    x = np.random.default_rng([seed, 0]).standard_normal(D)
    return x if norm2 is None else x * np.sqrt(norm2 / np.square(x).sum())


def draw_logits(start: Start, seed: int, x: Floats, spread: float = SPREAD) -> Floats:
    """z = Wᵀx. `uniform`: entries of W ∼ N(0, spread²). `peaked`: the same, plus `PEAKS` (each jittered by the seed,
    their order kept), which W holds in the direction of x."""
    rng = np.random.default_rng([seed, 1])
    W = spread * rng.standard_normal((D, V))
    if start == "peaked":
        heights = np.sort(np.array(list(PEAKS.values())) + PEAK_JITTER * rng.standard_normal(len(PEAKS)))[::-1]
        target = np.zeros(V)
        target[list(PEAKS)] = heights
        W += np.outer(x, target) / np.square(x).sum()
    z: Floats = W.T @ x
    return z


# Closed forms -------------------------------------------------------------------------------------------------------


def lemma_d1(z: Floats, eta: float, y1: int, y2: int, objective: Objective) -> Floats:
    """α of every action after one step with `y1` and `y2` rewarded, by eq. 21–23; shape (V,).

    Read as derived: the bracket of eq. 22 is 2(π_j − π_i) + 1, and its "j = y₁" is j = i.
    """
    pi, e = softmax(z), np.exp(z - z.max())
    rewarded = (y1, y2)
    both = pi[y1] + pi[y2]
    out = np.empty_like(pi)
    for i in range(len(pi)):
        gap = pi - pi[i]
        if objective == "mle":
            exponent = 2 * gap + (1.0 if i in rewarded else 0.0)
            for j in rewarded:
                exponent[j] = 2 * gap[j] - (0.0 if i in rewarded else 1.0)
        else:
            exponent = both * gap + (pi[i] if i in rewarded else 0.0)
            for j in rewarded:
                exponent[j] = (both - 1) * gap[j] if i in rewarded else both * gap[j] - pi[j]
        out[i] = e.sum() / (np.exp(-eta * exponent) * e).sum()
    return out


def first_order_sign(pi: Floats, y1: int, y2: int) -> Floats:
    """π₂(1−Δπ) − π₁² − π₂² + Δπ Σπ_j²: d log π₂/dη' under REINFORCE with both rewarded (App. D). Shape pi.shape[:-1].

    Its sign is that of α₂ − 1 at a small step.
    """
    p1, p2 = pi[..., y1], pi[..., y2]
    both = p1 + p2
    out: Floats = p2 * (1 - both) - p1**2 - p2**2 + both * np.square(pi).sum(-1)
    return out


def push_down_sign(pi: Floats, i: int, negative: int) -> Floats:
    """π_i − (Σπ_j² − π₋): to first order the sign of α_i − 1 when `negative` is pushed down under REINFORCE."""
    out: Floats = pi[..., i] - (np.square(pi).sum(-1) - pi[..., negative])
    return out


def step_with_autograd(
    z: Floats, x: Floats, labels: Labels, objective: Objective, step_size: float = ETA
) -> tuple[Floats, Floats]:
    """(α, gradient in W) of one gradient step on W itself by torch's autograd, in float64: the check on all the above.

    W is chosen so that Wᵀx = z; the result does not depend on which such W.
    """
    import torch

    x_ = torch.from_numpy(x)
    W = torch.from_numpy(np.outer(x, z) / np.square(x).sum()).requires_grad_()
    log_pi = torch.log_softmax(x_ @ W, -1)
    terms = [s * (log_pi[y].exp() if objective == "reinforce" else log_pi[y]) for y, s in labels.items()]
    (grad,) = torch.autograd.grad(torch.stack(terms).sum(), W)
    after = torch.log_softmax(x_ @ (W.detach() + step_size * grad), -1)
    return np.asarray((after - log_pi.detach()).exp().numpy()), np.asarray(grad.numpy())
