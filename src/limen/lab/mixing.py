"""Arms that train nothing themselves: a parent's trained weights, part of the way from the base."""

from __future__ import annotations

from pathlib import Path

from limen.lab.frontier_arms import Arm


def training_of(folder: Path, own: str, parent: str | None) -> str:
    """Name of the training below `folder` (train-NAME) whose weights an arm takes: its parent's where that is finished
    there, else its own, which is then the same training once more."""
    done = parent is not None and (folder / f"train-{parent}" / "model" / "config.json").exists()
    return parent if parent is not None and done else own


def weights_of(arm: Arm | None, base: str, trained: Path, out: Path) -> Path:
    """The model folder that is sampled: the training's, or for an arm with a parent `out`, made where it is missing."""
    if arm is None or arm.parent is None:
        return trained / "model"
    from limen.interpolation import interpolate

    return out if (out / "config.json").exists() else interpolate(base, trained / "model", arm.share, out)
