"""The table of arms, the token budget's arithmetic, the rule of the prize, and packing: on numbers made by hand."""

import json
import sys
import time

import pytest

from limen.errors import ConfigError, DataError
from limen.lab import frontier_page
from limen.lab.frontier import collect, place, read_all, steps_for
from limen.lab.frontier_arms import ARMS, EXPLORE, FINAL, check_seeds, pick
from limen.lab.frontier_page import rows, write_page
from limen.lab.frontier_rule import prize
from limen.lab.mixing import training_of
from limen.lab.slices import in_slice, pack, small_file, unpack
from limen.measure import CountTable
from limen.train.settings import parse_settings

N = 8


def table(counts, name="t", n=N):
    return CountTable.of(name, [f"p{i}" for i in range(len(counts))], n, counts)


# -- arms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ARMS))
def test_every_arm_is_a_training_that_settings_and_composition_accept(name):
    from limen.train.algorithms.compose import FIELDS, Algorithm, named

    settings = parse_settings(ARMS[name].settings(200))
    fields = settings.algorithm.config_fields()
    values = {**named(fields.pop("algorithm")), **fields}
    made = Algorithm(**{k: v for k, v in values.items() if k in FIELDS})
    assert all(isinstance(p["at"], int) and 0 < p["at"] < 200 for p in made.schedule)


def test_shares_of_a_schedule_follow_the_length_of_the_training():
    arm = ARMS["self-then-grpo"]
    assert arm.settings(200)["algorithm"]["schedule"][0]["at"] == 100
    assert arm.settings(301)["algorithm"]["schedule"][0]["at"] == 150
    assert arm.algorithm["schedule"][0]["at"] == 0.5


def test_names_are_picked_once_with_grpo_first():
    assert [a.name for a in pick("nll-1,self,nll-1")] == ["grpo", "nll-1", "self"]
    assert len(pick("all")) == len(ARMS) == 38
    with pytest.raises(ConfigError, match="unknown arm 'nll-7'"):
        pick("grpo,nll-7")


def test_an_arm_between_base_and_policy_is_its_parent_s_training():
    arm, parent = ARMS["k3-1-mix-0.8"], ARMS["k3-1"]
    assert (arm.parent, arm.share) == ("k3-1", 0.8)
    assert arm.settings(200) == parent.settings(200)
    assert [a.name for a in pick("k3-1-mix-0.8,nll-1")] == ["grpo", "k3-1", "nll-1", "k3-1-mix-0.8"]
    assert all(ARMS[a.parent].parent is None for a in ARMS.values() if a.parent)


def test_a_finished_training_of_the_parent_is_used_and_any_other_is_not(tmp_path):
    assert training_of(tmp_path, "k3-1-mix-0.8", "k3-1") == "k3-1-mix-0.8"
    (tmp_path / "train-k3-1" / "checkpoint-50").mkdir(parents=True)
    assert training_of(tmp_path, "k3-1-mix-0.8", "k3-1") == "k3-1-mix-0.8"
    (tmp_path / "train-k3-1" / "model").mkdir()
    (tmp_path / "train-k3-1" / "model" / "config.json").write_text("{}")
    assert training_of(tmp_path, "k3-1-mix-0.8", "k3-1") == "k3-1"
    assert training_of(tmp_path, "k3-1", None) == "k3-1"


def test_seeds_of_exploration_and_of_the_final_table_are_apart():
    assert not set(EXPLORE) & set(FINAL)
    check_seeds([0, 1, 2, 7], explore=False)
    with pytest.raises(ConfigError, match="seed 11"):
        check_seeds([0, 11], explore=False)
    with pytest.raises(ConfigError, match="seed 0"):
        check_seeds([0], explore=True)


# -- equal tokens ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "stored", "by_step", "expected"),
    [
        (1000, 0, [100] * 10, 10),  # GRPO itself
        (1000, 0, [99] * 10, 10),  # within 2%
        (1000, 400, [100] * 10, 6),  # 400 + 6 x 100
        (1000, 350, [100] * 10, 7),  # 350 + 7 x 100 is the first to reach 1000
        (1000, 0, [70] * 2 + [40] * 8, 25),  # 460 in 10 updates, then 40 each: 540 / 40 = 13.5
        (1000, 1000, [1] * 10, 0),  # nothing left to train with
        (1000, 0, [10] * 8 + [0] * 2, 60),  # nothing survives any more: the cap of 6 x 10
    ],
)
def test_updates_for_a_budget_of_tokens(budget, stored, by_step, expected):
    assert steps_for(budget, stored, by_step, 10) == (expected if expected != 25 else 10 + 14)


# -- prize -----------------------------------------------------------------------------------------------------------

BASE = [4] * 20 + [1] * 60 + [0] * 20
"""pass@1 of one draw: (20 x 4 + 60) / 800 = .175; pass@8: .8 in each draw, and by pooling of 16 samples less."""


