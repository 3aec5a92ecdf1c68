"""What `limen influence` prints and writes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from limen.dynamics.attribution import solved_changes, write_csv
from limen.dynamics.influence import Influence, Options, attributed, to_json, write_json
from limen.dynamics.influence_figure import write_figure
from limen.dynamics.influence_step import HOLDS
from limen.provenance import provenance


def result_json(found: Influence, options: Options, run: str, probe: str) -> dict[str, Any]:
    """The whole result with what made it."""
    return {"run": run, "probe": probe, "options": asdict(options), **to_json(found), "provenance": provenance()}


def write_outputs(found: Influence, result: dict[str, Any], out: Path) -> list[Path]:
    """influence.json, attribution.csv, kernel-STEP-FORM.npz (K with the keys of its rows and columns), the figure."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(result, out / "influence.json")
    write_csv(found.effects, out / "attribution.csv")
    files = [out / "influence.json", out / "attribution.csv"]
    for point in found.points:
        for form, p in point.predictions.items():
            file = out / f"kernel-{point.place.step}-{form}.npz"
            np.savez_compressed(
                file, k=p.kernel.k_NM.numpy(), train_norm=p.kernel.train_norm_N.numpy(),
                probe_norm=p.kernel.probe_norm_M.numpy(), coefficient=p.coefficient_N.numpy(),
                predicted=p.predicted_M.numpy(), measured=p.measured_M.numpy(),
                train_key=np.array([x.key for x in point.train]), probe_key=np.array([x.key for x in found.probe]),
            )  # fmt: skip
            files.append(file)
    return [*files, *write_figure(found, out)]


def show(found: Influence, rows: int, console: Console | None = None) -> None:
    """Tables for a terminal. Ids and keys are printed as they are, never as markup."""
    console = console or Console()
    console.print(_steps(found))
    console.print(_spectra(found))
    last = found.points[-1]
    if changes := solved_changes(last.main, found.probe)[:rows]:
        table = _table(f"Solved problems that one step at step {last.place.step} lowered most (mean log π of y+, nats)",
                       "problem", "measured", "predicted", "of it drift")  # fmt: skip
        for c in changes:
            table.add_row(
                Text(c["probe_problem"]), f"{c['measured']:+.4f}", f"{c['predicted']:+.4f}", f"{c['drift']:+.4f}"
            )
        console.print(table)
    chain = attributed(found.points)
    table = _table(
        f"Which training problems lowered which solved ones (predicted, form {chain[0][1].form}, summed over steps "
        f"{', '.join(str(step) for step, *_ in chain)})",
        "training problem", "solved problem", "Δ log π", "share", "by response", "verdict",
    )  # fmt: skip
    for e in found.effects[:rows]:
        verdict = {True: "correct", False: "wrong", None: "unjudged"}[e.train_correct]
        table.add_row(Text(e.train_problem), Text(e.probe_problem), f"{e.effect:+.4f}", f"{e.share:.0%}",
                      Text(e.train_key), verdict)  # fmt: skip
    console.print(table)
    for step, prediction, *_ in chain:
        if not prediction.check.r2 >= HOLDS:
            console.print(
                f"Caution: at step {step} the step size {prediction.lr:.2g} is beyond first order (R² "
                f"{prediction.check.r2:.2f}): read the ranking as where the gradients point, not as what came of it."
            )
    console.print(
        Text("Texts by response key: `responses` in influence.json, or column rollout_id of the runs' rollouts.")
    )


def _steps(found: Influence) -> Table:
    table = _table(
        "One real step: predicted (K a) against measured Δ log π of the probe pairs",
        "step", "form", "step size", "R²", "ranks", "slope", "rms Δ", "holds to", "breaks at", "K error",
    )  # fmt: skip
    for point in found.points:
        for form, p in point.predictions.items():
            error = float(p.kernel.error_NM.square().mean().sqrt() / p.kernel.k_NM.square().mean().sqrt())
            c = p.check
            table.add_row(
                str(point.place.step), form, f"{p.lr:.1e}", f"{c.r2:.3f}", f"{c.rank_correlation:.2f}",
                f"{c.slope:.2f}", f"{c.rms:.2g}", f"{p.holds_up_to:.1e}", f"{p.breaks_at:.1e}",
                f"{error:.1%}" if p.kernel.width else "exact",
            )  # fmt: skip
    return table


def _spectra(found: Influence) -> Table:
    table = _table(f"Kernel matrix of the {len(found.probe)} probe pairs (app. C.2)",
                   "step", "effective rank", "of cosines", "participation", "largest share", "mean cosine")  # fmt: skip
    for point in found.points:
        s = point.spectrum
        table.add_row(str(point.place.step), f"{s.effective_rank:.1f}", f"{s.effective_rank_cosine:.1f}",
                      f"{s.participation:.1f}", f"{s.top_share:.1%}", f"{s.mean_cosine:+.3f}")  # fmt: skip
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, title_style="bold")
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i == 0 else "right", overflow="fold")
    return table
