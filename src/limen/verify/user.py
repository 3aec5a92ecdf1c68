"""A verifier of the user's own: `module:function`, called in a worker process like any other."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from limen.errors import ConfigError
from limen.types import OUTCOMES
from limen.verify.base import Decision, Extraction, Options, Verifier


class UserOptions(Options):
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the function as keyword arguments."""


class UserFunction(Verifier):
    """`function(gold, response, metadata, **options)` gives True or False, a score (correct is exactly 1.0), an
    outcome ("correct", "wrong", "no_answer", "unjudged"), or a mapping with `outcome`, `answer`, `rule`. Whatever it
    raises makes that response unjudged (crash)."""

    name = "user"
    options_type = UserOptions
    options: UserOptions

    def __init__(self, path: str, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self.path = path
        self.module, _, self.function = path.partition(":")
        if self.module == "__main__":
            raise ConfigError(
                f"the verifier {path!r} is in a script or notebook, which the worker processes cannot import: "
                "move the function into a module (a .py file beside it) and name that"
            )
        try:
            spec = importlib.util.find_spec(self.module)
        except (ImportError, ValueError):
            spec = None
        if spec is None or not self.function.isidentifier():
            raise ConfigError(f"the verifier {path!r} cannot be found: expected MODULE:FUNCTION that can be imported")
        self.imports = (self.module,)
        source = Path(spec.origin).read_bytes() if spec.origin and Path(spec.origin).is_file() else b""
        self._digest = hashlib.blake2b(source, digest_size=4).hexdigest()

    @property
    def version(self) -> str:
        """The path and a digest of the module's source, so that an edited function is another version."""
        extra = ",".join(f"{k}={v}" for k, v in sorted(self.options.options.items()))
        return f"{self.path}@{self._digest}" + (f"[{extra}]" if extra else "")

    def extract(self, response: str, metadata: Mapping[str, Any]) -> Extraction:
        return Extraction(response, "whole")

    def decide(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision:
        function = getattr(importlib.import_module(self.module), self.function)
        result = function(gold, answer, dict(metadata), **self.options.options)
        return _decision(result, self.path)


def _decision(result: Any, path: str) -> Decision:
    if isinstance(result, bool):
        return Decision("correct" if result else "wrong", "user")
    if isinstance(result, int | float):
        return Decision("correct" if result == 1.0 else "wrong", "user")
    if isinstance(result, str) and result in OUTCOMES:
        return Decision(result, "user")
    if isinstance(result, Mapping) and result.get("outcome") in OUTCOMES:
        return Decision(result["outcome"], str(result.get("rule", "user")), str(result.get("answer", "")))
    raise TypeError(f"{path} gave {result!r:.80}; expected True, False, a score, an outcome or a mapping with outcome")
