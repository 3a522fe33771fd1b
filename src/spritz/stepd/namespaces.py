"""Names of its own for a task on a virtual node: an /etc/hosts with the cluster's nodes, and the node's hostname.

Virtual nodes share a machine, and no name service knows them; but every training script resolves the first node's name
to find its master. So the task gets a mount and a UTS namespace in which those names mean this machine. Root does it
directly, an ordinary user through a user namespace in which he is still himself. Where that is not allowed the task
runs with the machine's own names, without a word: it is a convenience, not a promise.

Source: unshare(2), mount_namespaces(7), user_namespaces(7), sethostname(2).
"""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWUTS = 0x0400_0000
_CLONE_NEWUSER = 0x1000_0000
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 0x4_0000

_HOSTS = b"/etc/hosts"


def enter(hosts_file: str, node: str) -> bool:
    """Move this process there, before it drops its rights. False if it is not allowed: the machine's names stay."""
    uid, gid = os.geteuid(), os.getegid()
    flags = _CLONE_NEWNS | _CLONE_NEWUTS | (_CLONE_NEWUSER if uid else 0)
    if _libc.unshare(flags) != 0:
        return False
    try:
        if uid:
            _stay_oneself(uid, gid)
    except OSError:
        return False
    name = node.encode()
    _libc.sethostname(name, len(name))
    return _mount(b"none", b"/", _MS_REC | _MS_PRIVATE) and _mount(os.fsencode(hosts_file), _HOSTS, _MS_BIND)


def _mount(source: bytes, target: bytes, flags: int) -> bool:
    status: int = _libc.mount(source, target, None, ctypes.c_ulong(flags), None)
    return status == 0


def _stay_oneself(uid: int, gid: int) -> None:
    """Map the user and his group to themselves; the kernel wants setgroups denied before an ordinary user may."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
