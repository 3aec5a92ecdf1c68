"""Programs judged by their tests, run in a sandbox."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from limen.errors import DataError
from limen.verify import extract, sandbox
from limen.verify.base import Decision, Extraction, Options, Verifier

_FENCE = re.compile(r"^[ \t]*```[ \t]*(?:python3?|py)?[ \t]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE | re.I)
_CODE = re.compile(r"^(?:(?:def|class|import|from|print|for|while|if)\b|[A-Za-z_]\w*\s*=)", re.MULTILINE)


class PythonOptions(Options):
    sandbox: Literal["auto", "bwrap", "unshare", "off"] = "auto"
    """"off" runs a model's programs with this user's rights: never on a machine that matters."""
    seconds: float = Field(2.0, gt=0)
    """Processor time of one run of the program (and half of its wall-clock time); one that takes longer fails its
    test. Keep twice the sum over the tests below the deadline."""
    memory_mb: int = Field(512, ge=64)
    tolerance: float = 1e-9
    """Relative, for numbers that a call returns."""


class Python(Verifier):
    """`metadata` holds one of three kinds of test:

    - {"inputs": [text, ...], "outputs": [text, ...]}: standard input to standard output, words compared;
    - {"entry_point": name, "calls": [[argument, ...], ...], "returns": [value, ...]}: JSON values; what is expected
      never enters the sandbox;
    - {"tests": source} (also with HumanEval's `check` and `entry_point`): asserts that run after the program and in
      its process. A program that sets out to fool them can, so prefer one of the others.
    """

    name = "python"
    preload = ("limen.verify.sandbox",)
    options_type = PythonOptions
    options: PythonOptions

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._kind = sandbox.choose(self.options.sandbox)

    def extract(self, response: str, metadata: Mapping[str, Any]) -> Extraction:
        blocks = [m.group(1) for m in _FENCE.finditer(response) if m.group(1).strip()]
        if blocks:
            return Extraction(blocks[-1], "fence")
        tagged = extract.tagged(response)
        if tagged:
            return Extraction(tagged, "tag")
        if _CODE.search(response):
            return Extraction(response, "whole")
        return Extraction(None, "no program")

    def quick(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision | None:
        self.check(metadata)
        return None

    def decide(self, gold: str, answer: str, metadata: Mapping[str, Any]) -> Decision:
        if "inputs" in metadata:
            return self._streams(answer, metadata)
        if "calls" in metadata:
            return self._calls(answer, metadata)
        return self._asserts(answer, metadata)

    def _run(self, program: str, stdin: str) -> sandbox.Finished:
        limits = sandbox.Limits(self.options.seconds, self.options.memory_mb)
        return sandbox.run_program(program, stdin.encode("utf-8", "surrogatepass"), self._kind, limits)

    def _streams(self, program: str, metadata: Mapping[str, Any]) -> Decision:
        for given, expected in zip(metadata["inputs"], metadata["outputs"], strict=True):
            finished = self._run(program, str(given))
            failed = _failed(finished)
            if failed:
                return failed
            if finished.output.decode("utf-8", "replace").split() != str(expected).split():
                return Decision("wrong", "output")
        return Decision("correct", "tests")

    def _calls(self, program: str, metadata: Mapping[str, Any]) -> Decision:
        token = secrets.token_hex(16)
        job = {"token": token, "source": program, "name": metadata["entry_point"], "calls": metadata["calls"]}
        finished = self._run(_CALLS, json.dumps(job) + "\n")
        failed = _failed(finished)
        if failed:
            return failed
        lines = [x for x in finished.output.decode("utf-8", "replace").splitlines() if x.startswith(token)]
        try:
            values = json.loads(lines[-1][len(token) :]) if lines else None
        except json.JSONDecodeError:
            values = None
        expected = list(metadata["returns"])
        if not isinstance(values, list) or len(values) != len(expected):
            return Decision("wrong", "no values")
        same = all(_equal(a, b, self.options.tolerance) for a, b in zip(expected, values, strict=True))
        return Decision("correct" if same else "wrong", "tests" if same else "value")

    def _asserts(self, program: str, metadata: Mapping[str, Any]) -> Decision:
        tests = metadata["tests"]
        source = "\n".join(tests) if isinstance(tests, list) else str(tests)
        token = secrets.token_hex(16)
        job = {"token": token, "source": program, "tests": source, "name": metadata.get("entry_point")}
        finished = self._run(_ASSERTS, json.dumps(job) + "\n")
        failed = _failed(finished)
        if failed:
            return failed
        passed = token.encode() in finished.output.splitlines()
        return Decision("correct" if passed else "wrong", "tests")

    def check(self, metadata: Mapping[str, Any]) -> None:
        complete = (
            {"inputs", "outputs"} <= set(metadata)
            or {"entry_point", "calls", "returns"} <= set(metadata)
            or "tests" in metadata
        )
        if not complete:
            raise DataError(
                "the verifier 'python' needs each problem's metadata to hold 'inputs' and 'outputs', or 'entry_point', "
                f"'calls' and 'returns', or 'tests', but found only {sorted(metadata)}"
            )


def _failed(finished: sandbox.Finished) -> Decision | None:
    if finished.status is None:
        return Decision("wrong", "time limit")
    if finished.status == 97 and finished.errors.startswith(b"sandbox:"):
        return Decision("unjudged", "sandbox")
    return None if finished.status == 0 else Decision("wrong", "error")


def _equal(expected: Any, value: Any, tolerance: float) -> bool:
    if isinstance(expected, bool) or isinstance(value, bool):
        return expected is value
    if isinstance(expected, int | float) and isinstance(value, int | float):
        if isinstance(expected, int) and isinstance(value, int):
            return expected == value
        return math.isclose(expected, value, rel_tol=tolerance, abs_tol=0.0)
    if isinstance(expected, list) and isinstance(value, list):
        return len(expected) == len(value) and all(
            _equal(a, b, tolerance) for a, b in zip(expected, value, strict=True)
        )
    if isinstance(expected, dict) and isinstance(value, dict):
        return expected.keys() == value.keys() and all(_equal(v, value[k], tolerance) for k, v in expected.items())
    return bool(expected == value)


_CALLS = """
import json, os, sys
job = json.loads(sys.stdin.readline())
out = os.dup(1)
space = {"__name__": "solution"}
exec(compile(job["source"], "solution.py", "exec"), space)
values = [space[job["name"]](*args) for args in job["calls"]]
sys.stdout.flush()
os.write(out, ("\\n" + job["token"] + json.dumps(values) + "\\n").encode())
"""

_ASSERTS = """
import json, os, sys
def run():
    job = json.loads(sys.stdin.readline())
    out = os.dup(1)
    space = {"__name__": "solution"}
    exec(compile(job["source"], "solution.py", "exec"), space)
    exec(compile(job["tests"], "tests.py", "exec"), space)
    if job["name"] and "check" in space:
        space["check"](space[job["name"]])
    sys.stdout.flush()
    os.write(out, ("\\n" + job["token"] + "\\n").encode())
run()
"""
