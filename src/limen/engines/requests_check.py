"""What every engine refuses before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence

from limen.engines.protocol import SampleRequest
from limen.errors import ModelError
from limen.types import SamplingParams


def check_params(params: SamplingParams) -> None:
    """Raise `ModelError` for options that mean nothing."""
    if params.max_tokens < 1:
        raise ModelError(f"max_tokens is {params.max_tokens}: give at least 1")
    if not 0 < params.top_p <= 1 or params.top_k < 0 or params.temperature < 0:
        raise ModelError(f"need 0 < top_p <= 1, top_k >= 0, temperature >= 0; came {params}")
    if any(not s for s in params.stop):
        raise ModelError("an empty stop string would stop every response at once: leave it out")


def check_requests(
    requests: Sequence[SampleRequest], params: SamplingParams, context: int | None, vocabulary: int | None = None
) -> None:
    """Refuse, before anything is drawn, what no engine could do. Raises `ModelError`."""
    check_params(params)
    for request in requests:
        ids, name = request.prompt.token_ids, request.prompt.problem_id
        if len(request.sample_indices) != len(request.seeds):
            raise ModelError(f"problem {name}: {len(request.sample_indices)} samples but {len(request.seeds)} seeds")
        if not ids:
            raise ModelError(f"problem {name}: its prompt has no tokens")
        if vocabulary is not None and max(ids) >= vocabulary:
            raise ModelError(f"problem {name}: token {max(ids)} is not in the model's vocabulary of {vocabulary}")
        if context is not None and len(ids) + params.max_tokens > context:
            raise ModelError(
                f"problem {name}: a prompt of {len(ids)} tokens and max_tokens {params.max_tokens} do not fit the "
                f"model's context of {context}: lower max_tokens, or leave the problem out"
            )
