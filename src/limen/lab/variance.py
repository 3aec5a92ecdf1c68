"""`limen lab variance`: why W-REINFORCE becomes unstable (RBP figure 12): its gradient's variance, and tail tokens.

W-REINFORCE and GRPO are trained alike for a few steps, from the demo's step size, which W-REINFORCE does not survive
(held constant: the demo's own has fallen by an eighth after so few). At marks, each policy answers the same training
problems, 8 times each. Of those groups: the gradient of each group's loss (mean over responses of advantage times mean
log-probability of the tokens, minus), as the training would take it, inactive groups left out; its *variance* over
groups (trace of the covariance), the same *relative* to the squared norm of the mean gradient, and the *tail*: the mass
that the policy gives to all but its `TOP` likeliest tokens, mean over the tokens of its answers (the vocabulary has 16
tokens, where the paper's has so many that it looks below the 50 likeliest).

Rule, written down before the runs of seeds 0 to 2. The *drop* is the first mark at which the success of W-REINFORCE's
answers is at most half of GRPO's (means over seeds). RBP-F12-h agrees where over the marks before it (the base left
out, which is the same policy) both variance and tail of W-REINFORCE are above GRPO's, paired by seed, t intervals over
seeds; opposite where both are below; else undetermined. Without a drop, or with none of the marks before it, nothing is
said. The plain variance decides, as the claim is worded, although the two losses differ in scale, which AdamW removes:
the relative one is printed beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limen.errors import ConfigError
from limen.lab.demo import RECIPE
from limen.lab.methods import METHODS
from limen.lab.policies import Study, in_processes, sample_policy, train_policy
from limen.provenance import provenance

if TYPE_CHECKING:
    from torch import Tensor

ARMS = ("w_reinforce", "grpo")
SPACING, GROUP, PROBLEMS, TOP = 3, 8, 96, 3


def marks(steps: int) -> list[int]:
    """Steps that are looked at."""
    return list(range(SPACING, steps + 1, SPACING))


def run_one(study: Study, arm: str, seed: int) -> None:
    """Train one arm with one seed, and sample its marks."""
    if arm not in ARMS:
        raise ConfigError(f"unknown arm '{arm}': expected some of {', '.join(ARMS)}")
    settings = {"algorithm": METHODS[arm], "optimiser": {**RECIPE["optimiser"], "schedule": "constant"},
                "save_steps": SPACING, "keep_checkpoints": len(marks(study.steps)) + 1,
                "record_rollouts": False, "grad_ratio_steps": 0}  # fmt: skip
    folder = train_policy(study, arm, seed, settings)
    for step in marks(study.steps):
        _sample(study, study.out / f"seed-{seed}" / f"{arm}-step-{step}", str(folder / f"checkpoint-{step}"), arm, step)


def _sample(study: Study, out: Path, model: str, policy: str, step: int) -> None:
    problems = f"arithmetic:all?split=train&size={PROBLEMS}"
    sample_policy(study, out, model, policy, GROUP, step=step, problems=problems, limit=None, logprobs=False)


def run_variance(study: Study, seeds: Sequence[int], jobs: int = 1) -> str:
    """All arms and seeds. Returns the page; writes variance.md, .json, .png, .svg, .csv."""
    from limen.lab.evidence import publish
    from limen.lab.variance_page import figure, variance_page

    _sample(study, study.out / "base", study.base, "base", 0)
    todo = [(a, s) for s in seeds for a in ARMS]
    if jobs == 1:
        for arm, seed in todo:
            run_one(study, arm, seed)
    else:
        shared = ["lab", "variance", "--out", str(study.out), "--steps", str(study.steps), "--base", study.base]
        shared += ["--device", str(study.device)]
        in_processes([[*shared, "--only", a, "--seeds", str(s)] for a, s in todo], jobs)
    rows = []
    start = {a: look(study.out / "base", study.base, a, study.device) for a in ARMS}
    for arm, seed in todo:
        rows.append({"method": arm, "seed": seed, "step": 0, **start[arm]})
        for step in marks(study.steps):
            model = study.out / f"seed-{seed}" / f"train-{arm}" / f"checkpoint-{step}"
            found = look(study.out / f"seed-{seed}" / f"{arm}-step-{step}", str(model), arm, study.device)
            rows.append({"method": arm, "seed": seed, "step": step, **found})
    doc = {"provenance": provenance(), "steps": study.steps, "points": rows}
    return publish(study.out, "variance", doc, variance_page, figure)


def look(run: Path, model: str, arm: str, device: str | None) -> dict[str, float | None]:
    """success, variance, relative, tail and active groups of one policy's answers, under one arm's advantages."""
    import torch

    from limen.models import load_model
    from limen.train.algorithms.grpo import group_advantages
    from limen.train.algorithms.w_reinforce import w_reinforce_advantages

    prompts, answers, right = groups(run)
    loaded = load_model(model, device, "float32")
    policy = loaded.model.eval()
    correct_PG = torch.tensor(right, dtype=torch.float32)
    advantages_PG, active_PG = (w_reinforce_advantages if arm == "w_reinforce" else group_advantages)(correct_PG)
    gradients, tails = [], []
    for prompt, texts, a_G, active_G in zip(prompts, answers, advantages_PG, active_PG, strict=True):
        own_GT, tail_GT, mask_GT = token_logs(policy, prompt, texts, loaded.device)
        tails += ((tail_GT * mask_GT).sum(1) / mask_GT.sum(1)).tolist()
        if bool(active_G.any()):
            scores = (own_GT * mask_GT).sum(1) / mask_GT.sum(1)
            loss = -(a_G.to(scores.device) * scores).mean()
            parts = torch.autograd.grad(loss, [p for p in policy.parameters() if p.requires_grad], allow_unused=True)
            gradients.append(torch.cat([g.reshape(-1) for g in parts if g is not None]).double().cpu().numpy())
    variance, relative = spread(np.array(gradients))
    success = float(np.mean(right))
    return {"success": success, "variance": variance, "relative": relative, "tail": float(np.mean(tails)),
            "active": len(gradients)}  # fmt: skip


def groups(run: Path) -> tuple[list[tuple[int, ...]], list[list[tuple[int, ...]]], list[list[bool]]]:
    """(prompt ids, responses' ids, verdicts) by problem."""
    from limen.store import Run

    found = Run.open(run)
    verdicts = found.table("verdicts", ["problem_id", "sample_index", "outcome"]).to_pylist()
    right = {(v["problem_id"], v["sample_index"]): v["outcome"] == "correct" for v in verdicts}
    prompts, texts, correct = found.prompts(), defaultdict(list), defaultdict(list)
    for r in found.rollouts():
        texts[r.problem_id].append(tuple(r.token_ids or ()))
        correct[r.problem_id].append(right[r.problem_id, r.sample_index])
    return [tuple(prompts[p].token_ids) for p in texts], list(texts.values()), list(correct.values())


def token_logs(
    model: Any, prompt: Sequence[int], answers: Sequence[Sequence[int]], device: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """(log-probability of each token of the answers, mass of unlikely tokens there, mask), shapes (G, T). Answers are
    padded on the right, where a causal model does not see it."""
    import torch

    width = max(len(y) for y in answers)
    ids = torch.tensor([[*prompt, *y, *[0] * (width - len(y))] for y in answers], device=device)
    mask_GT = torch.tensor([[1.0] * len(y) + [0.0] * (width - len(y)) for y in answers], device=device)
    logits_GTV = model(input_ids=ids[:, :-1]).logits[:, len(prompt) - 1 :]
    log_GTV = torch.log_softmax(logits_GTV.float(), dim=-1)
    return log_GTV.gather(2, ids[:, len(prompt) :, None])[..., 0], tail_mass(log_GTV), mask_GT


def tail_mass(log_GTV: Tensor, top: int = TOP) -> Tensor:
    """Mass of all but the `top` likeliest tokens, shape (G, T)."""
    return (1 - log_GTV.detach().exp().topk(top, dim=-1).values.sum(-1)).clamp(min=0)


def spread(gradient_GN: Any) -> tuple[float | None, float | None]:
    """(trace of the covariance over groups, the same over the squared norm of the mean); None with fewer than two."""
    if len(gradient_GN) < 2:
        return None, None
    variance = float(gradient_GN.var(axis=0, ddof=1).sum())
    norm = float(np.square(gradient_GN.mean(axis=0)).sum())
    return variance, variance / norm if norm > 0 else None
