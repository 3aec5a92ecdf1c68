"""What RBP says of the bandit, checked on many starts (`limen bandit`).

The rule, written before the runs: an identity agrees where its largest error is below its bound; a statement about
starts *agrees* where it holds in at least 95% of them, is *opposite* where it holds in at most 5%, and else is
*undetermined*, which here means that it depends on the start. Sizes are printed beside every verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.lab.bandit import (
    ETA,
    OBJECTIVES,
    ROWS,
    SPREAD,
    X_NORM2,
    Floats,
    V,
    alpha,
    draw_logits,
    draw_x,
    first_order_sign,
    lemma_d1,
    push_down_sign,
    run,
    softmax,
    step_with_autograd,
)
from limen.lab.bandit_contexts import bound, separate

BOUND, MOST = 1e-10, 0.95
SMALL_STEP = 1e-3
PUBLISHED_RATIO = 60


@dataclass(frozen=True)
class Starts:
    """Logits of both kinds of start over seeds, shape (S, V); `eta_S` is η' = η‖x‖² of each."""

    seeds: int
    uniform_SV: Floats
    peaked_SV: Floats
    eta_S: Floats

    @classmethod
    def draw(cls, seeds: int, norm2: float | None = X_NORM2, spread: float = SPREAD) -> Starts:
        xs = [draw_x(s, norm2) for s in range(seeds)]
        kinds = [np.stack([draw_logits(k, s, x, spread) for s, x in enumerate(xs)]) for k in ("uniform", "peaked")]
        return cls(seeds, kinds[0], kinds[1], np.array([ETA * np.square(x).sum() for x in xs]))

    def of(self, kind: str) -> Floats:
        return self.uniform_SV if kind == "uniform" else self.peaked_SV


def verdict_of_share(share: float) -> str:
    return "agrees" if share >= MOST else "opposite" if share <= 1 - MOST else "undetermined"


def _share(holds_S: NDArray[np.bool_], text: str) -> dict[str, Any]:
    share = float(holds_S.mean())
    return {"verdict": verdict_of_share(share), "share": share, "starts": len(holds_S), "size": text}


def _identity(error: float, text: str, bound: float = BOUND) -> dict[str, Any]:
    return {"verdict": "agrees" if error < bound else "opposite", "error": error, "bound": bound, "size": text}


def claims(seeds: int = 500, norm2: float = X_NORM2) -> dict[str, dict[str, Any]]:
    """Every row of RBP that the bandit alone decides: id → verdict, size in words, numbers."""
    starts = Starts.draw(seeds, norm2)
    makers: Mapping[str, Callable[[Starts], dict[str, Any]]] = {
        "RBP-LD.1": _lemma,
        "RBP-E8": _scales_with_pi,
        "RBP-E33": _likelier_gains,
        "RBP-D-1": _may_fall,
        "RBP-D-2": _not_monotone,
        "RBP-D-3": _likelihood_lifts_rarer,
        "RBP-F5L": _rare_hardly_moves,
        "RBP-F5M": _gap_ratio,
        "RBP-F5R": _push_down_ratio,
        "RBP-F9-1": _f9_1,
        "RBP-F9-2": _f9_2,
        "RBP-F9-3": _f9_3,
        "RBP-F9-4": _f9_4,
        "RBP-F9-5": _f9_5,
        "RBP-S5-0": _no_signal,
    }
    found = {name: make(starts) for name, make in makers.items()}
    return {**found, "RBP-E4": bound(seeds), "RBP-S4-0": separate(seeds)}


def spread_table(seeds: int = 500, spreads: tuple[float, ...] = (0.0, 0.1, 0.3, 1.0)) -> list[dict[str, Any]]:
    """α of the two rewarded actions after one step from starts of growing unevenness, x ∼ N(0, I) as drawn.

    Figure 9's "about 60 times" is somewhere in here: from an exactly uniform start α is at most V/2 = 25.
    """
    rows = []
    for spread in spreads:
        starts = Starts.draw(seeds, norm2=None, spread=spread)
        for objective in OBJECTIVES:
            a = alpha(run(starts.uniform_SV, {11: 1, 5: 1}, objective, starts.eta_S))[:, [11, 5]]
            low, middle, high = np.quantile(a, [0.05, 0.5, 0.95])
            rows.append(
                {"spread": spread, "objective": objective, "q05": low, "median": middle, "q95": high,
                 "largest": a.max(), "share_60": float((a >= PUBLISHED_RATIO).any(1).mean())}
            )  # fmt: skip
    return [{k: v if isinstance(v, str) else float(v) for k, v in r.items()} for r in rows]


