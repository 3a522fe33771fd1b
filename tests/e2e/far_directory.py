"""An empty directory on a file server that can refuse or stop answering: FUSE's protocol, as far as that needs.

The server is a process of its own. A process that serves a file system must not start a child in it or look at it:
up to Python 3.11.3 `subprocess` holds the interpreter's lock until the child has executed its program, so a serving
thread would never answer the child's chdir(2), and no signal ends that wait. The kernel answers every waiting process
with an error once the last descriptor of /dev/fuse is closed, and only the server has one: killing it ends all waits.

Source: linux/fuse.h; mount(2); umount(8).
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import struct
import subprocess
import sys
from pathlib import Path

_REQUEST = struct.Struct("=IIQQIIII")
_ANSWER = struct.Struct("=IiQ")
_FORGET, _GETATTR, _INIT, _ACCESS, _INTERRUPT, _BATCH_FORGET = 2, 3, 26, 34, 36, 42
_NO_ANSWER = (_FORGET, _INTERRUPT, _BATCH_FORGET)
_PR_SET_PDEATHSIG = 1
#: version 7.31; flags; the remaining fields of that version's reply
_INITIAL = struct.pack("=4I2H2I2H8I", 7, 31, 65536, 0, 8, 8, 65536, 1, *[0] * 10)
_DIRECTORY = struct.pack("=QII6Q10I", 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 512, 0)
#: an answer to chdir(2) that never comes
SILENCE = -1


class FarDirectory:
    """Mounted on `path` until it is closed; chdir(2) into it succeeds at first.

    Raises OSError where it cannot be mounted: that takes root and /dev/fuse.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._server = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            bufsize=0,
        )
        if error := self._said():
            self._server.communicate()
            raise OSError(error, os.strerror(error))

    def answer_chdir(self, error: int) -> None:
        """Answer chdir(2) with 0, the number of an error, or SILENCE; returns when the server does."""
        assert self._server.stdin is not None
        self._server.stdin.write(f"{error}\n".encode())
        assert self._said() == error

    def _said(self) -> int:
        assert self._server.stdout is not None
        return int(self._server.stdout.readline())

    def close(self) -> None:
        """Kill the server, which ends every wait for it, and unmount the directory."""
        self._server.kill()
        self._server.communicate()
        subprocess.run(["umount", "--lazy", self.path], cwd="/", check=True, timeout=100)


def _main() -> None:
    """Mount and serve `argv[1]`; each line of the input is the next answer to chdir(2). Ends with the parent."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
        if libc.mount(b"far", os.fsencode(sys.argv[1]), b"fuse", 0, options.encode()):
            raise OSError(ctypes.get_errno(), "mount")
    except OSError as error:
        print(error.errno)
        return
    answer = 0
    print(answer, flush=True)
    ready = select.poll()
    ready.register(device, select.POLLIN)
    ready.register(0, select.POLLIN)
    while True:
        for descriptor, _ in ready.poll():
            if descriptor == device:
                _serve(device, answer)
            elif line := os.read(0, 100):
                answer = int(line)
                print(answer, flush=True)
            else:
                return


def _serve(device: int, chdir: int) -> None:
    """Answer one request."""
    try:
        request = os.read(device, 1 << 18)
        _, kind, unique, *_ = _REQUEST.unpack_from(request)
        error = {_INIT: 0, _GETATTR: 0, _ACCESS: chdir}.get(kind, errno.ENOSYS)
        if kind in _NO_ANSWER or error == SILENCE:
            return
        content = {_INIT: _INITIAL, _GETATTR: _DIRECTORY}.get(kind, b"")
        os.write(device, _ANSWER.pack(_ANSWER.size + len(content), -error, unique) + content)
    except (InterruptedError, BlockingIOError, FileNotFoundError):
        return  # the process that asked was interrupted


if __name__ == "__main__":
    _main()
