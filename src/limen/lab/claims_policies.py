"""Claims about trained policies against their base: from the studies of the demo and of the methods."""

from __future__ import annotations

import numpy as np

from limen.lab.claims_rules import (
    AGREES,
    OPPOSITE,
    REPORTED,
    UNDETERMINED,
    Rule,
    Verdict,
    between,
    change,
    crossing,
    families,
    flips,
    guarded,
    moved,
    n_max,
    said,
    signed,
    tables,
    together,
)
from limen.lab.evidence import Evidence, Trained
from limen.lab.evidence_training import by_method

CLOSE = 0.03


def _pair(e: Evidence) -> tuple[list[Trained], list[Trained], int] | None:
    grpo, own = e.finals("grpo"), e.finals("self")
    return (grpo, own, n_max([*grpo, *own])) if grpo and own else None


def paradox(e: Evidence) -> Verdict | None:
    """RBP-A1: pass@1 up, pass@n_max down; the crossing k."""
    runs = e.finals("grpo")
    if not runs:
        return None
    k = n_max(runs)
    up, down = change(runs, 1), change(runs, k)
    where = crossing(runs)
    size = f"GRPO: pass@1 {said(up)}, pass@{k} {said(down)}; below the base from k = {where or 'never'}"
    return guarded(runs, together(signed(up, 1), signed(down, -1)), f"{size}; {len(runs)} runs")


def curves(e: Evidence) -> Verdict | None:
    """RBP-F11: GRPO crosses below the base; SELF stays on or above it at large k."""
    pair = _pair(e)
    if pair is None:
        return None
    grpo, own, k = pair
    down, kept = change(grpo, k), change(own, k)
    stays = AGREES if kept[2] >= 0 else OPPOSITE
    size = f"pass@{k} − base: GRPO {said(down)}, crossing at k = {crossing(grpo) or 'none'}; SELF {said(kept)}"
    return guarded(grpo, together(signed(down, -1), stays), size)


def close_at_one(e: Evidence) -> Verdict | None:
    """RBP-T1a: |SELF − GRPO| at most 3 points at pass@1, both above the base."""
    pair = _pair(e)
    if pair is None:
        return None
    grpo, own, _ = pair
    gap, both = between(grpo, own, 1), moved(grpo) and moved(own)
    near = abs(gap[0]) <= CLOSE
    far = gap[2] < -CLOSE or gap[1] > CLOSE
    verdict = AGREES if near and both else OPPOSITE if far else UNDETERMINED
    size = f"pass@1: SELF − GRPO {said(gap)}; over the base GRPO {said(change(grpo, 1))}, SELF {said(change(own, 1))}"
    return guarded(grpo, verdict, size)


def ahead_at_many(e: Evidence) -> Verdict | None:
    """RBP-T1b: SELF above GRPO at n_max."""
    pair = _pair(e)
    if pair is None:
        return None
    grpo, own, k = pair
    gap = between(grpo, own, k)
    return guarded(grpo, signed(gap, 1), f"pass@{k}: SELF − GRPO {said(gap)}")


def _most(e: Evidence, method: str, sign: int) -> Verdict | None:
    """`sign` +1: at or above the base in most families; −1: below it in most."""
    runs = e.finals(method)
    if not runs:
        return None
    k = n_max(runs)
    rows = {f: change(runs, k, (f,)) for f in families(runs)}
    hits = [x[0] >= 0 if sign > 0 else x[0] < 0 for x in rows.values()]
    against = any(signed(x, sign) == OPPOSITE for x in rows.values())
    most = sum(hits) > len(hits) / 2
    verdict = AGREES if most else OPPOSITE if against else UNDETERMINED
    size = f"pass@{k} − base: " + "; ".join(f"{f} {said(x)}" for f, x in rows.items())
    return guarded(runs, verdict, f"{sum(hits)} of {len(hits)} families; {size}")


def self_over_base(e: Evidence) -> Verdict | None:
    """RBP-T1c."""
    return _most(e, "self", 1)


def grpo_under_base(e: Evidence) -> Verdict | None:
    """RBP-T1d."""
    return _most(e, "grpo", -1)


