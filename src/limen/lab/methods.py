"""`limen lab methods`: every training method on the tiny model, side by side, over several seeds.

All share the demo's recipe (steps, batch, step size, base, problems) and differ in the algorithm alone. Nothing is
tuned for a method; what does not behave as its paper says is shown as it came out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limen.errors import ConfigError
from limen.lab.demo import ALGORITHMS as DEMO
from limen.lab.policies import (
    Study,
    answer_entropy,
    in_processes,
    interference,
    sample_policy,
    token_entropy,
    train_policy,
)
from limen.provenance import provenance
from limen.store.writer import write_json

if TYPE_CHECKING:
    from limen.measure import Comparison

METHODS: dict[str, dict[str, Any]] = {
    "grpo": {"name": "grpo"},
    "greedy_filter": {"name": "greedy_filter"},
    "self": DEMO["self"],
    "forward_kl": {**DEMO["self"], "name": "forward_kl"},
    "w_reinforce": {"name": "w_reinforce"},
    "dapo": {"name": "dapo"},
    "pass_k": {"name": "pass_k", "pass_k": 4},
    "overtraining_gate": {"name": "overtraining_gate"},
    "direction": {"name": "direction"},
}
SHOWN_K = (1, 4, 16, 64, 256)
PROBE_TEMPERATURE, PROBE_N = 0.9, 4


def run_one(study: Study, method: str, seed: int) -> None:
    """Train and sample one method with one seed."""
    if method not in METHODS:
        raise ConfigError(f"unknown method '{method}': expected some of {', '.join(METHODS)}")
    trained = train_policy(study, method, seed, {"algorithm": METHODS[method]})
    sample_policy(study, study.out / f"seed-{seed}" / method, str(trained / "model"), method, step=study.steps)


def prepare(study: Study) -> None:
    """The base's samples, its second draw, and the probe pairs."""
    sample_policy(study, study.out / "base", study.base, "base")
    sample_policy(study, study.out / "control", study.base, "control")
    sample_policy(study, study.out / "probe", study.base, "probe", PROBE_N, PROBE_TEMPERATURE)


def run_methods(study: Study, methods: Sequence[str], seeds: Sequence[int], jobs: int = 1) -> str:
    """All methods and seeds, `jobs` processes at a time (1: here). Returns the page; writes methods.md/.json/.png."""
    prepare(study)
    todo = [(m, s) for s in seeds for m in methods]
    if jobs == 1:
        for method, seed in todo:
            run_one(study, method, seed)
    else:
        in_processes([["lab", "methods", *study.options(), "--only", m, "--seeds", str(s)] for m, s in todo], jobs)
    results = {m: [measure(study, m, s) for s in seeds] for m in methods}
    control = _compared(study, study.out / "control")
    page = methods_page(study, results, control, seeds)
    (study.out / "methods.md").write_text(page, encoding="utf-8")
    rows = {m: [_plain(r) for r in rs] for m, rs in results.items()}
    base = {"token_entropy": token_entropy(study.out / "base"), "answer_entropy": answer_entropy(study.out / "base")}
    write_json(
        study.out / "methods.json",
        {"provenance": provenance(), "recipe": study.recipe, "steps": study.steps, "base": base,
         "control": control.to_json(), "methods": rows},
    )  # fmt: skip
    figure(results, control, study.out / "methods.png")
    return page


def measure(study: Study, method: str, seed: int) -> dict[str, Any]:
    """Everything in the table about one trained policy."""
    folder = study.out / f"seed-{seed}" / method
    model = str(study.out / f"seed-{seed}" / f"train-{method}" / "model")
    delta, size = interference(study.out / "probe", study.base, model, study.device)
    return {
        "seed": seed,
        "comparison": _compared(study, folder),
        "token_entropy": token_entropy(folder),
        "answer_entropy": answer_entropy(folder),
        "interference": delta,
        "influence": size,
    }


def _compared(study: Study, folder: Path) -> Comparison:
    from limen.measure import compare, counts_from_run

    return compare(counts_from_run(study.out / "base"), counts_from_run(folder))


