"""Figure 10: a row for each model, with every run's own numbers."""

import csv
import json

import pytest

from limen.dynamics.influence_figure10 import model_figure
from limen.errors import DataError
from limen.store import Run


def training_run(folder, name, model, offset):
    run = Run.create(folder, "train", name, {"model": model})
    lines = [
        {
            "step": s,
            "probe/influence": 0.1 * s + offset,
            "probe/delta_plus": -0.01 * s,
            "probe/logp_plus": -1.0 - offset,
        }
        for s in range(1, 6)
    ]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run.path


def test_models_are_rows_and_seeds_are_bands(tmp_path):
    runs = [
        training_run(tmp_path / "a0", "grpo", "tiny", 0.0),
        training_run(tmp_path / "a1", "grpo", "tiny", 0.2),
        training_run(tmp_path / "b0", "grpo", "smollm2", 0.5),
    ]
    made = model_figure(runs, tmp_path / "out")
    assert [f.name for f in made] == ["figure10.png", "figure10.svg", "figure10.csv"]
    svg = made[1].read_text()
    assert "tiny:" in svg
    assert "smollm2:" in svg
    rows = list(csv.DictReader(made[2].open()))
    assert len(rows) == 3 * 3 * 5
    last = [r for r in rows if r["quantity"] == "probe/influence" and r["step"] == "5"]
    assert sorted((r["model"], round(float(r["value"]), 6)) for r in last) == [
        ("smollm2", 1.0), ("tiny", 0.5), ("tiny", 0.7)
    ]  # fmt: skip


def test_a_run_without_a_probe_is_refused(tmp_path):
    run = Run.create(tmp_path / "x", "train", "grpo", {"model": "tiny"})
    (run.path / "metrics.jsonl").write_text('{"step": 1, "loss": 0.1}\n')
    with pytest.raises(DataError, match="train with a probe"):
        model_figure([run.path], tmp_path / "out")
