"""What the demo prints last: one table, the sentences, and where the report lies."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from limen.lab.demo import DemoResult

SHOWN_K = (1, 4, 16, 64, 256)
NAMES = {"control": "base again", "grpo": "GRPO", "self": "SELF"}


def print_demo(found: DemoResult, console: Console | None = None) -> None:
    """Print the demo's result to stdout (or `console`)."""
    console = console or Console(width=110)
    some = next(iter(found.comparisons.values()))
    ks = [k for k in SHOWN_K if k in some.k_K.tolist()]
    table = Table(title=f"{some.base.M} held-out problems; chance: what two runs of one policy show each way")
    for name in ("policy", *(f"pass@{k}" for k in ks), "P", "E", "S", "O", "chance", "McNemar p"):
        table.add_column(name, justify="left" if name == "policy" else "right")
    values = dict(zip(some.k_K.tolist(), some.base_curve.value_K.tolist(), strict=True))
    table.add_row("base", *(f"{values[k]:.3f}" for k in ks), *[""] * 6)
    for name, c in found.comparisons.items():
        values = dict(zip(c.k_K.tolist(), c.trained_curve.value_K.tolist(), strict=True))
        s = c.support
        assert s is not None
        cells = [str(s.P), str(s.E), str(s.S), str(s.O), f"{s.chance_each_way:.1f}", f"{s.mcnemar_p:.2g}"]
        table.add_row(NAMES.get(name, name), *(f"{values[k]:.3f}" for k in ks), *cells)
    console.print(table)
    for name, c in found.comparisons.items():
        if name != "control":
            for sentence in c.sentences:
                console.print(f"{NAMES.get(name, name)}: {sentence}", highlight=False)
    if found.report:
        console.print(f"report: {found.report}", highlight=False, soft_wrap=True)
