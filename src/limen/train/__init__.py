"""Training: TRL's GRPO with SELF and its relatives.

    SELFTrainer, SELFConfig    in a TRL script, in the place of GRPOTrainer and GRPOConfig
    train(settings) -> Run     what `limen train CONFIG.yaml` does
    TrainSettings              its settings

The algorithms are pure functions in `limen.train.algorithms`. Importing this package does not import TRL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limen.train.config import SELFConfig
    from limen.train.run import train
    from limen.train.settings import TrainSettings
    from limen.train.trainer import SELFTrainer

__all__ = ["SELFConfig", "SELFTrainer", "TrainSettings", "train"]

_WHERE = {"SELFConfig": "config", "SELFTrainer": "trainer", "TrainSettings": "settings", "train": "run"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'limen.train' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(f"limen.train.{_WHERE[name]}"), name)
