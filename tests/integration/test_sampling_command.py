"""`limen sample` as a user runs it: killed in the middle, started again, refused in one line."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from limen import cli
from limen.config import SampleSettings
from limen.sampling import sample_run
from limen.store import Run

ENV = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
SETTINGS = {
    "model": "tiny",
    "problems": "arithmetic:all?size=16",
    "n": 32,
    "max_tokens": 6,
    "batch_size": 16,
    "flush_seconds": 0.1,
}
TOTAL = 16 * 32
CODE = (
    "import sys, json; from limen.config import SampleSettings; from limen.sampling import sample_run;"
    "sample_run(SampleSettings.make(**json.loads(sys.argv[1])), sys.argv[2], progress=False)"
)


def kill_in_the_middle(path):
    """Start sampling in a process of its own, and kill -9 it when it has written two more shards."""
    before = len(list(path.glob("rollouts/*.parquet")))
    command = [sys.executable, "-c", CODE, json.dumps(SETTINGS), str(path)]
    process = subprocess.Popen(command, env=ENV, stderr=subprocess.PIPE, text=True)
    started = time.monotonic()
    while len(list(path.glob("rollouts/*.parquet"))) < before + 2:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() - started < 120
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    return len(Run.open(path).keys("rollouts"))


def token_ids(path):
    return {(r.problem_id, r.sample_index): r.token_ids for r in Run.open(path).rollouts()}


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_kill_minus_nine_and_go_on(tmp_path, kills):
    """A run that was killed ends with the same rollouts as one that was left alone."""
    killed, whole = tmp_path / "killed" / "run", tmp_path / "run"
    counts = [kill_in_the_middle(killed) for _ in range(kills)]
    assert 0 < counts[0] <= counts[-1] < TOTAL
    assert counts == sorted(counts)
    settings = SampleSettings.make(**SETTINGS)
    run = sample_run(settings, killed, progress=False)
    assert run.info["last"]["samples"] == TOTAL - counts[-1]
    sample_run(settings, whole, progress=False)
    ours, theirs = token_ids(killed), token_ids(whole)
    assert ours.keys() == theirs.keys()
    # Rounding of the logits under another batch may flip one token in a million.
    assert sum(ours[key] != theirs[key] for key in theirs) <= 1
    assert run.info["status"] == "done"
    assert len(run.info["sessions"]) == kills
    for table in ("rollouts", "verdicts"):
        assert run.table(table).num_rows == len(run.keys(table)) == TOTAL


def limen(monkeypatch, *args):
    """`limen sample` in this process: starting Python for each case would take most of a minute."""
    from limen.cli import main

    monkeypatch.setattr(sys, "argv", ["limen", "sample", "--quiet", "--model", "tiny", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_the_summary_and_the_json(tmp_path, capsys, monkeypatch):
    args = ["--problems", "arithmetic:add?size=4", "--max-tokens", "6", "--out", str(tmp_path / "r")]
    assert limen(monkeypatch, *args, "-n", "8") == 0
    assert "32 samples of 4 problems" in capsys.readouterr().out
    assert limen(monkeypatch, *args, "-n", "9", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["samples"] == 36
    assert summary["last"]["samples"] == 4
    assert sum(summary["outcomes"].values()) == 36


def test_scoring_where_nothing_is_left_prints_json_without_nan(tmp_path, capsys, monkeypatch):
    run = str(tmp_path / "r")
    assert limen(monkeypatch, "--problems", "arithmetic:add?size=2", "--max-tokens", "4", "--out", run) == 0
    command = ["limen", "score", run, "--model", "tiny", "--device", "cpu", "--json", "--quiet"]
    for scored in (2, 0):
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
        found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        assert found["scored"] == scored
        assert (found["mean_logprob"] is None) == (scored == 0)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--problems", "{tmp}/none.jsonl"], "no such file"),
        (["--problems", "{tmp}/empty.jsonl"], "holds no problems"),
        (["--problems", "arithmetic:add", "--verifier", "{"], "not JSON"),
        (["--problems", "arithmetic:add", "--verifier", "nonsense"], "no verifier"),
        (["--problems", "arithmetic:add", "--column", "problem"], "FIELD=NAME"),
        (["--problems", "arithmetic:add", "--template", "chat"], "no chat template"),
        (["--problems", "arithmetic:add", "--temperature", "0", "-n", "2"], "temperature 0"),
        (["--problems", "arithmetic:add", "--max-tokens", "90"], "do not fit"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, args, message, capsys, monkeypatch):
    (tmp_path / "empty.jsonl").write_text("")
    assert limen(monkeypatch, *[a.replace("{tmp}", str(tmp_path)) for a in args], "--out", str(tmp_path / "r")) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_ctrl_c_says_that_the_same_command_goes_on(monkeypatch, capsys, tmp_path):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("limen.sampling.sample_run", interrupted)
    command = ["limen", "sample", "--model", "tiny", "--problems", "p.jsonl", "--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    assert "the same command goes on" in capsys.readouterr().err
