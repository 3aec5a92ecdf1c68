"""Tables of the papers that are made from the digests of studies, as rows of text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from limen.errors import DataError
from limen.lab.claims_rules import families, n_max, tables, values
from limen.lab.evidence import Evidence, Trained
from limen.lab.gallery_families import classify
from limen.report.export import csv_text
from limen.report.tables import Table

SHOWN_K = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def write_table(table: Table, out: Path) -> list[Path]:
    """NAME.md and NAME.csv in `out`."""
    from limen.report.export import markdown

    out.mkdir(parents=True, exist_ok=True)
    made = [out / f"{table.key}.md", out / f"{table.key}.csv"]
    made[0].write_text(markdown(table), encoding="utf-8")
    rows = [[float(c) if c[:1] == "-" and c[1:2].isdigit() else c for c in row] for row in table.rows]
    made[1].write_text(csv_text(table.columns, rows), encoding="utf-8")
    return made


def main_table(e: Evidence) -> Table:
    """RBP table 1: base, GRPO and SELF at pass@1 and pass@n_max, family by family; means over seeds, in percent."""
    runs = _some(e, "grpo", "self")
    k = n_max([*runs["grpo"], *runs["self"]])
    names = [*families(runs["grpo"]), "all"]
    columns = ("policy", *(f"{f}, pass@{x}" for f in names for x in (1, k)))
    rows = []
    for label, found, side in (
        ("base", runs["grpo"], "base"), ("GRPO", runs["grpo"], "trained"), ("SELF", runs["self"], "trained")
    ):  # fmt: skip
        cells = [100 * values(found, x, side, () if f == "all" else (f,)).mean() for f in names for x in (1, k)]
        rows.append((label, *(f"{c:.2f}" for c in cells)))
    seeds = len(runs["grpo"])
    return Table("rbp-table1", columns, tuple(rows), f"Percent, mean over {seeds} trainings, n = {k}, temperature 1.")


def support_table(e: Evidence) -> Table:
    """IL table 1: rates and counts by family and overall, means over the seeds of each method."""
    rows = []
    methods = list(dict.fromkeys(r.method for r in e.finals()))
    for m in methods:
        runs = e.finals(m)
        for domain in [*families(runs), "Overall"]:
            found = tables(runs, () if domain == "Overall" else (domain,))
            rates = [_mean([getattr(s, k) for s in found]) for k in ("SRR", "NDR", "SDS", "NSCR")]
            counts = [f"{np.mean([getattr(s, k) for s in found]):.1f}" for k in ("P", "E", "S", "O")]
            chance = f"{np.mean([s.chance_each_way for s in found]):.1f}"
            rows.append((m, domain, *rates, *counts, chance))
    columns = ("model", "domain", "SRR", "NDR", "SDS", "NSCR", "P", "E", "S", "O", "chance each way")
    return Table(
        "il-table1", columns, tuple(rows), "Means over seeds. Chance: flips that two draws of one policy show."
    )


def _mean(xs: Sequence[float]) -> str:
    have = [x for x in xs if x == x]
    return f"{np.mean(have):.3f}" if have else "–"


def checkpoint_table(e: Evidence) -> Table:
    """IL table 4: support at every checkpoint, means over seeds."""
    rows, runs = [], e.runs()
    if not runs:
        return _kept_on_the_page(e)
    k = n_max(runs)
    rows.append(("base", "0", f"{100 * values(runs[:1], k, 'base').mean():.2f}", *["–"] * 9))
    for arm in dict.fromkeys(r.method for r in runs):
        for step in sorted({r.step for r in e.runs(arm)}):
            at = [r for r in e.runs(arm) if r.step == step]
            found = tables(at)
            rates = [_mean([getattr(s, x) for s in found]) for x in ("SRR", "NDR", "SDS", "NSCR")]
            counts = [f"{np.mean([getattr(s, x) for s in found]):.1f}" for x in ("P", "E", "S", "O")]
            chance = f"{np.mean([s.chance_each_way for s in found]):.1f}"
            rows.append((arm, str(step), f"{100 * values(at, k).mean():.2f}", *rates, *counts, chance))
    columns = ("method", "step", f"pass@{k} %", "SRR", "NDR", "SDS", "NSCR", "P", "E", "S", "O", "chance each way")
    return Table("il-table4", columns, tuple(rows), "Means over seeds; support against the base at equal budgets.")


def _kept_on_the_page(e: Evidence) -> Table:
    """The same where only the study's page came back from the machine that ran it: without P and O."""
    table = e.doc.get("table") or {}
    if not table.get("rows"):
        raise DataError(f"{e.path} holds no checkpoints: run the study in a folder whose samples are kept")
    k, M = table["n"], table.get("problems", 0)
    rows = [("base", "0", f"{100 * table['base'][1]:.2f}", "–", "–", "–", "–")]
    for arm in dict.fromkeys(r[0] for r in table["rows"]):
        for step in sorted({r[2] for r in table["rows"] if r[0] == arm}):
            at = [r for r in table["rows"] if r[0] == arm and r[2] == step]
            means = [float(np.mean([r[i] for r in at])) for i in (4, 5, 6, 7)]
            net = f"{(means[1] - means[2]) / M:+.3f}" if M else "–"
            rows.append((arm, str(step), f"{100 * means[0]:.2f}", *(f"{x:.1f}" for x in means[1:]), net))
    columns = ("method", "step", f"pass@{k} %", "E", "S", "chance each way", "(E − S) / M")
    return Table("il-table4", columns, tuple(rows), "Means over seeds; support against the base at equal budgets.")


