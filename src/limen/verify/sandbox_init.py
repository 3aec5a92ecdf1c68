"""First program in a sandbox: close what the namespaces left open, set limits, then become the model's program.

Runs alone (python -I -S sandbox_init.py SETTINGS), with the standard library only. Any step that fails ends it
with status 97, and nothing of the model's is run.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import sys

_FAILED = 97
_MS_NOSUID_NODEV = 2 | 4
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_SETATTR = -100, 0x8000, 442
_RDONLY, _NOSUID, _NODEV = 1, 2, 4
_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP = 38, 24
_CAPSET = {"x86_64": 126, "aarch64": 91}
_PR_SET_SECCOMP, _SECCOMP_FILTER = 22, 2
# Audit number of the machine; its system calls fork, vfork and clone (linux/audit.h, asm/unistd.h).
_CALLS = {"x86_64": (0xC000003E, (57, 58), 56), "aarch64": (0xC00000B7, (), 220)}
_CLONE3, _CLONE_THREAD, _OTHER_ABI = 435, 0x10000, 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000


class _MountAttr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def _check(result: int, what: str) -> None:
    if result != 0:
        sys.stderr.write(f"sandbox: {what} failed ({os.strerror(ctypes.get_errno())})\n")
        sys.stderr.flush()
        os._exit(_FAILED)


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def isolate(folder: str, hide: list[str], program: bytes) -> None:
    """Everything read-only and without devices, but a small temporary file system at `folder`; no capabilities."""
    libc = ctypes.CDLL(None, use_errno=True)
    _check(read_only_root(libc), "read-only root")
    for path in [folder, *hide]:
        data = b"size=64m,mode=700"
        _check(libc.mount(b"tmpfs", path.encode(), b"tmpfs", _MS_NOSUID_NODEV, data), f"tmpfs at {path}")
    with open(os.path.join(folder, "program.py"), "wb") as f:
        f.write(program)
    _check(drop_capabilities(libc), "dropping capabilities")


def read_only_root(libc: ctypes.CDLL) -> int:
    """Make every mount of this namespace read-only and without devices; 0 if it worked."""
    attr = _MountAttr(_RDONLY | _NOSUID | _NODEV, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attr))
    return int(libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, ctypes.byref(attr), size))


def drop_capabilities(libc: ctypes.CDLL) -> int:
    """Give up all capabilities for good; 0 if it worked."""
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return -1
    for capability in range(64):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    number = _CAPSET.get(os.uname().machine)
    return -1 if number is None else int(libc.syscall(number, ctypes.byref(header), ctypes.byref(data)))


def limit(seconds: int, memory: int, processes: int) -> None:
    for what, value in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, 16 << 20),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (value, value))
    if not limit_processes(processes):
        libc = ctypes.CDLL(None, use_errno=True)
        _check(forbid_processes(libc), "forbidding new processes")


def limit_processes(most: int) -> bool:
    """Set the limit of processes, and try whether it holds: the kernel does not hold the machine's root to it."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NPROC, (0, most))
    try:
        child = os.fork()
    except OSError:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        return True
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return False


def forbid_processes(libc: ctypes.CDLL) -> int:
    """A system call filter under which a program may start threads, but no process; 0 if it worked."""
    if os.uname().machine not in _CALLS:
        ctypes.set_errno(errno.ENOTSUP)
        return -1
    audit, forks, clone = _CALLS[os.uname().machine]
    refuse, unknown = _ERROR | errno.EAGAIN, _ERROR | errno.ENOSYS  # without clone3 the C library uses clone
    steps = [
        *((_LOAD, 0, 0, 4), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _KILL)),
        *((_LOAD, 0, 0, 0), (_AT_LEAST, 0, 1, _OTHER_ABI), (_RETURN, 0, 0, refuse)),
        *((_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, unknown)),
        *(step for call in forks for step in ((_EQUAL, 0, 1, call), (_RETURN, 0, 0, refuse))),
        *((_EQUAL, 1, 0, clone), (_RETURN, 0, 0, _ALLOW)),
        *((_LOAD, 0, 0, 16), (_ANY_BIT, 1, 0, _CLONE_THREAD), (_RETURN, 0, 0, refuse)),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program = _Program(len(steps), (_Instruction * len(steps))(*(_Instruction(*step) for step in steps)))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return -1
    return int(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(program), 0, 0))


def main() -> None:
    settings = json.loads(sys.argv[1])
    folder = settings["folder"]
    path = os.path.join(folder, "program.py")
    if settings["isolate"]:
        with open(path, "rb") as f:
            program = f.read()
        isolate(folder, settings["hide"], program)
    os.chdir(folder)
    limit(settings["seconds"], settings["memory"], settings["processes"])
    os.execve(sys.executable, [sys.executable, "-I", path], dict(os.environ))


if __name__ == "__main__":
    main()
