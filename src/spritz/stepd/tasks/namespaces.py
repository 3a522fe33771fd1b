"""Namespaces of tasks: host names of virtual nodes, and private directories in place of /tmp.

Names: an /etc/hosts with the cluster's nodes, and the node's hostname.

Virtual nodes share a machine, and no name service knows them; but every training script resolves the first node's name
to find its master. So the task gets a mount and a UTS namespace in which those names mean this machine. That takes
CAP_SYS_ADMIN. Root has it. An ordinary user's zygote has it in a user namespace that it enters first, and that all its
tasks are in: tasks in different ones could not open each other's memory, as MPI does (ptrace(2), access modes). Without
permission for namespaces the task silently runs with the machine's names: they are only a convenience. Directories of
the job's own (`job_container/tmpfs`) keep users apart: a task without them does not start.

Source: unshare(2), mount_namespaces(7), user_namespaces(7), sethostname(2).
"""

from __future__ import annotations

import ctypes
import errno
import os

_libc = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWUTS = 0x0400_0000
_CLONE_NEWUSER = 0x1000_0000
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 0x4_0000
_MS_SLAVE = 0x8_0000

_HOSTS = b"/etc/hosts"


def enter_user_namespace() -> None:
    """Get the right to make namespaces, as an ordinary user who keeps uid and gid. Without effect if not allowed.

    For a process with one thread.
    """
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0 or _libc.unshare(_CLONE_NEWUSER) != 0:
        return
    # The kernel wants setgroups denied before an ordinary user may map a group.
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def enter(hosts_file: str, node: str) -> bool:
    """Move this process there, before it drops its rights. False if it is not allowed: the machine's names stay."""
    if _libc.unshare(_CLONE_NEWNS | _CLONE_NEWUTS) != 0:
        return False
    name = node.encode()
    _libc.sethostname(name, len(name))
    return _mount(b"none", b"/", _MS_REC | _MS_PRIVATE) and _mount(os.fsencode(hosts_file), _HOSTS, _MS_BIND)


def cover(directories: tuple[tuple[str, str], ...], *, shared: bool) -> None:
    """Mount each first directory over the second for this process and its children. Raises OSError.

    `shared`: what the machine mounts later is seen as well.
    """
    if _libc.unshare(_CLONE_NEWNS) != 0:
        raise _last_error("/")
    cover_here(directories, shared=shared)


def cover_here(directories: tuple[tuple[str, str], ...], *, shared: bool) -> None:
    """Cover directories as `cover` does, in the mount namespace of this process: all processes there see it. Raises
    OSError.
    """
    if not _mount(b"none", b"/", _MS_REC | (_MS_SLAVE if shared else _MS_PRIVATE)):
        raise _last_error("/")
    for source, target in directories:
        if not _mount(os.fsencode(source), os.fsencode(target), _MS_BIND):
            raise _last_error(target)


def may_cover() -> str:
    """Tries `cover` in a child: the error, or ""."""
    pid = os.fork()
    if not pid:
        try:
            enter_user_namespace()
            cover((), shared=False)
        except OSError as error:
            os._exit(error.errno or errno.EPERM)
        finally:
            os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return os.strerror(status) if status else ""


def _last_error(target: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"job_container: {os.strerror(number)}", target)


def _mount(source: bytes, target: bytes, flags: int) -> bool:
    status: int = _libc.mount(source, target, None, ctypes.c_ulong(flags), None)
    return status == 0
