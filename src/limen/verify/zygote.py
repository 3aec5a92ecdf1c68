"""The process that makes workers: started once with a clean interpreter, it imports what judging needs and then
forks a worker per request.

Why not `multiprocessing`: its spawned children import the user's `__main__` (a script without a guard would run
again), and its forked ones copy a trainer's threads, locks and address space. A process of ours that has one
thread and no torch can be forked safely in milliseconds, so that replacing a killed worker costs nothing, and an
address-space limit means what it says.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from types import TracebackType
from typing import Any

_HEAD = struct.Struct("!I")
_PR_SET_PDEATHSIG = 1


def send(sock: socket.socket, value: Any) -> None:
    """Write one JSON message with its length in front."""
    data = json.dumps(value, separators=(",", ":")).encode("utf-8", "surrogatepass")
    sock.sendall(_HEAD.pack(len(data)) + data)


def pack(value: Any) -> bytes:
    data = json.dumps(value, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return _HEAD.pack(len(data)) + data


def receive(sock: socket.socket) -> Any:
    """Read one message. Raises `EOFError` when the other side is gone."""
    (size,) = _HEAD.unpack(_read(sock, _HEAD.size))
    return json.loads(_read(sock, size))


def _read(sock: socket.socket, size: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < size:
        data = sock.recv(min(size - len(chunks), 1 << 20))
        if not data:
            raise EOFError
        chunks += data
    return bytes(chunks)


def main(control_fd: int, spec: dict[str, Any], memory_mb: int) -> None:
    """Serve fork and kill requests until the owner closes its end or dies."""
    control = socket.socket(fileno=control_fd)
    owner = os.getppid()
    try:
        from limen.verify.registry import resolve

        verifier = resolve(spec)
        for module in verifier.imports:
            importlib.import_module(module)
    except (ImportError, ValueError) as error:
        send(control, {"error": f"{type(error).__name__}: {error}"})
        return
    if verifier.closed:
        from limen.verify.isolation import close_up

        close_up()
    gc.collect()
    gc.freeze()
    send(control, {"ready": os.getpid()})
    children: set[int] = set()
    while os.getppid() == owner:
        readable, _, _ = select.select([control], [], [], 2.0)
        _reap(children)
        if not readable:
            continue
        data, fds, _, _ = socket.recv_fds(control, 32, 1)
        if not data:
            break
        if data.startswith(b"fork"):
            pid = os.fork()
            if pid == 0:
                control.close()
                _worker(fds[0], verifier, memory_mb)
            os.close(fds[0])
            children.add(pid)
            send(control, {"pid": pid})
        else:
            _kill(int(data.split()[1]), children)
            send(control, {"killed": True})
    for pid in list(children):
        _kill(pid, children)


def _reap(children: set[int]) -> None:
    for pid in list(children):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _kill_group(pid)
        children.discard(pid)


def _kill(pid: int, children: set[int]) -> None:
    """Kill a worker with all that it started. Only pids that are ours and not yet reaped are touched."""
    if pid in children:
        _kill_group(pid)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        children.discard(pid)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _worker(fd: int, verifier: Any, memory_mb: int) -> None:
    """Body of a worker. Whatever it meets, it ends by `os._exit`: a crash is seen as a closed socket."""
    sock = socket.socket(fileno=fd)

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        rule = "memory" if issubclass(kind, MemoryError) else "crash"
        with contextlib.suppress(OSError):
            send(sock, {"o": "unjudged", "r": rule, "d": f"{kind.__name__}: {error}"[:500]})

    sys.excepthook = report
    os.setsid()
    _die_with_parent()
    _limit(memory_mb)
    gc.enable()
    sys.setrecursionlimit(50_000)
    try:
        serve(sock, verifier)
    except EOFError:
        pass
    except BaseException as error:  # noqa: BLE001 - boundary of the process: reported, and the process ends
        report(type(error), error, None)
    finally:
        os._exit(0)


def serve(sock: socket.socket, verifier: Any) -> None:
    while True:
        job = receive(sock)
        answer, metadata = job["a"], job.get("m") or {}
        if answer is None:
            answer, rule = verifier.extract(job["t"], metadata)
            if answer is None:
                send(sock, {"o": "no_answer", "r": rule})
                continue
            decision = verifier.quick(job["g"], answer, metadata) or verifier.decide(job["g"], answer, metadata)
        else:
            decision = verifier.decide(job["g"], answer, metadata)
        shown = decision.answer if decision.answer is not None else (answer if job["a"] is None else None)
        send(sock, {"o": decision.outcome, "r": decision.rule, "a": None if shown is None else shown[:2000]})


def _limit(memory_mb: int) -> None:
    """Let the worker map `memory_mb` more than it has mapped now; no core files."""
    try:
        with open("/proc/self/statm") as f:
            mapped = int(f.read().split()[0]) * resource.getpagesize()
    except OSError:
        mapped = 1 << 30
    limit = mapped + (memory_mb << 20)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _die_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
