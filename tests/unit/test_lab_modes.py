"""The base of two forms, and the rules that say which form died: on readings made by hand."""

import numpy as np
import pytest

from limen.lab.modes import Found
from limen.lab.modes_rules import Reading, better_form, judge_method
from limen.lab.tiny_modes import BETTER, CODE, FORMS, LANGUAGE, ModesRecipe, answer_of, encode, judge_form, modes_batch
from limen.measure import CountTable
from limen.problems.arithmetic import FAMILIES, arithmetic_problems

N, EACH = 64, 40


def reading(step, families):
    """families: name → (share of code, accuracy in code, in language, successes of each problem)."""
    tasks = [f for f in families for _ in range(EACH)]
    jitter = np.tile(np.linspace(-0.01, 0.01, EACH), len(families))
    columns = [np.array([families[f][i] for f in tasks]) + jitter for i in range(3)]
    counts = [families[f][3] for f in families]
    c = np.concatenate([np.resize(np.asarray(x), EACH) for x in counts])
    ids = [f"{f}-{i}" for i, f in enumerate(tasks)]
    return Reading(step, CountTable.of("x", ids, N, c, task=tasks), *columns)


BASE = reading(
    0, {"add": (0.4, 0.1, 0.6, 26), "mul21": (0.4, 0.5, 0.1, [16, 17, 18]), "mul22": (0.4, 0.02, 0.1, [4, 3, 5])}
)
TRAIN = reading(0, {"add": (0.4, 0.1, 0.6, 26), "mul22": (0.4, 0.02, 0.1, [4, 3, 5])})
DRIFT = reading(
    50, {"add": (0.01, 0.1, 0.8, 50), "mul21": (0.02, 0.5, 0.05, [3, 0, 4]), "mul22": (0.01, 0.0, 0.2, [10, 9])}
)
KEPT = reading(
    50, {"add": (0.35, 0.2, 0.7, 35), "mul21": (0.38, 0.5, 0.1, [15, 16]), "mul22": (0.37, 0.1, 0.2, [9, 8])}
)


def found(*ends):
    series = {"grpo": {seed: [end] for seed, end in enumerate(ends)}}
    return Found(BASE, BASE, TRAIN, series, {"grpo": {}})


def verdicts(*ends):
    return {k: v["verdict"] for k, v in judge_method(found(*ends), "grpo", ("add", "mul22")).items()}


def test_a_form_that_dies_and_what_it_costs():
    got = verdicts(DRIFT, DRIFT, DRIFT)
    assert got == {
        "moved": "yes", "F6L": "agrees", "F6R": "agrees", "S5-MIN": "agrees", "F15a": "agrees", "F15b": "agrees",
        "I-h": "agrees",
    }  # fmt: skip


def test_one_seed_that_keeps_the_form_is_enough_to_be_unsure():
    got = verdicts(DRIFT, DRIFT, KEPT)
    assert got["F6L"] == got["F15a"] == "undetermined"


def test_forms_that_are_kept():
    got = verdicts(KEPT, KEPT)
    assert got["F6L"] == "undetermined"
    assert got["S5-MIN"] == "undetermined"


def test_a_run_that_did_not_move_says_nothing_of_the_paper():
    got = verdicts(BASE, BASE)
    assert got["moved"] == "no"
    assert got["F6L"] == got["I-h"] == "too short to say"
    assert got["F15b"] == "agrees", "of the base alone"


def test_the_other_way_round_is_opposite():
    code = reading(50, {"add": (0.9, 0.6, 0.6, 50), "mul21": (0.9, 0.5, 0.1, 40), "mul22": (0.9, 0.3, 0.2, [20, 19])})
    got = verdicts(code, code)
    assert got["F6L"] == "opposite", "the minority form grew"
    assert got["F6R"] == "opposite", "language was the better one in training"


def test_better_form_needs_an_interval_that_excludes_zero():
    assert better_form(BASE.family("add"))[0] == "language"
    assert better_form(BASE.family("mul21"))[0] == "code"
    even = reading(0, {"add": (0.4, 0.3, 0.3, 20)})
    form, gap = better_form(even)
    assert form is None
    assert gap[0] == pytest.approx(0)


def test_a_problem_without_a_form_is_left_out_of_its_accuracy():
    r = reading(0, {"add": (0.5, 0.2, 0.4, 10)})
    r.accuracy_code_P[:] = np.nan
    r.accuracy_code_P[0] = 0.7
    assert r.accuracy("code") == pytest.approx(0.7)