def covered(e: Evidence) -> Verdict | None:
    """RBP-A.2: E not above chance, or NDR below 0.1."""
    runs = e.finals("grpo")
    if not runs:
        return None
    found = tables(runs)
    ndr = [s.NDR for s in found]
    at_chance = all(s.E_p > 0.05 for s in found)
    verdict = AGREES if at_chance or max(ndr) < 0.1 else OPPOSITE if min(ndr) >= 0.1 else UNDETERMINED
    size = f"NDR {', '.join(f'{x:.3f}' for x in ndr)}; E {', '.join(str(s.E) for s in found)} where chance alone gives "
    return guarded(runs, verdict, size + ", ".join(f"{s.chance_E:.1f}" for s in found))


def losses_outnumber(e: Evidence) -> Verdict | None:
    """IL-A1: S > E and McNemar p < 0.05, run by run."""
    runs = e.finals("grpo")
    if not runs:
        return None
    found = tables(runs)
    hits = [s.S > s.E and s.mcnemar_p < 0.05 for s in found]
    reverse = [s.E > s.S and s.mcnemar_p < 0.05 for s in found]
    verdict = AGREES if all(hits) else OPPOSITE if any(reverse) and not any(hits) else UNDETERMINED
    by_family = "; ".join(
        f"{f} {sum(s.E for s in tables(runs, (f,)))} / {sum(s.S for s in tables(runs, (f,)))}" for f in families(runs)
    )
    size = f"E / S (chance each way): {flips(found)}; p ≤ {max(s.mcnemar_p for s in found):.1g}; families {by_family}"
    return guarded(runs, verdict, size)


def losses_with_gains(e: Evidence) -> Verdict | None:
    """IL-A2: pass@1 up and NSCR < 0 in the same run."""
    runs = e.finals("grpo")
    if not runs:
        return None
    rows = [(change([r], 1), tables([r])[0].NSCR) for r in runs]
    hits = [up[1] > 0 and nscr < 0 for up, nscr in rows]
    verdict = AGREES if all(hits) else OPPOSITE if not any(hits) else UNDETERMINED
    size = "; ".join(f"pass@1 {up[0]:+.3f}, NSCR {nscr:+.3f}" for up, nscr in rows)
    return guarded(runs, verdict, size)


def retention(e: Evidence) -> Verdict | None:
    """IL-T1: NSCR < 0 and SRR far above NDR, overall."""
    runs = e.finals("grpo")
    if not runs:
        return None
    found = tables(runs)
    means = {k: float(np.mean([getattr(s, k) for s in found])) for k in ("SRR", "NDR", "SDS", "NSCR")}
    all_below = all(s.NSCR < 0 for s in found)
    verdict = AGREES if all_below and means["SRR"] > 0.5 > 2 * means["NDR"] else UNDETERMINED
    if all(s.NSCR > 0 for s in found):
        verdict = OPPOSITE
    size = ", ".join(f"{k} {v:.3f}" for k, v in means.items()) + f"; E / S (chance each way): {flips(found)}"
    return guarded(runs, verdict, size)


def four_way(e: Evidence) -> Verdict | None:
    """IL-F1: the four counts sum to M, and both coverages follow from them."""
    runs = e.runs()
    if not runs:
        return None
    for r, s in zip(runs, tables(runs), strict=True):
        solved = [int((t.c_P > 0).sum()) for t in (r.base, r.trained)]
        if s.P + s.E + s.S + s.O != r.base.M or solved != [s.P + s.S, s.P + s.E]:
            return Verdict(OPPOSITE, f"{r.method}, seed {r.seed}: {s.P}, {s.E}, {s.S}, {s.O}")
    return Verdict(AGREES, f"{len(runs)} comparisons: P + E + S + O = M, coverage = (P + S)/M and (P + E)/M in each")


def hidden_flips(e: Evidence) -> Verdict | None:
    """IL-A4: equal coverage with E = S > 0."""
    runs = e.runs()
    if not runs:
        return None
    equal = [(r, s) for r, s in zip(runs, tables(runs), strict=True) if s.E == s.S > 0]
    if not equal:
        return Verdict(UNDETERMINED, f"none of {len(runs)} comparisons has E = S > 0")
    r, s = equal[0]
    text = (
        f"{len(equal)} of {len(runs)} comparisons have equal coverage and E = S > 0, such as {r.method}, seed {r.seed}"
    )
    return Verdict(AGREES, f"{text}: {s.E} each way ({s.chance_each_way:.1f} by chance)")


