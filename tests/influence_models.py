"""A policy whose gradients are known: log π(b|a) is the log-softmax of row a of a table."""

import types

import torch

from limen.dynamics.influence_gradients import Pair


class Table(torch.nn.Module):
    """logits after token a: W[a], shape (V, V)."""

    def __init__(self, vocabulary=5, seed=0, dtype=torch.float64):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.w = torch.nn.Parameter(torch.randn(vocabulary, vocabulary, generator=generator, dtype=dtype))

    def forward(self, input_ids, use_cache=False):
        return types.SimpleNamespace(logits=self.w[input_ids])


class Stubborn(Table):
    """The same policy, in a form that cannot be vmapped: Python looks at the data."""

    def forward(self, input_ids, use_cache=False):
        if int(input_ids[0, 0]) < 0:
            raise AssertionError
        return super().forward(input_ids)


def table_gradient(w, pair, mean=True):
    """∂ log π(y|x) / ∂W by hand: Σ_t (onehot(y_t) - π(.|y_{t-1})) in row y_{t-1}."""
    out, before = torch.zeros_like(w), pair.prompt_ids[-1]
    for token in pair.token_ids:
        out[before] -= torch.softmax(w[before], -1)
        out[before, token] += 1
        before = token
    return out.flatten() / (len(pair.token_ids) if mean else 1)


def pair(key, prompt, response, problem="p", correct=True, reward=1.0):
    return Pair(key, problem, tuple(prompt), tuple(response), "", correct, reward)


TRAIN = [pair("a", (0, 1), (2, 3, 4), "x"), pair("b", (2,), (1, 4), "x", False, 0.0), pair("c", (3, 0), (0,), "z")]
PROBE = [pair("d", (4, 1), (2, 0), "u"), pair("e", (0,), (1, 2, 3, 3), "u", False), pair("f", (1, 1), (4,), "v"),
         pair("g", (3,), (2, 2, 1), "v")]  # fmt: skip
