"""`probe:` in the settings of `limen train`: followed, shown, and gone on with."""

import json

import pytest
from rich.console import Console

from limen.config import SampleSettings
from limen.dynamics.figures import training_figure
from limen.dynamics.probe import draw_probe
from limen.errors import ConfigError
from limen.report.watch import watch
from limen.store import Run
from limen.train import TrainSettings, train
from limen.train.settings import parse_settings

SMALL = {
    "model": "tiny", "device": "cpu", "problems": "arithmetic:mul22?split=train&size=120", "template": "plain",
    "verifier": "exact", "max_new_tokens": 6, "prompts_per_step": 8, "group_size": 4, "optimiser": {"lr": 3e-4},
    "save_steps": 2, "base_n": 2, "algorithm": {"name": "self", "forward_kl_beta": 0.1}, "verifier_workers": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    out = tmp_path_factory.mktemp("probe") / "set"
    settings = SampleSettings.make(
        model="tiny", problems="arithmetic:all?split=train&size=9", n=2, temperature=0.9, max_tokens=6,
        template="plain", verifier="exact", device="cpu", verify_workers=1,
    )  # fmt: skip
    return draw_probe(settings, out, progress=False).path


def probed(run):
    """Probe lines without what depends on the clock."""
    lines = [json.loads(x) for x in (run.path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in x.items() if k != "probe/seconds"} for x in lines if "probe/delta_plus" in x]


def test_followed_and_gone_on_with(probe, tmp_path):
    values = {**SMALL, "probe": {"run": str(probe), "every": 1, "base": True}, "name": "p"}
    whole = train(TrainSettings(**values, steps=4, out=str(tmp_path / "whole")))
    train(TrainSettings(**values, steps=2, out=str(tmp_path / "cut")))
    cut = train(
        TrainSettings(**{**values, "probe": {"run": str(probe), "every": 2}}, steps=4, out=str(tmp_path / "cut"))
    )
    first, second = probed(whole), probed(cut)
    assert [x["step"] for x in first] == [1, 2, 3, 4]
    assert [x["step"] for x in second] == [1, 2, 4]  # the settings of the probe may change on the way
    assert first[3]["probe/delta_plus"] == second[2]["probe/delta_plus"]
    assert first[1] == second[1]
    # what one step left is what the next begins with, and before any step own samples are the base's
    assert first[0]["probe/ppl_own"] == pytest.approx(first[0]["probe/ppl_own_under_base"])
    assert first[3]["probe/logp_plus"] - first[2]["probe/logp_plus"] == pytest.approx(first[3]["probe/delta_plus"])
    assert Run.open(whole.path).info["probe"]["pairs"] == 18
    console = Console(record=True, width=200)
    watch([whole.path], once=True, console=console)
    assert f"delta_plus {first[3]['probe/delta_plus']:.4g}" in console.export_text()
    for number in (2, 7, 8):
        made = training_figure(number, [whole.path, cut.path], tmp_path / "figures")
        assert all(f.stat().st_size > 100 for f in made)


def test_settings_that_make_no_sense_are_refused(probe, tmp_path):
    with pytest.raises(ConfigError, match=r"unknown key .probe.evry. .did you mean .every."):
        parse_settings({**SMALL, "probe": {"run": str(probe), "evry": 3}})
    with pytest.raises(ConfigError, match=r"probe\.every"):
        parse_settings({**SMALL, "probe": {"run": str(probe), "every": 0}})
