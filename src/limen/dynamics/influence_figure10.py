"""Figure 10 of RBP: figure 2's curves once more for each model, one row a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from limen.dynamics.curves import RunCurves, groups, read_curves
from limen.dynamics.figures import PANELS, Row, _curves, legend, save
from limen.store import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def model_figure(paths: Sequence[str | Path], out: str | Path) -> list[Path]:
    """`figure10.png`, `.svg` and `.csv`: influence, interference, log π(y+), a row a model.

    From training runs with a probe. Rows are the models that they started from, in order of first appearance; runs of
    one name in a row are one line with a band. Raises `DataError` where a run had no probe.
    """
    keys = PANELS[2]
    by_model: dict[str, list[RunCurves]] = {}
    for path in paths:
        model = str(Run.open(path).settings.get("model", "")) or "model"
        by_model.setdefault(model, []).append(read_curves(path, keys))
    rows: list[Row] = []

    def draw(figure: Figure) -> None:
        figure.set_size_inches(3.1 * len(keys), 0.35 + 2.05 * len(by_model))
        axes = figure.subplots(len(by_model), len(keys), squeeze=False)
        for line, (model, runs) in zip(axes, by_model.items(), strict=True):
            found, start = groups(runs), len(rows)
            for ax, key in zip(line, keys, strict=True):
                _curves(ax, found, key, rows)
            for row in rows[start:]:
                row["model"] = model
            line[0].set_title(f"{Path(model).name}: {line[0].get_title(loc='left')}", fontsize=8, loc="left")
        legend(figure, list(axes.ravel()))

    return save("figure10", draw, rows, Path(out))
