"""The demo over several training seeds and several bases: does each of them show the paradox and its remedy?

The rule is written down here, before any run: GRPO *shows* it if pass@1 rises, pass@n falls by at least `DROP`, and
the exact McNemar test on lost against gained problems gives p < 0.01. SELF *keeps* it if pass@1 rises and pass@n is
higher, or differs by no more than chance (p > 0.05). No seed is left out of the table.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limen.errors import LimenError
from limen.lab.demo import ALGORITHMS, DemoSettings, compare_stage
from limen.provenance import provenance
from limen.store.writer import write_json

if TYPE_CHECKING:
    from limen.measure import Comparison

DROP = 0.06
SHOWN_K = (1, 16, 64, 256)


@dataclass(frozen=True)
class StudyRun:
    """One demo: the base (seed it was trained from), the training seed, and where it lies."""

    base_seed: int
    base: str
    seed: int
    out: Path


def plan(out: Path, seeds: Sequence[int], base_seeds: Sequence[int]) -> list[StudyRun]:
    """All demos of the study. Base seed 0 is the shipped base; others are trained into OUT/base-SEED."""
    return [
        StudyRun(b, "tiny" if b == 0 else str(out / f"base-{b}"), s, out / f"base-{b}-seed-{s}")
        for b in base_seeds
        for s in seeds
    ]


def run_study(
    out: Path,
    seeds: Sequence[int] = (0, 1, 2),
    base_seeds: Sequence[int] = (0, 1, 2),
    jobs: int = 1,
    steps: int = 200,
    n: int = 256,
    device: str = "cpu",
) -> str:
    """Train missing bases, run every demo (`jobs` at a time, each a process of its own), return the Markdown page.

    Also writes OUT/demo.md and OUT/demo.json. What is done already is kept, so a killed study goes on.
    """
    runs = plan(out, seeds, base_seeds)
    missing = [b for b in base_seeds if b != 0 and not (out / f"base-{b}" / "recipe.json").exists()]
    commands = [["lab", "train-base", "--seed", str(b), "--out", str(out / f"base-{b}")] for b in missing]
    _all(commands, jobs)
    options = ["--steps", str(steps), "-n", str(n), "--device", device, "--no-report"]
    _all([["demo", "--out", str(r.out), "--seed", str(r.seed), "--base", r.base, *options] for r in runs], jobs)
    results = {
        r: compare_stage(DemoSettings(out=r.out, seed=r.seed, base=r.base, steps=steps, n=n, device=device))
        for r in runs
    }
    page = study_page(results, steps)
    (out / "demo.md").write_text(page, encoding="utf-8")
    write_json(out / "demo.json", study_json(results))
    return page


def _all(commands: Sequence[list[str]], jobs: int) -> None:
    """Run `limen COMMAND`s, `jobs` at a time; output of each goes to this process's stderr."""

    def one(command: list[str]) -> None:
        done = subprocess.run([sys.executable, "-m", "limen", *command], stdout=sys.stderr, check=False)
        if done.returncode:
            raise LimenError(
                f"`limen {' '.join(command)}` failed with exit code {done.returncode}; see its output above"
            )

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        list(pool.map(one, commands))


def shows(policy: str, c: Comparison) -> bool:
    """Whether a trained policy behaves as the rule at the top of this file says."""
    assert c.support is not None
    first, last = c.difference_K[0], c.difference_K[-1]
    if policy == "grpo":
        return bool(first > 0 and last <= -DROP and c.support.mcnemar_p < 0.01)
    return bool(first > 0 and (last >= 0 or c.support.mcnemar_p > 0.05))


def study_json(results: Mapping[StudyRun, Mapping[str, Comparison]]) -> dict[str, Any]:
    rows = [
        {"base_seed": r.base_seed, "seed": r.seed, "policies": {name: c.to_json() for name, c in found.items()}}
        for r, found in results.items()
    ]
    return {"provenance": provenance(), "runs": rows}


def study_page(results: Mapping[StudyRun, Mapping[str, Comparison]], steps: int) -> str:
    """One table: base, its second draw and the trained policies, for every base and seed."""
    lines = [_HEAD.format(steps=steps, drop=DROP)]
    for run, found in results.items():
        some = next(iter(found.values()))
        lines.append(_row(run, "base", some.base_curve, None, ""))
        for name, c in found.items():
            verdict = ("yes" if shows(name, c) else "**no**") if name in ALGORITHMS else ""
            lines.append(_row(run, _label(name), c.trained_curve, c, verdict))
    total = {m: sum(shows(m, found[m]) for found in results.values() if m in found) for m in ALGORITHMS}
    lines.append("")
    lines.append("; ".join(f"{_label(m)}: {k} of {len(results)} runs as the rule says" for m, k in total.items()) + ".")
    return "\n".join(lines) + "\n"


def _label(name: str) -> str:
    return {"control": "base again (A/A)", "grpo": "GRPO", "self": "SELF"}.get(name, name)


def _row(run: StudyRun, name: str, curve: Any, c: Comparison | None, verdict: str) -> str:
    at = dict(zip(curve.k_K.tolist(), curve.value_K.tolist(), strict=True))
    cells = [str(run.base_seed), str(run.seed), name, *(f"{at[k]:.3f}" if k in at else "" for k in SHOWN_K)]
    if c is None or c.support is None:
        return "| " + " | ".join([*cells, *[""] * 6, verdict]) + " |"
    s = c.support
    p = f"{s.mcnemar_p:.2g}"
    return "| " + " | ".join([*cells, *map(str, (s.P, s.E, s.S, s.O)), f"{s.chance_each_way:.1f}", p, verdict]) + " |"


_HEAD = """\
GRPO and SELF on the tiny base, {steps} steps of 64 prompts x 8 responses, 300 held-out problems. *E* gained and *S*
lost are counted against the base's first draw; *chance* is what two runs of one policy would show each way; *p* is the
exact McNemar test on E and S. Base seed 0 is the shipped base.

Rule, fixed before the runs: GRPO shows the paradox if pass@1 rises, pass@256 falls by at least {drop} and p < 0.01.
SELF keeps coverage if pass@1 rises and pass@256 is higher or p > 0.05.

| base | seed | policy | pass@1 | pass@16 | pass@64 | pass@256 | P | E | S | O | chance | p | as the rule |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"""
