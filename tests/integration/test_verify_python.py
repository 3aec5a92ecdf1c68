"""Programs of a model in a sandbox: right, wrong, and hostile."""

import os
import shutil
from pathlib import Path

import pytest

from limen.errors import ConfigError, DataError
from limen.verify import JudgeItem, VerifierPool, judge, sandbox

CALLS = {"entry_point": "double", "calls": [[2], [5]], "returns": [4, 10]}
STREAMS = {"inputs": ["1 2\n", "5 6\n"], "outputs": ["3", "11"]}
ASSERTS = {"tests": "assert double(2) == 4\nassert double(5) == 10"}
HUMANEVAL = {"entry_point": "double", "tests": "def check(f):\n    assert f(2) == 4"}

pytestmark = pytest.mark.skipif(sandbox.available() is None, reason="no sandbox works on this machine")


def fenced(code: str) -> str:
    return f"Here it is:\n```python\n{code}\n```\nDone."


@pytest.fixture(scope="module")
def pool():
    with VerifierPool({"name": "python", "seconds": 2.0}, workers=1, deadline=20.0) as pool:
        yield pool


GOOD = "def double(x):\n    return 2 * x"
CASES = [
    (GOOD, CALLS, "correct"),
    (GOOD, ASSERTS, "correct"),
    (GOOD, HUMANEVAL, "correct"),
    ("def double(x):\n    return x + 2", CALLS, "wrong"),
    ("def double(x):\n    return x + 2", ASSERTS, "wrong"),
    ("def double(x):\n    return True", HUMANEVAL, "wrong"),
    ("a, b = map(int, input().split())\nprint(a + b)", STREAMS, "correct"),
    ("a, b = map(int, input().split())\nprint(a - b)", STREAMS, "wrong"),
    ("print(3)", STREAMS, "wrong"),
    ("import sys\nsys.exit(0)", CALLS, "wrong"),
    ("import os\nos._exit(0)", ASSERTS, "wrong"),
    ("class E:\n    __eq__ = lambda s, o: True\ndef double(x):\n    return E()", CALLS, "wrong"),
    ("def double(x):\n    while True: pass", CALLS, "wrong"),
    ("def double(x):\n    return 'x' * 10**10", CALLS, "wrong"),
    ("while True: print('x' * 1000000)", STREAMS, "wrong"),
    ("import os\nwhile True: os.fork()", CALLS, "wrong"),
    ("def double(x:", CALLS, "wrong"),
]


@pytest.mark.parametrize(("code", "data", "outcome"), CASES)
def test_programs(pool, code, data, outcome):
    assert pool.judge("", fenced(code), data).outcome == outcome


def test_no_program_is_no_answer(pool):
    assert pool.judge("", "I do not know.", CALLS).outcome == "no_answer"


def test_the_last_block_counts(pool):
    assert pool.judge("", fenced("def double(x): return 0") + fenced(GOOD), CALLS).outcome == "correct"


def test_nothing_outside_the_folder_can_be_written_and_no_network_reached(pool, tmp_path):
    mark = tmp_path / "mark"
    tries = (
        f"import socket\ndef double(x):\n    for p in ({str(mark)!r}, '/usr/x', {os.path.expanduser('~/x')!r}):\n"
        "        try: open(p, 'w').write('x')\n        except OSError: pass\n"
        "    s = socket.socket()\n    s.settimeout(1)\n    try: s.connect(('192.0.2.1', 80))\n"
        "    except TimeoutError: return 1\n    except OSError: return 2 * x\n    return 0"
    )
    assert pool.judge("", fenced(tries), CALLS).outcome == "correct"
    assert not mark.exists()
    assert not Path("/usr/x").exists()


def test_capabilities_are_gone():
    program = "print(open('/proc/self/status').read().split('CapEff:')[1].split()[0])"
    kind = sandbox.available()
    assert kind is not None
    finished = sandbox.run_program(program, b"", kind, sandbox.Limits())
    assert int(finished.output, 16) == 0


FORKS = """
import os, subprocess, sys, threading, time
started = 0
try:
    for _ in range(100):
        if os.fork() == 0:
            time.sleep(20)
        started += 1
except OSError as e:
    print(type(e).__name__)
for way in (lambda: subprocess.Popen(["/bin/true"]), lambda: os.posix_spawn("/bin/true", ["true"], {}), os.forkpty):
    try:
        way()
        started += 1
    except OSError:
        pass
found = []
thread = threading.Thread(target=lambda: found.append(1))
if not started:
    thread.start()
    thread.join()
print(started, len(found) or started)
"""


@pytest.mark.parametrize("kind", ["bwrap", "unshare", "off"])
def test_a_program_cannot_fill_the_machine_with_processes(kind):
    if kind != "off" and not (shutil.which(kind) and sandbox._holds(kind)):
        pytest.skip(f"{kind} does not work on this machine")
    finished = sandbox.run_program(FORKS, b"", kind, sandbox.Limits(processes=16))
    refused, numbers = finished.output.decode().split("\n")[:2]
    assert refused == "BlockingIOError"
    started, threads = map(int, numbers.split())
    assert started <= 16
    assert threads > 0


def test_without_a_sandbox_it_refuses(monkeypatch):
    monkeypatch.setattr(sandbox, "available", lambda: None)
    with pytest.raises(ConfigError, match="no sandbox works here"):
        VerifierPool("python")
    VerifierPool({"name": "python", "sandbox": "off"}).close()


def test_a_problem_without_tests_is_one_clear_error(pool):
    with pytest.raises(DataError, match="inputs"):
        judge("", fenced(GOOD), "python", {"other": 1})


def test_items_keep_their_places(pool):
    items = [JudgeItem("", fenced(code), data) for code, data, _ in CASES[:8]]
    assert [v.outcome for v in pool.judge_many(items)] == [outcome for _, _, outcome in CASES[:8]]
