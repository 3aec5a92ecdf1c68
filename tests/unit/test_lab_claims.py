"""The page of claims: no row missing, and each rule on counts made by hand, both ways round."""

import re
from pathlib import Path

import numpy as np
import pytest

from limen.errors import DataError
from limen.lab import claims_arms as arms
from limen.lab import claims_between as pairs
from limen.lab import claims_dynamics as dynamics
from limen.lab import claims_other as other
from limen.lab import claims_policies as policies
from limen.lab import evidence
from limen.lab.claims import RULES, check_rules, claims_page, judge_all, sections
from limen.lab.evidence import Evidence, command_of, digest, load, write_digest
from limen.lab.evidence_answers import modal_shares
from limen.lab.gallery_families import classify

N, EACH = 64, 30
TASKS = ["easy"] * EACH + ["hard"] * EACH


def line(easy, hard):
    return " ".join(map(str, [*np.resize(easy, EACH), *np.resize(hard, EACH)]))


BASE = line([30, 32, 34], [3, 4, 5])
GRPO = line([60, 62, 64], [30, 0, 0])  # far more at the first attempt, two thirds of the hard ones lost
SELF = line([40, 42, 44], [4, 5, 6])
SAME = line([31, 32, 33], [4, 4, 4])


def study(methods, kind="demo", seeds=3, **more):
    runs = [
        {"method": m, "seed": s, "group": "0", "step": step, "n": N, "c": c}
        for m, series in methods.items()
        for step, c in (series if isinstance(series, list) else [(100, series)])
        for s in range(seeds)
    ]
    doc = {"digest": kind, "tasks": TASKS, "bases": {"0": {"n": N, "c": BASE}}, "runs": runs, **more}
    return Evidence(kind, doc, Path(f"{kind}.digest.json"))


SHRANK = study({"grpo": GRPO, "self": SELF})


def test_no_row_of_the_claims_is_missing(shared):
    text = shared("spec/claims.md").read_text(encoding="utf-8")
    wanted = [
        m.group(1).strip()
        for m in re.finditer(r"^\| ((?:RBP|IL|DPC)-[^|:]*)\| .*\|.*\|.*\|", text, re.M)
        if not m.group(1).strip().endswith(("IL-T13 cells are counts", "IL-T1", "IL-T4")) or "aggregate" in m.group(0)
    ]
    wanted = [w for w in wanted if " " not in w or "/" in w]
    have = [name for part in sections().values() for name in part]
    assert len(have) == len(set(have))
    assert len(wanted) > 90
    assert set(wanted) <= set(have), sorted(set(wanted) - set(have))
    assert set(have) - set(wanted) <= {"IL-T1"}


def test_every_row_has_a_rule_or_says_why_not():
    check_rules()
    rows = judge_all({})
    assert {r.found.verdict for r in rows} == {"agrees", "not run yet", "out of reach here"}
    for r in rows:
        assert r.found.verdict != "not run yet" or r.command or r.found.size.startswith("needs "), r.id


def test_shrinkage_is_seen():
    want = {
        policies.paradox: "agrees", policies.curves: "agrees", policies.ahead_at_many: "agrees",
        policies.grpo_under_base: "undetermined", policies.self_over_base: "agrees",
        policies.losses_outnumber: "agrees", policies.losses_with_gains: "agrees", policies.retention: "agrees",
        policies.four_way: "agrees", policies.covered: "agrees", policies.close_at_one: "opposite",
        policies.by_class("shrinkage"): "agrees", policies.by_class("expansion"): "undetermined",
    }  # fmt: skip
    for rule, verdict in want.items():
        assert rule(SHRANK).verdict == verdict, rule


def test_pass_at_1_and_crossing_by_hand():
    """Easy 32/64 → 62/64, hard 4/64 → 10/64 on average: pass@1 0.28125 → 0.5625."""
    found = policies.paradox(SHRANK)
    assert "pass@1 +0.281" in found.size
    assert "pass@64 -0.333" in found.size, "20 of 60 are lost"
    assert "E / S" in policies.losses_outnumber(SHRANK).size
    assert "0 / 20" in policies.losses_outnumber(SHRANK).size


