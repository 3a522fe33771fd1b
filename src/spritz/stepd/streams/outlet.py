"""Writing to files that users name, without ever waiting for them: a supervisor that waits hears no order to end.

A regular file of a local disk is written at once. Anything else may keep a writer for ever: a FIFO or terminal that is
not read, a file of a server that does not answer. It is written by a process of its own, which gets the bytes through a
pipe. That process is started with the first bytes, and killed when its time is over.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import stat
from collections.abc import Callable

from spritz.model.scarcity import SCARCE, pauses
from spritz.stepd import processes
from spritz.stepd.notes import note
from spritz.stepd.reactor import WRITABLE, Reactor, Timer, close_in_child, write_some

#: Bytes that wait in memory above which `is_full` holds.
_FULL_BYTES = 256 * 1024
#: The process's name in ps. Not a supervisor's name: one whose supervisor was killed is killed with the step.
NAME = "slurmstepd-out"
#: Magic numbers of file systems without a device that are local all the same: tmpfs, overlayfs, btrfs, zfs, ramfs,
#: bcachefs. Source: statfs(2).
_LOCAL = frozenset({0x01021994, 0x794C7630, 0x9123683E, 0x2FC12FC1, 0x858458F6, 0xCA451A4E})

#: Seconds for which a process is tried for again where the machine is short of them.
_START_PATIENCE_SECONDS = 10.0

_libc = ctypes.CDLL(None)


class Outlet:
    """Writes to an open file. `label`: the step, for the log. `on_room(self)` is called when it is no longer full."""

    def __init__(
        self, reactor: Reactor, descriptor: int, label: str, on_room: Callable[[Outlet], None] = lambda outlet: None
    ) -> None:
        """Takes a duplicate of `descriptor`."""
        self._reactor = reactor
        self._descriptor = os.dup(descriptor)
        self._label = label
        self._on_room = on_room
        self._is_local = is_local(descriptor)
        self._pipe = -1
        self._queued = bytearray()
        self._closing = False
        self._lost = False
        self._pauses = pauses(_START_PATIENCE_SECONDS)
        #: the process that writes; 0: there is none
        self.pid = 0
        #: whether tasks have written to it, and not the supervisor alone
        self.has_output = False
        #: before the next attempt to start the process, after the machine was short of processes
        self._again: Timer | None = None

    @property
    def is_full(self) -> bool:
        """Whether bytes come in more quickly than the outlet passes them on."""
        return len(self._queued) > _FULL_BYTES

    def write(self, data: bytes) -> None:
        """Write output of tasks now, or as soon as the file takes it. Errors are noted once, and end it."""
        self.has_output = self.has_output or bool(data)
        self._put(data)

    def say(self, line: bytes) -> None:
        """Write a line of the supervisor's own, unless too much waits already."""
        if not self.is_full:
            self._put(line)

    def _put(self, data: bytes) -> None:
        if self._lost or self._closing or not data:
            return
        try:
            if self._is_local:
                self._write(data)
            else:
                self._queued += data
                self._pass()
        except OSError as error:
            self._lose(error)

    def _pass(self) -> None:
        """Pass on what waits; start the process that writes. Raises OSError."""
        if self._again is not None:
            return
        if not self.pid:
            try:
                self._start()
            except OSError as error:
                pause = next(self._pauses, None) if error.errno in SCARCE else None
                if pause is None:
                    raise
                self._again = self._reactor.after(pause, self._try_again)
                return
        self._flush()

    def _try_again(self) -> None:
        self._again = None
        if self._lost or self._closing:
            return
        try:
            self._pass()
        except OSError as error:
            self._lose(error)

    def close(self) -> None:
        """Close the outlet. Queued bytes are still written, if the file takes them."""
        if not self._closing:
            self._closing = True
            os.close(self._descriptor)
            if self._queued and not self.pid:
                self._lose(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
            elif not self._queued:
                self._close_pipe()

    def kill(self) -> None:
        """Give up what waits."""
        if self._queued or (self.pid and not self._lost):
            note(f'slurmstepd: error: output.lost label={self._label} error="the file takes no output"')
        self.close()
        self._close_pipe()
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)

    def reaped(self) -> None:
        """The process has ended."""
        processes.spared.discard(self.pid)
        self.pid = 0
        self._lost = True
        self._close_pipe()
        self._on_room(self)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def _start(self) -> None:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            self.pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        if not self.pid:
            _pass_on(reader, self._descriptor, self._label)
        processes.spared.add(self.pid)
        os.close(reader)
        os.set_blocking(writer, False)
        self._pipe = writer

    def _flush(self) -> None:
        was_full = self.is_full
        write_some(self._pipe, self._queued)
        if self._queued:
            self._reactor.watch(self._pipe, WRITABLE, self._ready)
        else:
            self._reactor.forget(self._pipe)
            if self._closing:
                self._close_pipe()
        # Not first when all is written: the last of several writes finds the outlet with room already.
        if was_full and not self.is_full and not self._closing:
            self._on_room(self)

    def _ready(self, ready: int) -> None:
        try:
            self._flush()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        if not self._lost and not isinstance(error, BrokenPipeError):  # else the process has said why
            note(f'slurmstepd: error: output.lost label={self._label} error="{error.strerror}"')
        self._lost = True
        self._close_pipe()
        self._on_room(self)

    def _close_pipe(self) -> None:
        self._queued.clear()
        if self._pipe >= 0:
            self._reactor.forget(self._pipe)
            os.close(self._pipe)
            self._pipe = -1


def is_local(descriptor: int) -> bool:
    """Whether the descriptor is a regular file of a local disk: a write to it does not block."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return False
    # File systems without a block device have a major number of 0.
    return os.major(status.st_dev) != 0 or _file_system(descriptor) in _LOCAL


def _file_system(descriptor: int) -> int:
    """`f_type` of statfs(2); 0 if unknown."""
    buffer = ctypes.create_string_buffer(512)
    if _libc.fstatfs(descriptor, buffer):
        return 0
    return ctypes.c_ulong.from_buffer(buffer).value & 0xFFFFFFFF


def _pass_on(reader: int, descriptor: int, label: str) -> None:
    """In the forked child: all of its life. It keeps nothing of the supervisor's but the file."""
    try:
        close_in_child()
        processes.name_process(NAME)
        os.dup2(reader, 0)
        os.dup2(descriptor, 1)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        while data := os.read(0, 65536):
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]
    except OSError as error:
        note(f'slurmstepd: error: output.lost label={label} error="{error.strerror}"')
    finally:
        os._exit(0)
