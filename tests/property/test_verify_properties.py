"""What holds for every response: reading never raises, equal values agree whatever their dress, others never do.

Formulas come from sympy and are written by sympy's printer, so that neither side is made by the code under test.
"""

import re
from fractions import Fraction

import pytest
import sympy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limen.verify import extract
from limen.verify.answers import Math, number
from limen.verify.noise import Noise
from limen.verify.reader import read

MATH = Math()
X, Y = sympy.symbols("x y")
relaxed = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

PIECES = st.sampled_from(
    [
        *"0123456789.,;:+-*/^_=<>(){}[]|!&%$'\"~ \n\t\\abcdefxyzijkE?#@`",
        *(
            "\\frac",
            "\\sqrt",
            "\\boxed{",
            "\\fbox{",
            "\\text{",
            "\\left(",
            "\\right)",
            "\\pm",
            "\\infty",
            "\\pi",
            "\\cup",
        ),
        *(
            "\\begin{pmatrix}",
            "\\end{pmatrix}",
            "\\\\",
            "\\{",
            "\\}",
            "\\le",
            "\\in",
            "\\circ",
            "^\\circ",
            "\\%",
            "\\$",
        ),
        *(
            "\\sin",
            "\\log",
            "\\binom",
            "\\lfloor",
            "\\rfloor",
            "\\mathrm{",
            "\\overline",
            "\\ldots",
            "\\,",
            "\\!",
            "\\mathbb{R}",
        ),
        *(
            "the answer is ",
            "####",
            "<answer>",
            "</answer>",
            "and",
            "or",
            "sqrt(",
            "1e9",
            "e",
            "i",
            "np.",
            "°",
            "½",
            "²",
            "−",
        ),
        *(
            "\u200b",
            "\ud800",
            "\x00",
            "９",
            "٣",
            "é",
            "\\setminus",
            "\\emptyset",
            "!",
            "\\dot",
            "\\prime",
            "cm",
            "\\boxed",
        ),
    ]
)
TEXTS = st.lists(PIECES, max_size=40).map("".join)


@given(TEXTS, TEXTS)
@settings(max_examples=600, deadline=None)
def test_no_text_makes_it_raise(gold, response):
    for where in ("boxed", "marked", "any"):
        found = extract.final_answer(response, where=where, join=True)
        if found.answer is not None:
            assert found.answer.strip()
            MATH.quick(gold, found.answer, {})
    MATH.quick(response, gold, {})


@given(TEXTS)
@relaxed
def test_what_is_read_equals_itself(text):
    if text.strip() and extract.JOIN not in text:
        assert MATH.quick(text, text, {}).outcome == "correct"


@given(TEXTS, TEXTS)
@relaxed
def test_equality_goes_both_ways(a, b):
    """For values and collections alike (policies that are about gold alone, such as rounding, aside)."""
    if "." in a + b or "e" in a + b or "_" in a + b:
        return
    one, other = MATH.quick(a, b, {}), MATH.quick(b, a, {})
    if one and other and "unjudged" not in (one.outcome, other.outcome) and "length" not in (one.rule, other.rule):
        assert one.outcome == other.outcome or not read(a).readings or not read(b).readings


@given(st.text(alphabet="ab{}\\1 ", max_size=30), st.text(alphabet="xyz .", max_size=20))
@relaxed
def test_a_box_gives_back_what_was_put_in(content, around):
    depth = 0
    for token in re.findall(r"\\[\\{}]|[{}]", content):
        depth += (token == "{") - (token == "}")
        if depth < 0:
            return
    if depth or (content.endswith("\\") and (len(content) - len(content.rstrip("\\"))) % 2) or not content.strip():
        return
    assert extract.last_box(f"\\boxed{{no}} {around}\\boxed{{{content}}}{around}") == content.strip()


fractions = st.fractions(min_value=-1000, max_value=1000, max_denominator=60)


def dresses(q: Fraction) -> list[str]:
    top, bottom = abs(q.numerator), q.denominator
    sign = "-" if q < 0 else ""
    forms = [
        f"{q.numerator}/{bottom}",
        f"{sign}\\frac{{{top}}}{{{bottom}}}",
        f"\\dfrac{{{q.numerator * 3}}}{{{bottom * 3}}}",
    ]
    if bottom == 1:
        forms += [f"{q.numerator}", f"{q.numerator}.0", f"{q.numerator:,}", f"x = {q.numerator}", f"${q.numerator}$"]
    elif top > bottom:
        forms.append(f"{sign}{top // bottom}\\frac{{{top % bottom}}}{{{bottom}}}")
    if 10**4 % bottom == 0:
        forms += [f"{sign}{top * 10**4 // bottom / 10**4}", f"{q.numerator * 10**4 // bottom / 100}\\%"]
    return forms


