"""Several contexts: what a step on one of them does to the others, where the policy shares its weights and where not.

The contextual softmax policy of RBP's appendix D on X contexts, weights (d, V) shared by all, in closed form:

    ∇_W log π(y|x) = x (e_y − π(·|x))ᵀ,   K(x, y; x', y') = (x·x') (e_y − π(·|x))·(e_y' − π(·|x'))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from limen.lab.bandit import D, Floats, V, gradient, softmax

CONTEXTS, STEPS = 12, (1e-4, 1e-3, 1e-2)


def kernel_row(X: Floats, pi: Floats, at: int, action: int) -> Floats:
    """K of the pair (context `at`, `action`) with every (context, action); X (contexts, d), pi (contexts, V)."""
    own = -pi[at]
    own = own + np.eye(V)[action]
    others = np.eye(V)[None] - pi[:, None, :]
    out: Floats = (X @ X[at])[:, None] * (others @ own)
    return out


def step_change(X: Floats, W: Floats, at: int, action: int, size: float) -> Floats:
    """Change of log π(y'|x') for every pair after W += size ∇log π(action|context `at`)."""
    before = softmax(X @ W)
    after = softmax(X @ (W + size * np.outer(X[at], np.eye(V)[action] - before[at])))
    out: Floats = np.log(after) - np.log(before)
    return out


def bound(seeds: int) -> dict[str, Any]:
    """RBP-E4: |Δ log π| ≤ ηC|K| + what first order leaves out, with C = |A| = 1 and one pair a step.

    The remainder is of second order: its largest ratio to the square of the step is printed, and that it does not grow
    as the step shrinks is the test (the bound itself then follows)."""
    worst: dict[float, float] = {}
    within: dict[float, float] = {}
    for size in STEPS:
        rest, shares = [], []
        for seed in range(min(seeds, 40)):
            rng = np.random.default_rng([seed, 5])
            X, W = rng.standard_normal((CONTEXTS, D)), 0.5 * rng.standard_normal((D, V))
            at, action = int(rng.integers(CONTEXTS)), int(rng.integers(V))
            first = size * kernel_row(X, softmax(X @ W), at, action)
            delta = step_change(X, W, at, action, size)
            rest.append(float(np.abs(delta - first).max()) / size**2)
            shares.append(float((np.abs(delta) <= np.abs(first) * 1.05 + 1e-15).mean()))
        worst[size], within[size] = max(rest), float(np.mean(shares))
    level = worst[STEPS[0]] < 3 * worst[STEPS[1]] and worst[STEPS[1]] < 3 * worst[STEPS[2]]
    text = "; ".join(f"η = {s:g}: {within[s]:.1%} within ηC|K| + 5%, remainder ≤ {worst[s]:.1f} η²" for s in STEPS)
    return {"verdict": "agrees" if level and within[STEPS[0]] > 0.95 else "undetermined", "size": text}


def separate(seeds: int) -> dict[str, Any]:
    """RBP-S4-0: trained on half of the contexts by REINFORCE, a policy with weights of its own for each of them leaves
    the other half as it was, exactly; one with shared weights does not."""
    moved_alone, moved_shared = 0.0, []
    for seed in range(min(seeds, 40)):
        rng = np.random.default_rng([seed, 6])
        X, W = rng.standard_normal((CONTEXTS, D)), 0.5 * rng.standard_normal((D, V))
        right = rng.integers(V, size=CONTEXTS)
        z, half = X @ W, CONTEXTS // 2
        start = softmax(z)
        for _ in range(50):
            pi, shared = softmax(z), softmax(X @ W)
            for c in range(half):
                z[c] += 0.5 * gradient(pi[c], {int(right[c]): 1}, "reinforce")
                W = W + 0.5 * np.outer(X[c], gradient(shared[c], {int(right[c]): 1}, "reinforce"))
        moved_alone = max(moved_alone, float(np.abs(softmax(z) - start)[half:].max()))
        after = softmax(X @ W)
        moved_shared.append(float(np.log(after[range(half, CONTEXTS), right[half:]]).mean()
                                  - np.log(start[range(half, CONTEXTS), right[half:]]).mean()))  # fmt: skip
    text = f"own weights: largest change of π outside {moved_alone:g}; shared weights: log π of their right answers "
    text += f"{np.mean(moved_shared):+.2f} on average, lower in {np.mean(np.array(moved_shared) < 0):.0%} of the starts"
    return {"verdict": "agrees" if moved_alone == 0 else "opposite", "size": text}
