"""Runs that are not finished: watched in a terminal, and served while they grow."""

import io
import json
import threading
import urllib.error
import urllib.request

import pytest
from rich.console import Console

from limen.errors import DataError
from limen.report import read_report
from limen.report.progress import read_progress
from limen.report.serve import LiveReport, make_server
from limen.report.watch import Rate, duration, spark, watch
from limen.store import Run
from limen.store.schema import verdict_row
from limen.types import Rollout, SamplingParams, Verdict
from report_synthetic import problems, write_run, write_training


def test_progress_of_a_sampling_run(tmp_path):
    path = write_run(tmp_path / "base", "base", problems(10), [1.0] * 5 + [0.0] * 5, 6, 1, done=False)
    state = read_progress(path)
    assert (state.done, state.total, state.status) == (60, 60, "running")
    assert state.outcomes == {"correct": 30, "wrong": 30, "no_answer": 0, "unjudged": 0}


def test_progress_of_training_survives_a_half_written_line(tmp_path):
    path = write_training(tmp_path / "t", "GRPO", steps=20)
    with (path / "metrics.jsonl").open("a") as f:
        f.write('{"step": 21, "rew')
    state = read_progress(path)
    assert state.done == 20
    assert len(state.trend) == 20
    console = Console(width=100, record=True, file=io.StringIO())
    watch([path], once=True, console=console)
    assert "20 steps" in console.export_text()


def test_rate_and_words():
    rate = Rate()
    rate.add(0.0, 100)
    rate.add(10.0, 100)
    rate.add(20.0, 300)
    assert rate.per_second() == pytest.approx(10.0)
    assert duration(3725) == "1 h 02 min"
    assert spark([0, 1]) == "▁█"
    assert len(spark(range(1000), width=50)) == 50


def test_half_sampled_problems_are_left_out_aloud(tmp_path):
    base = write_run(tmp_path / "base", "base", problems(10), [0.5] * 10, 8, 1)
    other = write_run(tmp_path / "new", "new", problems(10), [0.5] * 10, 8, 2)
    run = Run.open(other)
    for shard in run.shards("verdicts") + run.shards("rollouts"):
        shard.unlink()
    run.info["status"] = "running"
    run.save()
    with run.writer("verdicts") as out:
        for i, count in enumerate([8, 8, 8, 3]):
            for j in range(count):
                r = Rollout(f"p{i:03d}", "new", 0, j, 0, None, "", "eos", "", 0, SamplingParams(), "x")
                out.append(verdict_row(r, Verdict("correct", "1", "exact", "exact@1")))
    data = read_report([base, other], draws=0)
    assert [p.id for p in data.problems] == ["p000", "p001", "p002"]
    assert data.policies[1].curve.k[-1] == 8
    assert data.live
    assert "only the 3 of 10 problems" in data.notes[0].text


def test_nothing_sampled_yet_is_one_clear_error(tmp_path):
    path = write_run(tmp_path / "a", "a", problems(2), [0.5] * 2, 4, 1, done=False)
    run = Run.open(path)
    for shard in run.shards("verdicts"):
        shard.unlink()
    with pytest.raises((DataError, ValueError), match="verdict"):
        read_report([path], draws=0)


def test_server_shows_what_is_new_and_nothing_else(tmp_path):
    path = write_run(tmp_path / "base", "base", problems(10), [0.5] * 10, 8, 1, done=False)
    live = LiveReport(lambda: read_report([path], draws=0), [path])
    server = make_server(live)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"

    def get(name, **headers):
        with urllib.request.urlopen(urllib.request.Request(url + name, headers=headers), timeout=10) as answer:
            return answer.read().decode()

    try:
        assert "Nothing to show yet" in get("/")
        assert live.refresh()
        assert not live.refresh()
        first = get("/version")
        page = get("/")
        assert "connect-src &#39;self&#39;" in page
        assert "10 problems" in page
        run = Run.open(path)
        run.finish()
        assert live.refresh()
        assert live.done
        assert get("/version") != first
        for bad in ("/../base/run.json", "/files/x.js", "/etc/passwd", "/%2e%2e/"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(bad)
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get("/", Host="evil.example")
    finally:
        server.shutdown()
        server.server_close()


def test_what_is_wrong_is_shown_in_the_served_page(tmp_path):
    folder = tmp_path / "<b>none</b>"
    live = LiveReport(lambda: read_report([folder]), [folder])
    live.refresh()
    assert "&lt;b&gt;none&lt;/b&gt;" in live.page
    assert json.dumps(live.chunks) == "{}"
