"""A served page replaces itself when its run goes on, and takes large reports' texts from beside the page."""

import json
import resource
import threading
import time

import pytest

from limen.report import build_report, read_report
from limen.report.serve import LiveReport, make_server
from limen.store import Run
from report_synthetic import problems, write_large, write_run


def test_served_page_follows_its_run(watched, tmp_path):
    path = write_run(tmp_path / "base", "base", problems(10), [0.5] * 10, 8, 1, done=False)
    live = LiveReport(lambda: read_report([path], draws=0), [path])
    live.refresh()
    server = make_server(live)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tab = watched()
    try:
        tab.page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
        tab.page.wait_for_selector("html[data-ready]")
        assert "still running" in tab.page.inner_text(".about")
        tab.page.wait_for_timeout(2500)
        Run.open(path).finish()
        live.refresh()
        tab.page.wait_for_selector(".about:not(:has-text('still running'))", timeout=20_000)
        assert [e for e in tab.errors if "favicon" not in e and "404" not in e] == []
    finally:
        server.shutdown()
        server.server_close()


def test_texts_beside_the_page_are_read_on_demand(watched, tmp_path):
    runs = [write_run(tmp_path / name, name, problems(40), [0.4] * 40, 8, i) for i, name in enumerate(("a", "b"))]
    page_file = build_report(runs, tmp_path / "out", figures=False, draws=0, embed_bytes=2000)
    beside = sorted(p.name for p in (tmp_path / "out" / "report_files").iterdir())
    assert beside == ["chunk-1.js", "chunk-2.js", "chunk-3.js"]
    tab = watched()
    page = tab.goto(page_file)
    assert len(tab.requests) == 1
    for i in range(0, 40, 13):
        page.locator("#explorer .list tbody tr").nth(i).click()
        page.wait_for_selector(f"#explorer .list tbody tr:nth-child({i + 1})[aria-selected=true]")
        page.wait_for_selector(".detail .resp")
    assert all("/report_files/chunk-" in r for r in tab.requests[1:])
    assert tab.errors == []
    (tmp_path / "out" / "report_files").rename(tmp_path / "moved")
    found = json.loads(page.text_content("#data"))["problems"]
    outside = found["id"][found["slot"].index(25)]
    page = watched().goto(page_file, f"#problem={outside}")
    page.wait_for_selector(".detail :text('must lie beside this page')")


@pytest.mark.slow
def test_five_hundred_problems_four_policies_256_samples(watched, tmp_path):
    """Made in under 20 s of processor time, at most 5 MB, opened in under 2 s, in bounded memory."""
    runs = [write_large(tmp_path / f"p{i}", f"policy {i}", 500, 256, i) for i in range(4)]
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    page_file = build_report(runs, tmp_path / "out")
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    size = page_file.stat().st_size / 1e6
    tab = watched()
    start = time.perf_counter()
    page = tab.goto(page_file)
    opened = time.perf_counter() - start
    start = time.perf_counter()
    page.locator("#explorer .list tbody tr").first.click()
    page.wait_for_selector(".detail .resp")
    problem = time.perf_counter() - start
    print(
        f"made in {wall:.1f} s ({cpu:.1f} s CPU), {size:.2f} MB, opened in {opened:.2f} s, a problem in {problem:.2f} s"
    )
    assert min(wall, cpu / 2) < 20
    assert size < 5
    assert opened < 2
    assert tab.errors == []