def _extra(e: Evidence, method: str, key: str) -> list[float]:
    return [float(r.extra[key]) for r in e.finals(method) if key in r.extra]


def answers_concentrate(e: Evidence) -> Verdict | None:
    """IL-T13b: answer entropy falls (overall; families are not kept)."""
    found, base = _extra(e, "grpo", "answer_entropy"), e.doc.get("base_extra", {}).get("answer_entropy")
    if not found or base is None:
        return None
    verdict = AGREES if max(found) < base else OPPOSITE if min(found) > base else UNDETERMINED
    size = f"answer entropy {base:.3f} → {', '.join(f'{x:.3f}' for x in found)} (nats, 32 samples, all families)"
    return guarded(e.finals("grpo"), verdict, size)


def entropies(e: Evidence) -> Verdict | None:
    """IL-A3: answer entropy falls; token entropy of either sign."""
    found, base = _extra(e, "grpo", "token_entropy"), e.doc.get("base_extra", {}).get("token_entropy")
    answers = answers_concentrate(e)
    if not found or base is None or answers is None:
        return None
    tokens = f"token entropy {base:.3f} → {', '.join(f'{x:.3f}' for x in found)}"
    return Verdict(answers.verdict, f"{answers.size}; {tokens}")


def token_entropy_by_method(e: Evidence) -> Verdict | None:
    """IL-T13c: sign and size per algorithm; no sign is expected."""
    base = e.doc.get("base_extra", {}).get("token_entropy")
    rows = {m: _extra(e, m, "token_entropy") for m in dict.fromkeys(r.method for r in e.runs()) if m != "control"}
    if base is None or not any(rows.values()):
        return None
    size = f"base {base:.3f}; " + ", ".join(f"{m} {np.mean(x) - base:+.3f}" for m, x in rows.items() if x)
    return Verdict(REPORTED, size)


def accuracy_rises(e: Evidence) -> Verdict | None:
    """IL-T13a: trained above the base in every family (avg over all samples)."""
    runs = e.finals("grpo")
    if not runs:
        return None
    rows = {f: change(runs, 1, (f,)) for f in families(runs)}
    verdict = together(*(signed(x, 1) for x in rows.values()))
    return guarded(runs, verdict, "; ".join(f"{f} {said(x)}" for f, x in rows.items()))


def exploration(e: Evidence) -> Verdict | None:
    """IL-E: some method has an NSCR above GRPO's, with E above chance."""
    names = [m for m in dict.fromkeys(r.method for r in e.runs()) if m not in ("control", "grpo")]
    grpo = tables(e.finals("grpo"))
    if not grpo or not names:
        return None
    level = float(np.mean([s.NSCR for s in grpo]))
    rows = {m: tables(e.finals(m)) for m in names}
    good = [m for m, x in rows.items() if np.mean([s.NSCR for s in x]) > level and all(s.E_p < 0.05 for s in x)]
    size = f"NSCR: grpo {level:+.3f}, " + ", ".join(
        f"{m} {np.mean([s.NSCR for s in x]):+.3f} (E {np.mean([s.E for s in x]):.1f}, chance "
        f"{np.mean([s.chance_E for s in x]):.1f})"
        for m, x in rows.items()
    )
    return Verdict(
        AGREES if good else UNDETERMINED, f"{size}; E above chance in every seed: {', '.join(good) or 'none'}"
    )


def parts_of_self(e: Evidence) -> Verdict | None:
    """RBP-F8f: filter only, KL only, both, neither."""
    names = {"grpo": "neither", "greedy_filter": "filter", "forward_kl": "KL", "self": "both"}
    rows = {text: e.finals(m) for m, text in names.items()}
    if not all(rows.values()):
        return None
    k = n_max([r for x in rows.values() for r in x])
    size = "; ".join(f"{t}: pass@1 {said(change(x, 1))}, pass@{k} {said(change(x, k))}" for t, x in rows.items())
    return Verdict(REPORTED, size)


