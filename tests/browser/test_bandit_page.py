"""The bandit's page computes what the Python does, under its own content policy, without any request."""

import pytest

from limen.lab.bandit import alpha, draw_logits, draw_x, run
from limen.lab.bandit_page import bandit_page


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("bandit") / "bandit.html"
    file.write_text(bandit_page(), encoding="utf-8")
    return file


def numbers(page):
    rows = page.locator("#numbers tbody tr").all()
    return {int(r.locator("th").inner_text()): [c.inner_text() for c in r.locator("td").all()] for r in rows}


def test_the_page_agrees_with_python_and_reacts(page_file, watched):
    seen = watched()
    page = seen.goto(page_file)
    z, labels = draw_logits("peaked", 0, draw_x(0)), {11: 1, 8: 1}
    for objective, column in (("reinforce", 2), ("mle", 4)):
        path = run(z, labels, objective, 1.5, 10)
        for action in (11, 8, 20):
            got = numbers(page)[action]
            assert float(got[column]) == pytest.approx(path[-1, action], abs=1e-4)
            assert float(got[column + 1]) == pytest.approx(alpha(path)[action], rel=1e-3, abs=1e-4)
    page.locator("#step").fill("1")
    assert float(numbers(page)[8][4]) == pytest.approx(run(z, labels, "mle", 1.5)[1, 8], abs=1e-4)
    page.locator("#eta").fill("1")
    assert float(numbers(page)[8][4]) == pytest.approx(run(z, labels, "mle", 3.0)[1, 8], abs=1e-4)
    page.locator("#labels").fill("5-")
    page.locator("#uneven").fill("0")
    assert float(numbers(page)[5][0 + 1]) == pytest.approx(0.02)
    page.locator("#labels").fill("nonsense")
    assert "Labels are actions" in page.locator("#note").inner_text()
    assert 5 in numbers(page), "what cannot be read changes nothing"
    page.locator("#bars-mle rect[data-action='30']").click()
    assert numbers(page)[30][0] == "rewarded"
    page.locator("#bars-mle rect[data-action='30']").click()
    assert numbers(page)[30][0] == "pushed down"
    assert seen.errors == []
    assert all(url.startswith("file:") for url in seen.requests)


def test_it_fits_a_phone_and_has_both_themes(page_file, watched):
    page = watched(390, 844).goto(page_file)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page_file, watched, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = watched(bypass_csp=True, color_scheme=scheme, reduced_motion="reduce").goto(page_file)
    found = axe.run(page).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []
