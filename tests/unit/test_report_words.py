"""The verdict in words, and numbers as they are printed."""

import math

import pytest

from limen.report.export import csv_text, latex, markdown
from limen.report.model import Contrast, Curve, Health, Policy, ReportData
from limen.report.tables import Table
from limen.report.terminal import visible
from limen.report.words import finding, headline, p_number, rate, verdicts

CURVE = Curve((1, 64), (0.5, 0.9), (0.4, 0.8), (0.6, 1.0))


def policy(name, role="trained"):
    return Policy(name, role, "", CURVE, 0.5, (64,), (32,), Health(64, 0.0, 0.0, 0))


def contrast(place, gained, lost, p, low=-0.1, high=0.1):
    gap = Curve((1, 64), (0.1, 0.0), (0.0, low), (0.2, high))
    return Contrast(place, 64, 40, gained, lost, 5, 3.0, 3.0, p, {}, gap, ("kept",), ("kept",))


def data(*contrasts):
    names = [policy("base", "base"), *[policy(f"m{c.policy}") for c in contrasts]]
    return ReportData("t", names, contrasts, ())


def said(d):
    return "".join(text for text, _ in headline(d))


@pytest.mark.parametrize(
    ("gained", "lost", "p", "expected"),
    [(1, 20, 0.001, "shrank"), (20, 1, 0.001, "grew"), (1, 20, 0.2, "chance"), (5, 5, 1.0, "chance")],
)
def test_finding(gained, lost, p, expected):
    assert finding(contrast(1, gained, lost, p)) == expected


def test_test_and_interval_that_disagree_are_mixed_evidence():
    d = data(contrast(1, 5, 14, 0.064, low=-0.06, high=-0.003))
    assert finding(d.contrasts[0]) == "mixed"
    assert said(d) == "The evidence on m1 is mixed."
    assert said(data(contrast(1, 0, 20, 1e-5), contrast(2, 5, 14, 0.064, -0.06, -0.003))) == (
        "m1 shrank what the base can solve, while the evidence on m2 is mixed."
    )


def test_undefined_p_is_no_finding():
    assert finding(contrast(1, 0, 9, math.nan)) == "chance"


def test_headline_names_every_policy_by_its_finding():
    d = data(contrast(1, 0, 20, 1e-5), contrast(2, 20, 0, 1e-5), contrast(3, 4, 5, 1.0))
    assert said(d) == (
        "m1 shrank what the base can solve; m2 widened what the base can solve; "
        "m3 did not measurably change what the base can solve."
    )
    assert said(data(contrast(1, 0, 20, 1e-5), contrast(2, 0, 30, 1e-5))).startswith("m1 and m2 shrank")


def test_a_control_is_no_finding_of_the_headline():
    d = data(contrast(1, 0, 20, 1e-5))
    d = ReportData("t", [d.policies[0], policy("again", "control")], d.contrasts, ())
    assert "shrank" not in said(d)
    assert verdicts(d)[0].word.endswith("differs beyond chance!")


def test_sentence_has_its_numbers():
    sentence = verdicts(data(contrast(1, 1, 20, 0.0123)))[0].sentence
    for part in ("Of 66 problems", "lost 20", "gained 1", "64 samples", "3.0 each way", "(−19)", "p\u00a0=\u00a00.012"):
        assert part in sentence


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.5, "0.50"), (0.0321, "0.032"), (9e-9, "9×10⁻⁹"), (0.00086, "9×10⁻⁴"), (math.nan, "–"), (1, "1.00")],
)
def test_p_values(p, text):
    assert p_number(p) == text


def test_rates_never_show_a_negative_nought():
    assert rate(-0.0001) == "0.000"
    assert rate(-0.04) == "−0.040"
    assert rate(math.nan) == "–"


def test_tables_escape():
    table = Table("k", ("a_b", "50%"), (("x|y\n*z*", "9×10⁻⁹"),), "c & d")
    assert markdown(table).splitlines()[2] == r"| x\|y \*z\* | 9×10⁻⁹ |"
    tex = latex(table)
    assert r"a\_b & 50\% \\" in tex
    assert r"9$\times$10$^{-}$$^{9}$" in tex
    assert r"c \& d" in tex


def test_csv_cells_run_nothing_and_nan_is_empty():
    assert csv_text(("a", "b"), [("=1+1", math.nan), ('say "x"', 0.5)]) == 'a,b\n\'=1+1,\n"say ""x""",0.5\n'


def test_terminal_text_drives_no_terminal():
    assert visible("a\x1b[31mb\u202ec\u00a0d") == "a�[31mb�c d"