def collapses_on_mode(e: Evidence) -> Verdict | None:
    """RBP-S5-COL: the share of samples with the base's modal answer rises, where it is right and where it is not."""
    rows = {k: v for k, v in e.doc.get("modal", {}).items() if k.rpartition("/")[2] == "grpo"}
    if not rows:
        return None
    parts = []
    size = []
    for kind in ("right", "wrong"):
        found = [x[kind] for x in rows.values() if kind in x]
        ends = [[np.nan if v is None else float(v) for v in x["change"]] for x in found]
        sides = [signed((a, b, c), 1) for a, b, c in ends]
        parts.append(sides[0] if len(set(sides)) == 1 else UNDETERMINED)
        means = [float(np.mean([x[k] for x in found])) for k in ("base", "trained")]
        changes = ", ".join(f"{x['change'][0]:+.3f}" for x in found)
        size.append(f"mode {kind} ({found[0]['problems']} problems): {means[0]:.3f} → {means[1]:.3f} ({changes})")
    return guarded(e.finals("grpo"), together(*parts), "; ".join(size))


def unstable(e: Evidence) -> Verdict | None:
    """RBP-F12: W-REINFORCE's training accuracy peaks and then falls while GRPO's does not, at the same step size.

    Falls: the last block of steps is below the highest one by more than 0.05 and by a tenth of it."""
    ends = {}
    for method in ("w_reinforce", "grpo"):
        curves = [t["curves"].get("correct_share") for t in by_method(e.doc.get("training", {}), method)]
        ends[method] = [(max(c), c[-1]) for c in ([x for x in c if x is not None] for c in curves if c) if c]
    if not ends["w_reinforce"] or not ends["grpo"]:
        return None
    fell = {m: [top - end > max(0.05, 0.1 * top) for top, end in x] for m, x in ends.items()}
    verdict = AGREES if all(fell["w_reinforce"]) and not any(fell["grpo"]) else UNDETERMINED
    if not any(fell["w_reinforce"]):
        verdict = OPPOSITE
    size = "; ".join(f"{m}: best → last {', '.join(f'{a:.3f} → {b:.3f}' for a, b in x)}" for m, x in ends.items())
    return Verdict(verdict, f"training accuracy, blocks of 10 steps; {size}")


def cost(e: Evidence) -> Verdict | None:
    """RBP-F13 and S6-G: seconds and tokens per step; the total within 25%."""
    rows = {m: [t["cost"] for t in by_method(e.doc.get("training", {}), m)] for m in ("grpo", "self")}
    if not all(rows.values()):
        return None
    mean = {m: {k: float(np.mean([x[k] for x in xs])) for k in xs[0]} for m, xs in rows.items()}

    def part(m: str, *keys: str) -> float:
        return sum(mean[m][f"seconds/{k}"] for k in keys)

    total = {m: part(m, "screen", "generate", "forward", "backward") for m in rows}
    ratio = total["self"] / total["grpo"]
    verdict = AGREES if 0.75 <= ratio <= 1.25 else UNDETERMINED if ratio < 0.75 else OPPOSITE
    size = "; ".join(
        f"{m}: screening {part(m, 'screen') * 1e3:.0f} ms, generation {part(m, 'generate') * 1e3:.0f}, forward "
        f"{part(m, 'forward') * 1e3:.0f}, backward {part(m, 'backward') * 1e3:.0f}, tokens generated "
        f"{mean[m]['tokens/generate'] + mean[m]['tokens/screen']:.0f}"
        for m in rows
    )
    faster = " (ours samples survivors only, and so is faster than the paper's)" if ratio < 0.75 else ""
    return Verdict(verdict, f"SELF / GRPO {ratio:.2f}{faster}; {size}")


def by_class(wanted: str) -> Rule:
    """IL-F2, F3, F4: is there a family of this kind?"""

    def rule(e: Evidence) -> Verdict | None:
        from limen.lab.gallery_families import classify

        runs = e.finals("grpo")
        if not runs:
            return None
        found = {f: classify(runs, f) for f in families(runs)}
        k = n_max(runs)
        hits = [f for f, kind in found.items() if kind == wanted]
        size = "; ".join(
            f"{f}: {kind}, pass@1 {said(change(runs, 1, (f,)))}, pass@{k} {said(change(runs, k, (f,)))}"
            for f, kind in found.items()
        )
        return guarded(runs, AGREES if hits else UNDETERMINED, size)

    return rule