def test_verifier_takes_either_form():
    for text, want in (("python 654", "correct"), ("so 654", "correct"), ("654", "correct"), ("so 65", "wrong")):
        assert judge_form("654", text, {})["outcome"] == want
    assert judge_form("654", "python ", {})["outcome"] == "no_answer"
    assert answer_of("so 056") == "056", "units first: leading zeros are digits"


def test_batches_hold_the_stated_forms_and_errors():
    pools = [encode([arithmetic_problems((f,), "train")[0]]) for f in FAMILIES]
    recipe = ModesRecipe(batch=30_000, code_share=0.3, noisy_labels=0.0, poor_labels=1.0, poor_noise=0.5)
    ids, labels = modes_batch(pools, recipe, np.random.default_rng(0))
    code = ids[:, 6] == CODE
    assert code.mean() == pytest.approx(0.3, abs=0.01)
    assert set(np.unique(ids[:, 6])) == {CODE, LANGUAGE}
    assert (labels[:, :6] == -100).all()
    assert (labels[:, 6] == ids[:, 6]).all(), "the form is learned too"
    for family, pool in zip(FAMILIES, pools, strict=True):
        own = (ids[:, :6] == pool[0, :6]).all(1)
        good = code == (BETTER[family] == "code")
        digits = (pool[0] < 10) & (np.arange(pool.shape[1]) > 6)
        wrong = (ids[:, digits] != pool[0, digits]).mean(1)
        assert wrong[own & good].max() == 0
        assert wrong[own & ~good].mean() == pytest.approx(0.45, abs=0.02)


def test_tokenizer_knows_the_forms():
    from limen.lab.tiny_base import make_tokenizer

    tokenizer = make_tokenizer(FORMS)
    ids = tokenizer("57*08=python 654", add_special_tokens=False)["input_ids"]
    assert ids[6] == CODE
    assert len(ids) == 10
    assert tokenizer.decode(ids) == "57*08=python 654"
    assert tokenizer("so 1", add_special_tokens=False)["input_ids"] == [LANGUAGE, 1]


def test_figures_come_from_the_numbers_alone(tmp_path):
    from limen.lab.modes import ModesStudy, to_json
    from limen.lab.modes_page import modes_page, write_figures
    from limen.lab.modes_rules import judge
    from limen.lab.policies import Study

    f = Found(BASE, KEPT, TRAIN, {"grpo": {0: [KEPT, DRIFT]}, "self": {0: [KEPT, KEPT]}}, {
        "grpo": {0: [(1, 0.4), (2, 0.1)]}, "self": {0: [(1, 0.4), (2, 0.4)]},
    })  # fmt: skip
    study, rules = ModesStudy(Study(tmp_path, steps=2, n=N)), judge(f, ("add", "mul22"))
    doc = to_json(study, f, rules)
    assert doc["series"]["grpo"]["0"][-1]["families"]["mul21"]["code_share"][0] == pytest.approx(0.02)
    assert doc["base"]["families"]["add"]["c"] == [26] * EACH
    made = write_figures(doc, tmp_path)
    assert {p.name for p in made} >= {"modes.png", "modes-training.svg"}
    page = modes_page(study, f, rules)
    assert "| mul21 | GRPO | 0 | 50 | 0.020 | 0.500 | 0.050 |" in page
    assert f"{EACH} held-out problems a family" in page
    assert "`mul21` is not trained on." in page
    assert "`add` and `mul22` are not trained on." in modes_page(ModesStudy(study.study, ("mul21",)), f, rules)


def test_the_shipped_base_is_what_the_recipe_makes():
    import json
    from pathlib import Path

    from limen.models import resolve_model

    folder = Path(resolve_model("tiny-modes"))
    info = json.loads((folder / "recipe.json").read_text())
    assert info["recipe"]["code_share"] == ModesRecipe().code_share
    assert info["recipe"]["poor_noise"] == ModesRecipe().poor_noise
    assert "--forms 2" in info["provenance"]["command"]
    assert (folder / "model.safetensors").stat().st_size < 1_500_000


@pytest.mark.slow
def test_the_study_runs_and_goes_on(tmp_path):
    from limen.lab.modes import ModesStudy, run_modes
    from limen.lab.policies import Study

    study = ModesStudy(Study(tmp_path, steps=4, n=8, base="tiny-modes", limit=12, recipe="gentle"))
    page = run_modes(study, ["grpo", "self"], [0, 1])
    assert page.count("| add | GRPO |") == 8
    assert (tmp_path / "modes.png").stat().st_size > 20_000
    assert run_modes(study, ["grpo", "self"], [0, 1]) == page, "nothing is trained or sampled again"
