"""`limen lab offline`: maximum likelihood on the base's own correct samples, beside GRPO and DAPO.

RBP says that coverage is lost because sampling is on-policy; The Invisible Leash compares SFT with DAPO (table 5). Here
the base answers every training problem, its correct answers are kept, and the same model is trained on them by maximum
likelihood: as many updates, of as many responses, with the same optimizer as the policy-gradient runs. What is drawn is
fixed before training, so nothing that training does changes what it sees.

Rules, fixed before the runs. RBP-A2: the checkpoint of SFT nearest in pass@1 to GRPO's end (seed means) has a higher
pass@n_max, paired interval above 0. RBP-S6-P: the AUC of the success rate for problems whose greedy answer is right
against the others is above 0.8, for the base and for GRPO's end in every seed. IL-T5: the curves of SFT and DAPO
cross, at the last step, somewhere over k.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.errors import ConfigError
from limen.lab.demo import RECIPE, TRAIN
from limen.lab.methods import METHODS
from limen.lab.policies import RECIPES, Study, in_processes, sample_policy, train_policy
from limen.provenance import provenance
from limen.store.writer import write_json

ONLINE = ("grpo", "dapo")
STORED = 8
"""Base samples of each training problem."""

BATCH = 512
CHECKPOINTS = 4


def checkpoints(study: Study) -> list[int]:
    """Steps at which SFT is sampled, the last among them."""
    spacing = max(1, study.steps // CHECKPOINTS)
    return [*range(spacing, study.steps, spacing), study.steps]


def prepare(study: Study) -> None:
    """The base's samples of the held-out and of the training problems."""
    sample_policy(study, study.out / "base", study.base, "base")
    more: dict[str, Any] = {"problems": TRAIN, "limit": None, "logprobs": False}
    sample_policy(study, study.out / "offline-train", study.base, "base", STORED, **more)
    greedy(study, study.out / "greedy-base", study.base, "base")


def greedy(study: Study, out: Path, model: str, policy: str) -> None:
    """The greedy response to each held-out problem: does it fail where the success rate is low (RBP §6)?"""
    sample_policy(study, out, model, policy, 1, 0.0, logprobs=False)


def run_one(study: Study, method: str, seed: int) -> None:
    """Train and sample one method with one seed: `sft`, or one of the policy-gradient methods that it is held against
    (which is not done again in the folder of `limen lab methods`)."""
    out = study.out / f"seed-{seed}"
    if method == "sft":
        train_sft(study, seed)
        for step in checkpoints(study):
            sample_policy(study, out / f"sft-step-{step}", str(out / "train-sft" / f"step-{step}"), "sft", step=step)
    elif method in ONLINE:
        trained = train_policy(study, method, seed, {"algorithm": METHODS[method]})
        sample_policy(study, out / method, str(trained / "model"), method, step=study.steps)
        greedy(study, out / f"greedy-{method}", str(trained / "model"), method)
    else:
        raise ConfigError(f"unknown method '{method}': expected sft, {', '.join(ONLINE)}")