def test_the_reverse_is_called_opposite():
    grew = study({"grpo": line([60], [40]), "self": line([60], [1, 0, 0])})
    assert policies.ahead_at_many(grew).verdict == "opposite"
    assert policies.paradox(grew).verdict == "undetermined", "pass@1 up, and pass@64 as it was"
    better = study({"grpo": GRPO})
    worse = Evidence("demo", {**better.doc, "bases": {"0": {"n": N, "c": line([30], [3, 0, 0])}}}, Path("x"))
    assert classify(worse.finals("grpo"), "easy") == "preservation"


def test_runs_that_did_not_move_or_are_too_few_say_nothing():
    assert policies.paradox(study({"grpo": SAME})).verdict == "too short to say"
    assert policies.paradox(study({"grpo": GRPO}, seeds=2)).verdict == "too short to say"


def test_a_study_without_what_a_row_needs_is_not_run():
    assert policies.entropies(SHRANK) is None
    assert policies.paradox(study({"self": SELF})) is None
    rows = {r.id: r for r in judge_all({"demo": [SHRANK]})}
    assert rows["RBP-A1"].found.verdict == "agrees"
    assert rows["IL-A3"].found.verdict == "not run yet"
    assert rows["IL-A3"].command == "limen lab methods --out DIR"


def test_entropies_and_parts():
    methods = {"grpo": GRPO, "self": SELF, "greedy_filter": SELF, "forward_kl": GRPO}
    e = study(methods, "methods", base_extra={"token_entropy": 0.8, "answer_entropy": 2.0})
    for r in e.doc["runs"]:
        r["extra"] = {"token_entropy": 0.9, "answer_entropy": 1.0 if r["method"] == "grpo" else 2.1}
    assert policies.entropies(e).verdict == "agrees"
    assert "0.800 → 0.900" in policies.entropies(e).size
    assert "grpo +0.100" in policies.token_entropy_by_method(e).size
    assert "filter: pass@1" in policies.parts_of_self(e).size


def training(shares, seconds, tokens=(100, 200)):
    cost = {f"seconds/{k}": v for k, v in zip(("screen", "generate", "forward", "backward"), seconds)}
    cost |= {"tokens/generate": 1000.0, "tokens/screen": 10.0}
    return {"steps": [50, 100], "curves": {"correct_share": shares}, "cost": cost, "tokens": list(tokens)}


def test_cost_and_collapse():
    doc = {
        "seed-0/grpo": training([0.4, 0.6], (0, 2, 1, 1)),
        "seed-0/self": training([0.3, 0.4], (0.5, 2, 0.5, 0.5)),
        "seed-0/w_reinforce": training([0.5, 0.1], (0, 2, 1, 1)),
    }
    e = study({"grpo": GRPO}, training=doc)
    assert policies.cost(e).verdict == "agrees"
    assert "SELF / GRPO 0.88" in policies.cost(e).size
    assert policies.unstable(e).verdict == "agrees"
    doc["seed-0/w_reinforce"] = training([0.5, 0.55], (0, 2, 1, 1))
    assert policies.unstable(e).verdict == "opposite"


def trends(verdict, low, high):
    row = {"trend": "‖Δ‖ grows", "verdict": verdict, "mean": (low + high) / 2, "low": low, "high": high}
    return {
        "grpo-constant": [row],
        "grpo-decay": [{**row, "verdict": "opposite"}],
        "self against grpo, constant": [row],
    }


def test_trends_are_read_of_the_constant_rate():
    e = study({}, "dynamics", trends=trends("appears", 0.1, 0.3))
    assert dynamics.trend("‖Δ‖ grows")(e).verdict == "agrees"
    assert dynamics.trend("‖Δ‖ grows", versus=True)(e).verdict == "agrees"
    assert dynamics.trend("Δ⁺ falls")(e) is None


def test_coverage_over_steps():
    middle, late = line([50], [4, 5, 0]), line([60], [20, 0, 0])
    series = {"grpo-constant": [(50, middle), (100, late)], "self-constant": [(50, SELF), (100, SELF)]}
    e = study(series, "dynamics")
    assert dynamics.slips_below(e).verdict == "agrees"
    assert "from step 50" in dynamics.slips_below(e).size
    assert dynamics.coverage_over_steps(e).verdict in ("undetermined", "agrees")
    assert dynamics.nothing_gained(e).verdict == "agrees"
    assert dynamics.later_discovers_more(e).verdict == "undetermined", "S larger, E not"


