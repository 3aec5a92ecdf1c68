"""Close the worker processes up, where the system lets one: no network, nothing on disk can be written.

Libraries that judge are not written for hostile text (some evaluate it as code). This is a second wall behind the
checks on the text, for verifiers that need neither network nor disk. Where namespaces are not to be had it does
nothing.
"""

from __future__ import annotations

import ctypes
import os

from limen.verify.sandbox_init import drop_capabilities, read_only_root

_NEWNS, _NEWUSER, _NEWNET = 0x00020000, 0x10000000, 0x40000000
_MS_REC_PRIVATE = 0x4000 | 0x40000


def close_up() -> bool:
    """Give this process (which must have one thread) namespaces of its own. True if it is closed up."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        uid, gid = os.getuid(), os.getgid()
        if libc.unshare(_NEWUSER | _NEWNS | _NEWNET) != 0:
            return False
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as f:
                f.write(text)
        private = libc.mount(None, b"/", None, _MS_REC_PRIVATE, None) == 0
        return private and read_only_root(libc) == 0 and drop_capabilities(libc) == 0
    except (OSError, AttributeError):
        return False
