"""Figures and tables of the papers from digests: their numbers, and a clear word where a study has not run."""

import csv
from pathlib import Path

import pytest
from test_lab_claims import GRPO, SELF, study, training

from limen.errors import ConfigError, DataError
from limen.lab.evidence import Evidence
from limen.lab.gallery import ITEMS, find, listing, make

SERIES = {"grpo-constant": [(50, SELF), (100, GRPO)], "self-constant": [(50, SELF), (100, SELF)]}


@pytest.fixture(scope="module")
def studies():
    cost = {f"seed-{s}/{m}": training([0.4, 0.5], (0, 1, 1, 1)) for s in (0, 1) for m in ("grpo", "w_reinforce")}
    demo = study({"grpo": GRPO, "self": SELF, "control": SELF}, training=cost)
    methods = study({"grpo": GRPO, "self": SELF}, "methods", training=cost, base_extra={"token_entropy": 0.8})
    for r in methods.doc["runs"]:
        r["extra"] = {"token_entropy": 0.7, "answer_entropy": 1.5}
    return {"demo": [demo], "methods": [methods], "dynamics": [study(SERIES, "dynamics")]}


def rows(files):
    with next(f for f in files if f.suffix == ".csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_table_1_by_hand(studies, tmp_path):
    files, text = make(find("rbp", "table", 1), studies, tmp_path)
    base, grpo, own = rows(files)
    assert (base["easy, pass@1"], base["hard, pass@1"], base["all, pass@1"]) == ("50.00", "6.25", "28.12")
    assert (grpo["easy, pass@1"], grpo["hard, pass@64"]) == ("96.88", "33.33")
    assert own["hard, pass@64"] == "100.00"
    assert "The Reasoning Boundary Paradox" in text


def test_support_and_entropies(studies, tmp_path):
    found = {(r["model"], r["domain"]): r for r in rows(make(find("il", "table", 1), studies, tmp_path)[0])}
    overall = found["grpo", "Overall"]
    assert [overall[k] for k in ("P", "E", "S", "O")] == ["40.0", "0.0", "20.0", "0.0"]
    assert overall["SRR"] == "0.667"
    assert overall["NSCR"] == "-0.333"
    table = rows(make(find("il", "table", 13), studies, tmp_path)[0])
    assert table[0]["token entropy"] == "0.800"
    assert table[1]["accuracy %"] == "56.25"


def test_checkpoints(studies, tmp_path):
    table = rows(make(find("il", "table", 4), studies, tmp_path)[0])
    last = next(r for r in table if r["method"] == "grpo-constant" and r["step"] == "100")
    assert last["S"] == "20.0"
    figure = rows(make(find("rbp", "figure", 1), studies, tmp_path)[0])
    at = {(r["method"], r["step"]): float(r["pass_at_k"]) for r in figure}
    assert at["grpo-constant", "0"] == 1.0
    assert at["grpo-constant", "100"] == pytest.approx(2 / 3)


def test_stored_samples_against_dapo(tmp_path):
    studies = {"offline": [study({"grpo": GRPO, "sft": [(50, SELF), (100, SELF)], "dapo": GRPO}, "offline")]}
    table = rows(make(find("il", "table", 5), studies, tmp_path)[0])
    assert [r["method"] for r in table] == ["base", "SFT", "DAPO", "GRPO"]
    assert table[1]["@64"] == "100.00"
    assert table[2]["@64"] == "66.67"


def test_families_by_what_became_of_them(studies, tmp_path):
    table = rows(make(find("il", "table", 19), studies, tmp_path)[0])
    assert list(table[0]) == ["k", "hard, base", "hard, GRPO"]
    assert table[-1] == {"k": "64", "hard, base": "1.000", "hard, GRPO": "0.333"}
    drawn = rows(make(find("il", "figure", 2), studies, tmp_path)[0])
    assert {r["family"] for r in drawn} == {"easy"}
    with pytest.raises(DataError, match="case of expansion"):
        make(find("il", "figure", 3), studies, tmp_path)


@pytest.mark.parametrize("number", [11, 12, 13])
def test_figures_are_drawn(studies, tmp_path, number):
    files, _ = make(find("rbp", "figure", number), studies, tmp_path)
    assert {f.suffix for f in files} == {".png", ".svg", ".csv"}
    assert all(f.stat().st_size > 100 for f in files)


def test_what_is_missing_names_its_command(tmp_path):
    with pytest.raises(DataError, match="limen lab dynamics --out DIR"):
        make(find("rbp", "figure", 2), {}, tmp_path)
    with pytest.raises(DataError, match="its text"):
        make(find("rbp", "table", 2), {}, tmp_path)
    with pytest.raises(ConfigError, match="no figure 99"):
        find("rbp", "figure", 99)
    with pytest.raises(DataError, match="no training runs"):
        make(find("rbp", "figure", 7), {"dynamics": [study(SERIES, "dynamics")]}, tmp_path)


def test_every_number_is_accounted_for():
    figures = {(i.paper, i.number) for i in ITEMS if i.what == "figure"}
    own = {("limen", n) for n in range(1, 7)}
    assert {("rbp", n) for n in range(1, 16)} | {("il", n) for n in range(1, 5)} == figures - own
    tables = {(i.paper, i.number) for i in ITEMS if i.what == "table"}
    assert {("il", n) for n in (1, 2, 4, 5, 13, 14, *range(15, 20))} <= tables
    for i in ITEMS:
        assert bool(i.why_not) != bool(i.draw or i.tabulate), i
    states = {(p, item): state for p, item, _, state in listing({})}
    assert states["RBP", "figure 9"] == "ready"
    assert "limen lab modes" in states["RBP", "figure 15"]


def test_what_needs_a_study_s_folder_is_not_called_ready_from_its_digest(tmp_path):
    one = study(SERIES, "dynamics")
    states = {item: state for p, item, _, state in listing({"dynamics": [one]}) if p == "RBP"}
    assert states["figure 1"] == "ready"
    assert "not its digest" in states["figure 7"]
    (tmp_path / "seed-0" / "train-grpo-constant").mkdir(parents=True)
    whole = Evidence("dynamics", one.doc, tmp_path / "dynamics.json")
    assert {item: s for p, item, _, s in listing({"dynamics": [whole]}) if p == "RBP"}["figure 7"] == "ready"


def test_reads_what_lies_in_a_folder(tmp_path):
    assert Path(tmp_path).exists()
    from limen.lab.evidence import load

    assert load([tmp_path]) == {}
