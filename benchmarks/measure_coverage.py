"""Coverage of the 95% intervals, over simulated benchmarks whose success probabilities are known.

    OMP_NUM_THREADS=1 python benchmarks/measure_coverage.py [--runs 1000] [--problems 60 300] [--samples 64]

Four populations of problems; intervals over problems (truth: the population's mean pass@k), over samples (truth: that
of the very problems) and both (truth: the population's). Prints a Markdown table of coverage in percent by k.
"""

import argparse

import numpy as np

from limen.measure import CountTable, pass_curve

KS = np.array([1, 4, 16, 32, 64])


def u_shaped(rng, size):
    return rng.beta(0.35, 0.3, size) * (rng.random(size) > 0.1)


def three_kinds(rng, size):
    return rng.choice([0.01, 0.5, 0.9], size)


def mostly_hard(rng, size):
    return rng.beta(0.3, 6, size)


def log_uniform(rng, size):
    return 10 ** rng.uniform(-4, 0, size)


POPULATIONS = (u_shaped, three_kinds, mostly_hard, log_uniform)


def coverage(draw, M, n, over, runs, ks):
    rng = np.random.default_rng(1)
    population = draw(np.random.default_rng(99), 1_000_000)
    aim = np.array([1 - ((1 - population) ** k).mean() for k in ks])
    hits = np.zeros(ks.size)
    ids = [str(i) for i in range(M)]
    for seed in range(runs):
        p = draw(rng, M)
        table = CountTable.of("t", ids, n, rng.binomial(n, p))
        curve = pass_curve(table, ks, draws=400, seed=seed, over=over)
        truth = (1 - (1 - p[:, None]) ** ks).mean(axis=0) if over == "samples" else aim
        hits += (curve.low_K <= truth) & (truth <= curve.high_K)
    return hits / runs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--problems", type=int, nargs="+", default=[60, 300])
    parser.add_argument("--samples", type=int, default=64)
    args = parser.parse_args()
    ks = KS[args.samples >= KS]
    print("| population | problems | interval over | " + " | ".join(f"k={k}" for k in ks) + " |")
    print("|---" * (3 + ks.size) + "|")
    for M in args.problems:
        for draw in POPULATIONS:
            for over in ("problems", "samples", "both"):
                share = 100 * coverage(draw, M, args.samples, over, args.runs, ks)
                cells = " | ".join(f"{x:.1f}" for x in share)
                print(f"| {draw.__name__.replace('_', ' ')} | {M} | {over} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