def _random_starts(seeds: int) -> Floats:
    """Logits from even to very uneven: standard deviations between 0.1 and 3 over the seeds."""
    rng = np.random.default_rng(7)
    out: Floats = np.geomspace(0.1, 3, seeds)[:, None] * rng.standard_normal((seeds, V))
    return out


def _lemma(starts: Starts) -> dict[str, Any]:
    worst = 0.0
    for seed in range(starts.seeds):
        x = draw_x(seed, None)
        z = (starts.peaked_SV if seed % 2 else starts.uniform_SV)[seed]
        y1, y2 = np.random.default_rng(seed).choice(V, 2, replace=False)
        for objective in OBJECTIVES:
            form = lemma_d1(z, ETA * float(x @ x), int(y1), int(y2), objective)
            auto, _ = step_with_autograd(z, x, {int(y1): 1, int(y2): 1}, objective)
            worst = max(worst, float(np.abs(form / auto - 1).max()))
    return _identity(worst, f"largest relative error {worst:.1e} over {starts.seeds} starts, both objectives")


def _scales_with_pi(starts: Starts) -> dict[str, Any]:
    worst = 0.0
    for seed in range(min(100, starts.seeds)):
        x, z = draw_x(seed), starts.peaked_SV[seed]
        for action in (8, 11, 20, 3):
            pi = softmax(z)[action]
            _, g = step_with_autograd(z, x, {action: 1}, "reinforce")
            _, log_g = step_with_autograd(z, x, {action: 1}, "mle")
            worst = max(worst, float(np.abs(g - pi * log_g).max()))
    gone = starts.peaked_SV[0].copy()
    gone[11] = -2000.0
    _, g = step_with_autograd(gone, draw_x(0), {11: 1}, "reinforce")
    text = f"|∇π − π∇log π| ≤ {worst:.1e}; at π = 0 the largest entry of ∇π is {np.abs(g).max():g}"
    return _identity(worst if not g.any() else np.inf, text, 1e-12)


def _likelier_gains(starts: Starts) -> dict[str, Any]:
    z, pi = _random_starts(starts.seeds), softmax(_random_starts(starts.seeds))
    first = pi[:, 11] >= pi[:, 5]
    a = np.concatenate([alpha(run(z, {11: 1, 5: 1}, "reinforce", eta)) for eta in (0.1, 1.5, 10.0)])
    likelier = np.where(np.tile(first, 3), a[:, 11], a[:, 5])
    return _share(likelier > 1, f"least α of the likelier action {likelier.min():.6f}, η' 0.1, 1.5 and 10")


def _may_fall(starts: Starts) -> dict[str, Any]:
    greedy = starts.peaked_SV.copy()
    greedy[:, [8, 20]] = greedy[:, [20, 8]]
    z = np.concatenate([_random_starts(starts.seeds), starts.peaked_SV, greedy])
    sign = first_order_sign(softmax(z), 8, 11)
    moved = alpha(run(z, {8: 1, 11: 1}, "reinforce", SMALL_STEP))[:, 11] - 1
    clear = np.abs(sign) > SMALL_STEP
    same = np.sign(moved[clear]) == np.sign(sign[clear])
    falls = float((moved < 0).mean())
    row = _share(same, f"sign as derived in {same.mean():.1%} of the clear cases; the rarer falls in {falls:.1%}")
    if not 0 < falls < 1:
        row["verdict"] = "opposite"
    return row


def alpha_of_rarer(p1: Floats, p2: float = 0.01, eta: float = 2.5) -> Floats:
    """α₂ under REINFORCE with π₁ = `p1`, π₂ = `p2` and the rest even. Shape of `p1`."""
    rest = (1 - p1 - p2)[:, None] / (V - 2)
    pi = np.concatenate([p1[:, None], np.full((len(p1), 1), p2), np.repeat(rest, V - 2, axis=1)], axis=1)
    return alpha(run(np.log(pi), {0: 1, 1: 1}, "reinforce", eta))[:, 1]


def _not_monotone(starts: Starts) -> dict[str, Any]:
    p1 = np.linspace(0.02, 0.97, 951)
    a = alpha_of_rarer(p1)
    least, as_claimed = float(p1[a.argmin()]), float((np.diff(a) > 0).mean())
    some = ", ".join(f"{x:.2f} at π₁ = {p}" for p, x in zip((0.06, 0.2, 0.5, 0.7, 0.9), alpha_of_rarer(_SOME)))
    text = f"α₂ is {some}; least at π₁ = {least:.2f}, rises with π₁ (as claimed) over {as_claimed:.0%} of the range"
    verdict = "agrees" if as_claimed == 1 else "opposite" if as_claimed < 0.5 else "undetermined"
    return {"verdict": verdict, "least_at": least, "share": as_claimed, "size": text}