def methods_page(
    study: Study, results: Mapping[str, Sequence[Mapping[str, Any]]], control: Comparison, seeds: Sequence[int]
) -> str:
    """Table of means over seeds, and one line for every seed."""
    ks = [k for k in SHOWN_K if k in control.k_K.tolist()]
    head = [
        "policy",
        "seed",
        *(f"pass@{k}" for k in ks),
        "P",
        "E",
        "S",
        "O",
        "chance",
        "p",
        "H token",
        "H answer",
        "Δ+",
    ]
    lines = [_HEAD.format(recipe=study.recipe, steps=study.steps, seeds=len(seeds), M=control.base.M, n=study.n)]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    entropies = [f"{token_entropy(study.out / 'base'):.3f}", f"{answer_entropy(study.out / 'base'):.3f}", ""]
    lines.append(_line("base", "", _curve(control.base_curve, ks), [""] * 6, entropies))
    lines.append(_line("base again", "", _curve(control.trained_curve, ks), _support(control), [""] * 3))
    for method, rows in results.items():
        for row in rows:
            c = row["comparison"]
            cells = [f"{row[k]:.3f}" for k in ("token_entropy", "answer_entropy", "interference")]
            lines.append(_line(method, str(row["seed"]), _curve(c.trained_curve, ks), _support(c), cells))
        curves = np.mean([[_at(r["comparison"].trained_curve, k) for k in ks] for r in rows], axis=0)
        means = [
            f"**{np.mean([r[k] for r in rows]):.3f}**" for k in ("token_entropy", "answer_entropy", "interference")
        ]
        both = [[getattr(r["comparison"].support, k) for r in rows] for k in ("P", "E", "S", "O", "chance_each_way")]
        lines.append(
            _line(
                f"**{method}**",
                "mean",
                [f"**{x:.3f}**" for x in curves],
                [f"{np.mean(x):.1f}" for x in both] + [""],
                means,
            )
        )
    return "\n".join(lines) + "\n"


def _line(name: str, seed: str, curve: list[str], support: list[str], rest: list[str]) -> str:
    return "| " + " | ".join([name, seed, *curve, *support, *rest]) + " |"


def _at(curve: Any, k: int) -> float:
    return float(curve.value_K[curve.k_K.tolist().index(k)])


def _curve(curve: Any, ks: Sequence[int]) -> list[str]:
    return [f"{_at(curve, k):.3f}" for k in ks]


def _support(c: Comparison) -> list[str]:
    s = c.support
    assert s is not None
    return [str(s.P), str(s.E), str(s.S), str(s.O), f"{s.chance_each_way:.1f}", f"{s.mcnemar_p:.2g}"]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.to_json() if k == "comparison" else v for k, v in row.items()}


def figure(results: Mapping[str, Sequence[Mapping[str, Any]]], control: Comparison, file: Path) -> None:
    """pass@k of each method (mean over seeds, band: lowest to highest) over the base's."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = 3
    rows = -(-len(results) // columns)
    fig, axes = plt.subplots(rows, columns, figsize=(10, 2.8 * rows), sharex=True, sharey=True, squeeze=False)
    for axis, (method, found) in zip(axes.flat, results.items(), strict=False):
        curves = np.array([r["comparison"].trained_curve.value_K for r in found])
        k = control.k_K
        axis.plot(k, control.base_curve.value_K, color="0.45", label="base")
        axis.plot(k, curves.mean(0), color="C0", label="trained")
        axis.fill_between(k, curves.min(0), curves.max(0), color="C0", alpha=0.25, lw=0)
        axis.set_xscale("log", base=2)
        axis.set_title(method)
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.3)
    for axis in list(axes.flat)[len(results) :]:
        axis.set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel("pass@k")
    for axis in axes[-1]:
        axis.set_xlabel("k")
    axes[0, 0].legend()
    fig.tight_layout()
    fig.savefig(file, dpi=110)
    plt.close(fig)


_HEAD = """\
The tiny base trained by each method with the recipe "{recipe}" for {steps} steps of 64 prompts x 8 responses
({seeds} training seeds), {M} held-out problems, n = {n}. *E* gained and *S* lost are counted against the base's
first draw; *chance*: what two runs of one policy would show each way; *p*: exact McNemar. *H token*: mean -log of the
sampled tokens (nats); *H answer*: entropy of the answers at 32 samples; *Δ+*: change of the per-token log-likelihood
of the base's own correct responses.
"""
