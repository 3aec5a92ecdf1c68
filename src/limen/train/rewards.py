"""Rewards: limen's verifiers as a TRL reward function, and guards around any other.

The response alone is graded, never the prompt (which may hold a `\\boxed{}` of its own).
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from limen.errors import ConfigError, DataError
from limen.types import Verdict

RewardKind = Literal["binary", "rbp"]

REWARDS: dict[str, dict[str, float | None]] = {
    "binary": {"correct": 1.0, "wrong": 0.0, "no_answer": 0.0, "unjudged": None},
    "rbp": {"correct": 1.0, "wrong": -0.5, "no_answer": -1.0, "unjudged": None},
}
"""Reward by outcome. `rbp`: +1 boxed and correct, -0.5 boxed and wrong, -1 otherwise (RBP A.1). None: unjudged, the
response leaves its group."""


class Judge(Protocol):
    """What grades responses: `limen.verify.VerifierPool`, or anything of its form."""

    @property
    def version(self) -> str: ...

    def judge_many(self, items: Sequence[Any]) -> list[Verdict]: ...


class VerifierReward:
    """A verifier as a TRL reward function. The dataset needs a column `answer`; `metadata` (a mapping, or its JSON)
    is passed on if there is one.

    `is_truncated(ids)` tells from the completion's token ids whether it was cut off; a truncated response has no
    answer. The verdicts of the last call are kept in `last_verdicts`, in order.
    """

    def __init__(self, judge: Judge, kind: str = "binary", stop: Sequence[str] = ()) -> None:
        if kind not in REWARDS:
            raise ConfigError(f"reward: '{kind}' is not one of {', '.join(REWARDS)}")
        self.judge = judge
        self.table = REWARDS[kind]
        self.stop = tuple(stop)
        self.is_truncated: Callable[[Sequence[int]], bool] = lambda ids: False
        self.last_verdicts: list[Verdict] = []
        self._calls = (0, 0)  # step, calls since
        self.__name__ = kind

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        **columns: Any,
    ) -> list[float | None]:
        from limen.verify import JudgeItem

        golds = columns.get("answer")
        if golds is None:
            raise DataError(
                "the training set has no column 'answer': the verifier needs the gold answer of each problem"
            )
        metadata = columns.get("metadata") or [None] * len(prompts)
        step = getattr(columns.get("trainer_state"), "global_step", self._calls[0])
        self._calls = (step, self._calls[1] + 1 if step == self._calls[0] else 0)
        items = []
        for i, (text, ids, gold, meta) in enumerate(zip(completions, completion_ids, golds, metadata, strict=True)):
            text, stopped = cut_at_stop(completion_text(text), self.stop)
            cut = self.is_truncated(ids) and not stopped
            name = f"step {step}/{self._calls[1]}/{i}"
            items.append(JudgeItem(str(gold), text, _mapping(meta), cut, name))
        self.last_verdicts = self.judge.judge_many(items)
        return [self.table[v.outcome] for v in self.last_verdicts]


def completion_text(completion: Any) -> str:
    """Text of a TRL completion, which is a string or a list of messages."""
    if isinstance(completion, str):
        return completion
    return "".join(str(m.get("content") or "") for m in completion)


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Text before the first stop string, and whether there was one."""
    ends = [i for s in stop if (i := text.find(s)) >= 0]
    return (text[: min(ends)], True) if ends else (text, False)


def _mapping(value: Any) -> Mapping[str, Any]:
    if value is None or value == "":
        return {}
    return value if isinstance(value, Mapping) else json.loads(value)


def guarded(function: Any) -> Any:
    """A user's reward function with clear errors: raising, a wrong number of rewards, values that are no numbers.

    NaN becomes None: the response is unjudged and leaves its group. Reward models (modules) and names pass as they are.
    """
    if not callable(function) or isinstance(function, (str, VerifierReward)) or hasattr(function, "forward"):
        return function
    name = getattr(function, "__name__", type(function).__name__)

    def check(rewards: Any, expected: int) -> list[float | None]:
        try:
            values = list(rewards)
        except TypeError as error:
            raise DataError(f"reward function '{name}' returned {type(rewards).__name__}, expected a list") from error
        if len(values) != expected:
            raise DataError(
                f"reward function '{name}' returned {len(values)} rewards for {expected} responses: it must return "
                "one number (or None for unjudged) per response, in order"
            )
        return [_number(name, v) for v in values]

    def failed(error: Exception) -> DataError:
        return DataError(
            f"reward function '{name}' raised {type(error).__name__}: {error}. The last checkpoint is intact; mend the "
            "function (return None for a response that it cannot judge) and resume"
        )

    if inspect.iscoroutinefunction(function):

        async def call_async(prompts: Any, completions: Any, **kwargs: Any) -> list[float | None]:
            try:
                result = await function(prompts=prompts, completions=completions, **kwargs)
            except Exception as error:
                raise failed(error) from error
            return check(result, len(completions))

        call_async.__name__ = name
        return call_async

    def call(prompts: Any, completions: Any, **kwargs: Any) -> list[float | None]:
        try:
            result = function(prompts=prompts, completions=completions, **kwargs)
        except Exception as error:
            raise failed(error) from error
        return check(result, len(completions))

    call.__name__ = name
    return call


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"reward function '{name}' returned {value!r} as a reward, expected a number or None"
        ) from error
    if math.isinf(number):
        raise DataError(f"reward function '{name}' returned {number}: rewards must be finite")
    return None if math.isnan(number) else number
