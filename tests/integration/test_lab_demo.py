"""The demo end to end, cut short: every stage runs, the page is written, a second call does nothing again."""

import json
import time
from pathlib import Path

import pytest
import yaml

from limen.errors import ConfigError, StoreError
from limen.lab.demo import ALGORITHMS, RECIPE, DemoSettings, run_demo
from limen.store import Run

ROOT = Path(__file__).resolve().parents[2]


def test_the_whole_way_and_again(tmp_path, capsys):
    from limen.lab.demo_table import print_demo

    settings = DemoSettings(tmp_path / "demo", steps=2, n=8, limit=12)
    found = run_demo(settings)
    assert set(found.comparisons) == {"control", "grpo", "self"}
    for c in found.comparisons.values():
        assert c.base.M == 12
        assert (c.base.n_P == 8).all()
        assert c.support.P + c.support.E + c.support.S + c.support.O == 12
    page = found.report.read_text(encoding="utf-8")
    assert "GRPO" in page.upper()
    for method in ("grpo", "self"):
        metrics = [json.loads(x) for x in (settings.out / f"train-{method}" / "metrics.jsonl").read_text().splitlines()]
        assert [m["step"] for m in metrics] == [1, 2]
        assert Run.open(settings.out / f"train-{method}").info["steps_done"] == 2
    assert 0 < metrics[0]["kept"] < metrics[0]["screened"] == 64

    print_demo(found)
    shown = capsys.readouterr().out
    assert "SELF" in shown
    assert "base again" in shown
    assert "report.html" in shown

    before = {p: p.stat().st_mtime_ns for p in (settings.out / "train-self").rglob("model.safetensors")}
    start = time.monotonic()
    again = run_demo(settings)
    assert time.monotonic() - start < 60
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert again.comparisons["self"].support == found.comparisons["self"].support


def test_an_unknown_method_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="ppo"):
        run_demo(DemoSettings(tmp_path, methods=("ppo",)))


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "thesis.txt").write_text("do not touch")
    with pytest.raises(StoreError, match="not a run folder"):
        run_demo(DemoSettings(tmp_path, steps=1, n=2, limit=2))
    assert (tmp_path / "base" / "thesis.txt").read_text() == "do not touch"


@pytest.mark.parametrize("method", ["grpo", "self"])
def test_the_presets_say_what_the_demo_does(method):
    from limen.train.settings import parse_settings

    preset = yaml.safe_load((ROOT / "presets" / f"tiny-{method}.yaml").read_text())
    same = ("steps", "optimiser", "algorithm", "prompts_per_step", "group_size", "problems", "temperature", "precision")
    mine = parse_settings({**RECIPE, "algorithm": ALGORITHMS[method], "steps": DemoSettings(Path("x")).steps})
    theirs = parse_settings(preset)
    for key in same:
        assert getattr(mine, key) == getattr(theirs, key), key