def correct_samples(run: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(token ids, labels) of the run's correct samples, shapes (samples, tokens), padded on the right; labels are -100
    on prompt and padding. Raises `ConfigError` where none is correct."""
    from limen.store import Run

    found = Run.open(run)
    prompts = found.prompts()
    verdicts = found.table("verdicts", ["problem_id", "sample_index", "outcome"]).to_pylist()
    right = {(v["problem_id"], v["sample_index"]) for v in verdicts if v["outcome"] == "correct"}
    rows = [
        (prompts[r.problem_id].token_ids, r.token_ids or ())
        for r in found.rollouts()
        if (r.problem_id, r.sample_index) in right
    ]
    if not rows:
        raise ConfigError(f"{run} holds no correct sample: there is nothing to imitate")
    width = max(len(p) + len(y) for p, y in rows)
    ids, labels = np.zeros((len(rows), width), dtype=np.int64), np.full((len(rows), width), -100, dtype=np.int64)
    for i, (prompt, response) in enumerate(rows):
        end = len(prompt) + len(response)
        ids[i, :end] = [*prompt, *response]
        labels[i, len(prompt) : end] = response
    return ids, labels


def train_sft(study: Study, seed: int) -> None:
    """`study.steps` updates on correct base samples, drawn with replacement; a model for each checkpoint."""
    import torch
    from transformers.utils import logging

    from limen.models import load_model

    logging.disable_progress_bar()
    folder = study.out / f"seed-{seed}" / "train-sft"
    if (folder / f"step-{study.steps}" / "tokenizer_config.json").exists():
        return
    optimiser = {**RECIPE, **RECIPES[study.recipe]}["optimiser"]
    ids, labels = correct_samples(study.out / "offline-train")
    loaded = load_model(study.base, study.device, "float32")
    model, rng = loaded.model.train(), np.random.default_rng([seed, 77])
    adam = torch.optim.AdamW(model.parameters(), lr=optimiser["lr"], betas=optimiser["betas"], weight_decay=0.0)
    warmup = int(optimiser.get("warmup_steps", 0))
    for step in range(1, study.steps + 1):
        left = max(0.0, (study.steps - step + 1) / max(1, study.steps - warmup))
        for group in adam.param_groups:
            group["lr"] = optimiser["lr"] * (min(1.0, step / warmup) if step <= warmup else min(1.0, left))
        rows = rng.integers(len(ids), size=BATCH)
        batch, wanted = (torch.from_numpy(x[rows]).to(loaded.device) for x in (ids, labels))
        loss = model(input_ids=batch, labels=wanted).loss
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        if step in checkpoints(study):
            loaded.tokenizer.save_pretrained(folder / f"step-{step}")
            model.save_pretrained(folder / f"step-{step}")
            print(f"sft seed {seed}: step {step} of {study.steps}, loss {float(loss.detach()):.3f}", file=sys.stderr)


def run_offline(study: Study, seeds: Sequence[int], jobs: int = 1) -> str:
    """All methods and seeds. Returns the page; writes offline.md and offline.json."""
    prepare(study)
    todo = [(m, s) for s in seeds for m in ("sft", *ONLINE)]
    if jobs == 1:
        for method, seed in todo:
            run_one(study, method, seed)
    else:
        in_processes([["lab", "offline", *study.options(), "--only", m, "--seeds", str(s)] for m, s in todo], jobs)
    doc = {
        "provenance": provenance(), "recipe": study.recipe, "steps": study.steps, "runs": measured(study, seeds),
        "greedy": greedy_against_rates(study, seeds),
    }  # fmt: skip
    write_json(study.out / "offline.json", doc)
    from limen.lab.evidence import read

    evidence = read(study.out / "offline.json")
    assert evidence is not None
    page = offline_page(study, evidence)
    (study.out / "offline.md").write_text(page, encoding="utf-8")
    return page


def measured(study: Study, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Every sampled policy against the base, as JSON values."""
    from limen.measure import compare, counts_from_run

    base = counts_from_run(study.out / "base")
    rows = []
    for seed in seeds:
        out = study.out / f"seed-{seed}"
        places = [("sft", s, out / f"sft-step-{s}") for s in checkpoints(study)]
        places += [(m, study.steps, out / m) for m in ONLINE]
        for method, step, place in places:
            found = compare(base, counts_from_run(place), draws=200).to_json()
            rows.append({"method": method, "seed": seed, "step": step, "comparison": found})
    return rows


def greedy_against_rates(study: Study, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """AUC of a policy's success rate for the problems whose greedy answer is wrong (kept by SELF) against the others,
    and the quartiles of both; the base, and GRPO at its end."""
    from limen.measure import counts_from_run

    places = [("base", study.out / "base", study.out / "greedy-base")]
    for s in seeds:
        places.append((f"grpo, seed {s}", study.out / f"seed-{s}" / "grpo", study.out / f"seed-{s}" / "greedy-grpo"))
    rows = []
    for name, run, first in places:
        table, one = counts_from_run(run), counts_from_run(first)
        assert table.problem_ids == one.problem_ids
        rows.append({"policy": name, **separation(table.c_P / table.n_P, one.c_P > 0)})
    return rows


def separation(rate_P: NDArray[np.float64], solved_P: NDArray[np.bool_]) -> dict[str, Any]:
    """How well the success rate tells problems with a right greedy answer (dropped) from the others (kept)."""
    from scipy.stats import mannwhitneyu

    kept, dropped = rate_P[~solved_P], rate_P[solved_P]
    if not len(kept) or not len(dropped):
        return {"kept": len(kept), "dropped": len(dropped), "auc": None}
    auc = float(mannwhitneyu(dropped, kept).statistic) / (len(kept) * len(dropped))
    quartiles = {k: np.quantile(x, [0.25, 0.5, 0.75]).tolist() for k, x in (("kept", kept), ("dropped", dropped))}
    return {"kept": len(kept), "dropped": len(dropped), "auc": auc, "quartiles": quartiles}


def offline_page(study: Study, evidence: Any) -> str:
    """pass@k of each method and step (means over seeds), then the two rules."""
    from limen.lab.claims_offline import crosses, greedy_marks, on_policy_concentrates
    from limen.lab.claims_rules import n_max, tables, values

    runs = evidence.runs()
    ks = [k for k in (1, 4, 16, 64, 256) if k <= n_max(runs)]
    lines = [_HEAD.format(steps=study.steps, recipe=study.recipe, stored=STORED, seeds=len({r.seed for r in runs}))]
    lines += ["| policy | step | " + " | ".join(f"pass@{k}" for k in ks) + " | E | S | chance |"]
    lines += ["|" + "---|" * (len(ks) + 5)]
    lines.append("| base | 0 | " + " | ".join(f"{values(runs[:1], k, 'base').mean():.3f}" for k in ks) + " | | | |")
    for method in dict.fromkeys(r.method for r in runs):
        for step in sorted({r.step for r in evidence.runs(method)}):
            own = [r for r in evidence.runs(method) if r.step == step]
            found = tables(own)
            counts = [f"{np.mean([getattr(s, k) for s in found]):.1f}" for k in ("E", "S", "chance_each_way")]
            cells = [method, str(step), *(f"{values(own, k).mean():.3f}" for k in ks), *counts]
            lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for name, rule in (("RBP-A2", on_policy_concentrates), ("IL-T5", crosses), ("RBP-S6-P", greedy_marks)):
        verdict = rule(evidence)
        lines.append(f"- {name}: " + ("not measured" if verdict is None else f"**{verdict.verdict}**; {verdict.size}"))
    return "\n".join(lines) + "\n"


_HEAD = """\
Maximum likelihood on the tiny base's own correct samples ({stored} stored a training problem) beside GRPO and DAPO,
recipe "{recipe}", {steps} updates of 512 responses, {seeds} seeds, means over seeds.
"""