def seeds_of(counts, shifts=(0, 0, 0)):
    """Runs of three seeds: the first problems' counts differ a little, so that there is a spread over seeds."""
    return [table([counts[0] + s, *counts[1:]]) for s in shifts]


def test_prize_is_reached_beyond_chance_where_both_bounds_are_cleared_in_every_seed():
    grpo = seeds_of([5] * 20 + [1] * 30 + [0] * 50, (0, 1, 2))
    arm = seeds_of([6] * 20 + [1] * 80, (0, 1, 2))
    found = prize(arm, grpo, [table(BASE)])
    # pass@1: arm (120 + 80)/800, GRPO (100 + 30)/800, and .02; pass@8: 1 against .8
    assert found.one.value == pytest.approx(70 / 800 + 0.02)
    assert found.most.value == pytest.approx(0.2)
    assert found.verdict == "reached beyond chance"
    assert found.shortfall == 0


def test_coverage_below_the_base_misses_whatever_pass_at_one_is():
    grpo = seeds_of([8] * 40 + [0] * 60)
    found = prize(grpo, grpo, [table(BASE)])
    assert found.one.value == pytest.approx(0.02)  # GRPO is within .02 of itself
    assert found.most.value == pytest.approx(0.4 - 0.8)
    assert found.verdict == "missed beyond chance"
    assert found.shortfall == pytest.approx(0.4)


def test_just_within_and_just_below_the_bound_of_pass_at_one():
    grpo = seeds_of([8] * 20 + [1] * 60 + [0] * 20)  # coverage as the base's, pass@1 220/800
    at = [table([8] * 18 + [1] * 62 + [0] * 20) for _ in range(3)]  # 206/800: .0175 below
    below = [table([8] * 17 + [1] * 63 + [0] * 20) for _ in range(3)]  # 199/800: .02625 below
    assert prize(at, grpo, [table(BASE)]).verdict.startswith("reached")
    missed = prize(below, grpo, [table(BASE)])
    assert missed.verdict.startswith("missed")
    assert missed.shortfall == pytest.approx(21 / 800 - 0.02)


def test_one_seed_is_never_beyond_chance_and_the_base_is_pooled():
    found = prize([table([8] * 100)], [table([8] * 100)], [table(BASE), table([1] * 100)])
    assert found.verdict == "reached"
    # pooled over 16 samples, k = 8: c = 5 in 20, 2 in 60, 1 in 20 problems: 1 - C(16-c, 8)/C(16, 8)
    base = 0.2 * (1 - 165 / 12870) + 0.6 * (1 - 3003 / 12870) + 0.2 * 0.5
    assert found.most.value == pytest.approx(1 - base)


def test_other_problems_and_missing_seeds_are_refused():
    with pytest.raises(DataError, match="seed by seed"):
        prize([table(BASE)] * 2, [table(BASE)], [table(BASE)])
    with pytest.raises(DataError, match="different problems"):
        prize([table(BASE[:9])], [table(BASE[:9])], [table(BASE)])


# -- small files -----------------------------------------------------------------------------------------------------


def write_small(file, counts, **more):
    ids = [f"p{i}" for i in range(len(counts))]
    doc = {"counts": {"ids": ids, "task": ["t"] * len(ids), "n": [N] * len(ids), "c": counts},
           "study": {"recipe": "demo", "steps": 10, "n": N, "base": "tiny", "limit": None},
           "provenance": {"commit": "abcdef0123", "hardware": {"gpus": ["a GPU"]}}, **more}  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(doc))


def make_study(out):
    for name in ("base", "control"):
        write_small(small_file(out / name), BASE)
    grpo, good = [8] * 40 + [0] * 60, [8] * 40 + [1] * 60
    for seed in (0, 1, 10):
        for arm, counts in (("grpo", grpo), ("nll-1", good), ("self", BASE)):
            for budget in ("updates", "tokens"):
                tokens = {"generated": 900, "screened": 50, "stored": 50}
                write_small(place(out, arm, seed, budget), counts, arm=arm, seed=seed, budget=budget, steps=10,
                            tokens=tokens, by_step=[95] * 10)  # fmt: skip


