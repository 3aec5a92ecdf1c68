"""Problems of the study on SmolLM2, guessing baselines and the page, on numbers made by hand."""

import json
import re
from pathlib import Path

import pytest

from limen.errors import ConfigError, DataError
from limen.lab.slices import small_file, unpack
from limen.lab.smollm2_page import write_page
from limen.lab.smollm2_study import METHODS, algorithm, collect
from limen.lab.smollm2_tasks import SHOTS, SOURCES, commonest, draw, key, pooled_guess, prompt, write_problems

PROBLEMS = Path(__file__).resolve().parents[2] / "benchmarks" / "smollm2_problems.jsonl"


def test_twins_are_known():
    assert key("sum", "12 + 34 =", "46") == key("sum", "34 + 12 =", "46")
    assert key("equation", "Solve x + 12 = 46 for x.", "34") == key("equation", "Solve x + 34 = 46 for x.", "12")
    assert key("chain_sum", "... 3 - 5 + 2 =", "0") == key("chain_sum", "... 5 - 3 + 2 =", "4")
    assert key("sum", "12 + 34 =", "46") != key("sum", "12 + 35 =", "47")


def test_shipped_problems_are_right_balanced_and_held_out():
    rows = [json.loads(line) for line in PROBLEMS.read_text(encoding="utf-8").splitlines()]
    keys = {split: set() for split in ("train", "test")}
    for r in rows:
        keys[r["split"]].add(key(r["task"], r["question"], r["answer"]))
        if r["task"] in ("sum", "chain_sum"):
            terms = re.findall(r"[-+]?\d+", r["question"].replace(" ", ""))
            assert sum(map(int, terms)) == int(r["answer"])
    assert len({r["id"] for r in rows}) == len(rows) == 2400
    assert not keys["train"] & keys["test"]
    assert not keys["train"] & {key(t, q, a) for t, shots in SHOTS.items() for q, a in shots}
    counts = {(t, s): sum(r["task"] == t and r["split"] == s for r in rows) for t in SOURCES for s in ("train", "test")}
    assert set(counts.values()) == {525, 75}
    assert [r["task"] for r in rows[:4]] == list(SOURCES)


def test_own_tasks_are_the_same_questions_whenever_they_are_drawn():
    shipped = [json.loads(line) for line in PROBLEMS.read_text(encoding="utf-8").splitlines()]
    for task in ("sum", "equation"):
        mine = [r for r in shipped if r["task"] == task]
        assert draw(task, 525, 75) == mine


def test_prompt_ends_where_the_answer_is_to_come(tmp_path):
    text = prompt("sum", "71 + 48 =")
    assert text.endswith("Problem: 71 + 48 =\nAnswer:")
    assert text.count("Problem: ") == 4
    paths = write_problems(PROBLEMS, tmp_path)
    first = json.loads(paths["test"].read_text().splitlines()[0])
    assert first["problem"] == text
    assert set(first) == {"id", "task", "problem", "answer"}
    with pytest.raises(DataError, match="--export"):
        write_problems(tmp_path / "none.jsonl", tmp_path)


def test_guessing_by_hand():
    assert commonest(["5", "7", "7"], ["7", "5", "7", "9"]) == ("7", 0.5)
    answers = [{"7": 3, "5": 1}, {"5": 2, "": 2}, {"9": 4}]
    # problem 0 (gold 7): nobody else says 7; problem 1 (gold 5): 1 of the 8 others; problem 2 (gold 5): 3 of 8
    got = pooled_guess(answers, ["7", "5", "5"], [1, 2])
    assert got == pytest.approx([(0 + 1 / 8 + 3 / 8) / 3, (0 + (1 - (7 / 8) ** 2) + (1 - (5 / 8) ** 2)) / 3])


def test_methods_and_arms_of_the_frontier():
    assert algorithm("self", 150)["algorithm"]["forward_kl_beta"] == 0.05
    assert algorithm("self-then-grpo", 150)["algorithm"]["schedule"][0]["at"] == 75
    with pytest.raises(ConfigError, match="unknown method 'x'"):
        algorithm("x", 150)
    assert list(METHODS) == ["grpo", "greedy_filter", "self", "w_reinforce"]