def test_perplexities_by_hand():
    def e(v):
        return {"value": v, "low": v - 0.01, "high": v + 0.01}

    start = {"own_under_base": e(3.0), "base": e(2.0), "base_correct": e(1.9), "base_wrong": e(2.2),
             "rose_correct": e(1.5), "fell_correct": e(2.5)}  # fmt: skip
    end = {"own_under_base": e(2.0), "base": e(4.0), "base_correct": e(4.4), "base_wrong": e(3.9),
           "rose_correct": e(1.6), "fell_correct": e(6.0)}  # fmt: skip
    doc = {"digest": "between", "perplexity": {"all": {"rows": [start, end]}, "easy": {"rows": [start, end]}}}
    found = Evidence("between", doc, Path("x"))
    for parts in (("own",), ("base",), ("correct",), ("movers",), ("own", "base", "movers", "every")):
        assert pairs.perplexity(*parts)(found).verdict == "agrees"
    doc["perplexity"]["easy"]["rows"] = [end, start]
    assert pairs.perplexity("own", "every")(found).verdict == "opposite"


def pattern(kind, when, cls, rate, **more):
    rates = {"false_negative_rate": 0.0, "false_positive_rate": 0.0, f"{kind}_rate": rate}
    return {"noise": {"kind": kind, "when": when, **more}, "class": cls, "R": 0.5, **rates}


def test_verifier_errors():
    rows = {
        "true": {"noise": None, "class": "(clean)", "R": 0.6},
        "fn_random": pattern("false_negative", "random", "delay", 0.3, per="sample"),
        "fn_lacks": pattern("false_negative", "lacks", "delay", 0.3),
        "fp_a": pattern("false_positive", "contains", "plateau", 0.2),
        "fp_b": pattern("false_positive", "relative_error", "collapse", 0.205),
    }
    e = Evidence("noise", {"patterns": rows}, Path("x"))
    assert other.random_errors_delay(e).verdict == "agrees"
    assert other.negatives_like_random(e).verdict == "agrees"
    assert other.positives_range(e).verdict == "agrees"
    assert other.pattern_decides(e).verdict == "agrees"
    rows["fn_lacks"]["class"] = "collapse"
    assert other.negatives_like_random(e).verdict == "opposite"
    rows["fp_b"]["class"] = "plateau"
    assert other.positives_range(e).verdict == "undetermined"


def test_no_place_of_a_machine_gets_into_a_digest(tmp_path):
    made = {"command": "__main__.py bandit --out /somewhere/else --seeds 3", "commit": "abcdef0123"}
    doc = digest("bandit", {"provenance": made, "claims": {}, "path": "/somewhere/else"}, tmp_path)
    assert doc["provenance"]["command"] == "limen bandit --out DIR --seeds 3"
    assert "/somewhere" not in str(doc)
    assert command_of({}, "methods") == "limen lab methods --out DIR"
    file = write_digest(Evidence("bandit", doc, tmp_path), tmp_path)
    again = load([tmp_path])["bandit"][0]
    assert again.doc == doc
    assert again.path == file


