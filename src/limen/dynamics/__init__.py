"""Learning dynamics: what each step does to everything else (RBP §3–5).

`DynamicsProbe` (a callback for any Hugging Face trainer) and `build_probe`/`draw_probe`/`load_probe` are imported on
first use, because they bring torch and transformers along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limen.dynamics.callback import DynamicsProbe
    from limen.dynamics.probe import ProbePairs, build_probe, draw_probe, load_probe

__all__ = ["DynamicsProbe", "ProbePairs", "build_probe", "draw_probe", "load_probe"]

_HOME = {"DynamicsProbe": "callback"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'limen.dynamics' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"limen.dynamics.{_HOME.get(name, 'probe')}"), name)
