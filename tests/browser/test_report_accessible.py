"""axe-core (Deque) finds nothing serious, and the policies' colours stay apart for colour-blind readers."""

import itertools
import json
import math
import re

import pytest

from limen.report.page import asset


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_no_serious_findings(watched, report_file, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    page = watched(color_scheme=scheme, bypass_csp=True).goto(report_file, "#problem=p003")
    page.wait_for_selector(".detail .resp")
    found = axe.Axe().run(page).response["violations"]
    serious = [v for v in found if v["impact"] in ("serious", "critical")]
    told = [{v["id"]: [n["html"][:160] + n["failureSummary"][:200] for n in v["nodes"][:4]]} for v in serious]
    assert not serious, json.dumps(told, indent=1)


# Machado, Oliveira, Fernandes 2009, severity 1, on linear RGB.
_BLIND = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def _linear(color: str) -> list[float]:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def _lab(rgb: list[float]) -> list[float]:
    r, g, b = (min(1.0, max(0.0, c)) for c in rgb)
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


@pytest.mark.parametrize("kind", [None, *_BLIND])
@pytest.mark.parametrize("theme", [0, 1])
def test_colours_are_told_apart(theme, kind):
    block = re.findall(r":root[^{]*\{(.*?)\}", asset("page.css"), re.S)[theme]
    named = dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6})", block))

    def seen(name: str) -> list[float]:
        rgb = _linear(named[name])
        return _lab(rgb if kind is None else [sum(m * c for m, c in zip(row, rgb)) for row in _BLIND[kind]])

    assert math.dist(seen("gained"), seen("lost")) > 40
    for a, b in itertools.combinations(("p0", "p1", "p2", "p3"), 2):
        assert math.dist(seen(a), seen(b)) > 20, (a, b)
    if kind is None:
        assert all(math.dist(seen(p), seen(c)) > 30 for p in ("p0", "p1", "p2", "p3") for c in ("lost", "gained"))
