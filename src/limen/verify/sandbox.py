"""Run a Python program that a model wrote: no network, no writing outside a temporary folder, bounded in time,
memory, processes and output.

`bwrap` (bubblewrap) where it is installed and works, else `unshare` of util-linux with namespaces that
`sandbox_init` closes up. Where neither works, nothing is run unless the caller says `sandbox: "off"`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from limen.errors import ConfigError

Kind = Literal["bwrap", "unshare", "off"]
_MOST_OUTPUT = 1 << 20
_INIT = Path(__file__).with_name("sandbox_init.py")


@dataclass(frozen=True, slots=True)
class Limits:
    """`seconds` of processor time, and twice as many of wall-clock time. The kernel does not hold the machine's root
    to a number of `processes`: for root a program may start threads, but no process at all."""

    seconds: float = 4.0
    memory_mb: int = 512
    processes: int = 16


@dataclass(frozen=True, slots=True)
class Finished:
    """What came of a program. `status` is its exit status, or None if it ran out of time. `output` is cut."""

    status: int | None
    output: bytes
    errors: bytes


def run_program(program: str, stdin: bytes, kind: Kind, limits: Limits) -> Finished:
    """Run one program with `stdin`, and wait for it to end or be killed."""
    with tempfile.TemporaryDirectory(prefix="limen-sandbox-") as folder:
        Path(folder, "program.py").write_text(program, encoding="utf-8", errors="surrogatepass")
        process = subprocess.Popen(
            _command(kind, folder, limits),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"},
            start_new_session=True,
        )
        return _wait(process, stdin, 2 * limits.seconds)


def _wait(process: subprocess.Popen[bytes], stdin: bytes, seconds: float) -> Finished:
    """Feed and read the process in threads, with all output beyond the limit thrown away."""
    outputs: dict[str, bytes] = {}

    def feed() -> None:
        assert process.stdin
        with contextlib.suppress(OSError):
            process.stdin.write(stdin)
            process.stdin.close()

    def read(name: str, stream: object) -> None:
        kept = bytearray()
        while chunk := stream.read1(65536):  # type: ignore[attr-defined]
            kept += chunk[: max(0, _MOST_OUTPUT - len(kept))]
        outputs[name] = bytes(kept)

    threads = [
        threading.Thread(target=feed, daemon=True),
        threading.Thread(target=read, args=("out", process.stdout), daemon=True),
        threading.Thread(target=read, args=("err", process.stderr), daemon=True),
    ]
    for thread in threads:
        thread.start()
    status: int | None
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        status = None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if status in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
        status = None
    for thread in threads:
        thread.join(2.0)
    return Finished(status, outputs.get("out", b""), outputs.get("err", b""))


def _command(kind: Kind, folder: str, limits: Limits) -> list[str]:
    settings = {
        "folder": folder,
        "isolate": kind == "unshare",
        "seconds": math.ceil(limits.seconds),
        "memory": limits.memory_mb << 20,
        "processes": limits.processes,
        "hide": _hidden(),
    }
    python = [sys.executable, "-I", "-S", str(_INIT), json.dumps(settings)]
    if kind == "off":
        return python
    if kind == "unshare":
        return [
            *(
                shutil.which("unshare") or "unshare",
                "--map-root-user",
                "--net",
                "--ipc",
                "--uts",
                "--mount",
                "--pid",
                "--fork",
            ),
            *("--kill-child", "--mount-proc", "--"),
            *python,
        ]
    hidden = [x for path in _hidden() for x in ("--tmpfs", path)]
    program = f"{folder}/program.py"
    return [
        *(shutil.which("bwrap") or "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", *hidden),
        *("--tmpfs", folder, "--ro-bind", program, program, "--chdir", folder),
        *(x for path in _needed() for x in ("--ro-bind", path, path)),
        *("--", *python),
    ]


def _needed() -> list[str]:
    """Folders below a hidden one that Python itself is in."""
    paths = {sys.prefix, sys.base_prefix, str(_INIT.parent)}
    return sorted(p for p in paths if p.startswith("/tmp/"))


def _hidden() -> list[str]:
    """The home folder, unless Python lives in it."""
    home = os.path.expanduser("~")
    used = (sys.prefix, sys.base_prefix, str(_INIT))
    inside = any(os.path.realpath(p).startswith(home + "/") or p.startswith(home + "/") for p in used)
    return [home] if home not in ("/", "") and os.path.isdir(home) and not inside else []


@lru_cache(maxsize=1)
def available() -> Kind | None:
    """The sandbox that works on this machine; each is tried with a small program that must not reach the network
    nor write outside its folder."""
    for kind in ("bwrap", "unshare"):
        if shutil.which(kind) and _holds(kind):  # type: ignore[arg-type]
            return kind  # type: ignore[return-value]
    return None


def _holds(kind: Kind) -> bool:
    token = secrets.token_hex(8)
    outside = Path(tempfile.gettempdir(), f"limen-sandbox-probe-{token}")
    probe = _PROBE.format(outside=str(outside), token=token)
    try:
        finished = run_program(probe, b"", kind, Limits(seconds=20.0))
        return finished.status == 0 and finished.output.strip() == token.encode() and not outside.exists()
    except OSError:
        return False
    finally:
        outside.unlink(missing_ok=True)


_PROBE = """
import os, socket
open("inside", "w").write("x")
for path in ({outside!r}, "/usr/limen-probe"):
    try:
        open(path, "w").write("x")
    except OSError:
        continue
    if path.startswith("/usr"):
        os._exit(3)
s = socket.socket()
s.settimeout(1.0)
try:
    s.connect(("192.0.2.1", 80))
    os._exit(4)
except TimeoutError:
    os._exit(5)
except OSError:
    print({token!r})
"""


def choose(wanted: str) -> Kind:
    """The sandbox for a setting "auto", "bwrap", "unshare" or "off". Raises `ConfigError` where it does not work."""
    if wanted == "off":
        return "off"
    kind = available() if wanted == "auto" else wanted
    if kind is None or (wanted != "auto" and not (shutil.which(wanted) and _holds(wanted))):  # type: ignore[arg-type]
        raise ConfigError(
            "the verifier 'python' runs programs that a model wrote, and no sandbox works here "
            f"(wanted {wanted!r}): install bubblewrap, allow user namespaces, or accept the danger "
            'with {"name": "python", "sandbox": "off"}'
        )
    return kind  # type: ignore[return-value]