def test_page_from_collected_files_is_the_page_of_the_study(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    make_study(here)
    (here / "seed-0" / "train-grpo").mkdir()
    (here / "seed-0" / "train-grpo" / "weights.bin").write_bytes(b"x" * 1000)
    page = write_page(here)
    size = collect(here, tmp_path / "small.tar.gz")
    assert size == (tmp_path / "small.tar.gz").stat().st_size < 15_000_000
    assert unpack(tmp_path / "small.tar.gz", there)
    assert not (there / "seed-0" / "train-grpo").exists()
    (there / "frontier.md").unlink()
    assert write_page(there) == page
    assert (there / "frontier.png").stat().st_size > 5000
    assert unpack(tmp_path / "small.tar.gz", there) == []  # what is there stays


def test_rows_say_who_wins_and_on_which_seeds_an_arm_was_chosen(tmp_path):
    make_study(tmp_path)
    found = {(r.role, r.budget, r.arm): r for r in rows(*read_all(tmp_path))}
    assert len(found) == 2 * 2 * 3
    won = found["final", "updates", "nll-1"]
    assert won.seeds == [0, 1]
    assert won.prize.verdict == "reached beyond chance"
    assert won.chosen_on == "10, 11, 12"
    assert found["exploration", "updates", "nll-1"].seeds == [10]
    assert found["exploration", "updates", "nll-1"].chosen_on == "not seen before"
    assert found["final", "tokens", "self"].chosen_on == "10, 11, 12 and 0, 1, 2 (methods)"
    assert found["final", "updates", "grpo"].S == 40  # the base solves 80, GRPO the first 40 of them
    page = (write_page(tmp_path), (tmp_path / "frontier.json").read_text())
    assert "reached by **nll-1** (reached beyond chance)" in page[0]
    assert json.loads(page[1])["counts"]["nll-1 updates 1"] == [8] * 40 + [1] * 60


def test_another_k_judges_by_it_and_one_beyond_the_samples_is_refused(tmp_path):
    make_study(tmp_path)
    by_8, by_4 = ({(r.role, r.budget, r.arm): r for r in rows(*read_all(tmp_path), k)} for k in (None, 4))
    key = ("final", "updates", "nll-1")
    assert by_4[key].one == by_8[key].one
    assert by_8[key].most[0] == 1.0
    assert by_4[key].most[0] == pytest.approx((40 * 1 + 60 * 0.5) / 100)  # c of 8: 8, and 1 (4 of 8 places)
    page = write_page(tmp_path, 4)
    assert "pass@4" in page
    assert "pass@8" not in page
    assert json.loads((tmp_path / "frontier.json").read_text())["k"] == 4
    with pytest.raises(ConfigError, match="k = 9"):
        write_page(tmp_path, 9)


def test_runs_of_two_studies_in_one_folder_are_refused(tmp_path):
    make_study(tmp_path)
    file = place(tmp_path, "self", 0, "updates")
    doc = json.loads(file.read_text())
    doc["study"]["recipe"] = "gentle"
    file.write_text(json.dumps(doc))
    with pytest.raises(DataError, match="folder of its own"):
        read_all(tmp_path)


def test_too_large_a_tar_is_refused_and_a_name_that_leads_out_too(tmp_path):
    import io
    import tarfile

    file = tmp_path / "a" / "x"
    file.parent.mkdir()
    file.write_bytes(bytes(range(256)) * 4)
    with pytest.raises(DataError, match="more than 100"):
        pack(tmp_path / "a", [file], tmp_path / "t.tar.gz", most=100)
    assert not (tmp_path / "t.tar.gz").exists()
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../out"), io.BytesIO())
    with pytest.raises(DataError, match="no plain file"):
        unpack(tmp_path / "bad.tar.gz", tmp_path / "b")
    (tmp_path / "no.tar.gz").write_bytes(b"no tar")
    with pytest.raises(DataError, match="cannot read"):
        unpack(tmp_path / "no.tar.gz", tmp_path / "b")


def test_a_slice_ends_on_time_and_says_what_is_left():
    wait = [sys.executable, "-c", "import time; time.sleep(60)"]
    fail = [sys.executable, "-c", "raise SystemExit(3)"]
    start = time.monotonic()
    found = in_slice({"bad": fail, "long": wait, "late": wait}, jobs=1, seconds=1.5)
    assert found == {"bad": "failed", "long": "cut", "late": "waiting"}
    assert time.monotonic() - start < 15
    assert in_slice({"ok": [sys.executable, "-c", ""]}, jobs=2) == {"ok": "done"}


def test_an_arm_over_budget_in_one_seed_is_not_said_to_have_none(tmp_path):
    make_study(tmp_path)
    file = place(tmp_path, "self", 1, "tokens")
    doc = json.loads(file.read_text())
    file.write_text(json.dumps({**doc, "counts": None}))
    assert "stored responses alone are more: self (seeds 1)." in write_page(tmp_path)


def test_the_prize_is_drawn_from_all_seeds_of_grpo(tmp_path):
    make_study(tmp_path)
    file = place(tmp_path, "grpo", 1, "updates")
    doc = json.loads(file.read_text())
    doc["counts"]["c"] = [0] * 100
    file.write_text(json.dumps(doc))
    place(tmp_path, "nll-1", 1, "updates").unlink()
    part = [r for r in rows(*read_all(tmp_path)) if (r.role, r.budget) == ("final", "updates")]
    assert frontier_page._grpo_first(part) == pytest.approx((8 * 40 / (100 * N) + 0) / 2)
