"""Loss terms beside the policy's: forward KL on stored base responses, reverse KL, entropy bonus.

Denominators are explicit: response tokens of the whole generation batch over all processes, so that the gradient does
not depend on how the batch is cut into micro-batches and processes. (Gradients of processes are averaged, hence the
factor of their number; `steps_per_generation / accumulation` optimizer steps share one generation batch.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from limen.train.algorithms import entropy_bonus, forward_kl, reverse_kl
from limen.train.algorithms.compose import Algorithm
from limen.train.base_responses import KLBatch


def needs_capture(a: Algorithm) -> bool:
    """Whether the policy's own log-probabilities of this micro-batch are needed beside TRL's loss."""
    return a.direction_alpha > 0 or a.reverse_kl_beta > 0 or a.entropy_bonus > 0


def extra_loss(t: Any, model: Any, inputs: dict[str, Any], captured: dict[str, Any] | None) -> Tensor:
    """Sum of the extra terms of this micro-batch, 0 where there are none."""
    a: Algorithm = t.algorithm
    total = torch.zeros((), device=t.accelerator.device)
    t._window_trains = t._window_trains or t._batch_trains
    if a.forward_kl_beta > 0 and t._kl_batch is not None and t._kl_batch.tokens:
        total = total + _forward_kl(t, model)
    if captured is not None and (a.reverse_kl_beta > 0 or a.entropy_bonus > 0):
        mask_BT = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        denominator = _share(t, float(inputs["num_items_in_batch"]))
        if a.reverse_kl_beta > 0:
            ref_BT = _reference_logprobs(t, inputs)
            loss = reverse_kl.k2(captured["logprobs"], ref_BT, mask_BT, denominator)
            t.count("loss_reverse_kl", float(loss.detach()))
            total = total + a.reverse_kl_beta * loss
        if a.entropy_bonus > 0:
            entropy_BT = captured["entropies"]
            if entropy_BT is None or not entropy_BT.requires_grad:
                entropy_BT = entropy_bonus.token_entropy(_logits(t, model, *_sequences(inputs)))
            total = total + a.entropy_bonus * entropy_bonus.entropy_bonus(entropy_BT, mask_BT, denominator)
    return total


def forget_blank(t: Any, inputs: dict[str, Any]) -> None:
    """Take back what TRL has just logged of a micro-batch without any response token (no survivors, blank rows): means
    over nothing, which it calls 0."""
    if float(t.accelerator.reduce(inputs["completion_mask"].sum(), reduction="sum")):
        return
    metrics = t._metrics["train"]
    for key in [k for k in metrics if k == "entropy" or k.startswith("clip_ratio/")]:
        del metrics[key][-1:]
        if not metrics[key]:
            del metrics[key]


def _share(t: Any, tokens: float) -> float:
    """Denominator of one micro-batch's sum, given the tokens of the generation batch over all processes."""
    cut = t.current_gradient_accumulation_steps / t.args.steps_per_generation
    return float(max(tokens, 1.0) / t.accelerator.num_processes * cut)


def _forward_kl(t: Any, model: Any) -> Tensor:
    a: Algorithm = t.algorithm
    parts = t.args.steps_per_generation
    batch: KLBatch = t._kl_batch.part(t._step % parts, parts)
    prompt, ids = batch.prompt_ids_BT, batch.response_ids_BT
    sequence = torch.cat([prompt, ids], 1)
    attention = torch.cat([batch.prompt_mask_BT, batch.response_mask_BT], 1)
    logps_BT = logprobs(t, model, sequence, attention, ids.shape[1])
    denominator = _share(t, float(batch.tokens))
    if a.kl_estimator == "k3":
        assert batch.base_logprobs_BT is not None, "base log-probabilities are made before training"
        loss = forward_kl.k3(logps_BT, batch.base_logprobs_BT, batch.response_mask_BT, denominator)
    else:
        loss = forward_kl.nll(logps_BT, batch.response_mask_BT, denominator)
    t.count("loss_kl", float(loss.detach()))
    loss = a.forward_kl_beta * loss
    every = t.args.grad_ratio_steps
    if every and t.state.global_step % every == 0 and t.can_measure_gradients:
        _add_kl_gradient(t, loss)
    return loss


def logprobs(t: Any, model: Any, ids_BT: Tensor, attention_BT: Tensor, keep: int) -> Tensor:
    """log π(token) at temperature 1 of the last `keep` tokens, (B, keep). TRL's own memory-saving way where it gives
    temperature 1."""
    if t.temperature == 1.0:
        return t._get_per_token_logps_and_entropies(model, ids_BT, attention_BT, keep)[0]  # type: ignore[no-any-return]
    logits_BTV = _logits(t, model, ids_BT, attention_BT, keep)
    picked = logits_BTV.gather(-1, ids_BT[:, -keep:].unsqueeze(-1)).squeeze(-1)
    return picked - torch.logsumexp(logits_BTV, -1)


def _logits(t: Any, model: Any, ids_BT: Tensor, attention_BT: Tensor, keep: int) -> Tensor:
    logits = model(input_ids=ids_BT, attention_mask=attention_BT, use_cache=False).logits
    return logits[:, -keep - 1 : -1].float()  # type: ignore[no-any-return]


def _sequences(inputs: dict[str, Any]) -> tuple[Tensor, Tensor, int]:
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    return ids, mask, inputs["completion_ids"].shape[1]


# -- reverse KL's reference ----------------------------------------------------------------------------------------


def snapshot(model: Any) -> dict[str, Tensor]:
    """A copy of the trainable parameters: the reference."""
    return {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}


@torch.no_grad()  # type: ignore[untyped-decorator]
def _reference_logprobs(t: Any, inputs: dict[str, Any]) -> Tensor:
    """log π_ref of the micro-batch's responses: the policy's own code with the reference's parameters, and at the
    sampling temperature, as the policy's that TRL's loss is made of."""
    policy = t.accelerator.unwrap_model(t.model)

    def with_reference(**kwargs: Any) -> Any:
        return torch.func.functional_call(policy, t.reference, args=(), kwargs=kwargs)

    with_reference.training = False  # type: ignore[attr-defined]
    return t._get_per_token_logps_and_entropies(with_reference, *_sequences(inputs))[0]  # type: ignore[no-any-return]


# -- ‖g_KL‖ / ‖g_RL‖ -----------------------------------------------------------------------------------------------


def _add_kl_gradient(t: Any, loss: Tensor) -> None:
    """Add this micro-batch's KL gradient to what the step's other micro-batches gave."""
    parameters = [p for p in t.model.parameters() if p.requires_grad]
    grads = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    flat = torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(parameters, grads)])
    t._kl_gradient = flat if t._kl_gradient is None else t._kl_gradient + flat


def measure_ratio(t: Any) -> None:
    """After the last backward pass of a step, before clipping: log the ratio of the two gradients' norms."""
    if t._kl_gradient is None or not t.accelerator.sync_gradients:
        return
    kl = t.accelerator.reduce(t._kl_gradient, reduction="mean")
    t._kl_gradient = None
    parameters = [p for p in t.model.parameters() if p.requires_grad]
    total = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])
    policy = float((total - kl).norm())
    metrics = t._metrics["train"]
    metrics["grad_norm_kl"].append(float(kl.norm()))
    metrics["grad_norm_rl"].append(policy)
    # Without a policy gradient (no survivors, no spread) what is left is rounding, and the ratio means nothing.
    metrics["grad_ratio_kl_rl"].append(float(kl.norm()) / policy if policy > 1e-6 * float(kl.norm()) else float("nan"))
