"""`limen lab noise`: what a wrong verifier does to training, on the tiny model.

After "Delay, Plateau, or Collapse" (DPC): GRPO is trained under a verifier with systematic errors while the true
outcome is recorded beside it. The rule for the three classes, fixed before any run, on the curve of the *true*
reward of the training samples (mean of the seeds; R0 its mean over the first 5 steps, R its mean over the last fifth,
top its highest mean over any 10 steps; C the same as R under the true verifier):

    collapse   R <= R0 + 0.1 (C - R0), or R < top - 0.5 (top - R0): what was gained is not there any more
    delay      otherwise, if R >= lowest seed of C - 0.02: the end level is that of the clean run
    plateau    otherwise: something was learned and kept, but less
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.errors import ConfigError
from limen.lab.demo import VERIFIER
from limen.lab.policies import Study, in_processes, sample_policy, train_policy
from limen.provenance import provenance
from limen.store.writer import write_json

Floats = NDArray[np.float64]

FP, FN = "false_positive", "false_negative"
PATTERNS: dict[str, dict[str, Any] | None] = {
    "true": None,
    "fn_contains_1": {"kind": FN, "when": "contains", "text": "1"},
    "fn_lacks_1": {"kind": FN, "when": "lacks", "text": "1"},
    "fn_fixed_30": {"kind": FN, "when": "random", "rate": 0.3},
    "fn_random_30": {"kind": FN, "when": "random", "rate": 0.3, "per": "sample"},
    "fn_random_50": {"kind": FN, "when": "random", "rate": 0.5, "per": "sample"},
    "fp_fixed_5": {"kind": FP, "when": "random", "rate": 0.05},
    "fp_fixed_20": {"kind": FP, "when": "random", "rate": 0.2},
    "fp_random_5": {"kind": FP, "when": "random", "rate": 0.05, "per": "sample"},
    "fp_random_20": {"kind": FP, "when": "random", "rate": 0.2, "per": "sample"},
    "fp_near_10": {"kind": FP, "when": "relative_error", "below": 0.1},
    "fp_near_100": {"kind": FP, "when": "relative_error", "below": 1.0},
    "fp_near_100_above": {"kind": FP, "when": "relative_error", "below": 1.0, "side": "above"},
    "fp_contains_7": {"kind": FP, "when": "contains", "text": "7"},
    "fp_contains_00": {"kind": FP, "when": "contains", "text": "00"},
    "fp_contains_7_half_true": {"kind": FP, "when": "contains", "text": "7", "true_ratio": 0.5},
}
"""Answers are written units first, so the relative error is that of the digits as written. "random" errors are
drawn for each sample; "fixed" ones once for each (problem, response), so that the same answer to a problem is misjudged
every time: with one short answer to each problem, that is a systematic error of the problem."""
N_TEST = 64
LAST_SHARE, FIRST, WINDOW, SLACK = 0.2, 5, 10, 0.02


def verifier_of(pattern: str) -> dict[str, Any] | str:
    if pattern not in PATTERNS:
        raise ConfigError(f"unknown pattern '{pattern}': expected some of {', '.join(PATTERNS)}")
    noise = PATTERNS[pattern]
    return VERIFIER if noise is None else {"name": VERIFIER, "noise": noise}


def run_one(study: Study, pattern: str, seed: int) -> None:
    """Train GRPO under one pattern with one seed, and sample the held-out problems under the true verifier."""
    settings = {"algorithm": "grpo", "verifier": verifier_of(pattern)}
    trained = train_policy(study, pattern, seed, settings)
    sample_policy(study, study.out / f"seed-{seed}" / pattern, str(trained / "model"), pattern, step=study.steps)


def run_noise(study: Study, patterns: Sequence[str], seeds: Sequence[int], jobs: int = 1) -> str:
    """All patterns and seeds. Returns the page; writes noise.md, noise.json, noise.png. The true verifier is first."""
    patterns = ["true", *(p for p in patterns if p != "true")]
    sample_policy(study, study.out / "base", study.base, "base")
    todo = [(p, s) for s in seeds for p in patterns]
    if jobs == 1:
        for pattern, seed in todo:
            run_one(study, pattern, seed)
    else:
        in_processes([["lab", "noise", *study.options(), "--only", p, "--seeds", str(s)] for p, s in todo], jobs)
    curves = {p: np.array([true_reward(study, p, s) for s in seeds]) for p in patterns}
    rows = {p: _row(study, p, seeds, curves) for p in patterns}
    page = noise_page(study, rows, seeds)
    (study.out / "noise.md").write_text(page, encoding="utf-8")
    write_json(
        study.out / "noise.json",
        {"provenance": provenance(), "recipe": study.recipe, "steps": study.steps, "patterns": rows},
    )
    figure(curves, rows, study.out / "noise.png")
    return page


def true_reward(study: Study, pattern: str, seed: int) -> Floats:
    """Share of the training samples that are truly correct, by step."""
    lines = _metrics(study, pattern, seed)
    return np.array([x.get("reward_true", x.get("correct_share", np.nan)) for x in lines], dtype=np.float64)


def _metrics(study: Study, pattern: str, seed: int) -> list[dict[str, float]]:
    file = study.out / f"seed-{seed}" / f"train-{pattern}" / "metrics.jsonl"
    return [json.loads(x) for x in file.read_text(encoding="utf-8").splitlines()]


def levels(curve: Floats) -> tuple[float, float, float]:
    """(R0, R, top) of one curve over steps."""
    last = max(1, round(len(curve) * LAST_SHARE))
    window = min(WINDOW, len(curve))
    moving = np.convolve(curve, np.ones(window) / window, mode="valid")
    return float(curve[:FIRST].mean()), float(curve[-last:].mean()), float(moving.max())


def classify(curves_SN: Floats, clean_SN: Floats) -> str:
    """delay, plateau or collapse, by the rule at the top of this file. Rows are seeds, columns steps."""
    r0, r, top = levels(curves_SN.mean(0))
    clean = levels(clean_SN.mean(0))[1]
    lowest = min(levels(row)[1] for row in clean_SN)
    if r <= r0 + 0.1 * (clean - r0) or r < top - 0.5 * (top - r0):
        return "collapse"
    return "delay" if r >= lowest - SLACK else "plateau"


def realised_rates(study: Study, pattern: str) -> tuple[float, float]:
    """(share of truly correct base samples called wrong, share of truly wrong ones called correct)."""
    from limen.store import Run
    from limen.verify import JudgeItem, VerifierPool, sample_name

    run = Run.open(study.out / "base")
    golds = {p.id: p.answer for p in run.problems()}
    items = [JudgeItem(golds[r.problem_id], r.text, {}, r.truncated, sample_name(r)) for r in run.rollouts()]
    with VerifierPool(verifier_of(pattern)) as pool:
        verdicts = pool.judge_many(items)
    true = np.array([(v.true_outcome or v.outcome) == "correct" for v in verdicts])
    said = np.array([v.outcome == "correct" for v in verdicts])
    return float(1 - said[true].mean()), float(said[~true].mean())


def _row(study: Study, pattern: str, seeds: Sequence[int], curves: Mapping[str, Floats]) -> dict[str, Any]:
    from limen.measure import counts_from_run, pass_at_k

    r0, r, top = levels(curves[pattern].mean(0))
    tables = [counts_from_run(study.out / f"seed-{s}" / pattern) for s in seeds]
    tests = [[float(np.nanmean(pass_at_k(t.n_P, t.c_P, k))) for k in (1, study.n)] for t in tables]
    fn, fp = realised_rates(study, pattern)
    said = [np.mean([x["correct_share"] for x in _metrics(study, pattern, s)][-WINDOW:]) for s in seeds]
    return {
        "class": "(clean)" if pattern == "true" else classify(curves[pattern], curves["true"]),
        "class_by_seed": [classify(c[None], curves["true"]) for c in curves[pattern]] if pattern != "true" else [],
        "R0": r0, "R": r, "top": top, "R_by_seed": [levels(c)[1] for c in curves[pattern]],
        "reward_said": float(np.mean(said)),
        "pass_at_1": [t[0] for t in tests], "pass_at_n": [t[1] for t in tests],
        "false_negative_rate": fn, "false_positive_rate": fp, "noise": PATTERNS[pattern],
    }  # fmt: skip


def noise_page(study: Study, rows: Mapping[str, Mapping[str, Any]], seeds: Sequence[int]) -> str:
    head = ["pattern", "FN rate", "FP rate", "R0", "top", "R (true)", "by seed", "reward said", "test pass@1",
            f"pass@{study.n}", "class", "by seed"]  # fmt: skip
    lines = [
        _HEAD.format(recipe=study.recipe, steps=study.steps, seeds=len(seeds)),
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
    ]
    for name, r in rows.items():
        rates = [f"{r[k]:.3f}" for k in ("false_negative_rate", "false_positive_rate", "R0", "top", "R")]
        by_seed = " ".join(f"{x:.2f}" for x in r["R_by_seed"])
        tests = [f"{np.mean(r[k]):.3f}" for k in ("pass_at_1", "pass_at_n")]
        cells = [name, *rates, by_seed, f"{r['reward_said']:.3f}", *tests, r["class"], " ".join(r["class_by_seed"])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def figure(curves: Mapping[str, Floats], rows: Mapping[str, Mapping[str, Any]], file: Path) -> None:
    """True reward against steps, each pattern over the clean run."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = 4
    names = [n for n in curves if n != "true"]
    height = -(-len(names) // columns)
    fig, axes = plt.subplots(height, columns, figsize=(12, 2.6 * height), sharex=True, sharey=True, squeeze=False)
    for axis, name in zip(axes.flat, names, strict=False):
        for key, colour in (("true", "0.45"), (name, "C0")):
            x = np.arange(1, curves[key].shape[1] + 1)
            axis.plot(x, curves[key].mean(0), color=colour)
            axis.fill_between(x, curves[key].min(0), curves[key].max(0), color=colour, alpha=0.25, lw=0)
        axis.set_title(f"{name}: {rows[name]['class']}", fontsize=9)
        axis.grid(alpha=0.3)
    for axis in list(axes.flat)[len(names) :]:
        axis.set_visible(False)
    axes[0, 0].set_ylabel("true reward")
    axes[-1, 0].set_xlabel("step")
    fig.tight_layout()
    fig.savefig(file, dpi=110)
    plt.close(fig)


_HEAD = """\
GRPO on the tiny base under a verifier with errors, recipe "{recipe}", {steps} steps, {seeds} seeds; the grey curve of
the figure is the clean run. *FN rate*, *FP rate*: share of the base's truly correct (wrong) held-out samples that this
verifier misjudges. *R0*, *top*, *R*: true reward at the start, at its best and at the end of training; *reward said*:
what the verifier says at the end. Test columns are judged by the true verifier.
"""
