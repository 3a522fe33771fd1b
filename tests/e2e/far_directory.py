"""A directory as on a file server that may refuse, or say nothing: FUSE's protocol, as far as an empty directory needs.

Source: linux/fuse.h; mount(2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import threading
from pathlib import Path

_REQUEST = struct.Struct("=IIQQIIII")
_ANSWER = struct.Struct("=IiQ")
_FORGET, _GETATTR, _INIT, _ACCESS, _INTERRUPT, _BATCH_FORGET = 2, 3, 26, 34, 36, 42
_NO_ANSWER = (_FORGET, _INTERRUPT, _BATCH_FORGET)
_MNT_DETACH = 2
#: version 7.31; what it may do; the rest of the reply of that version
_INITIAL = struct.pack("=4I2H2I2H8I", 7, 31, 65536, 0, 8, 8, 65536, 1, *[0] * 10)
_DIRECTORY = struct.pack("=QII6Q10I", 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 512, 0)


class FarDirectory:
    """Mounted on `path` until it is closed. Raises OSError where it cannot be: only root may, with /dev/fuse.

    `change_to` is what becomes of chdir(2) to it: 0, an error's number, or None for no answer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.change_to: int | None = 0
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
        self._libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other"
        if self._libc.mount(b"far", os.fsencode(path), b"fuse", 0, options.encode()):
            os.close(self._device)
            raise OSError(ctypes.get_errno(), "mount")
        self._ended, self._end = os.pipe()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Unmount it; whoever waits for an answer gets an error."""
        os.close(self._end)
        self._thread.join()
        os.close(self._ended)
        os.close(self._device)
        self._libc.umount2(os.fsencode(self.path), _MNT_DETACH)

    def _serve(self) -> None:
        ready = select.poll()
        ready.register(self._device, select.POLLIN)
        ready.register(self._ended, 0)
        while all(descriptor != self._ended for descriptor, _ in ready.poll()):
            try:
                request = os.read(self._device, 1 << 18)
            except (InterruptedError, BlockingIOError):
                continue
            _, kind, unique, *_ = _REQUEST.unpack_from(request)
            error = {_INIT: 0, _GETATTR: 0, _ACCESS: self.change_to}.get(kind, errno.ENOSYS)
            if kind in _NO_ANSWER or error is None:
                continue
            content = {_INIT: _INITIAL, _GETATTR: _DIRECTORY}.get(kind, b"")
            os.write(self._device, _ANSWER.pack(_ANSWER.size + len(content), -error, unique) + content)