def counts(c, n=4):
    ids = [f"p{i}" for i in range(len(c))]
    return {"ids": ids, "task": ["sum", "product"] * (len(c) // 2), "n": [n] * len(c), "c": c}


def make_study(out):
    shared = {"study": {"steps": 2, "n": 4, "base": "smollm2", "limit": None, "prompts": 2, "group": 2, "probe": 4,
                        "every": 1, "train_limit": None}, "provenance": {"commit": "abc", "hardware": {}}}  # fmt: skip
    out.mkdir()
    chance = {"sum": {"commonest": "7", "commonest_score": 0.25, "k": [1, 4], "pooled": [0.1, 0.3]}}
    base = [2, 1, 0, 0]
    small_file(out / "base").write_text(json.dumps({"counts": counts(base), "chance": chance, **shared}))
    small_file(out / "control").write_text(json.dumps({"counts": counts(base), **shared}))
    for seed in (0, 1):
        for method, c in (("self", [2, 2, 1, 0]), ("grpo", [4, 0, 0, 0])):
            run = out / f"seed-{seed}" / f"train-{method}"
            run.mkdir(parents=True)
            info = {"name": method, "kind": "train", "status": "done", "settings": {}}
            (run / "run.json").write_text(json.dumps(info))
            lines = [
                {"step": s, "probe/delta_plus": 0.1 * s * (1 + seed / 10), "probe/influence": 0.1, "probe/clip": 0.1,
                 "probe/clip_batch": 0.1, "probe/logp_plus": -1.0, "probe/lr": 1e-5, "reward": 0.5, "entropy": 1.0}
                for s in range(1, 8)
            ]  # fmt: skip
            (run / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
            (run / "weights").write_bytes(b"x" * 99)
            small = {"method": method, "seed": seed, "counts": counts(c), "steps": 2, "counters": {}, "settings": {}}
            small_file(run.with_name(method)).write_text(json.dumps({**small, **shared}))


def test_page_of_collected_files(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "limen.dynamics.figures.training_figure", lambda n, runs, out: drawn.append((n, len(runs))) or []
    )
    make_study(tmp_path / "here")
    assert collect(tmp_path / "here", tmp_path / "small.tar.gz") < 15_000_000
    unpack(tmp_path / "small.tar.gz", tmp_path / "there")
    assert not list((tmp_path / "there").rglob("weights"))
    page = write_page(tmp_path / "there")
    assert drawn == [(2, 4), (7, 4), (8, 4)]
    assert (tmp_path / "there" / "figures" / "smollm2.png").stat().st_size > 5000
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert "| base |  | 0.188 | 0.500 |  |  |  |  |  |  |" in rows  # 3 of 16; 2 of 4 problems
    grpo = next(r for r in rows if r.startswith("| grpo | 0 |"))
    assert grpo.startswith("| grpo | 0 | 0.250 | 0.250 | 1 | 0 | 1 | 2 |")  # P E S O
    assert "| sum | base | 0.250 | 0.500 | 0.250 (7) | 0.300 |" in rows
    # SELF has 5 of 16 right and solves 3 of 4; GRPO 4 of 16; the base's two draws 3 of 16 each, 2 of 4 problems, and
    # pooled over 8 samples at k = 4: 1 - C(4,4)/C(8,4) = 69/70 and 1 - C(6,4)/C(8,4) = 55/70 in those two
    won = next(r for r in rows if r.startswith("| self | 0, 1 |"))
    assert won.startswith(f"| self | 0, 1 | {5 / 16 - 4 / 16 + 0.02:+.3f} [")
    assert f"| {3 / 4 - (69 / 70 + 55 / 70) / 4:+.3f} [" in won  # pass@4 of c = 2, 2, 1 of 4 is 1 each
    assert won.endswith("| reached |")
    # thirds of the six points from step 2 on: .65 - .25 = .4, and .44 with the other seed; t(1) = 12.7
    assert "| Δ⁺ falls | opposite | +0.42 [+0.166, +0.674] | 0.263 |" in rows


def test_settings_that_differ_are_refused(tmp_path):
    make_study(tmp_path / "here")
    file = small_file(tmp_path / "here" / "seed-0" / "grpo")
    doc = json.loads(file.read_text())
    doc["study"]["n"] = 8
    file.write_text(json.dumps(doc))
    with pytest.raises(DataError, match="other settings"):
        write_page(tmp_path / "here")


def test_what_was_not_measured_is_empty_and_a_difference_is_called_one(tmp_path):
    make_study(tmp_path / "here")
    page = write_page(tmp_path / "here")
    assert "nan" not in page
    rare = "Δ⁺ falls, problems that the base seldom solves"
    assert f"| {rare} | no data |  |  |" in page.splitlines()
    own, both = page.split("**self against grpo**")
    assert "| change (95% over seeds) | from |" in own
    assert "| SELF minus GRPO (95% over seeds) | GRPO |" in both


def test_no_budget_that_a_policy_lacks_is_shown(tmp_path):
    make_study(tmp_path / "here")
    file = small_file(tmp_path / "here" / "seed-0" / "grpo")
    doc = json.loads(file.read_text())
    doc["counts"]["n"] = [4, 3, 4, 4]  # one sample was not judged
    file.write_text(json.dumps(doc))
    page = write_page(tmp_path / "here")
    assert "| policy | seed | pass@1 | P |" in page
    base = small_file(tmp_path / "here" / "base")
    doc = json.loads(base.read_text())
    doc["chance"]["sum"] |= {"k": [4], "pooled": [0.3]}
    base.write_text(json.dumps(doc))
    assert "| sum | base | 0.250 | 0.250 | 0.250 (7) |  |" in write_page(tmp_path / "here"), "pooled at 4, not at 1"


def test_a_second_draw_of_another_study_is_refused(tmp_path):
    make_study(tmp_path / "here")
    file = small_file(tmp_path / "here" / "control")
    doc = json.loads(file.read_text())
    doc["study"]["n"] = 8
    file.write_text(json.dumps(doc))
    with pytest.raises(DataError, match="second draw"):
        write_page(tmp_path / "here")
