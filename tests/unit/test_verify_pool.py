"""The pool: never hangs, never shifts, leaves nothing behind."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from limen.errors import ConfigError
from limen.verify import JudgeItem, VerifierPool, judge

TOWER = "\\boxed{\\int_0^1 x^{x^{x^{x}}} dx + 5^{5^{5^{5^{5}}}}}"
ROOT = Path(__file__).resolve().parents[2]


def test_plain_cases_need_no_process():
    with VerifierPool("math") as pool:
        verdicts = pool.judge_many(
            [
                JudgeItem("18", "\\boxed{18}"),
                JudgeItem("18", "\\boxed{19}"),
                JudgeItem("18", ""),
                JudgeItem("18", "\\boxed{18}", truncated=True),
            ]
        )
        assert [v.outcome for v in verdicts] == ["correct", "wrong", "no_answer", "no_answer"]
        assert verdicts[3].rule == "truncated"
        assert pool.version == "math@1" == verdicts[0].verifier
        assert pool._processes is None


@pytest.fixture(scope="module")
def pool():
    with VerifierPool("math", workers=2, deadline=1.0, memory_mb=512) as pool:
        yield pool


def test_a_hanging_answer_is_unjudged_and_the_others_stay_in_place(pool):
    items = [
        JudgeItem("\\sqrt{8}", "\\boxed{2\\sqrt{2}}"),
        JudgeItem("1", TOWER),
        JudgeItem("\\pi", "\\boxed{\\pi + x}"),
    ]
    start = time.monotonic()
    outcomes = [v.outcome for v in pool.judge_many(items * 3)]
    assert outcomes == ["correct", "unjudged", "wrong"] * 3
    assert time.monotonic() - start < 60  # a loaded machine starts processes slowly


def test_many_threads_get_their_own_verdicts(pool):
    wrong: list[str] = []

    def work(i: int) -> None:
        gold = f"x^{{{i}}} + {i}"
        for j in range(8):
            verdict = pool.judge(gold, f"\\boxed{{{j} + x^{j}}}")
            if (verdict.outcome == "correct") != (i == j):
                wrong.append(f"{gold} {j} {verdict}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_processes_end_with_the_pool():
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    with VerifierPool("math", workers=2, deadline=1.0) as pool:
        pool.judge("\\pi^2", "\\boxed{x^2}")
        pool.judge("1", TOWER)
        during = {p.pid for p in psutil.Process().children(recursive=True)} - before
        assert during
    deadline = time.monotonic() + 20
    while any(psutil.pid_exists(p) for p in during) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(psutil.pid_exists(p) for p in during)


def test_a_script_without_a_main_guard_works(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from limen.verify import judge\nprint('once')\n"
        "print(judge('\\\\sqrt{8}', '\\\\boxed{2\\\\sqrt{2}}').outcome)\n"
    )
    out = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        check=True,
    )
    assert out.stdout.split() == ["once", "correct"]


@pytest.mark.parametrize("spec", ["no such", {"name": "math", "colour": "red"}, {"name": "math", "box": "middle"}])
def test_unknown_names_and_settings_are_one_clear_error(spec):
    with pytest.raises(ConfigError):
        judge("1", "1", spec)


def test_the_stored_answer_is_readable_and_bounded(pool):
    several = "\\boxed{\\int_0^1 a} and \\boxed{\\int_0^1 b}"
    assert pool.judge("\\pi", several).answer in ("\\int_0^1 b", "\\int_0^1 a, \\int_0^1 b")
    assert pool.judge("1, 2", "\\boxed{1} and \\boxed{2}").answer == "1, 2"
    assert len(pool.judge("1", f"\\boxed{{{'7' * 9000}}}").answer) == 2000


def test_equal_pairs_are_judged_once(pool):
    items = [JudgeItem("\\pi^3 + 1", TOWER, {"k": 1})] * 8
    start = time.monotonic()
    assert {v.rule for v in pool.judge_many(items)} == {"timeout"}
    assert {v.rule for v in pool.judge_many(items)} == {"timeout"}
    assert time.monotonic() - start < 8.0  # one deadline of 1 s, not sixteen


def test_a_worker_that_gets_no_processor_is_given_more_time(tmp_path, monkeypatch):
    """Stopping and continuing a process is not what load looks like, so the clock of the other is set instead."""
    from limen.verify import processes

    (tmp_path / "slow_verifier.py").write_text(
        "import time\ndef slow(gold, response, metadata):\n"
        "    end = time.monotonic() + float(response)\n    while time.monotonic() < end: pass\n    return True\n"
        "def sleeps(gold, response, metadata):\n    time.sleep(float(response))\n    return True\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(processes, "_processor_seconds", lambda pid: (0.0, True))
    with VerifierPool("slow_verifier:slow", workers=1, deadline=1.0) as pool:
        assert [pool.judge("", t).outcome for t in ("1.5", "30")] == ["correct", "unjudged"]
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(tmp_path))
    with VerifierPool("slow_verifier:sleeps", workers=1, deadline=1.0) as pool:
        assert pool.judge("", "2.5").rule == "timeout"
