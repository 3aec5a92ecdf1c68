"""Shared fixtures: where the (uncommitted) data for golden tests lies, and a small torch."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def shared_path(name: str) -> Path:
    """File of the data folder beside the repository (or $LIMEN_SHARED); skips the test where it is missing."""
    folder = Path(os.environ.get("LIMEN_SHARED", ROOT.parent / "shared"))
    path = folder / name
    if not path.exists():
        pytest.skip(f"needs {name} of the data folder beside the repository (or in $LIMEN_SHARED)")
    return path


@pytest.fixture
def shared():
    return shared_path