_SOME = np.array([0.06, 0.2, 0.5, 0.7, 0.9])


def _likelihood_lifts_rarer(starts: Starts) -> dict[str, Any]:
    z = np.concatenate([_random_starts(starts.seeds), starts.peaked_SV])
    pi, a = softmax(z), alpha(run(z, {8: 1, 11: 1}, "mle", 1.5))
    error = float(np.abs(a[:, 11] / a[:, 8] / np.exp(3.0 * (pi[:, 8] - pi[:, 11])) - 1).max())
    small = alpha(run(z, {8: 1, 11: 1}, "mle", SMALL_STEP))
    low = (pi[:, 11] < 0.5) & (pi[:, 11] <= pi[:, 8])
    lifted = bool((small[low, 11] > 1).all())
    how = "all" if lifted else "not all"
    text = f"identity to {error:.1e}; the rarer rises at a small step in {how} {low.sum()} cases"
    return _identity(error if lifted else np.inf, text)


def _rare_hardly_moves(starts: Starts) -> dict[str, Any]:
    p = np.geomspace(1e-8, 0.5, 200)
    pi = np.concatenate([p[:, None], np.repeat((1 - p)[:, None] / (V - 1), V - 1, 1)], 1)
    a = {o: alpha(run(np.log(pi), {0: 1}, o, 1.5))[:, 0] - 1 for o in OBJECTIVES}
    grows = a["reinforce"][p < 0.2]
    ok = bool((np.diff(grows) > 0).all()) and a["reinforce"][0] < 1e-6
    small, large = ([np.interp(q, p, a[o]) for q in (1e-8, 1e-4, 0.1)] for o in OBJECTIVES)
    text = f"α − 1 at π = 1e-8, 1e-4, 0.1: REINFORCE {', '.join(f'{x:.1e}' for x in small)}; "
    text += f"likelihood {', '.join(f'{x:.2f}' for x in large)}"
    return {"verdict": "agrees" if ok else "opposite", "size": text}


def _gap_ratio(starts: Starts) -> dict[str, Any]:
    z = np.concatenate([_random_starts(starts.seeds), starts.peaked_SV])
    pi, a = softmax(z), alpha(run(z, {8: 1, 11: 1}, "reinforce", 1.5))
    want = np.exp(1.5 * (1 - pi[:, 8] - pi[:, 11]) * (pi[:, 8] - pi[:, 11]))
    error = float(np.abs(a[:, 8] / a[:, 11] / want - 1).max())
    return _identity(error, f"α₁/α₂ = exp(η'(1−Δπ)(π₁−π₂)) to {error:.1e}; so the likelier gains more at any gap")


def _push_down_ratio(starts: Starts) -> dict[str, Any]:
    z = np.concatenate([_random_starts(starts.seeds), starts.peaked_SV])
    pi, worst, most = softmax(z), 0.0, []
    others = np.arange(V) != 11
    for objective in OBJECTIVES:
        a = alpha(run(z, {11: -1}, objective, 1.5))[:, others]
        scale = pi[:, [11]] if objective == "reinforce" else 1.0
        want = np.exp(1.5 * scale * (pi[:, others] - pi[:, :1]))
        worst = max(worst, float(np.abs(a / a[:, :1] / want - 1).max()))
        most.append(a.argmax(1) == pi[:, others].argmax(1))
    share = float(np.mean(most))
    text = f"identity to {worst:.1e}; the likeliest other action has the largest α in {share:.1%} of the starts"
    return _identity(worst if share == 1 else np.inf, text)


def _f9_1(starts: Starts) -> dict[str, Any]:
    a = {o: alpha(run(starts.uniform_SV, ROWS[0].labels, o, starts.eta_S))[:, [11, 5]] for o in OBJECTIVES}
    holds = (a["mle"] > 1).all(1) & (a["reinforce"] > 1).all(1) & (a["mle"] > 2 * a["reinforce"]).all(1)
    low, high = np.quantile(a["mle"], [0.025, 0.975])
    text = (
        f"α: REINFORCE {np.median(a['reinforce']):.3f}, likelihood {np.median(a['mle']):.2f} [{low:.2f}, {high:.2f}] "
        f"at η' = {starts.eta_S[0]:.2g}; for 60 times the start must be uneven (see the spread)"
    )
    return _share(np.asarray(holds), text)


