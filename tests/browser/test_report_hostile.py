"""Problems, answers, names and responses that try to run, to break out, to hide, or to choke the page."""

import json
import re

import pytest

from limen.report import build_report
from limen.report.payload import safe_json
from limen.types import Problem
from report_synthetic import HOSTILE, problems, write_run

NAME = "<img src=x onerror=window.pwned=7></title><script>window.pwned=8</script>"


@pytest.fixture(scope="module")
def hostile_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    items = [
        Problem(f"{i}{text[:60]}", text, text[:200], task=HOSTILE[i % 3], source=text[:100])
        for i, text in enumerate(HOSTILE)
    ]
    items += [Problem("big", "A million", "1"), *problems(10)]

    def text(gold, sample, correct):
        return "x" * 1_000_000 + "END" if gold == "1" and sample < 2 else HOSTILE[(sample + len(gold)) % len(HOSTILE)]

    rates = [0.5] * len(items)
    base = write_run(folder / "base", NAME, items, rates, 8, 1, text=text)
    other = write_run(folder / "other", HOSTILE[1], items, rates, 8, 2, text=text)
    return build_report([base, other], folder / "out", title=NAME, draws=20, figures=True)


def test_nothing_runs_and_the_page_stays_usable(watched, hostile_file):
    tab = watched()
    page = tab.goto(hostile_file)
    for row in range(page.locator("#explorer .list tbody tr").count()):
        page.locator("#explorer .list tbody tr").nth(row).click()
        page.wait_for_selector(f"#explorer .list tbody tr:nth-child({row + 1})[aria-selected=true]")
        page.wait_for_selector(".detail .resp")
    assert page.evaluate("window.pwned") is None
    assert tab.errors == []
    assert len(tab.requests) == 1
    assert page.locator("img, iframe, object, embed, form").count() == 0
    assert page.locator("script").count() == 2 + page.locator("script[id^=chunk]").count()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_megabyte_is_cut_and_says_so(watched, hostile_file):
    page = watched().goto(hostile_file, "#problem=big")
    page.wait_for_selector(".detail .resp")
    text = page.inner_text(".detail .resp .text:has(.cut) >> nth=0")
    assert len(text) < 8000
    assert text.endswith("END")
    assert "994,003 characters left out" in text
    assert hostile_file.stat().st_size < 2_000_000


def test_direction_marks_are_shown_not_obeyed(watched, hostile_file):
    page = watched().goto(hostile_file)
    page.fill("#explorer input", "sdrawkcab")
    page.locator("#explorer .list tbody tr").first.click()
    page.wait_for_selector(".detail .resp")
    shown = page.inner_text(".detail .text >> nth=0")
    assert "U+202E" in shown
    assert "\u202e" not in shown
    assert "U+2028" in shown


def test_json_cannot_end_its_element():
    text = safe_json({"a": ["</script><!--", "\u2028\u2029&amp;", float("nan"), "\ud800"]})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text)["a"][:3] == ["</script><!--", "\u2028\u2029&amp;", None]


def test_tables_hold_their_shape(hostile_file):
    lines = (hostile_file.parent / "tables.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| \\<img")]
    assert len(rows) == 4
    assert not re.search(r"(?<!\\)<", "\n".join(lines))
    tex = (hostile_file.parent / "tables.tex").read_text()
    assert r"\textless{}img" in tex
    assert (hostile_file.parent / "figures" / "passk.png").stat().st_size > 5000
