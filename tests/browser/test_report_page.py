"""The page as a reader uses it: it opens without a word to the network, and everything on it works."""

import pytest

from limen.report import build_report
from report_synthetic import problems, write_run


def test_opens_silently_and_says_the_verdict(watched, report_file):
    tab = watched()
    page = tab.goto(report_file)
    assert tab.errors == []
    assert tab.requests == [report_file.resolve().as_uri()]
    assert page.inner_text("h1") == "GRPO shrank what the base can solve, while SELF widened what the base can solve."
    assert page.locator("#flips svg").count() == 1
    assert page.locator("#flow svg").count() == 3
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_curves_toggle_read_out_and_difference(watched, report_file):
    page = watched().goto(report_file)
    paths = "#curves svg.plot path[fill=none]"
    assert page.locator(paths).count() == 4
    page.click("#curves .legend button:has-text('GRPO')")
    assert page.locator(paths).count() == 3
    assert page.get_attribute("#curves .legend button:has-text('GRPO')", "aria-pressed") == "false"
    page.click("#curves .legend button:has-text('GRPO')")
    page.focus("#curves svg.plot")
    page.keyboard.press("Home")
    assert "k = 1," in page.inner_text("#curves [aria-live]")
    shown = page.inner_text("#curves .legend li:first-child .val").split()[0]
    cell = page.inner_text("#coverage tbody tr:first-child td:nth-child(3)").split()[0]
    assert shown == cell
    page.keyboard.press("ArrowRight")
    assert "k = 2," in page.inner_text("#curves [aria-live]")
    page.click("#curves .seg button:has-text('difference')")
    assert page.locator(paths).count() == 3
    assert "reference" in page.inner_text("#curves .legend li:first-child")
    box = page.locator("#curves svg.plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 60)
    assert "k = 64," in page.inner_text("#curves [aria-live]") or "k = 32," in page.inner_text("#curves [aria-live]")


def test_filter_sort_and_search(watched, report_file):
    page = watched().goto(report_file)
    total = int(page.locator("#support tbody tr:first-child td").nth(3).inner_text())
    page.select_option("#explorer label:has-text('change') select", "lost")
    assert page.inner_text("#explorer [role=status]") == f"{total} of 90 problems"
    tags = page.locator("#explorer .list tbody .tag").all_inner_texts()
    assert len(tags) == total
    assert set(tags) == {"lost"}
    page.select_option("#explorer label:has-text('compare') select", "1")
    lost = int(page.locator("#support tbody tr:nth-child(2) td").nth(3).inner_text())
    assert page.inner_text("#explorer [role=status]") == f"{lost} of 90 problems"
    page.select_option("#explorer label:has-text('change') select", "")
    page.select_option("#explorer label:has-text('task') select", "products")
    assert page.inner_text("#explorer [role=status]") == "30 of 90 problems"
    page.select_option("#explorer label:has-text('sort') select", "easy")
    shares = [int(x.split("/")[0]) for x in page.locator("#explorer tbody td:nth-child(2)").all_inner_texts()]
    assert shares == sorted(shares, reverse=True)
    page.select_option("#explorer label:has-text('success rate') select", "fell")
    assert set(page.locator("#explorer .list tbody .tag").all_inner_texts()) <= {"lost", "kept"}
    page.select_option("#explorer label:has-text('success rate') select", "")
    page.fill("#explorer input", "p004")
    assert page.inner_text("#explorer [role=status]") == "1 of 90 problems"


def test_open_a_problem_and_link_to_it(watched, report_file):
    tab = watched()
    page = tab.goto(report_file)
    page.locator("#explorer .list tbody tr").nth(1).click()
    page.wait_for_selector(".detail .resp")
    first = page.inner_text(".detail h3")
    assert page.url.endswith(f"#problem={first}")
    assert "boxed" in page.inner_text(".detail .resp .text >> nth=0")
    page.click(".detail button:has-text('next')")
    page.wait_for_selector(f".detail h3:not(:text-is('{first}'))")
    page.go_back()
    page.wait_for_selector(f".detail h3:text-is('{first}')")
    again = watched()
    page = again.goto(report_file, "#problem=p007")
    page.wait_for_selector(".detail .resp")
    assert page.inner_text(".detail h3") == "p007"
    assert "What is 7 + 15?" in page.inner_text(".detail")
    assert tab.errors + again.errors == []
    assert len(again.requests) == 1


def test_keyboard_alone_opens_a_problem(watched, report_file):
    page = watched().goto(report_file)
    page.locator("#explorer .list a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".detail .resp")
    assert page.evaluate("document.activeElement.classList.contains('detail')")


def test_dark_light_and_the_switch(watched, report_file):
    background = "getComputedStyle(document.body).backgroundColor"
    light = watched(color_scheme="light").goto(report_file).evaluate(background)
    page = watched(color_scheme="dark").goto(report_file)
    assert page.evaluate(background) != light
    page.click("#theme")
    assert page.evaluate(background) == light
    page.reload()
    assert page.evaluate(background) == light


def test_prints(watched, report_file, screenshots):
    page = watched(color_scheme="dark").goto(report_file)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.is_visible("header.bar")
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    (screenshots / "report.pdf").write_bytes(pdf)


def test_without_scripts_the_numbers_are_there(watched, report_file):
    tab = watched(java_script_enabled=False)
    tab.page.goto(report_file.resolve().as_uri())
    assert "GRPO shrank" in tab.page.inner_text("h1")
    assert "chance alone would flip" in tab.page.inner_text("#verdict")
    assert tab.page.locator("#support tbody tr").count() == 4


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (820, "dark"), (390, "light"), (390, "dark")])
def test_no_width_overflows(watched, report_file, screenshots, width, scheme):
    page = watched(width, 900, color_scheme=scheme).goto(report_file, "#problem=p000")
    page.wait_for_selector(".detail .resp")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=screenshots / f"report-{scheme}-{width}.png", full_page=True)


def test_checkpoints_have_their_own_plots(watched, tmp_path):
    items = problems(20)
    runs = [write_run(tmp_path / "base", "base", items, [0.4] * 20, 16, 1)]
    for step in (50, 100):
        q = 0.4 + step / 400
        runs.append(write_run(tmp_path / f"g{step}", f"g{step}", items, [q] * 20, 16, step, policy="grpo", step=step))
    tab = watched()
    page = tab.goto(build_report(runs, tmp_path / "out", draws=50, figures=False))
    assert page.locator("#checkpoint-plots h3").all_inner_texts() == ["pass@1", "pass@4", "pass@16"]
    assert page.locator("#checkpoint-plots svg").first.locator("circle").count() == 3
    assert page.locator("#curves svg.plot path[fill=none]").count() == 2
    page.locator("#explorer .list tbody tr").first.click()
    page.wait_for_selector(".detail .resp")
    assert "grpo, correct by step: base: " in page.inner_text(".detail")
    assert tab.errors == []
