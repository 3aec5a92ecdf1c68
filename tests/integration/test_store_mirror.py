"""A run folder copied to an object store while it is filled, and gone on with from there."""

import json

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from typer.testing import CliRunner

from limen.cli import _register, app
from limen.config import SampleSettings
from limen.engines import exact
from limen.errors import ConfigError, StoreError
from limen.sampling import sample_run
from limen.store import Run
from limen.store.mirror import Mirror

TABLE = {"q=": {"ab": 0.5, "a": 0.2, "b": 0.2, "": 0.1}, "r=": {"b": 0.6, "aaa": 0.4}}


@pytest.fixture(params=["memory", "s3"])
def url(request, monkeypatch):
    """A store in memory, and a server that speaks S3 where moto and s3fs are installed."""
    if request.param == "memory":
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]
        yield "memory://bucket/runs/mine"
        return
    s3fs = pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    bucket = f"bucket-{port}"
    s3fs.S3FileSystem().mkdir(bucket)
    yield f"s3://{bucket}/runs/mine"
    server.stop()


def engine():
    return exact.ExactEngine(exact.ResponsesPolicy(TABLE), logprobs=True)


class Breaking(exact.ExactEngine):
    def _sample(self, requests, params):
        for count, sample in enumerate(super()._sample(requests, params)):
            if count == 70:
                raise KeyboardInterrupt
            yield sample


def settings(tmp_path, url, n=60, verifier="none"):
    file = tmp_path / "p.jsonl"
    rows = [{"id": f"p{i}", "problem": t, "answer": "ab"} for i, t in enumerate(TABLE)]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    values = {"model": "m", "problems": str(file), "template": "plain", "verifier": verifier, "keep_bad_golds": True}
    return SampleSettings.make(**values, n=n, max_tokens=4, mirror=url, flush_seconds=0.05, verify_workers=1)


def rollouts(path):
    run = Run.open(path)
    found = {(r.problem_id, r.sample_index): (r.seed, r.token_ids) for r in run.rollouts()}
    assert len(found) == run.table("rollouts").num_rows
    assert run.settings["verifier"] == "none" or run.keys("verdicts") == run.keys("rollouts")
    return found


def test_another_machine_goes_on_from_the_mirror(tmp_path, url):
    """The first machine is lost with its disk; its folder's name is the run's, and so are the seeds."""
    with pytest.raises(KeyboardInterrupt):
        sample_run(
            settings(tmp_path, url, verifier="exact"),
            tmp_path / "one" / "run",
            Breaking(engine().policy, logprobs=True),
            progress=False,
        )
    sample_run(settings(tmp_path, url, verifier="exact"), tmp_path / "two" / "run", engine(), progress=False)
    alone = sample_run(settings(tmp_path, None), tmp_path / "three" / "run", engine(), progress=False)
    assert rollouts(tmp_path / "two" / "run") == rollouts(alone.path)
    _register()
    result = CliRunner().invoke(app, ["fetch", url, str(tmp_path / "four" / "run")])
    assert result.exit_code == 0, result.output
    assert rollouts(tmp_path / "four" / "run") == rollouts(alone.path)
    assert Run.open(tmp_path / "four" / "run").info["status"] == "done"


def test_topping_up_copies_only_what_is_new(tmp_path, url):
    run = sample_run(settings(tmp_path, url, 20), tmp_path / "run", engine(), progress=False).path
    assert Mirror(url).push(run) == 2  # problems and run.json may change, shards do not
    sample_run(settings(tmp_path, url, 30), run, engine(), progress=False)
    Mirror(url).pull(tmp_path / "copy")
    assert rollouts(tmp_path / "copy") == rollouts(run)
    assert len(rollouts(run)) == 60


def test_two_machines_on_one_mirror_are_noticed(tmp_path, url):
    first = tmp_path / "one" / "run"
    sample_run(settings(tmp_path, url, 10), first, engine(), progress=False)
    sample_run(settings(tmp_path, url, 20), tmp_path / "two" / "run", engine(), progress=False)
    with pytest.raises(StoreError, match="another machine went on with this run"):
        sample_run(settings(tmp_path, url, 30), first, engine(), progress=False)


def test_a_store_that_refuses_at_times_is_tried_again(tmp_path, monkeypatch):
    url = "memory://bucket/flaky"
    before, count = MemoryFileSystem.put_file, []

    def flaky(self, *args, **kwargs):
        count.append(1)
        if len(count) in (2, 3):
            raise OSError("503 slow down")
        return before(self, *args, **kwargs)

    monkeypatch.setattr(MemoryFileSystem, "put_file", flaky)
    mirror = Mirror(url)
    run = sample_run(settings(tmp_path, None), tmp_path / "run", engine(), progress=False).path
    for _ in range(3):
        try:
            mirror.push(run)
            break
        except StoreError as error:
            assert "503 slow down" in str(error)  # noqa: PT017
    mirror.pull(tmp_path / "copy")
    assert rollouts(tmp_path / "copy") == rollouts(run)


def test_what_cannot_be_a_mirror(tmp_path):
    with pytest.raises(ConfigError, match="nosuch"):
        Mirror("nosuch://bucket/run")
    with pytest.raises(ConfigError, match="leave mirror out"):
        SampleSettings.make(model="m", problems="p", mirror="memory://x", share=True)
    assert not Mirror("memory://bucket/nothing").pull(tmp_path / "run")
    _register()
    result = CliRunner().invoke(app, ["fetch", "memory://bucket/nothing", str(tmp_path / "x")])
    assert isinstance(result.exception, StoreError)
    assert fsspec.filesystem("memory")
