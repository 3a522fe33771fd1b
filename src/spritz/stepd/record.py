"""A step's record in the spool: one file that grows. First the spec, then process ids, then the result.

Each entry is `!I` length, one byte of kind, body. An incomplete entry, and everything after it, counts as not written:
a killed writer leaves a record that ends earlier, never a wrong one. An entry of an unknown kind is of a later release,
and skipped. Spec and result are stored values (`model.stored`): one of a later release is told apart from damage.
"""

from __future__ import annotations

import os
from functools import cache
from struct import Struct as Layout

import msgspec.msgpack

from spritz.model import stored
from spritz.model.node_daemon.reports import StepFinished
from spritz.process_identity import Process, boot_id, identify
from spritz.stepd.processes import name_of
from spritz.stepd.spec import SupervisorSpec

_HEADER = Layout("!Ic")
_SPEC, _PIDS, _STARTED, _RESULT = b"S", b"P", b"I", b"R"

_encode = msgspec.msgpack.Encoder().encode
_decode_pids = msgspec.msgpack.Decoder(tuple[int, ...]).decode
_decode_started = msgspec.msgpack.Decoder(tuple[str, tuple[int, ...]]).decode
#: read once, by the zygote: no process outlives a boot
this_boot = cache(boot_id)
_spec_decoder = msgspec.msgpack.Decoder(SupervisorSpec)
_result_decoder = msgspec.msgpack.Decoder(StepFinished)


class SpooledStep(msgspec.Struct, frozen=True):
    """The written part of a step's record. `pids`: the supervisor's, then its tasks'.

    `boot` and `started` make processes of the numbers (`Process`); a release before this one did not write them.
    """

    spec: SupervisorSpec
    pids: tuple[int, ...] = ()
    result: StepFinished | None = None
    boot: str = ""
    started: tuple[int, ...] = ()

    def processes(self) -> tuple[Process, ...]:
        """The processes of `pids` that may be this boot's: none if they are of an earlier boot, or unknown."""
        if not self.boot or self.boot != boot_id():
            return ()
        return tuple(map(Process, self.pids, self.started))

    def supervisor(self) -> Process:
        """The supervisor. One of an earlier release is known by its number and its name alone."""
        known = self.processes()
        if known or self.boot or not self.pids or name_of(self.pids[0]) != "slurmstepd":
            return known[0] if known else Process(0, 0)
        return identify(self.pids[0])


def spec_entry(spec: SupervisorSpec) -> bytes:
    return _entry(_SPEC, stored.encode(spec))


def pids_entry(pids: tuple[int, ...]) -> bytes:
    """The supervisor's and the tasks' process ids; a later entry replaces an earlier one."""
    return _entry(_PIDS, _encode(pids))


def processes_entry(pids: tuple[int, ...]) -> bytes:
    """`pids_entry` of living processes, and when they started by the kernel's clock of this boot."""
    return pids_entry(pids) + _entry(_STARTED, _encode((this_boot(), [identify(pid).started for pid in pids])))


def result_entry(result: StepFinished) -> bytes:
    return _entry(_RESULT, stored.encode(result))


def _entry(kind: bytes, body: bytes) -> bytes:
    return _HEADER.pack(len(body), kind) + body


def parse(data: bytes) -> SpooledStep | None:
    """The record as far as it was written; None if even the spec is missing. Raises UnsupportedFormat."""
    spec: SupervisorSpec | None = None
    pids: tuple[int, ...] = ()
    boot = ""
    started: tuple[int, ...] = ()
    result: StepFinished | None = None
    at = 0
    view = memoryview(data)  # a wide job's record takes 40 bytes a node, and would be copied for each of its nodes
    try:
        while at + _HEADER.size <= len(data):
            size, kind = _HEADER.unpack_from(data, at)
            start = at + _HEADER.size
            at = start + size
            if at > len(data):
                break
            body = view[start:at]
            if kind == _SPEC:
                spec = stored.decode(body, _spec_decoder)
            elif kind == _PIDS:
                pids = _decode_pids(body)
            elif kind == _STARTED:
                boot, started = _decode_started(body)
            elif kind == _RESULT:
                result = stored.decode(body, _result_decoder)
    except msgspec.DecodeError:
        pass  # as if cut short there
    return None if spec is None else SpooledStep(spec, pids, result, boot, started)


def read(path: str) -> SpooledStep | None:
    """The record in a file; None if there is no valid one.

    Raises OSError if it is there and cannot be read: a step must not be forgotten for want of a descriptor. Raises
    UnsupportedFormat if a later release wrote it.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            return parse(file.read())
    except FileNotFoundError:
        return None


class RecordFile:
    """The record of a running step, to which only its supervisor writes. A write that fails is no failure of the step:
    what is missing is kept in memory and written with the next attempt.
    """

    def __init__(self, descriptor: int) -> None:
        """`descriptor`: open for writing, without O_APPEND; closed by `close`."""
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._missing = b""
        #: the errno of the last failure; 0: there was none
        self.error = 0

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return not self._missing

    def append(self, entry: bytes) -> None:
        """Write an entry at the end, after those that are missing."""
        self._missing += entry
        self.write_missing()

    def write_missing(self) -> None:
        """Write what is missing, if that succeeds."""
        view, at = memoryview(self._missing), self._size
        try:
            # By position: a later attempt overwrites what an interrupted one left.
            while view:
                written = os.pwrite(self._descriptor, view, at)
                view, at = view[written:], at + written
        except OSError as error:
            self.error = error.errno or 0
            return
        self._size, self._missing = at, b""

    def sync(self, last: bytes) -> bool:
        """Write everything to disk. Returns whether that succeeded; if not, `last` counts as missing again."""
        self.write_missing()
        if self._missing:
            return False
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            # The kernel forgets pages that it could not write: another sync would report success.
            self.error = error.errno or 0
            self._missing = last
            return False
        return True

    def close(self) -> None:
        os.close(self._descriptor)


def append(descriptor: int, entry: bytes) -> None:
    """Write an entry at the end. Raises OSError."""
    view = memoryview(entry)
    while view:
        view = view[os.write(descriptor, view) :]