def _f9_2(starts: Starts) -> dict[str, Any]:
    z = starts.uniform_SV
    pi = softmax(z)
    a = {o: alpha(run(z, {11: -1}, o, starts.eta_S)) for o in OBJECTIVES}
    others = np.arange(V) != 11
    argmax = [x[:, others].argmax(1) == pi[:, others].argmax(1) for x in a.values()]
    small = alpha(run(z, {11: -1}, "reinforce", SMALL_STEP))[:, 5] - 1
    same = float((np.sign(small) == np.sign(push_down_sign(pi, 5, 11))).mean())
    text = (
        f"the likeliest other action has the largest α in {np.mean(argmax):.1%}; but action 5 *rises* in "
        f"{(a['reinforce'][:, 5] > 1).mean():.1%} (REINFORCE) and {(a['mle'][:, 5] > 1).mean():.1%} (likelihood), as "
        f"π₅ − (Σπ² − π₁₁) says ({same:.1%} of the signs)"
    )
    return {**_share(np.asarray(argmax[0] & argmax[1]), text), "five_rises": float((a["reinforce"][:, 5] > 1).mean())}


def _f9_3(starts: Starts) -> dict[str, Any]:
    even, z, top = softmax(starts.uniform_SV), starts.peaked_SV, softmax(starts.peaked_SV).argmax(1)
    rows, S = np.arange(starts.seeds), {}
    for o in OBJECTIVES:
        a = alpha(run(z, {11: -1}, o, starts.eta_S))
        S[o] = a[rows, top], a[:, 8]
    au = alpha(run(starts.uniform_SV, {11: -1}, "mle", starts.eta_S))
    gap = S["mle"][0] / S["mle"][1] > au[rows, even.argmax(1)] / au[:, 5]
    ends = [(t > 1) & (e < 1) for t, e in S.values()]
    text = "; ".join(
        f"{o}: α(argmax) {np.median(t):.3f}, α(8) {np.median(e):.3f}, as claimed in {((t > 1) & (e < 1)).mean():.1%}"
        for o, (t, e) in S.items()
    )
    text += f"; wider than near uniform in {gap.mean():.1%}. Action 8 falls where π₈ < Σπ² − π₁₁"
    return _share(np.asarray(ends[1] & gap), text)


def _f9_4(starts: Starts) -> dict[str, Any]:
    z = starts.peaked_SV
    a = {o: alpha(run(z, {11: 1, 8: 1}, o, starts.eta_S)) for o in OBJECTIVES}
    holds = (a["mle"].argmax(1) == 11) & (a["reinforce"].argmax(1) == 8)
    text = "; ".join(f"{o}: α(11) {np.median(x[:, 11]):.2f}, α(8) {np.median(x[:, 8]):.2f}" for o, x in a.items())
    return _share(np.asarray(holds), text)


def _f9_5(starts: Starts) -> dict[str, Any]:
    z = starts.peaked_SV
    end = {o: run(z, {11: 1, 8: 1}, o, starts.eta_S, 10)[-1] for o in OBJECTIVES}
    even: NDArray[np.bool_] = (np.abs(end["mle"][:, [8, 11]] - 0.5) < 0.1).all(1)
    one = end["reinforce"][:, 8] > 0.8
    drawn = Starts.draw(starts.seeds, norm2=None)
    wild = run(drawn.peaked_SV, {11: 1, 8: 1}, "mle", drawn.eta_S, 10)[-1]
    settles = (np.abs(wild[:, [8, 11]] - 0.5) < 0.1).all(1)
    over = drawn.eta_S > 2
    text = (
        f"π(8), π(11) after ten steps: likelihood {np.median(end['mle'][:, 8]):.3f}, "
        f"{np.median(end['mle'][:, 11]):.3f}; REINFORCE {np.median(end['reinforce'][:, 8]):.3f}, "
        f"{np.median(end['reinforce'][:, 11]):.3f}, at η' = {starts.eta_S[0]:.2g}. With x as drawn (η' > 2 in "
        f"{over.mean():.0%}) likelihood evens them out in {settles[~over].mean():.0%} below 2 and "
        f"{settles[over].mean():.0%} above"
    )
    return _share(np.asarray(even & one), text)


def _no_signal(starts: Starts) -> dict[str, Any]:
    """All-wrong groups of 8: with 0/1 rewards never a signal; with RBP's own reward, one wherever −0.5 and −1 mix."""
    import torch

    from limen.train.algorithms.grpo import group_advantages

    mixed = torch.tensor([[-0.5] * (8 - m) + [-1.0] * m for m in range(9)])
    moved = [int((group_advantages(r)[0] != 0).any(1).sum()) for r in (torch.zeros_like(mixed), mixed)]
    text = f"all-wrong groups of 8 with a signal: 0/1 reward {moved[0]} of 9 compositions, RBP's own reward {moved[1]}"
    return {"verdict": "agrees" if moved[0] == 0 else "opposite", "size": text + " (eq. 10 gives A ≠ 0 there)"}
