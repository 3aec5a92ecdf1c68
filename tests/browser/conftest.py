"""A real Chromium (Debian's package, or $LIMEN_CHROMIUM) driven by Playwright; without one these tests are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from limen.report import build_report
from report_synthetic import paradox

ROOT = Path(__file__).resolve().parents[2]
QUIET = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
QUIET += ["--no-sandbox", "--disable-component-update", "--disable-sync"]


def chromium_path() -> str | None:
    names = [os.environ.get("LIMEN_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome"]
    return next((found for name in names if name and (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install 'limen[dev]')")
    path = chromium_path()
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium, or set LIMEN_CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield browser
        browser.close()


class Watched:
    """A page that remembers what it said, asked the network for, and failed at."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: self.errors.append(str(e)))
        page.on("dialog", lambda d: (self.errors.append(f"dialog: {d.message}"), d.dismiss()))
        page.on("request", lambda r: self.requests.append(r.url))

    def goto(self, path: Path, fragment: str = "") -> Any:
        self.page.goto(path.resolve().as_uri() + fragment)
        self.page.wait_for_selector("html[data-ready]", timeout=20_000)
        return self.page


@pytest.fixture
def watched(chromium: Any) -> Iterator[Callable[..., Watched]]:
    contexts = []

    def make(width: int = 1280, height: int = 900, **options: Any) -> Watched:
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        return Watched(context.new_page())

    yield make
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = paradox(tmp_path_factory.mktemp("runs"), count=90, n=64)
    sampled = [runs[k] for k in ("base", "GRPO", "SELF", "control")]
    out = tmp_path_factory.mktemp("report")
    trained = [runs["train GRPO"], runs["train SELF"]]
    return build_report(sampled, out, title="Paradox", train_runs=trained, figures=False, draws=200)


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Kept after the tests, to be looked at: build/screenshots, or $LIMEN_SCREENSHOTS."""
    folder = Path(os.environ.get("LIMEN_SCREENSHOTS", ROOT / "build" / "screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
