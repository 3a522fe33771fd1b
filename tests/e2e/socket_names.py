"""Names of command servers' sockets, worked out a second time: `launcher/place.c` has the only other copy."""

from __future__ import annotations

import os
import struct
from socket import AF_UNIX, SOCK_STREAM, SOL_SOCKET, socket

from spritz.commandserver.request import PROTOCOL

#: socket(7), since Linux 5.14
_SO_NETNS_COOKIE = 71


def socket_name(script: str, python_path: str = "") -> str:
    """Name of the socket that the launcher next to this script connects to."""
    info = os.stat(script)
    seconds, nanoseconds = divmod(info.st_mtime_ns, 10**9)
    stamp = f"{info.st_dev:x}:{info.st_ino:x}:{seconds:x}.{nanoseconds:x}"
    mixed = PROTOCOL + b"\0" + stamp.encode() + python_path.encode()
    mixed += _surroundings()
    found = 0xCBF29CE484222325
    for byte in mixed:
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"commands-{found:016x}"


def _surroundings() -> bytes:
    """Root directory, mounts, network and host name of this process."""
    root = _identity("/")
    with socket(AF_UNIX, SOCK_STREAM) as probe:
        try:
            network = probe.getsockopt(SOL_SOCKET, _SO_NETNS_COOKIE, 8)
        except OSError:
            return root + b"".join(_identity(f"/proc/self/ns/{kind}") for kind in ("mnt", "net", "pid", "user", "uts"))
    return root + network + struct.pack("=Q", _root_mount()) + os.uname().nodename.encode()


def _identity(path: str) -> bytes:
    info = os.stat(path)
    return struct.pack("=QQ", info.st_dev, info.st_ino)


def _root_mount() -> int:
    """The number of the mount that `/` is on, as statx(2) has it; proc_pid_fdinfo(5)."""
    root = os.open("/", os.O_PATH)
    try:
        with open(f"/proc/self/fdinfo/{root}", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("mnt_id:"))
    finally:
        os.close(root)
