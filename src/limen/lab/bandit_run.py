"""`limen bandit`: figures, page, and what was found, as Markdown and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from limen.lab.bandit import ETA
from limen.lab.bandit_figures import NAMES, write_figures
from limen.lab.bandit_page import bandit_page
from limen.lab.bandit_study import claims, spread_table
from limen.provenance import provenance
from limen.store.writer import write_json


def run_bandit(out: Path, seed: int = 0, seeds: int = 500, norm2: float = 3.0) -> str:
    """Write everything into `out` and return the Markdown: seconds on one core."""
    out.mkdir(parents=True, exist_ok=True)
    write_figures(out, seed, norm2)
    (out / "bandit.html").write_text(bandit_page(seed, norm2), encoding="utf-8")
    found, spread = claims(seeds, norm2), spread_table(seeds)
    settings = {"seed": seed, "seeds": seeds, "x_norm2": norm2, "eta": ETA}
    write_json(
        out / "bandit.json", {"provenance": provenance(), "settings": settings, "claims": found, "spread": spread}
    )
    page = _page(settings, found, spread)
    (out / "bandit.md").write_text(page, encoding="utf-8")
    return page


def _page(
    settings: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], spread: Sequence[Mapping[str, Any]]
) -> str:
    lines = [_HEAD.format(**settings, prime=settings["eta"] * settings["x_norm2"])]
    lines += ["| row | verdict | what was found |", "|---|---|---|"]
    lines += [f"| {name} | {row['verdict']} | {row['size'].replace('|', 'ǀ')} |" for name, row in found.items()]
    lines += ["", _SPREAD.format(**settings), ""]
    lines += [
        "| spread of W | objective | 5% | median | 95% | largest | some α ≥ 60 |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in spread:
        numbers = " | ".join(f"{r[k]:.3g}" for k in ("q05", "median", "q95", "largest"))
        lines.append(f"| {r['spread']:g} | {NAMES[r['objective']]} | {numbers} | {r['share_60']:.1%} |")
    return "\n".join(lines) + "\n"


_HEAD = """\
The softmax bandit of RBP's appendix D: 50 actions, 5 features, η = {eta:g}, ‖x‖² = {x_norm2:g} (η' = {prime:g}),
{seeds} starts; figure 9 shows seed {seed}. Rows are those of the claims page. An identity agrees below its bound; a
statement about starts agrees where it holds in at least 95% of them, is opposite in at most 5%.
"""

_SPREAD = """\
α of the two rewarded actions (11, 5) after one step, x ∼ N(0, I) as drawn, {seeds} seeds; W has entries of this
standard deviation. From an exactly uniform start α cannot pass 25; "about 60 times" needs an uneven one."""
