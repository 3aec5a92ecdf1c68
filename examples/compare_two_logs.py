# %% [markdown]
# # Did training shrink what the model can solve?
# From two logs of anybody's making to curves, support and a verdict on every question. Runs as a script, or cell by
# cell in an editor that knows `# %%`. Without arguments it makes up two policies; with a count file (JSON lines of
# problem_id, model, n, c) and two names it takes those:
#
#     python examples/compare_two_logs.py counts.jsonl BASE TRAINED [plot.png]

# %%
import sys

import matplotlib.pyplot as plt
import numpy as np

from limen.measure import (
    CountTable,
    compare,
    extrapolate,
    pass_at_k,
    pass_at_k_stopped,
    question_verdicts,
    read_counts,
    same_policy_flips,
    support,
)

arguments = sys.argv[1:] if sys.argv[0].endswith("compare_two_logs.py") else []

# %% [markdown]
# ## The arrays are enough
# n samples of each problem, c of them correct.

# %%
n, base_c, trained_c = 64, np.array([60, 12, 9, 1, 0, 0]), np.array([64, 40, 0, 0, 0, 3])
print("pass@8 of each problem:", pass_at_k(n, base_c, 8).round(3))
print("k beyond n is not a number:", pass_at_k(n, base_c, 128))
found = support(n, base_c, trained_c)
print(f"P/E/S/O = {found.P}/{found.E}/{found.S}/{found.O}; chance alone {found.chance_each_way:.2f} each way")
print("verdicts:", question_verdicts(n, base_c, trained_c, q=0.05).verdict_P)
print("two runs of the base itself, 32 samples each:", round(same_policy_flips(n, base_c).each_way, 2), "each way")
# sampled until the second success, at most 64 times: the estimator knows
print("stopped early:", pass_at_k_stopped([3, 40, 64], [2, 2, 0], n_max=64, r=2, k=8).round(3))

# %% [markdown]
# ## Two whole logs

# %%
if arguments:
    tables = read_counts(arguments[0])
    base, trained = (tables[name] for name in arguments[1:3])
else:
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 0.8, size=300)
    sharper = np.where(p < 0.05, 0.2 * p, p**0.5)
    ids = [f"problem {i}" for i in range(p.size)]
    base, trained = (CountTable.of(name, ids, 128, rng.binomial(128, x)) for name, x in (("base", p), ("RL", sharper)))
result = compare(base, trained)
print("\n".join(result.sentences))

# %% [markdown]
# ## The questions that were lost

# %%
rows = [r for r in result.to_json()["questions"] if r["verdict"] in ("shrunk", "expanded", "undetermined")]
for r in sorted(rows, key=lambda r: r["p_flip"]):
    print(f"{r['verdict']:>12}  {r['base_c']:>3} -> {r['trained_c']:<3}  p {r['p_flip']:.2g}  {r['problem_id']}")

# %% [markdown]
# ## The plot
# Dotted, beyond n: the fitted model with its warning band, not a measurement.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
for table, curve, colour in ((base, result.base_curve, "C0"), (trained, result.trained_curve, "C3")):
    left.plot(curve.k_K, curve.value_K, "o-", ms=3, color=colour, label=table.name)
    left.fill_between(curve.k_K, curve.low_K, curve.high_K, color=colour, alpha=0.15, lw=0)
    ahead = extrapolate(table.n_P, table.c_P, [int(curve.k_K[-1]) * 2**i for i in range(4)])
    left.plot(ahead.k_K, ahead.value_K, ":", color=colour)
    left.fill_between(ahead.k_K, ahead.low_K, ahead.high_K, color=colour, alpha=0.08, lw=0)
left.set_xscale("log", base=2)
left.set(xlabel="k", ylabel="pass@k", title=f"{base.M} problems, {result.base_curve.level:.0%} intervals")
left.legend()
ks = list(result.support_by_k)
for cell, label, colour in (("S", "lost (S)", "C3"), ("E", "gained (E)", "C2")):
    right.plot(ks, [result.support_by_k[k][cell] for k in ks], "o-", ms=3, color=colour, label=label)
right.plot(ks, [result.support_by_k[k]["chance_each_way"] for k in ks], "k--", label="by chance, each way")
right.set_xscale("log", base=2)
right.set(xlabel="samples a question", ylabel="questions", title="Support lost and gained")
right.legend()
figure.tight_layout()
figure.savefig(arguments[3] if len(arguments) > 3 else "compare_two_logs.png", dpi=110)
