"""pass@k for all powers of two with 1,000 bootstrap draws, and the support table: arrays against a plain loop.

    OMP_NUM_THREADS=1 python benchmarks/measure_speed.py

1,000 problems x 1,000 samples, two policies. Both sides start from the same success counts, and their numbers are
compared (the bootstrap within its own noise; everything else to 1e-9). Prints processor seconds (so that
other work on the machine does not count) and the ratio of medians.
"""

import itertools
import json
import math
import random
import statistics
import time

import numpy as np

from limen.measure import CountTable, pass_curve, support
from limen.measure.bootstrap import t_tail

M, N, DRAWS = 1000, 1000, 1000
KS = [2**i for i in range(10)]


def loop_pass_at_k(n: int, c: int, k: int) -> float:
    if n - c < k:
        return 1.0
    fail = 1.0
    for i in range(n - c + 1, n + 1):
        fail *= 1.0 - k / i
    return 1.0 - fail


def loop_curve(c: list[int]) -> dict[int, tuple[float, float, float]]:
    rng = random.Random(0)
    tail = float(t_tail(M - 1, 0.95, math.sqrt(M / (M - 1))))
    values = {k: [loop_pass_at_k(N, x, k) for x in c] for k in KS}
    means: dict[int, list[float]] = {k: [] for k in KS}
    for _ in range(DRAWS):
        pick = rng.choices(range(M), k=M)
        for k in KS:
            row = values[k]
            means[k].append(sum(row[i] for i in pick) / M)
    out = {}
    for k in KS:
        ordered = sorted(means[k])
        out[k] = (sum(values[k]) / M, ordered[int(tail * DRAWS)], ordered[int((1 - tail) * DRAWS)])
    return out


def loop_support(b: list[int], t: list[int]) -> tuple[int, int, int, int, float, float]:
    P = E = S = O = 0
    chance = 0.0
    for x, y in zip(b, t):
        if x and y:
            P += 1
        elif y:
            E += 1
        elif x:
            S += 1
        else:
            O += 1
        if x + y:
            fail = 1.0
            for i in range(x + y):
                fail *= max(N - i, 0) / (2 * N - i)
            chance += fail
    flips = E + S
    p = sum(math.comb(flips, i) for i in range(min(E, S) + 1)) * 2 / 2**flips
    return P, E, S, O, chance, min(1.0, p)


def median(work, times: int) -> tuple[float, object]:
    seconds = []
    for _ in range(times):
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds), result


def main() -> None:
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 0.5, size=M) * (rng.random(M) > 0.1)
    b, t = rng.binomial(N, p), rng.binomial(N, p**1.5)
    ids = [str(i) for i in range(M)]
    tables = [CountTable.of(name, ids, N, c) for name, c in (("base", b), ("trained", t))]
    seeds = itertools.count()

    def ours():
        seed = next(seeds)  # a new one each time: draws are kept from one call to the next
        return [pass_curve(x, KS, DRAWS, seed) for x in tables], support(N, b, t)

    ours()
    fast, (curves, found) = median(ours, 9)
    bl, tl = b.tolist(), t.tolist()
    slow, (loops, counted) = median(lambda: ([loop_curve(bl), loop_curve(tl)], loop_support(bl, tl)), 3)
    for curve, loop in zip(curves, loops):
        for i, k in enumerate(KS):
            width = loop[k][2] - loop[k][1]
            assert abs(curve.value_K[i] - loop[k][0]) < 1e-9
            assert abs(curve.low_K[i] - loop[k][1]) < 0.15 * width
            assert abs(curve.high_K[i] - loop[k][2]) < 0.15 * width
    same = (found.P, found.E, found.S, found.O, found.chance_each_way, found.mcnemar_p)
    assert np.allclose(same, counted, rtol=1e-9), (same, counted)
    print(json.dumps({"loop_seconds": round(slow, 3), "limen_seconds": round(fast, 4), "ratio": round(slow / fast, 1)}))


if __name__ == "__main__":
    main()
