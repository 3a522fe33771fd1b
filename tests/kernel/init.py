"""The first process of the guest (`tests.kernel.boot`): mounts what there is, runs pytest, switches it off.

Its arguments are the checkout's directory and those of pytest.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
import time

_SIOCSIFFLAGS, _IFF_UP_LOOPBACK_RUNNING = 0x8914, 0x49
_MOUNTS = (
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("devpts", "/dev/pts"),
    ("tmpfs", "/dev/shm"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
    ("cgroup2", "/sys/fs/cgroup"),
)


def main(root: str, arguments: list[str]) -> None:
    """Does not return."""
    libc = ctypes.CDLL(None, use_errno=True)
    for kind, where in _MOUNTS:
        os.makedirs(where, exist_ok=True)
        if libc.mount(kind.encode(), where.encode(), kind.encode(), 0, None):
            print("mount", where, os.strerror(ctypes.get_errno()), flush=True)
    for where in ("/tmp", "/dev/shm"):
        os.chmod(where, 0o1777)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", _IFF_UP_LOOPBACK_RUNNING))
    os.environ.update(PATH=f"{os.path.dirname(sys.executable)}:/usr/bin:/bin:/usr/sbin:/sbin", HOME="/root")
    os.chdir(root)
    done = subprocess.run([sys.executable, "-m", "pytest", *arguments])
    print("kernel-tests-ended", done.returncode, flush=True)
    with open("/proc/sysrq-trigger", "w") as file:
        file.write("o")
    time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
