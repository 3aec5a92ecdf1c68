"""Where a result comes from: code, versions, hardware. Written into every run folder and every result."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import limen

_PACKAGES = (
    "torch",
    "transformers",
    "ray",
    "trl",
    "accelerate",
    "numpy",
    "scipy",
    "math-verify",
    "reasoning-gym",
    "vllm",
)


def provenance() -> dict[str, Any]:
    """JSON-able record: limen version and commit, package versions, python, hardware, time, command line.

    Imports none of the packages that it names, so it is cheap; the GPU is read from torch only if torch is
    already imported.
    """
    return {
        "limen": limen.__version__,
        "commit": _git("rev-parse", "HEAD"),
        "dirty": _dirty(),
        "python": platform.python_version(),
        "packages": {name: v for name in _PACKAGES if (v := _version(name))},
        "hardware": _hardware(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def machine_of(record: Mapping[str, Any]) -> str:
    """GPU, or else processor, that such a record names; "" where it names none."""
    hardware = record.get("hardware") or {}
    return str((hardware.get("gpus") or [hardware.get("processor") or ""])[0])


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git(*args: str) -> str | None:
    """Output of git in limen's own checkout; None for an installed package."""
    here = Path(__file__).resolve().parent
    if not (here.parents[1] / ".git").exists():
        return None
    try:
        out = subprocess.run(["git", *args], cwd=here, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return out.stdout.strip() if out.returncode == 0 else None


def _dirty() -> bool | None:
    status = _git("status", "--porcelain", "--untracked-files=no")
    return None if status is None else bool(status)


def _hardware() -> dict[str, Any]:
    cpu = _first_processor()
    info: dict[str, Any] = {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "processor": cpu.get("model name") or platform.processor(),
    }
    if "cpu family" in cpu:  # a virtual machine's model name may be no more than the maker's
        info["processor_id"] = f"family {cpu['cpu family']}, model {cpu.get('model')}"
    torch = sys.modules.get("torch")
    # Another thread may be importing it: then it has no `cuda` yet.
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_available():
        info["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return info


def _first_processor(file: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """What Linux says of the first processor: `model name`, `cpu family`, `model` and more; {} elsewhere."""
    try:
        first = file.read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
