"""Trainings that differ in one setting: `limen lab kl` (reverse against forward KL), `limen lab widths` (model size).

Each *arm* is a method on a base. Bases are sampled once; every arm is trained with every seed and sampled at its end.
The rules that judge them are in `limen.lab.claims_arms`, fixed before any run. Every stage is an ordinary run folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from limen.errors import ConfigError
from limen.lab.methods import METHODS, PROBE_N, PROBE_TEMPERATURE
from limen.lab.policies import Study, in_processes, interference, sample_policy, train_policy
from limen.provenance import provenance
from limen.store.writer import write_json

REVERSE, FORWARD = (0.03, 0.1, 0.3), (0.1, 0.3, 1.0)
WIDTHS = (48, 96, 192)


@dataclass(frozen=True)
class Arm:
    """`name` is the folder's; `group` the base's: "0", or the width of the model."""

    name: str
    method: str
    group: str
    base: str
    algorithm: Mapping[str, Any]


def kl_arms(study: Study) -> list[Arm]:
    """GRPO alone, with the reverse KL to the base, and with the forward KL on stored base samples."""
    made: dict[str, Mapping[str, Any]] = {"grpo": METHODS["grpo"]}
    made |= {f"reverse-{b:g}": {"name": "grpo", "reverse_kl_beta": b} for b in REVERSE}
    made |= {f"forward-{b:g}": {**METHODS["forward_kl"], "forward_kl_beta": b} for b in FORWARD}
    return [Arm(name, name, "0", study.base, algorithm) for name, algorithm in made.items()]


def width_arms(study: Study) -> list[Arm]:
    """GRPO and SELF on bases of three widths, trained alike."""
    return [
        Arm(f"{m}-width-{w}", m, str(w), str(study.out / f"model-width-{w}"), METHODS[m])
        for w in WIDTHS
        for m in ("grpo", "self")
    ]


KINDS = {"kl": kl_arms, "widths": width_arms}


def train_width(study: Study, width: int) -> None:
    """The base of one width, by the recipe of the tiny base, if it is not there."""
    from limen.lab.tiny_base import BaseRecipe, train_base

    folder = study.out / f"model-width-{width}"
    if not (folder / "recipe.json").exists():
        train_base(folder, BaseRecipe.of_width(width), device=study.device or "cpu")


def prepare(study: Study, kind: str) -> None:
    """Bases, their samples and their probe pairs."""
    for arm in KINDS[kind](study):
        if kind == "widths":
            train_width(study, int(arm.group))
        sample_policy(study, study.out / f"base-{arm.group}", arm.base, f"base-{arm.group}")
        probe = study.out / f"probe-{arm.group}"
        sample_policy(study, probe, arm.base, f"probe-{arm.group}", PROBE_N, PROBE_TEMPERATURE)


def run_one(study: Study, kind: str, name: str, seed: int) -> None:
    """Train and sample one arm with one seed."""
    found = {a.name: a for a in KINDS[kind](study)}
    if name not in found:
        raise ConfigError(f"unknown run '{name}': expected some of {', '.join(found)}")
    arm = found[name]
    own = replace(study, base=arm.base)
    trained = train_policy(own, name, seed, {"algorithm": dict(arm.algorithm)})
    sample_policy(own, study.out / f"seed-{seed}" / name, str(trained / "model"), name, step=study.steps)


def run_arms(study: Study, kind: str, seeds: Sequence[int], jobs: int = 1) -> str:
    """All arms and seeds, `jobs` processes at a time (1: here). Returns the page; writes KIND.md and KIND.json."""
    prepare(study, kind)
    todo = [(a.name, s) for s in seeds for a in KINDS[kind](study)]
    if jobs == 1:
        for name, seed in todo:
            run_one(study, kind, name, seed)
    else:
        shared = study.options()
        in_processes([["lab", kind, *shared, "--only", name, "--seeds", str(s)] for name, s in todo], jobs)
    doc = {
        "provenance": provenance(), "recipe": study.recipe, "steps": study.steps,
        "runs": [_measured(study, a, s) for a in KINDS[kind](study) for s in seeds],
        "parameters": {a.group: _parameters(study, a) for a in KINDS[kind](study)},
    }  # fmt: skip
    write_json(study.out / f"{kind}.json", doc)
    page = arms_page(study, kind)
    if kind == "widths":
        from limen.lab.evidence import read
        from limen.lab.widths_figure import figure

        evidence = read(study.out / "widths.json")
        assert evidence is not None
        figure(evidence, study.out)
        page += "\n![Change of pass@1 and pass@n by size](widths.png)\n"
    (study.out / f"{kind}.md").write_text(page, encoding="utf-8")
    return page


def _measured(study: Study, arm: Arm, seed: int) -> dict[str, Any]:
    from limen.measure import compare, counts_from_run

    place = study.out / f"seed-{seed}" / arm.name
    base = counts_from_run(study.out / f"base-{arm.group}")
    model = study.out / f"seed-{seed}" / f"train-{arm.name}" / "model"
    delta, size = interference(study.out / f"probe-{arm.group}", arm.base, str(model), study.device)
    found = compare(base, counts_from_run(place), draws=200).to_json()
    extra = {"interference": delta, "influence": size}
    return {"method": arm.method, "group": arm.group, "seed": seed, "step": study.steps, "comparison": found,
            "extra": extra}  # fmt: skip


def _parameters(study: Study, arm: Arm) -> int:
    from limen.models import load_model

    return sum(p.numel() for p in load_model(arm.base, "cpu", "float32").model.parameters())


def arms_page(study: Study, kind: str) -> str:
    """pass@k of base and arms (means over seeds), support beside chance, Δ+, and the rules."""
    from limen.lab.claims_arms import OF_KIND
    from limen.lab.claims_rules import n_max, tables, values
    from limen.lab.evidence import read

    evidence = read(study.out / f"{kind}.json")
    assert evidence is not None
    runs = evidence.runs()
    ks = [k for k in (1, 4, 16, 64, 256) if k <= n_max(runs)]
    lines = [_HEAD[kind].format(steps=study.steps, recipe=study.recipe, seeds=len({r.seed for r in runs}))]
    lines += ["| base | policy | " + " | ".join(f"pass@{k}" for k in ks) + " | E | S | chance | Δ+ |"]
    lines += ["|" + "---|" * (len(ks) + 6)]
    for group, method in dict.fromkeys((r.group, r.method) for r in runs):
        own = [r for r in runs if (r.group, r.method) == (group, method)]
        if f"| {group} | base |" not in "\n".join(lines):
            cells = " | ".join(f"{values(own[:1], k, 'base').mean():.3f}" for k in ks)
            lines.append(f"| {group} | base | {cells} | | | | |")
        found = tables(own)
        counts = [f"{np.mean([getattr(s, k) for s in found]):.1f}" for k in ("E", "S", "chance_each_way")]
        delta = f"{np.mean([r.extra['interference'] for r in own]):+.3f}"
        cells = " | ".join(f"{values(own, k).mean():.3f}" for k in ks)
        lines.append(f"| {group} | {method} | {cells} | {' | '.join(counts)} | {delta} |")
    lines.append("")
    for name, rule in OF_KIND[kind].items():
        verdict = rule(evidence)
        lines.append(f"- {name}: " + ("not measured" if verdict is None else f"**{verdict.verdict}**; {verdict.size}"))
    return "\n".join(lines) + "\n"


_HEAD = {
    "kl": """\
GRPO on the tiny base with the reverse KL to the base or the forward KL on stored base samples, each at three weights a
token; recipe "{recipe}", {steps} steps, {seeds} seeds, means over seeds. *Δ+*: change of the per-token log-likelihood
of the base's own correct responses.
""",
    "widths": """\
GRPO and SELF on bases of three widths (column *base*), trained alike for 1,500 batches; recipe "{recipe}", {steps}
steps, {seeds} seeds, means over seeds. *Δ+*: change of the per-token log-likelihood of the base's own correct ones.
""",
}
