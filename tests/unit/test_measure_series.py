"""Question histories along training, and power against simulation with another test."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from limen.cli import measure as cli
from limen.errors import ConfigError, DataError
from limen.measure import CountTable, StopRule, plan, series, series_tables, support

IDS = ["kept", "lost", "lost and back", "thin", "gained", "never"]


def table(name, c, n=64, **more):
    return CountTable.of(name, IDS, n, c, **more)


STEPS = [
    table("base", [30, 40, 20, 1, 0, 0]),
    table("100", [40, 10, 0, 0, 9, 0]),
    table("200", [50, 0, 0, 1, 30, 0]),
    table("300", [60, 0, 15, 0, 40, 0]),
]


def test_histories():
    got = series(STEPS, draws=20)
    rows = {r["problem_id"]: r for r in got.histories()}
    assert rows["lost"]["unsolved_from"] == "200"
    assert rows["lost"]["lost_from"] == "200"
    assert rows["lost"]["returned"] is None
    assert (rows["lost and back"]["lost_from"], rows["lost and back"]["returned"]) == ("100", "300")
    assert rows["thin"]["unsolved_from"] == "100"
    assert rows["thin"]["lost_from"] is None  # one success is no evidence
    assert rows["gained"]["gained_from"] == "100"
    assert all(rows["never"][k] is None for k in ("unsolved_from", "lost_from", "gained_from", "returned"))
    assert rows["kept"]["verdict"] == ["kept"] * 4
    assert [s and (s.E, s.S) for s in got.support_C] == [None, (1, 2), (1, 2), (1, 2)]
    assert [s and (s.E, s.S) for s in got.step_C] == [None, (1, 2), (1, 1), (1, 1)]
    assert "3 questions that the base solved" in got.sentences()[0]
    assert "2 of them were solved again" in got.sentences()[0]
    json.dumps(got.to_json(), allow_nan=False)


def test_order_of_problems_and_shared_ones():
    shuffled = CountTable.of("x", IDS[::-1], 64, STEPS[2].c_P[::-1])
    got = series([STEPS[0], shuffled], draws=0)
    assert got.c_CP[1].tolist() == STEPS[2].c_P.tolist()
    fewer = CountTable.of("x", IDS[2:], 64, STEPS[2].c_P[2:])
    with pytest.raises(DataError, match="shared"):
        series([STEPS[0], fewer])
    assert series([STEPS[0], STEPS[1], fewer], draws=0, force=True).tables[1].problem_ids == tuple(IDS[2:])


def test_refuses():
    with pytest.raises(DataError, match="at least one checkpoint"):
        series(STEPS[:1])


def test_adaptive_checkpoints():
    """P/E/S/O are those of the full samples; a flip of a question that had 60 of 64 is a loss all the same."""
    stop = StopRule(2, 64)
    first = CountTable.of("base", IDS, [2, 4, 64, 64, 30, 2], [2, 2, 1, 0, 2, 2], stop=stop)
    then = CountTable.of("late", IDS, [2, 64, 64, 20, 2, 64], [2, 1, 0, 2, 2, 0], stop=stop)
    got = series([first, then, first], draws=0)
    assert (got.support_C[1].P, got.support_C[1].E, got.support_C[1].S, got.support_C[1].O) == (3, 1, 2, 0)
    assert (got.step_C[2].E, got.step_C[2].S) == (2, 1)
    assert got.verdict_CP[1][5] == "shrunk"
    assert got.verdict_CP[2].tolist() == ["kept"] * 3 + ["out"] + ["kept"] * 2
    assert any("posteriors" in note for note in got.notes)
    assert got.histories()[5]["returned"] == "base"


def test_command_line(tmp_path):
    file = tmp_path / "counts.jsonl"
    rows = [
        {"problem_id": p, "model": t.name, "n": 64, "c": int(c)} for t in STEPS for p, c in zip(t.problem_ids, t.c_P)
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert [t.name for t in series_tables([file])] == ["base", "100", "200", "300"]
    with pytest.raises(DataError, match="two checkpoints are called"):
        series_tables([file, file])
    app = typer.Typer()
    cli.register(app)
    done = CliRunner().invoke(app, ["series", str(file), "--json", "--draws", "10"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["checkpoints"][1]["support"]["S"] == 2
    assert CliRunner().invoke(app, ["series", str(file)]).exit_code == 0
    args = ["plan", str(file), "--model", "base", "--k", "16", "--change", "-0.1", "--runs", "20"]
    for extra in ([], ["--json"]):
        done = CliRunner().invoke(app, [*args, *extra])
        assert done.exit_code == 0, done.output
        assert "needed" in done.output or "seen with probability" in done.output


def test_power_is_that_of_the_experiment():
    """The planned power of the support test, against experiments made and tested one by one."""
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 0.8, size=3000)
    pilot = CountTable.of("pilot", [str(i) for i in range(3000)], 200, rng.binomial(200, p))
    found = plan(pilot, 32, lost=14, problems=200, ns=[16, 64], runs=1500, seed=1)
    for row in found.rows:
        seen = 0
        for _ in range(400):
            q = rng.beta(0.5, 0.8, size=200)
            after = np.where(rng.random(200) < 14 / 200, 0, q)
            seen += support(row.n, rng.binomial(row.n, q), rng.binomial(row.n, after)).mcnemar_p < 0.05
        share = seen / 400
        assert abs(row.power_support - share) < 4 * np.sqrt(0.25 * (1 / 400 + 1 / 1500))
    assert found.rows[0].chance_each_way > found.rows[1].chance_each_way
    assert np.isnan(found.rows[0].power_pass)  # pass@32 is not defined with 16 samples


def test_plan_finds_the_smallest_n_and_refuses_the_impossible():
    rng = np.random.default_rng(1)
    pilot = CountTable.of("p", [str(i) for i in range(300)], 64, rng.binomial(64, rng.beta(0.5, 0.8, 300)))
    easy, hard = plan(pilot, 8, change=-0.1, runs=100), plan(pilot, 8, change=-0.01, runs=100)
    assert easy.n_support is not None
    assert hard.n_support is None or hard.n_support > easy.n_support
    assert easy.change == pytest.approx(-0.1)
    assert plan(pilot, 8, change=0.1, runs=50).lost < 0
    with pytest.raises(ConfigError, match="cannot be"):
        plan(pilot, 8, change=-0.99)
    with pytest.raises(ConfigError, match="either"):
        plan(pilot, 8)
