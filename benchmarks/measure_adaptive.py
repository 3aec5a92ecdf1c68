"""What adaptive stopping saves: tokens for the same pass@n_max and the same support table as a fixed n.

    limen sample --model tiny --problems 'arithmetic:all?split=test&size=300' -n 256 --out runs/a
    limen sample --model tiny --problems 'arithmetic:all?split=test&size=300' -n 256 --seed 1 --out runs/b
    python benchmarks/measure_adaptive.py runs/a runs/b [--figure adaptive.png] [--simulate 150]

The stopping rule is replayed on the stored order of samples, so both ways see the very same responses. A problem stops
at its r-th success ("one by one"), or at the end of the block in which that falls, with the blocks that `limen sample
--stop-after-successes` draws (the samples after the r-th success cost tokens and are not counted). Prints a Markdown
table; the two runs stand for base and trained policy in the support table. `--simulate` draws that many benchmarks with
the success rates of both runs pooled (0 stands for 0, .001 or .003 with equal chances): how often the interval over
samples covers the truth, and its mean half-width.
"""

import argparse

import numpy as np

from limen.measure import CountTable, StopRule, compare, pass_curve
from limen.sampling.stopping import block
from limen.store import Run

SAMPLES = ["problem_id", "sample_index", "outcome"]


def load(path):
    """(problem ids, correct (P, n), tokens (P, n)) in the order of the samples."""
    run = Run.open(path)
    verdicts = run.table("verdicts", SAMPLES).to_pandas()
    rollouts = run.table("rollouts", ["problem_id", "sample_index", "n_tokens"]).to_pandas()
    keys = ["problem_id", "sample_index"]
    for frame in (verdicts, rollouts):
        frame["problem_id"] = frame["problem_id"].astype(str)
    both = verdicts.merge(rollouts, on=keys).sort_values(keys)
    ids = sorted(both["problem_id"].unique())
    n = len(both) // len(ids)
    correct = (both["outcome"].astype(str) == "correct").to_numpy().reshape(len(ids), n)
    return ids, correct, both["n_tokens"].to_numpy().reshape(len(ids), n)


def drawn_in_blocks(N, r, most):
    """Samples drawn of each problem that needed N of them, in the blocks of `limen sample`."""
    ends = [0]
    while ends[-1] < most:
        ends.append(min(most, ends[-1] + block(ends[-1], r)))
    return np.array(ends)[np.searchsorted(ends, N)]


def stopped(name, ids, correct, tokens, r, blocks):
    """The counts that the rule leaves, and the tokens that it costs."""
    n = correct.shape[1]
    total = correct.cumsum(axis=1)
    ended = total[:, -1] >= r
    N = np.where(ended, (total >= r).argmax(axis=1) + 1, n)
    c = np.where(ended, r, total[:, -1])
    drawn = drawn_in_blocks(N, r, n) if blocks else N
    cost = int(tokens.cumsum(axis=1)[np.arange(len(ids)), drawn - 1].sum())
    return CountTable.of(name, ids, N, c, stop=StopRule(r, n)), cost


def widths(table, ks, over):
    curve = pass_curve(table, ks, draws=2000, over=over)
    return (curve.high_K - curve.low_K) / 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("base")
    parser.add_argument("trained")
    parser.add_argument("--figure", help="PNG of half-width against tokens")
    parser.add_argument("--simulate", type=int, default=0, help="benchmarks to simulate")
    args = parser.parse_args()
    runs = {name: load(path) for name, path in (("base", args.base), ("trained", args.trained))}
    n = runs["base"][1].shape[1]
    ks = sorted({1, 16, n})
    full = {name: CountTable.of(name, ids, n, c.sum(axis=1)) for name, (ids, c, _) in runs.items()}
    spent = sum(int(t.sum()) for _, _, t in runs.values())
    heads = " | ".join(f"half-width pass@{k}" for k in ks)
    print(f"| rule | drawn | tokens | share | {heads} (over samples) | pass@{n} over problems | P/E/S/O |")
    print("|---" * (6 + len(ks)) + "|")
    rows = [("fixed n", "", full, spent)]
    for r in (1, 2, 4, 8):
        for blocks in (False, True):
            parts = {name: stopped(name, *run, r, blocks) for name, run in runs.items()}
            how = "in blocks" if blocks else "one by one"
            rows.append((f"r = {r}", how, {k: v[0] for k, v in parts.items()}, sum(v[1] for v in parts.values())))
    points = []
    for rule, how, tables, tokens in rows:
        s = compare(tables["base"], tables["trained"], ks=ks, draws=0).support
        over_samples = widths(tables["base"], ks, "samples")
        narrow = " | ".join(f"{w:.4f}" for w in over_samples)
        wide = widths(tables["base"], ks, "problems")[-1]
        points.append((rule, how, tokens / spent, over_samples))
        cells = f"{tokens} | {tokens / spent:.3f} | {narrow} | {wide:.4f} | {s.P}/{s.E}/{s.S}/{s.O}"
        print(f"| {rule} | {how} | {cells} |")
    if args.figure:
        draw(points, ks, args.figure)
    if args.simulate:
        right = sum(correct.sum(axis=1) for _, correct, _ in runs.values())
        simulate(right / (2 * n), n, ks, args.simulate)


def simulate(rates, n, ks, runs):
    """Coverage and mean half-width of the interval over samples, fixed n and each r."""
    rng = np.random.default_rng(0)
    p = np.where(rates == 0, rng.choice([0, 0.001, 0.003], size=rates.size), rates)
    truth = (1 - (1 - p[:, None]) ** np.array(ks)).mean(axis=0)
    ids = [str(i) for i in range(p.size)]
    heads = " | ".join(f"half-width pass@{k} | covers" for k in ks)
    print(f"\n| rule | {heads} |\n" + "|---" * (1 + 2 * len(ks)) + "|")
    for r in (None, 1, 2, 4):
        hits, width = np.zeros(len(ks)), np.zeros(len(ks))
        for seed in range(runs):
            if r is None:
                table = CountTable.of("x", ids, n, rng.binomial(n, p))
            else:
                at = rng.geometric(np.maximum(p, 1e-12)[:, None], size=(p.size, r)).clip(max=n + 1).cumsum(axis=1)
                c = (at <= n).sum(axis=1)
                table = CountTable.of("x", ids, np.where(c == r, np.minimum(at[:, -1], n), n), c, stop=StopRule(r, n))
            curve = pass_curve(table, ks, draws=200, seed=seed, over="samples")
            hits += (curve.low_K <= truth) & (truth <= curve.high_K)
            width += (curve.high_K - curve.low_K) / 2
        cells = " | ".join(f"{w / runs:.4f} | {h / runs:.2f}" for w, h in zip(width, hits, strict=True))
        print(f"| {'fixed n' if r is None else f'r = {r}'} | {cells} |")


def draw(points, ks, file):
    """Half-width of pass@k (over samples) against the share of the tokens of a fixed n, blocks as drawn."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [p for p in points if p[1] != "one by one"]
    figure, axis = plt.subplots(figsize=(6, 4))
    for i, k in enumerate(ks):
        axis.plot([p[2] for p in shown], [p[3][i] for p in shown], "o", label=f"pass@{k}")
    for rule, _, share, found in shown:
        axis.annotate(rule, (share, max(found)), textcoords="offset points", xytext=(4, 4), fontsize=8)
    axis.axvline(0.25, color="0.6", linestyle=":")
    axis.set(xlabel="tokens, as a share of those of a fixed n", ylabel="half-width of the 95% interval over samples")
    axis.set_ylim(bottom=0)
    axis.legend()
    axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