def offline_table(e: Evidence) -> Table:
    """IL table 5: pass@k of SFT on stored correct samples and of DAPO (and GRPO), in percent, at the last step."""
    runs = _some(e, "sft", "dapo", "grpo")
    ks = [k for k in SHOWN_K if k <= n_max([r for x in runs.values() for r in x])]
    base = ("base", *(f"{100 * values(runs['sft'], k, 'base').mean():.2f}" for k in ks))
    rows = [(m.upper(), *(f"{100 * values(x, k).mean():.2f}" for k in ks)) for m, x in runs.items()]
    columns = ("method", *(f"@{k}" for k in ks))
    return Table("il-table5", columns, (base, *rows), f"Percent, means over {len(runs['sft'])} seeds, all families.")


def entropy_table(e: Evidence) -> Table:
    """IL table 13: accuracy, token entropy, answer entropy and length of every method (all families together)."""
    base = e.doc.get("base_extra", {})
    runs = [r for r in e.finals() if "token_entropy" in r.extra]
    if not runs:
        raise DataError(f"{e.path} holds no entropies: they are in the study of methods")
    first = f"{100 * values(runs[:1], 1, 'base').mean():.2f}"
    rows = [("base", first, *(f"{base[k]:.3f}" if k in base else "–" for k in ("token_entropy", "answer_entropy")))]
    for m in dict.fromkeys(r.method for r in runs):
        own = [r for r in runs if r.method == m]
        entropies = [f"{np.mean([r.extra[k] for r in own]):.3f}" for k in ("token_entropy", "answer_entropy")]
        rows.append((m, f"{100 * values(own, 1).mean():.2f}", *entropies))
    columns = ("model", "accuracy %", "token entropy", "answer entropy")
    caption = "Means over seeds. Accuracy: average over all samples. Entropies in nats; of answers at 32 samples."
    return Table("il-table13", columns, tuple(rows), caption)


def family_table(e: Evidence, wanted: str, number: int, part: int = 0) -> Table:
    """IL tables 15 to 19: pass@k of base and GRPO on the families of a kind, three families a table."""
    runs = _some(e, "grpo")["grpo"]
    found = {f: classify(runs, f) for f in families(runs)}
    chosen = [f for f, kind in found.items() if kind == wanted][3 * part : 3 * part + 3]
    if not chosen:
        what = ", ".join(f"{f}: {kind}" for f, kind in found.items())
        raise DataError(f"no {'further ' if part else ''}family of {e.path.name} is a case of {wanted} ({what})")
    ks = [k for k in SHOWN_K if k <= n_max(runs)]
    rows = [
        (str(k), *(f"{values(runs, k, side, (f,)).mean():.3f}" for f in chosen for side in ("base", "trained")))
        for k in ks
    ]
    columns = ("k", *(f"{f}, {who}" for f in chosen for who in ("base", "GRPO")))
    return Table(
        f"il-table{number}", columns, tuple(rows), f"{wanted}: means over {len(runs)} trainings, unbiased pass@k."
    )


def traces_table(e: Evidence) -> Table:
    """IL table 2: perplexity of supplied solutions under base and trained, by who solves the question."""
    rows = [(r["group"], r["source"], r["policy"], str(r["traces"]), _ppl(r["ppl"])) for r in e.doc.get("traces") or ()]
    if not rows:
        raise DataError(f"{e.path} was made without --traces: give solutions of somebody else's as JSON lines")
    columns = ("category", "reference", "target", "traces", "perplexity")
    return Table("il-table2", columns, tuple(rows), "Perplexity of the supplied solutions' reasoning tokens.")


def _ppl(x: dict[str, float | None]) -> str:
    if x.get("value") is None:
        return "–"
    return f"{x['value']:.3f}" if x.get("low") is None else f"{x['value']:.3f} [{x['low']:.3f}, {x['high']:.3f}]"


def _some(e: Evidence, *methods: str) -> dict[str, list[Trained]]:
    found = {m: e.finals(m) for m in methods}
    missing = [m for m, x in found.items() if not x]
    if missing:
        raise DataError(f"{e.path} holds no counts of {', '.join(missing)}")
    return found
