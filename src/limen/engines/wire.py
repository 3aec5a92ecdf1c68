"""Requests, samples and scores as JSON lines, between a process and its workers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.engines.protocol import Capabilities, Sample, SampleRequest, ScoreRequest
from limen.engines.spread import About
from limen.types import Prompt, SamplingParams


def send(file: Any, message: dict[str, Any]) -> None:
    """Write one message to a binary file. Raises `OSError` where the other side is gone."""
    file.write(json.dumps(message).encode() + b"\n")
    file.flush()


def receive(file: Any) -> Iterator[dict[str, Any]]:
    """Messages until the other side ends; a line that is cut off is none."""
    for line in file:
        if line.endswith(b"\n"):
            yield json.loads(line)


def params_to(params: SamplingParams) -> dict[str, Any]:
    return asdict(params)


def params_from(data: dict[str, Any]) -> SamplingParams:
    return SamplingParams(**{**data, "stop": tuple(data["stop"])})


def requests_to(requests: Sequence[SampleRequest]) -> list[dict[str, Any]]:
    return [asdict(r) for r in requests]


def requests_from(data: Sequence[dict[str, Any]]) -> list[SampleRequest]:
    return [
        SampleRequest(
            Prompt(**{**d["prompt"], "token_ids": tuple(d["prompt"]["token_ids"])}),
            tuple(d["sample_indices"]),
            tuple(d["seeds"]),
        )
        for d in data
    ]


def samples_to(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    return [asdict(s) for s in samples]


def samples_from(data: Sequence[dict[str, Any]]) -> list[Sample]:
    def whole(values: Any) -> Any:
        return None if values is None else tuple(values)

    return [Sample(**{**d, "token_ids": whole(d["token_ids"]), "logprobs": whole(d["logprobs"])}) for d in data]


def pairs_to(requests: Sequence[ScoreRequest]) -> list[dict[str, Any]]:
    return [asdict(r) for r in requests]


def pairs_from(data: Sequence[dict[str, Any]]) -> list[ScoreRequest]:
    return [ScoreRequest(tuple(d["prompt_ids"]), tuple(d["token_ids"])) for d in data]


def scores_to(scores: Sequence[NDArray[np.float32]]) -> list[list[float]]:
    return [s.tolist() for s in scores]


def scores_from(data: Sequence[list[float]]) -> list[NDArray[np.float32]]:
    return [np.array(s, dtype=np.float32) for s in data]


def about_to(about: About) -> dict[str, Any]:
    return asdict(about)


def about_from(data: dict[str, Any]) -> About:
    return About(**{**data, "capabilities": Capabilities(**data["capabilities"])})