def test_page_and_bad_input(tmp_path):
    page = claims_page({"demo": [SHRANK]})
    assert page.count("\n| RBP-") == sum(n.startswith("RBP-") for part in sections().values() for n in part)
    assert "| RBP-A1 |" in page
    assert "ǀ" in page or "|" not in RULES
    with pytest.raises(DataError, match="not there"):
        load([tmp_path / "nothing"])
    (tmp_path / "demo.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="not JSON"):
        load([tmp_path])


def sized(widths, **more):
    """Trainings of three sizes: width → (GRPO's counts, SELF's counts, Δ+)."""
    runs = [
        {"method": m, "seed": s, "group": w, "step": 100, "n": N, "c": c, "extra": {"interference": d + 0.001 * s}}
        for w, (grpo, own, d) in widths.items()
        for m, c in (("grpo", grpo), ("self", own))
        for s in range(3)
    ]
    parameters = {w: 1000 * 4**i for i, w in enumerate(widths)}
    bases = {w: {"n": N, "c": BASE} for w in widths}
    doc = {"digest": "widths", "tasks": TASKS, "bases": bases, "runs": runs, "parameters": parameters, **more}
    return Evidence("widths", doc, Path("x"))


def test_slopes_over_sizes_by_hand():
    """Hard problems lost: none, a third, two thirds, so that pass@64 changes by 0, −1/6, −1/3 over four doublings."""
    lost = [line([60, 62, 64], x) for x in ([10, 10, 10], [20, 20, 0], [30, 0, 0])]
    e = sized({w: (c, SELF, d) for w, c, d in zip(("48", "96", "192"), lost, (-0.1, -0.2, -0.3))})
    found = arms.shrinks_more(e)
    assert found.verdict == "agrees"
    assert "per doubling of parameters -0.083" in found.size
    assert arms.lead_grows(e).verdict == "agrees"
    assert "per doubling +0.083" in arms.lead_grows(e).size
    assert arms.interference_grows(e).verdict == "agrees"
    assert "Δ+ per doubling of parameters -0.050" in arms.interference_grows(e).size
    assert arms.larger_trails(e).verdict == "agrees"
    assert "hard: width 192 − 48 -0.667" in arms.larger_trails(e).size
    back = sized({w: (c, SELF, d) for w, c, d in zip(("48", "96", "192"), lost[::-1], (-0.3, -0.2, -0.1))})
    assert arms.shrinks_more(back).verdict == "opposite"
    assert arms.larger_trails(back).verdict == "undetermined"
    assert arms.shrinks_more(sized({"48": (GRPO, SELF, 0.0), "96": (GRPO, SELF, 0.0)})) is None, (
        "two sizes are no trend"
    )


def test_direction_of_the_kl():
    kept = line([60, 62, 64], [10])
    methods = {"grpo": GRPO, "reverse-0.1": GRPO, "forward-0.1": kept, "forward-1": SELF}
    found = arms.reverse_kl(study(methods, "kl"))
    assert found.verdict == "agrees"
    assert "forward-0.1 − reverse-0.1 +0.333" in found.size, "the pair of equal pass@1 is the one compared"
    assert arms.reverse_kl(study({**methods, "reverse-0.1": kept, "forward-0.1": GRPO}, "kl")).verdict != "agrees"
    assert arms.reverse_kl(study({"grpo": GRPO}, "kl")) is None


def test_a_claim_that_is_the_sum_of_others():
    rows = {r.id: r for r in judge_all({})}
    assert rows["RBP-A4"].found.verdict == "not run yet"
    trend = {"trend": "clip violations grow on the probe set", "verdict": "appears", "mean": 1.0, "low": 0.5, "high": 2}
    both = {
        "dynamics": [study({}, "dynamics", trends={"grpo-constant": [trend]})],
        "kl": [study({"grpo": GRPO, "reverse-0.1": GRPO, "forward-0.1": line([60, 62, 64], [10])}, "kl")],
    }
    rows = {r.id: r for r in judge_all(both)}
    assert rows["RBP-F7b"].found.verdict == rows["RBP-S5-RKL"].found.verdict == "agrees"
    assert rows["RBP-A4"].found.verdict == "agrees"


def test_share_of_the_bases_modal_answer_by_hand():
    """p: the mode of the even samples is 7 (right), its share among the odd ones 1/2, and 3/4 after training. q: the
    mode is 5 (wrong), 1/2 before and 0 after."""
    base = {
        "p": [(0, "7", True), (1, "7", True), (2, "7", True), (3, "9", False)],
        "q": [(0, "5", False), (1, "5", False), (2, "5", False), (3, "8", True)],
    }
    after = {"p": [(i, a, a == "7") for i, a in enumerate("7779")], "q": [(i, "8", True) for i in range(4)]}
    got = modal_shares(base, after)
    assert (got["right"]["base"], got["right"]["trained"], got["right"]["change"][0]) == (0.5, 0.75, 0.25)
    assert (got["wrong"]["base"], got["wrong"]["trained"], got["wrong"]["change"][0]) == (0.5, 0.0, -0.5)


def modal(right, wrong):
    def x(change):
        return {"problems": 9, "base": 0.4, "trained": 0.4 + change, "change": [change, change - 0.1, change + 0.1]}

    return {f"seed-{s}/grpo": {"right": x(right), "wrong": x(wrong)} for s in range(3)}


def test_collapse_onto_the_mode():
    assert policies.collapses_on_mode(study({"grpo": GRPO}, modal=modal(0.3, 0.2))).verdict == "agrees"
    assert policies.collapses_on_mode(study({"grpo": GRPO}, modal=modal(0.3, -0.2))).verdict == "undetermined"
    assert policies.collapses_on_mode(study({"grpo": GRPO}, modal=modal(-0.3, -0.2))).verdict == "opposite"


def test_errors_that_are_learned():
    """From 0.2 x 0.5 = 0.1 to 0.9 - 0.4 = 0.5 of all samples."""
    row = {**pattern("false_positive", "contains", "collapse", 0.2), "R0": 0.5, "R": 0.4, "reward_said": 0.9}
    e = Evidence("noise", {"patterns": {"fp": row}}, Path("x"))
    assert other.errors_are_learned(e).verdict == "agrees"
    assert "0.100 → 0.500" in other.errors_are_learned(e).size
    row["reward_said"] = 0.5
    assert other.errors_are_learned(e).verdict == "opposite"


PAGE = """\
GRPO and SELF on the tiny base, 100 steps of 64 prompts x 8 responses, 3 training seeds; 200 held-out
problems, n = 64.

| run | seed | step | pass@1 | pass@64 | E | S | chance | p |
|---|---|---|---|---|---|---|---|---|
| base | | 0 | 0.300 | 0.900 | | | | |
| grpo-constant | 0 | 50 | 0.400 | 0.850 | 4 | 14 | 6.0 | 0.03 |
| grpo-constant | 0 | 100 | 0.500 | 0.800 | 2 | 22 | 6.0 | 0.0001 |
| grpo-constant | 1 | 50 | 0.410 | 0.860 | 4 | 12 | 6.0 | 0.08 |
| grpo-constant | 1 | 100 | 0.510 | 0.810 | 2 | 20 | 6.0 | 0.0001 |
| grpo-constant | 2 | 50 | 0.390 | 0.840 | 4 | 16 | 6.0 | 0.01 |
| grpo-constant | 2 | 100 | 0.490 | 0.790 | 2 | 24 | 6.0 | 0.0001 |
"""


def test_a_page_stands_in_for_samples_that_were_left_elsewhere(tmp_path):
    """(E − S)/M at the end is −0.1 in the mean; (E + S)/M = 0.12 gives the half-width 1.96 √((0.12 − 0.01)/200)."""
    (tmp_path / "dynamics.md").write_text(PAGE, encoding="utf-8")
    (tmp_path / "dynamics.json").write_text('{"trends": {}, "steps": 100, "provenance": {}}', encoding="utf-8")
    e = load([tmp_path])["dynamics"][0]
    found = dynamics.slips_below(e)
    half = 1.96 * ((0.12 - 0.01) / 200) ** 0.5
    assert found.verdict == "agrees"
    assert f"pass@64 -0.100 [{-0.1 - half:+.3f}, {-0.1 + half:+.3f}]" in found.size
    assert "pass@1 +0.200 [+0.175, +0.225]" in found.size, "over three seeds: 4.303 x 0.01 / √3"
    assert "from step 50" in found.size
    assert dynamics.nothing_gained(e).verdict == "agrees"


def test_every_trend_that_a_rule_names_is_one_of_the_studys():
    from limen.lab.trends import MILDER, TRENDS

    said = {t.words for t in (*TRENDS, *MILDER)}
    for row, words in {
        "RBP-F2B": "‖Δ‖ grows", "RBP-F2C": "Δ⁺ falls", "RBP-F2D": "log π(y⁺) falls",
        "RBP-F7a": "clip violations stay stable", "RBP-F7b": "clip violations grow on the probe set",
        "RBP-F8a": "lower reward", "RBP-F8b": "higher token entropy", "RBP-F8c": "Δ⁺ higher",
        "RBP-F8d": "‖Δ‖ smaller", "RBP-F8e": "fewer clip violations",
    }.items():  # fmt: skip
        match = min((w for w in said if w.startswith(words)), key=len)
        versus = row.startswith("RBP-F8")
        name = "self against grpo, constant" if versus else "grpo-constant"
        line = {"trend": match, "verdict": "opposite", "mean": 0.0, "low": -1.0, "high": 1.0}
        assert RULES[row](study({}, "dynamics", trends={name: [line]})).verdict == "opposite", row


def test_first_order_by_hand():
    """A residual of exactly (step)² on a change of exactly (step): slope 2."""
    sweep = [
        {"lr": lr, "rms": lr, "mean_measured": 0.0, "r2": 1 - lr**2, "correlation": 0.999}
        for lr in (1e-4, 1e-3, 1e-2, 1e-1)
    ]
    e = Evidence("influence", {"points": [{"step": 0, "predictions": {"sgd": {"sweep": sweep}}}]}, Path("x"))
    found = pairs.first_order(e)
    assert found.verdict == "agrees"
    assert "slope 2.00" in found.size
    for c in sweep:
        c["r2"] = 1 - c["lr"] ** 3
    assert pairs.first_order(e).verdict == "undetermined"


def noise_study(rows, **more):
    return Evidence(
        "noise", {"digest": "noise", "recipe": "demo", "steps": 200, "patterns": rows, **more}, Path("noise")
    )


def test_errors_of_two_studies_are_read_together_and_kept_apart(tmp_path):
    true = {"noise": None, "class": "(clean)", "R": 0.6}
    fixed = noise_study({"true": true, "fn_lacks": pattern("false_negative", "lacks", "delay", 0.3)})
    drawn = pattern("false_negative", "random", "plateau", 0.3, per="sample")
    drawn["class_by_seed"] = ["plateau", "delay", "collapse"]
    random = noise_study({"true": {**true, "R": 0.51}, "fn_random": drawn})
    names = [write_digest(e, tmp_path).name for e in (fixed, random)]
    assert names == ["noise.digest.json", "noise-per-sample.digest.json"]
    rows = {r.id: r.found for r in judge_all({"noise": [fixed, random]})}
    assert rows["DPC-1"].verdict == "opposite"
    assert "clean 0.510: fn_random plateau (0.500; by seed plateau, delay, collapse)" in rows["DPC-1"].size
    assert rows["DPC-2"].verdict == "opposite"
    alone = {r.id: r.found.verdict for r in judge_all({"noise": [fixed]})}
    assert (alone["DPC-1"], alone["DPC-2"]) == ("not run yet", "not run yet")
    other_recipe = noise_study({"true": true, "fn_random": drawn})
    other_recipe.doc["recipe"] = "gentle"
    assert len(other.joined([fixed, other_recipe])) == 2


def on_base(name, verdicts):
    words = ("‖Δ‖ grows", "Δ⁺ falls", "log π(y⁺) falls")
    rows = [{"trend": w, "verdict": v, "mean": 0.1, "low": 0.0, "high": 0.2} for w, v in zip(words, verdicts)]
    series = {"grpo-constant": [(50, SELF), (100, GRPO)]}
    return study(series, "dynamics", trends={"grpo-constant": rows}, base=name)


def test_dynamics_across_bases(tmp_path):
    same = [on_base(n, ("appears", "unclear", "opposite")) for n in ("tiny", "model-width-48", "model-width-192")]
    assert dynamics.across_bases(same).verdict == "agrees"
    assert dynamics.across_bases(same[:2]) is None
    turned = [*same[:2], on_base("model-width-192", ("opposite", "unclear", "opposite"))]
    assert dynamics.across_bases(turned).verdict == "opposite"
    unlike = [*same[:2], on_base("model-width-192", ("unclear", "unclear", "opposite"))]
    assert dynamics.across_bases(unlike).verdict == "undetermined"
    row = next(r for r in judge_all({"dynamics": same}) if r.id == "RBP-F10")
    assert "F2B: tiny agrees, model-width-48 agrees" in row.found.size
    assert write_digest(same[1], tmp_path).name == "dynamics-model-width-48.digest.json"


def test_problems_with_fewer_judged_samples_keep_their_own_n():
    questions = [{"trained_n": n, "trained_c": c, "base_n": 8, "base_c": 1} for n, c in ((8, 8), (7, 7))]
    entry = evidence._entry("grpo", 0, "0", 100, questions)
    doc = {"tasks": ["easy", "easy"], "bases": {"0": evidence._base_of(questions)}, "runs": [entry]}
    (run,) = Evidence("demo", doc, Path("demo.digest.json")).runs()
    assert (run.trained.n_P.tolist(), run.trained.c_P.tolist()) == ([8, 7], [8, 7])
    assert run.base.n_P.tolist() == [8, 8]


def test_the_plain_study_decides_in_whatever_order_digests_are_given():
    files = sorted((Path(__file__).resolve().parents[2] / "docs" / "results").glob("*.digest.json"))
    assert {"methods.digest.json", "methods-gentle.digest.json"} <= {f.name for f in files}
    one, other = load(files), load(files[::-1])
    assert [e.path.name for e in one["methods"]] == ["methods.digest.json", "methods-gentle.digest.json"]
    assert {k: [e.path for e in v] for k, v in one.items()} == {k: [e.path for e in v] for k, v in other.items()}
