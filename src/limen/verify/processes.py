"""The caller's side of the worker processes: start the zygote, take workers from it, kill and replace them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from limen.errors import ConfigError
from limen.verify.zygote import pack, receive

_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from limen.verify.zygote import main; main(int(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4]))"  # noqa: E501
_START_SECONDS = 120.0
_RECYCLE_AFTER = 2000
_PATIENCE = 4


class Zygote:
    """Handle of the process that forks workers. Thread-safe; one per pool."""

    def __init__(self, spec: Mapping[str, Any], memory_mb: int) -> None:
        self._lock = threading.Lock()
        self._spec = dict(spec)
        self._memory_mb = memory_mb
        self._start()

    def _start(self) -> None:
        if not sys.executable:
            raise ConfigError("no Python interpreter is known (sys.executable is empty): verifying needs one to start")
        self._control, theirs = socket.socketpair()
        env = {**os.environ, "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": ""}
        env.update({f"{lib}_NUM_THREADS": "1" for lib in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")})
        paths = json.dumps([str(Path(p).resolve()) if p else os.getcwd() for p in sys.path])
        fd = theirs.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, paths, str(fd), json.dumps(self._spec), str(self._memory_mb)],
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=env,
        )
        theirs.close()
        self._control.settimeout(_START_SECONDS)
        try:
            hello = receive(self._control)
        except (EOFError, OSError) as error:
            hello = {"error": f"its process ended early ({type(error).__name__})"}
        if "error" in hello:
            self.close()
            raise ConfigError(f"the verifier {self._spec} cannot be loaded: {hello['error']}")

    def fork(self) -> tuple[socket.socket, int]:
        """A new worker: its socket and pid. A zygote that died (out of memory, killed) is started again."""
        with self._lock:
            try:
                return self._fork()
            except (EOFError, OSError):
                self.close()
                self._start()
                return self._fork()

    def _fork(self) -> tuple[socket.socket, int]:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"fork"], [theirs.fileno()])
            return ours, int(receive(self._control)["pid"])

    def kill(self, pid: int) -> None:
        """End a worker and what it started; nothing happens if it is gone already."""
        with self._lock, contextlib.suppress(EOFError, OSError):
            self._control.sendall(b"kill %d" % pid)
            receive(self._control)

    def close(self) -> None:
        """End the zygote and with it all workers."""
        self._control.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Worker:
    """One worker process, used by one thread at a time. Replaces itself after a kill, a crash or much use."""

    def __init__(self, zygote: Zygote, deadline: float) -> None:
        self._zygote = zygote
        self._deadline = deadline
        self._sock: socket.socket | None = None
        self._pid = 0
        self._used = 0

    def judge(self, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """One reply per job, in order. A job that outlives the deadline, or kills its process, is unjudged;
        the jobs after it go to a new process."""
        replies: list[dict[str, Any]] = []
        while len(replies) < len(jobs):
            if self._sock is None or self._used >= _RECYCLE_AFTER:
                self.discard()
                self._sock, self._pid = self._zygote.fork()
                self._used = 0
            self._sock.settimeout(self._deadline)
            try:
                self._sock.sendall(b"".join(pack(job) for job in jobs[len(replies) :]))
                while len(replies) < len(jobs):
                    self._wait(self._sock)
                    reply = receive(self._sock)
                    replies.append(reply)
                    self._used += 1
                    if reply["o"] == "unjudged" and reply["r"] in ("memory", "crash"):
                        self.discard()  # it ended after this reply
                        break
            except TimeoutError:
                replies.append({"o": "unjudged", "r": "timeout"})
                self.discard()
            except (EOFError, OSError):
                replies.append({"o": "unjudged", "r": "crash"})
                self.discard()
        return replies

    def _wait(self, sock: socket.socket) -> None:
        """Until a reply is there. Raises `TimeoutError` after the deadline, or, where the machine is so loaded that
        the worker wants to run and was given less than half of that time, after four times the deadline at most."""
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        before = _processor_seconds(self._pid)[0]
        for _ in range(_PATIENCE):
            if poll.poll(self._deadline * 1000):
                return
            used, wants_to_run = _processor_seconds(self._pid)
            if not wants_to_run or used - before > self._deadline / 2:
                break
        raise TimeoutError

    def discard(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None
            self._zygote.kill(self._pid)


def _processor_seconds(pid: int) -> tuple[float, bool]:
    """Processor time that a process has had, and whether it is running or waiting for a processor."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0] == "R"
    except (OSError, IndexError, ValueError):
        return 0.0, False
