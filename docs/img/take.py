"""A picture of a report, taken in Chromium: python docs/img/take.py PAGE.html OUT.png [--width 1280] [--height 1400]
[--dark] [--at '#problem=ID'] [--section SELECTOR]. Made the pictures of docs/report.md."""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("page", type=Path)
parser.add_argument("out", type=Path)
parser.add_argument("--width", type=int, default=1280)
parser.add_argument("--height", type=int, default=1400)
parser.add_argument("--dark", action="store_true")
parser.add_argument("--at", default="")
parser.add_argument("--section", default="", help="only this element, without the bar at the top")
args = parser.parse_args()

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(
        executable_path=shutil.which("chromium"),
        args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
    )
    page = browser.new_page(
        viewport={"width": args.width, "height": args.height}, color_scheme="dark" if args.dark else "light"
    )
    page.goto(args.page.resolve().as_uri() + args.at)
    page.wait_for_selector("html[data-ready]")
    if args.at:
        page.wait_for_selector(".detail .resp")
    if args.section:
        page.evaluate("document.querySelector('header.bar').style.display = 'none'")
        page.locator(args.section).screenshot(path=args.out)
    else:
        page.screenshot(path=args.out)
    browser.close()
