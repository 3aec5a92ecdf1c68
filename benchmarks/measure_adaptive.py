"""What adaptive stopping saves: tokens for the same pass@n_max and the same support table as a fixed n.

    limen sample --model tiny --problems 'arithmetic:all?split=test&size=300' -n 256 --out runs/a
    limen sample --model tiny --problems 'arithmetic:all?split=test&size=300' -n 256 --seed 1 --out runs/b
    python benchmarks/measure_adaptive.py runs/a runs/b [--batch 1 16]

The stopping rule is replayed on the stored order of samples, so both ways see the very same responses: a problem stops
at its r-th success, or rather at the end of the batch in which that falls (the samples after it cost tokens and are
not counted). Prints a Markdown table; the two runs stand for base and trained policy in the support table.
"""

import argparse

import numpy as np

from limen.measure import CountTable, StopRule, compare, pass_curve
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


def stopped(name, ids, correct, tokens, r, batch):
    """The counts that the rule leaves, and the tokens that it costs."""
    n = correct.shape[1]
    total = correct.cumsum(axis=1)
    ended = total[:, -1] >= r
    N = np.where(ended, (total >= r).argmax(axis=1) + 1, n)
    c = np.where(ended, r, total[:, -1])
    drawn = np.minimum(-(-N // batch) * batch, n)
    cost = int(tokens.cumsum(axis=1)[np.arange(len(ids)), drawn - 1].sum())
    return CountTable.of(name, ids, N, c, stop=StopRule(r, n)), cost


def widths(table, ks, over):
    curve = pass_curve(table, ks, draws=2000, over=over)
    return (curve.high_K - curve.low_K) / 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("base")
    parser.add_argument("trained")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    args = parser.parse_args()
    runs = {name: load(path) for name, path in (("base", args.base), ("trained", args.trained))}
    n = runs["base"][1].shape[1]
    ks = sorted({1, 16, n})
    full = {name: CountTable.of(name, ids, n, c.sum(axis=1)) for name, (ids, c, _) in runs.items()}
    spent = sum(int(t.sum()) for _, _, t in runs.values())
    heads = " | ".join(f"half-width pass@{k}" for k in ks)
    print(f"| rule | batch | tokens | share | {heads} (over samples) | pass@{n} over problems | P/E/S/O |")
    print("|---" * (6 + len(ks)) + "|")
    rows = [("fixed n", "", full, spent)]
    for r in (1, 2, 4, 8):
        for batch in args.batch:
            parts = {name: stopped(name, *run, r, batch) for name, run in runs.items()}
            rows.append((f"r = {r}", batch, {k: v[0] for k, v in parts.items()}, sum(v[1] for v in parts.values())))
    for rule, batch, tables, tokens in rows:
        s = compare(tables["base"], tables["trained"], ks=ks, draws=0).support
        narrow = " | ".join(f"{w:.4f}" for w in widths(tables["base"], ks, "samples"))
        wide = widths(tables["base"], ks, "problems")[-1]
        cells = f"{tokens} | {tokens / spent:.3f} | {narrow} | {wide:.4f} | {s.P}/{s.E}/{s.S}/{s.O}"
        print(f"| {rule} | {batch} | {cells} |")


if __name__ == "__main__":
    main()
