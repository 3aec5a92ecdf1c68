"""Winners and losers by bin: exact rates against sampling, groups worked by hand, and the rules both ways round."""

from pathlib import Path

import numpy as np
import pytest

from limen.errors import DataError
from limen.lab.bins import EDGES, bin_of, binned, changes, log_right, measured, trace_rows
from limen.lab.bins_page import bins_page, figure
from limen.lab.claims_between import traces
from limen.lab.claims_bins import over_training, winner_takes_all, winners_gain
from limen.lab.evidence import Evidence


def test_bins_hold_their_upper_edge():
    assert bin_of([0.0005, 0.001, 0.0011, 0.3, 0.31, 0.9, 0.95, 1.0]).tolist() == [0, 0, 1, 3, 4, 6, 7, 7]


def test_the_right_texts_probability_is_the_success_rate_of_samples(tmp_path):
    """64 samples of 12 problems: the deviations from the exact rate are those of a binomial."""
    from limen.lab.policies import Study, sample_policy
    from limen.measure import counts_from_run
    from limen.problems import load_problems

    which = "arithmetic:all?split=test&size=12"
    problems = load_problems(which)
    p = np.exp(log_right("tiny", problems, "cpu")[0])
    run = sample_policy(Study(tmp_path), tmp_path / "base", "tiny", "base", 64, problems=which, logprobs=False)
    found = counts_from_run(run)
    at = [found.problem_ids.index(x.id) for x in problems]
    z = (found.c_P[at] - 64 * p) / np.sqrt(64 * p * (1 - p))
    assert np.abs(z).max() < 4
    assert float((z**2).mean()) < 3


def test_changes_by_hand():
    before, after = np.log([0.0005, 0.8, 0.85]), np.log([0.00025, 0.9, 0.85])
    low, high = changes("grpo", 1, before, after)
    assert (low["bin"], high["bin"]) == (0, 6)
    assert low["dlogp"] == [pytest.approx(-0.69315)]
    assert high["dp"] == [pytest.approx(0.1), 0.0]


def test_groups_by_hand():
    """Of 8 samples; p = 0.5: the base has a signal in 1 - 2/256 of the groups."""
    groups = {(0, "a"): [True] * 8, (1, "a"): [True] * 4 + [False] * 4, (5, "a"): [False] * 8, (5, "b"): [True] * 8}
    rows = binned("grpo", 0, groups, {"a": 0.5, "b": 0.05}, 6)
    first = next(r for r in rows if r["third"] == 0)
    assert (first["groups"], first["signal"], first["success"]) == (2, 0.5, 0.75)
    assert first["base_signal"] == pytest.approx(1 - 2 / 256, abs=1e-5)
    last = [r for r in rows if r["third"] == 2]
    assert [(r["bin"], r["success"]) for r in last] == [(2, 1.0), (4, 0.0)]
    assert not [r for r in rows if r["third"] == 1]


def evidence(low, high, signal=(0.1, 0.1, 0.1), success=(0.1, 0.1, 0.1), top=(0.8, 0.8, 0.9), seeds=3):
    """Every seed alike but for a thousandth, so that intervals over seeds are narrow."""
    change = [
        {"method": "grpo", "seed": s, "bin": b, "dlogp": " ".join([str(x)] * 10),
         "dp": " ".join([str(x / 10)] * 10)}
        for s in range(seeds) for b, x in ((1, low), (6, high))
    ]  # fmt: skip
    groups = [
        {"method": "grpo", "seed": s, "third": t, "bin": b, "groups": 50, "signal": si[t] + s * t / 1e3,
         "success": su[t] + s * t / 1e3, "base_signal": 0.05, "base_success": 0.05}
        for s in range(seeds) for t in range(3) for b, si, su in ((1, signal, success), (6, signal, top))
    ]  # fmt: skip
    doc = {"edges": list(EDGES), "changes": change, "groups": groups, "recipe": "demo", "steps": 6, "traces": [],
           "study": {"commit": "abc1234", "hardware": "a CPU"}}  # fmt: skip
    return Evidence("bins", doc, Path("bins.digest.json"))


def test_winners_gain_and_others_lose():
    found = winners_gain(evidence(-0.5, 0.2))
    assert found.verdict == "agrees"
    assert "p 0.001–0.01 (10 problems) -0.50 [-0.50, -0.50]" in found.size
    assert winners_gain(evidence(0.5, 0.2)).verdict == "opposite"
    assert winners_gain(evidence(-0.5, -0.2)).verdict == "undetermined"
    assert winners_gain(evidence(-0.5, 0.2, seeds=2)).verdict == "too short to say"


def test_winner_takes_all():
    down, up = (0.3, 0.2, 0.1), (0.1, 0.2, 0.3)
    e = evidence(0, 0, down, down)
    change, thirds = over_training(e, "grpo", True, "signal")
    assert change[0] == pytest.approx(-0.2 + 0.002)
    assert thirds[0] == pytest.approx(0.25)
    assert winner_takes_all(e).verdict == "agrees"
    assert winner_takes_all(evidence(0, 0, up, up)).verdict == "opposite"
    assert winner_takes_all(evidence(0, 0, down, up)).verdict == "undetermined"
    e.doc["groups"].clear()
    assert winner_takes_all(e) is None, "the trainings kept no rollouts"


def test_outside_solutions_by_who_solves_the_question(tmp_path):
    counts = [(3, 0), (2, 0), (0, 1), (0, 0), (4, 4)]
    rows = [r for s in (0, 1) for r in trace_rows(s, counts, np.array([2.0, 4, 6, 8, 1]), np.array([5.0, 7, 3, 9, 1]))]
    e = evidence(-0.5, 0.2)
    e.doc["traces"].extend(rows)
    lost = traces("shrinkage", 1)(e)
    assert lost.verdict == "agrees"
    assert lost.size.startswith("right text, seed 0: base 3.000, trained 6.000; right text, seed 1")
    assert traces("expansion", -1)(e).verdict == "agrees"
    assert traces("neither", 0)(e).verdict == "reported"
    assert "IL-T2a: **agrees**" in bins_page(e)
    assert figure(e, tmp_path, "bins")[0].stat().st_size > 5000


def test_a_folder_that_is_no_study(tmp_path):
    with pytest.raises(DataError, match="holds no methods"):
        measured(tmp_path, "tiny", "cpu")
