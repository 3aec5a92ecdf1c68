"""Sampling until the r-th success: the counts are those of a full run cut there, also after a kill and a top-up."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from limen.cli import _register, app
from limen.config import SampleSettings
from limen.engines.exact import ExactEngine, ResponsesPolicy
from limen.errors import ConfigError, LimenError
from limen.measure import counts_from_run, pass_curve
from limen.sampling import sample_run
from limen.sampling.stopping import Stopping, block
from limen.store import Run

P = [0.0, 0.01, 0.05, 0.2, 0.5, 0.9, 1.0]
N = 200


@pytest.fixture
def problems(tmp_path):
    file = tmp_path / "problems.jsonl"
    rows = [{"id": f"p{i}", "problem": f"{i}=", "answer": "1"} for i in range(len(P))]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return file


def engine(kind=ExactEngine):
    table = {f"{i}=": {a: x for a, x in (("1", p), ("2", 1 - p)) if x} for i, p in enumerate(P)}
    return kind(ResponsesPolicy(table))


def settings(problems, **change):
    values = {"model": "exact", "problems": str(problems), "template": "plain", "verifier": "exact", "n": N}
    return SampleSettings.make(**{**values, **change})


def outcomes(path):
    found = {}
    for v in Run.open(path).table("verdicts").to_pylist():
        found[v["problem_id"], v["sample_index"]] = v["outcome"] == "correct"
    return found


def cut(full, r):
    """(N, c) by problem, of the outcomes of a full run, sample by sample."""
    result = {}
    for i in range(len(P)):
        right = [full[f"p{i}", j] for j in range(N)]
        ends = [j for j in range(N) if sum(right[: j + 1]) == r]
        result[f"p{i}"] = (ends[0] + 1, r) if ends else (N, sum(right))
    return result


def counts(path):
    table = counts_from_run(path)
    return {p: (int(n), int(c)) for p, n, c in zip(table.problem_ids, table.n_P, table.c_P, strict=True)}


@pytest.fixture
def full(problems, tmp_path):
    sample_run(settings(problems), tmp_path / "full" / "run", engine(), progress=False)
    return outcomes(tmp_path / "full" / "run")


@pytest.mark.parametrize("r", [1, 3])
@pytest.mark.parametrize("share", [False, True])
def test_counts_are_those_of_the_full_run_cut_at_the_last_success(problems, tmp_path, full, r, share):
    run = sample_run(
        settings(problems, stop_after_successes=r, share=share), tmp_path / "run", engine(), progress=False
    )
    assert counts(run.path) == cut(full, r)
    drawn = {p: sum(pid == p for pid, _ in outcomes(run.path)) for p in cut(full, r)}
    for p, (n, c) in cut(full, r).items():
        assert n <= drawn[p] <= (N if c < r else min(N, max(n + r - 1, 1.5 * n + 1)))
    again = sample_run(
        settings(problems, stop_after_successes=r, share=share), tmp_path / "run", engine(), progress=False
    )
    assert again.info["last"]["samples"] == 0


class Breaks(ExactEngine):
    """Finishes samples in another order than asked for, and breaks down after so many."""

    left = 60

    def sample(self, requests, params):
        for sample in reversed(list(super().sample(requests, params))):
            if Breaks.left == 0:
                raise RuntimeError("broke down")
            Breaks.left -= 1
            yield sample


def test_a_broken_run_goes_on_and_ends_the_same(problems, tmp_path, full):
    wanted = settings(problems, stop_after_successes=2)
    for n in (60, 90, 5):
        Breaks.left = n
        with pytest.raises(RuntimeError, match="broke down"):
            sample_run(wanted, tmp_path / "run", engine(Breaks), progress=False)
    sample_run(wanted, tmp_path / "run", engine(), progress=False)
    assert counts(tmp_path / "run") == cut(full, 2)


def test_more_samples_for_those_that_did_not_stop(problems, tmp_path, full):
    small = sample_run(settings(problems, stop_after_successes=2, n=20), tmp_path / "run", engine(), progress=False)
    stopped = {p for p, (_, c) in counts(small.path).items() if c >= 2}
    before = outcomes(small.path)
    sample_run(settings(problems, stop_after_successes=2), tmp_path / "run", engine(), progress=False)
    assert counts(small.path) == cut(full, 2)
    new = {p for p, _ in outcomes(small.path).keys() - before.keys()}
    assert new
    assert not new & stopped


def test_the_estimate_is_that_of_the_policy(tmp_path):
    """Mean of pass@k over many problems of one p against 1 - (1-p)^k, within four standard errors."""
    p, many, n = 0.1, 400, 64
    file = tmp_path / "many.jsonl"
    file.write_text("".join(json.dumps({"id": f"q{i}", "problem": f"{i}=", "answer": "1"}) + "\n" for i in range(many)))
    made = ExactEngine(ResponsesPolicy({f"{i}=": {"1": p, "2": 1 - p} for i in range(many)}))
    run = sample_run(settings(file, n=n, stop_after_successes=2), tmp_path / "run", made, progress=False)
    curve = pass_curve(counts_from_run(run.path), [1, 4, 16, 64], draws=200)
    for k, value, low, high in zip(curve.k_K, curve.value_K, curve.low_K, curve.high_K, strict=True):
        assert abs(value - (1 - (1 - p) ** k)) < 2 * (high - low) / 2 + 1e-9, (k, value)
    tokens = Run.open(run.path).table("rollouts").num_rows
    assert tokens < 0.55 * many * n


def test_what_comes_next():
    stop = Stopping(2, 10, ["a", "b"], {("a", 0), ("a", 3)}, {"a": 1})
    none = dict.fromkeys("ab", 0)
    assert stop.wanted(none) == {"a": (1, 2)}  # the gap, before anything is decided
    assert stop.wanted({"a": 1, "b": 0}) == {"b": (0, 1)}
    assert stop.wanted({"a": 1, "b": 1}) == {"b": (2, 3)}
    assert stop.wanted({"a": 1, "b": 2}) == {}
    assert stop.spared == 12
    assert [block(n, 2) for n in (0, 2, 4, 8, 100)] == [2, 2, 2, 4, 50]
    assert np.all(np.diff([block(n, 1) for n in range(100)]) >= 0)


@pytest.mark.parametrize(
    ("change", "said"), [({"verifier": "none"}, "verifier is none"), ({"stop_after_successes": N}, "never stops")]
)
def test_refused(problems, change, said):
    with pytest.raises(ConfigError, match=said):
        settings(problems, **{"stop_after_successes": 2, **change})


def test_the_options_go_together(tmp_path):
    _register()
    base = ["sample", "--model", "tiny", "--problems", "x.jsonl", "--out", str(tmp_path / "run")]
    for more in (["--max-samples", "9"], ["--stop-after-successes", "1"]):
        result = CliRunner().invoke(app, [*base, *more])
        assert isinstance(result.exception, LimenError)
        assert "go together" in str(result.exception)
