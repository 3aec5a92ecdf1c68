"""The study's rule, on comparisons made by hand."""

from pathlib import Path

import pytest

from limen.lab.demo_study import StudyRun, plan, shows, study_page
from limen.measure import CountTable, compare


def table(name, counts, n=10):
    ids = tuple(f"p{i}" for i in range(len(counts)))
    return CountTable.of(name, ids, n, counts)


def pair(base, trained):
    return compare(table("base", base), table("trained", trained), draws=0)


BASE = [5] * 50 + [1] * 50
LOST = [10] * 50 + [0] * 20 + [1] * 30
SLIGHTLY = [10] * 50 + [0] * 5 + [1] * 45
BETTER = [6] * 50 + [2] * 50


@pytest.mark.parametrize(
    ("policy", "trained", "expected"),
    [
        ("grpo", LOST, True),  # pass@1 up, 20 of 100 lost, p = 2e-6
        ("grpo", SLIGHTLY, False),  # only 5 of 100 lost
        ("grpo", BETTER, False),  # nothing lost
        ("self", BETTER, True),
        ("self", SLIGHTLY, False),  # 5 lost and none gained: p = 0.0625 is above 0.05, see below
        ("self", LOST, False),
        ("self", [4] * 50 + [1] * 50, False),  # pass@1 did not rise
    ],
)
def test_rule(policy, trained, expected):
    c = pair(BASE, trained)
    if trained is SLIGHTLY and policy == "self":
        assert c.support.mcnemar_p == pytest.approx(2 * 0.5**5)
        expected = True
    assert shows(policy, c) is expected


def test_plan_names_each_base_and_seed_once():
    runs = plan(Path("out"), [0, 1], [0, 7])
    assert [(r.base_seed, r.seed, r.base) for r in runs] == [
        (0, 0, "tiny"),
        (0, 1, "tiny"),
        (7, 0, "out/base-7"),
        (7, 1, "out/base-7"),
    ]
    assert len({r.out for r in runs}) == 4


def test_page_has_a_row_for_every_policy_and_counts_the_runs():
    run = StudyRun(0, "tiny", 3, Path("x"))
    page = study_page({run: {"control": pair(BASE, BASE), "grpo": pair(BASE, LOST), "self": pair(BASE, BETTER)}}, 150)
    rows = [line for line in page.splitlines() if line.startswith("| 0 | 3 |")]
    assert len(rows) == 4
    assert "| GRPO | 0.530 |" in page
    assert "| 80 | 0 | 20 | 0 |" in page
    assert "GRPO: 1 of 1 runs as the rule says; SELF: 1 of 1 runs as the rule says." in page


def test_seeds_that_are_no_numbers_are_one_clear_line():
    from limen.cli.options import numbers
    from limen.errors import ConfigError

    assert numbers("0,1, 12") == [0, 1, 12]
    with pytest.raises(ConfigError, match="came 'a,1'"):
        numbers("a,1")
