"""The PMI server of one node's tasks: lets the ranks of an MPI program find each other.

Each task has a socket, PMI_FD. An entry that a task puts is visible to all after the next fence (PMI-1: barrier), which
ends when all tasks of the step have reached it: the step's client collects the entries of all nodes and sends them to
each.

Source: srun(1) --mpi=pmi2; `pmi_wire` for the protocol.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import msgspec.msgpack

from spritz.stepd import pmi_wire, protocol
from spritz.stepd.pmi_wire import Fields
from spritz.stepd.reactor import READABLE, WRITABLE, Reactor, write_some
from spritz.stepd.spec import Pmi

if TYPE_CHECKING:
    from collections.abc import Callable

_RECEIVE_BYTES = 256 * 1024
#: Entries of one frame: their bytes stay far below the longest payload.
_ENTRIES_BYTES = protocol.PAYLOAD_BYTES_MAX // 4
_encode = msgspec.msgpack.encode
_entries = msgspec.msgpack.Decoder(list[bytes])

#: the sizes that PMI-1 announces
_MAXES: Fields = {b"cmd": b"maxes", b"kvsname_max": b"256", b"keylen_max": b"64", b"vallen_max": b"1024"}


def entry_frames(kind: int, entries: dict[bytes, bytes]) -> bytes:
    """Frames that carry entries; the last one is for ALL_TASKS, those before it for task 0."""
    pieces: list[list[bytes]] = [[]]
    size = 0
    for key, value in entries.items():
        if size > _ENTRIES_BYTES:
            pieces.append([])
            size = 0
        pieces[-1] += (key, value)
        size += len(key) + len(value)
    last = len(pieces) - 1
    return b"".join(
        protocol.frame(kind, protocol.ALL_TASKS if index == last else 0, _encode(piece))
        for index, piece in enumerate(pieces)
    )


def read_entries(payload: bytes) -> dict[bytes, bytes]:
    """Entries of one frame. Raises ProtocolError."""
    try:
        flat = _entries.decode(payload)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise protocol.ProtocolError(f"bad PMI entries: {error}") from error
    return dict(zip(flat[::2], flat[1::2], strict=False))


class PmiServer:
    """`emit(frames)` reaches the step's client; `abort()` ends the step."""

    def __init__(
        self, about: Pmi, tasks: int, reactor: Reactor, emit: Callable[[bytes], None], abort: Callable[[], None]
    ) -> None:
        self.about = about
        self.abort = abort
        self._tasks = tasks
        self._reactor = reactor
        self._emit = emit
        self._waiting: list[_Client] = []
        self._fresh: dict[bytes, bytes] = {}
        self.known: dict[bytes, bytes] = {b"PMI_process_mapping": about.mapping.encode()}
        #: entries of this node alone (PMI-2 info-putnodeattr), and clients that wait for them
        self.of_node: dict[bytes, bytes] = {}
        self.wanted: dict[bytes, list[_Client]] = {}

    def open(self, task_id: int) -> tuple[int, dict[bytes, bytes]]:
        """The task's end of a new connection, to be closed after the fork, and its variables."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        ours.setblocking(False)
        _Client(self, self._reactor, ours, task_id)  # the reactor keeps it
        descriptor = theirs.detach()
        return descriptor, {
            b"PMI_FD": b"%d" % descriptor,
            b"PMI_RANK": b"%d" % task_id,
            b"PMI_SIZE": b"%d" % self.about.size,
            b"PMI_JOBID": self.about.job_id.encode(),
        }

    def put(self, key: bytes, value: bytes) -> None:
        """An entry of a task; the others have it after the next fence."""
        self._fresh[key] = value
        self.known[key] = value

    def fence(self, client: _Client) -> None:
        """A task waits until all have reached the fence."""
        self._waiting.append(client)
        if len(self._waiting) < self._tasks:
            return
        fresh, self._fresh = self._fresh, {}
        if self.about.nodes > 1:
            self._emit(entry_frames(protocol.PMI_FENCE, fresh))
        else:
            self.release()

    def take(self, payload: bytes, *, last: bool) -> None:
        """Entries of all nodes; with the `last` of them the tasks go on. Raises ProtocolError."""
        self.known.update(read_entries(payload))
        if last:
            self.release()

    def release(self) -> None:
        """All tasks have reached the fence."""
        waiting, self._waiting = self._waiting, []
        for client in waiting:
            client.passed()


class _Client:
    """The connection of one task."""

    def __init__(self, server: PmiServer, reactor: Reactor, connection: socket.socket, task_id: int) -> None:
        self._server = server
        self._reactor = reactor
        self._connection = connection
        self._task_id = task_id
        self._decoder = pmi_wire.Decoder()
        self._closed = False
        self._thread = b""
        self._queued = bytearray()
        reactor.watch(connection.fileno(), READABLE, self._ready)

    def close(self) -> None:
        """Close the connection of the task."""
        if not self._closed:
            self._closed = True
            self._reactor.forget(self._connection.fileno())
            self._connection.close()

    def passed(self) -> None:
        """Tell the task that its fence is over."""
        if self._decoder.framed:
            self._answer(b"kvs-fence", {})
        else:
            self._say({b"cmd": b"barrier_out"})

    def found(self, value: bytes) -> None:
        """The node attribute that it waits for exists now."""
        self._answer(b"info-getnodeattr", {b"found": b"TRUE", b"value": value})

    def _ready(self, ready: int) -> None:
        if ready & WRITABLE:
            self._flush()
        if ready & ~WRITABLE:
            self._receive()

    def _receive(self) -> None:
        if self._closed:
            return
        try:
            data = os.read(self._connection.fileno(), _RECEIVE_BYTES)
            self._decoder.feed(data)
            while (message := self._next()) is not None:
                self._handle(message)
        except BlockingIOError:
            return
        except (OSError, pmi_wire.WireError):
            data = b""
        if not data:
            self.close()

    def _next(self) -> Fields | None:
        return None if self._closed else self._decoder.next()

    def _handle(self, message: Fields) -> None:
        name = message.get(b"cmd", b"")
        if name == b"abort":
            self._server.abort()
        elif self._decoder.framed:
            self._thread = message.get(b"thrid", b"")
            self._second(name, message)
        elif name == b"init":
            self._greet(message)
        else:
            self._first(name, message)

    def _greet(self, message: Fields) -> None:
        version = b"2" if message.get(b"pmi_version") == b"2" else b"1"
        subversion = b"0" if version == b"2" else b"1"
        self._say({b"cmd": b"response_to_init", b"pmi_version": version, b"pmi_subversion": subversion, b"rc": b"0"})
        self._decoder.framed = version == b"2"

    # -- PMI-1

    def _first(self, name: bytes, message: Fields) -> None:
        about = self._server.about
        if name == b"put":
            self._server.put(message.get(b"key", b""), message.get(b"value", b""))
            self._say({b"cmd": b"put_result", b"rc": b"0", b"msg": b"success"})
        elif name == b"get":
            value = self._server.known.get(message.get(b"key", b""))
            if value is None:
                self._say({b"cmd": b"get_result", b"rc": b"-1", b"msg": b"key_not_found", b"value": b"unknown"})
            else:
                self._say({b"cmd": b"get_result", b"rc": b"0", b"msg": b"success", b"value": value})
        elif name == b"barrier_in":
            self._server.fence(self)
        elif name == b"get_maxes":
            self._say(_MAXES)
        elif name == b"get_appnum":
            self._say({b"cmd": b"appnum", b"appnum": b"%d" % about.program})
        elif name == b"get_universe_size":
            self._say({b"cmd": b"universe_size", b"size": b"%d" % about.size})
        elif name == b"get_my_kvsname":
            self._say({b"cmd": b"my_kvsname", b"kvsname": about.job_id.encode()})
        elif name == b"finalize":
            self._say({b"cmd": b"finalize_ack"})
            self.close()
        elif name in (b"publish_name", b"unpublish_name", b"lookup_name", b"spawn"):
            self._say({b"cmd": name.partition(b"_")[0] + b"_result", b"rc": b"1", b"msg": b"not_supported"})

    # -- PMI-2

    def _second(self, name: bytes, message: Fields) -> None:
        server = self._server
        if name == b"fullinit":
            self._answer(
                name,
                {
                    b"pmi-version": b"2",
                    b"pmi-subversion": b"0",
                    b"rank": b"%d" % self._task_id,
                    b"size": b"%d" % server.about.size,
                    b"appnum": b"%d" % server.about.program,
                    b"debugged": b"FALSE",
                    b"pmiverbose": b"FALSE",
                },
            )
        elif name == b"kvs-put":
            server.put(message.get(b"key", b""), message.get(b"value", b""))
            self._answer(name, {})
        elif name == b"kvs-get":
            self._value(name, server.known.get(message.get(b"key", b"")))
        elif name == b"kvs-fence":
            server.fence(self)
        elif name == b"job-getid":
            self._answer(name, {b"jobid": server.about.job_id.encode()})
        elif name == b"info-getjobattr":
            key = message.get(b"key", b"")
            universe_size = b"%d" % server.about.size if key == b"universeSize" else None
            self._value(name, universe_size or server.known.get(key))
        elif name == b"info-putnodeattr":
            self._put_of_node(message.get(b"key", b""), message.get(b"value", b""))
            self._answer(name, {})
        elif name == b"info-getnodeattr":
            self._get_of_node(message.get(b"key", b""), wait=message.get(b"wait", b"").upper() == b"TRUE")
        elif name == b"finalize":
            self._answer(name, {})
            self.close()
        else:
            self._answer(name, {b"errmsg": b"not supported"}, status=b"1")

    def _value(self, name: bytes, value: bytes | None) -> None:
        if value is None:
            self._answer(name, {b"found": b"FALSE"})
        else:
            self._answer(name, {b"found": b"TRUE", b"value": value})

    def _put_of_node(self, key: bytes, value: bytes) -> None:
        self._server.of_node[key] = value
        for client in self._server.wanted.pop(key, ()):
            client.found(value)

    def _get_of_node(self, key: bytes, *, wait: bool) -> None:
        value = self._server.of_node.get(key)
        if value is None and wait:
            self._server.wanted.setdefault(key, []).append(self)
        else:
            self._value(b"info-getnodeattr", value)

    def _answer(self, name: bytes, fields: Fields, status: bytes = b"0") -> None:
        thread = {b"thrid": self._thread} if self._thread else {}
        self._send(pmi_wire.framed({b"cmd": name + b"-response", **thread, **fields, b"rc": status}))

    def _say(self, fields: Fields) -> None:
        self._send(pmi_wire.line(fields))

    def _send(self, data: bytes) -> None:
        self._queued += data
        self._flush()

    def _flush(self) -> None:
        """Write as much as the socket accepts; the rest when the task has read."""
        if self._closed:
            return
        descriptor = self._connection.fileno()
        try:
            write_some(descriptor, self._queued)
        except OSError:
            self.close()
            return
        self._reactor.watch(descriptor, READABLE | (WRITABLE if self._queued else 0), self._ready)