@given(fractions)
@relaxed
def test_one_number_in_all_its_dresses(q):
    forms = dresses(q)
    for form in forms:
        assert number(form) == q, form
        assert MATH.quick(forms[0], f"{form}", {}).outcome == "correct", form


@given(fractions, fractions)
@relaxed
def test_different_numbers_never_agree(a, b):
    if a == b or a in (100 * b, b / 100):  # a percent sign may stand for either
        return
    for form in dresses(b):
        for gold in dresses(a)[:2]:
            assert MATH.quick(gold, form, {}).outcome == "wrong", (gold, form)


@given(st.integers(1, 400), st.integers(1, 10**6))
@relaxed
def test_small_relative_differences_are_seen_at_any_size(power, step):
    gold, answer = f"{step}e-{power}", f"{step + 1}e-{power}"
    assert MATH.quick(gold, answer, {}).outcome == "wrong"
    assert MATH.quick(f"10^{{{power}}}", f"10^{{{power}}} + {step}", {}).outcome == "wrong"


@st.composite
def formulas(draw, depth=3):
    """Formulas in x and y, unevaluated enough to have several forms."""
    if depth == 0:
        return draw(
            st.sampled_from([X, Y, sympy.Integer(2), sympy.Integer(3), sympy.pi, sympy.sqrt(2), sympy.Rational(1, 2)])
        )
    kind = draw(st.sampled_from(["add", "mul", "pow", "neg", "div", "fn", "leaf"]))
    a = draw(formulas(depth=depth - 1))
    if kind == "leaf":
        return a
    if kind == "neg":
        return -a
    if kind == "pow":
        return a ** draw(st.integers(1, 3))
    if kind == "fn":
        return draw(st.sampled_from([sympy.sin, sympy.cos, sympy.exp]))(a)
    b = draw(formulas(depth=depth - 1))
    return a + b if kind == "add" else a * b if kind == "mul" else a / (b**2 + 1)


def beyond_the_digits(formula):
    """Whether a number e^x of it is so large that e^x + 1 is not told from it: then no verdict is the right one."""
    return any(e.args[0].is_number and abs(sympy.re(e.args[0].evalf())) > 130 for e in formula.atoms(sympy.exp))


@given(formulas(), st.sampled_from([sympy.expand, sympy.factor, sympy.together, sympy.trigsimp]))
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
def test_rewritten_formulas_agree_and_changed_ones_do_not(formula, rewrite):
    gold, answer = sympy.latex(formula), sympy.latex(rewrite(formula))
    decision = MATH.quick(gold, answer, {})
    assert decision is None or decision.outcome == "correct", (gold, answer, decision)
    for changed in (formula + 1, formula + X, 2 * formula if formula != 0 else sympy.Integer(1)):
        decision = MATH.quick(gold, sympy.latex(changed), {})
        if decision is not None and decision.outcome == "unjudged":
            assert beyond_the_digits(formula), (gold, sympy.latex(changed), decision)
            continue
        assert decision is None or decision.outcome == "wrong", (gold, sympy.latex(changed), decision)


def test_nearly_all_of_sympys_latex_is_read():
    """So that the property above is not met by declining to judge."""
    forms = [X**2 + 3 * X * Y, sympy.sqrt(X + 1) / 2, sympy.exp(-X) * sympy.sin(2 * Y), sympy.Rational(3, 7) * sympy.pi]
    forms += [sympy.log(X) + 1, (X + 1) ** 3 / (Y**2 + 1), sympy.sin(X) ** 2, sympy.cos(X + Y), -X / Y, sympy.exp(X**2)]
    assert all(read(sympy.latex(f)).readings for f in forms)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=6), st.randoms())
@relaxed
def test_order_counts_in_tuples_only(values, rng):
    shuffled = values[:]
    rng.shuffle(shuffled)
    bare, other = ", ".join(map(str, values)), ", ".join(map(str, shuffled))
    assert MATH.quick(f"\\{{{bare}\\}}", f"\\{{{other}\\}}", {}).outcome == "correct"
    assert MATH.quick(bare, other, {}).outcome == "correct"
    same = "correct" if values == shuffled else "wrong"
    assert MATH.quick(f"({bare})", f"({other})", {}).outcome == same
    assert MATH.quick(f"({bare})", f"\\{{{other}\\}}", {}).outcome == "wrong"


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, 2**31))
@relaxed
def test_noise_depends_on_seed_gold_and_response_only(gold, response, seed):
    from limen.types import Verdict
    from limen.verify import JudgeItem

    noise = Noise({"kind": "false_negative", "rate": 0.5, "seed": seed})
    item, verdict = JudgeItem(gold, response), Verdict("correct", "", "", "math@1")
    assert noise.apply(item, verdict) == noise.apply(JudgeItem(gold, response, {"other": 1}), verdict)


@pytest.mark.parametrize("text", ["", " ", "\\boxed{}", "\\boxed{ }"])
def test_nothing_is_no_answer(text):
    assert extract.final_answer(text).answer is None
