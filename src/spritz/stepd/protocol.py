"""The protocol between a step's supervisors and its client (srun, salloc, sattach, sbcast): frames, without any I/O.

The client listens on the address it wrote in `StepSpec.io_address`; every node's supervisor connects to it, once, and
that connection carries all the standard I/O and all the control of the node's tasks. Sources: srun(1), sattach(1).

A frame is a 9-byte header `!BII` (kind, task, payload length) and the payload. `task` is a *global* rank, or
`ALL_TASKS` where the frame is about the node or about every task on it.

    supervisor -> client
      HELLO        first frame: `Hello` in msgpack. Close the connection if `hello.key` is not your `io_key`.
      STARTED      every task of this node runs: `Started` in msgpack
      STDOUT       bytes of one task; an empty payload is the end of that stream
      STDERR       likewise (never sent with a pty: all is STDOUT there)
      STDIN_CREDIT `!I`: this many bytes of standard input were consumed; the client may send as many again
      EXIT         `!iB` (`pack_exit`): wait status of one task, flags (EXIT_OOM). Its output up to then came before.
      MESSAGE      text for the client's own standard error: whole lines, printed as they are, no label
      PMI_FENCE    entries (msgpack) of tasks that wait for those of other nodes; see `pmi`
      PMI_ABORT    a task has called for the end of the whole step; with PMIx: `!i`, the exit status it chose (0: none),
                   and no time to end well
      PMIX         a message to PMIx servers of other nodes (`pmix.messages`), in one frame or several
      DONE         nothing follows: all tasks have ended, all output was sent. The supervisor then closes.
                   End of file *without* DONE: the supervisor or its node died.
      VIA          frames of another node, whose place in the step is `task`, on their way through this one
      LOST         the connection of the node with place `task` has ended without DONE; it may come by another way

    client -> supervisor
      STDIN        bytes for one task or ALL_TASKS. Keep at most STDIN_WINDOW_BYTES uncredited per connection.
      STDIN_EOF    end of standard input for one task or ALL_TASKS
      SIGNAL       `!I`: signal number, to one task or ALL_TASKS, and to what they started
      WINDOW_SIZE  `!HH`: rows, columns of the client's terminal (pty only)
      TERMINATE    `!I`: TERM and CONT now, KILL after this many seconds
      PMI_KVS      entries of all nodes, after the PMI_FENCE of the last
      PMIX         a message from PMIx servers of other nodes
      DETACH       the client goes; the step goes on without it (sattach). A client of `io_address` that just closes
                   its connection is taken to be dead, and the step is killed as Slurm does.
      VIA          whole frames for the node with place `task`, or ALL_NODES: for all nodes behind this one

    both ways, where the conversation is *numbered* (`Hello.attempt` is not negative)
      TAKEN        `!Q`: number of bytes of the other end's frames that have been taken

Unless the step is `unbuffered` or has a pty, the payload of STDOUT and STDERR is whole lines: it ends with a newline,
at the end of the stream, or is a piece of one line longer than LINE_BYTES_MAX. So labels (`--label`) can be put by the
client. Flow control of output is the connection's own: a client that does not read stops the tasks when they have
filled the supervisor's buffer; signals still get through. An *attached* client that does not read is dropped instead.

A step on more nodes than TreeWidth, whose client understands it (`StepSpec.tree_width`), has its supervisors in a tree:
most connect to the supervisor of another node, which passes their frames on in VIA (`stepd.clients.below`). Such a
conversation may lose its way, as one between machines may, and is therefore numbered: both ends count the bytes of
whole frames (HELLO, TAKEN, VIA and LOST do not count) and keep what the other has not TAKEN. The supervisor makes
another connection with the next `Hello.attempt` and what it has `received`; the client answers every HELLO of a
numbered conversation with TAKEN, and each sends again what the other lacks. Until then the supervisor takes nothing. It
leaves when all that it has said, DONE included, was taken. docs/decisions/0210.

What a client does
------------------
    kind, where = parse_address("unix:@spritz-srun-4711")      # bind and listen there before CreateStep
    decoder = Decoder()
    for kind, task, payload in decoder.feed(connection.recv(65536)):
        if kind == HELLO: hello = decode_hello(payload)         # …
    connection.sendall(frame(SIGNAL, ALL_TASKS, pack_number(2)))
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import error as LayoutError

import msgspec.msgpack

#: First version of this protocol; it travels in `Hello.version`.
VERSION = 1

ALL_TASKS = 0xFFFFFFFF
#: In VIA to supervisors, whose `task` is the place of a node.
ALL_NODES = 0xFFFFFFFF

HELLO = 1
STARTED = 2
STDOUT = 3
STDERR = 4
STDIN_CREDIT = 5
EXIT = 6
MESSAGE = 7
DONE = 8
PMI_FENCE = 9
PMI_ABORT = 10
PMIX = 11
VIA = 12
LOST = 13
TAKEN = 14

STDIN = 16
STDIN_EOF = 17
SIGNAL = 18
WINDOW_SIZE = 19
TERMINATE = 20
DETACH = 21
PMI_KVS = 22

KINDS = frozenset(
    {HELLO, STARTED, STDOUT, STDERR, STDIN_CREDIT, EXIT, MESSAGE, DONE, PMI_FENCE, PMI_ABORT, PMIX, VIA, LOST, TAKEN}
    | {STDIN, STDIN_EOF, SIGNAL, WINDOW_SIZE, TERMINATE, DETACH, PMI_KVS}
)

#: In EXIT's flags: the task (or something of it) was killed for memory.
EXIT_OOM = 1

#: Bytes of standard input that a client may have sent without credit for them.
STDIN_WINDOW_BYTES = 256 * 1024
#: A longer line is sent in pieces.
LINE_BYTES_MAX = 16 * 1024
#: No payload is longer; a peer that announces one does not speak this protocol.
PAYLOAD_BYTES_MAX = 1024 * 1024

_HEADER = Layout("!BII")
_EXIT = Layout("!iB")
_NUMBER = Layout("!I")
_STATUS = Layout("!i")
_COUNT = Layout("!Q")
_WINDOW = Layout("!HH")
HEADER_BYTES = _HEADER.size
#: A VIA holds a whole frame.
_VIA_BYTES_MAX = PAYLOAD_BYTES_MAX + HEADER_BYTES


class ProtocolError(ValueError):
    """The peer's bytes are not frames of this protocol; close the connection."""


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """Who connects. `node_index` is the node's place in the step; `task_ids` are its tasks' ranks in local order.

    `pid` is the supervisor's. `attached`: the client asked by AttachClient, the step was running before. `attempt`
    counts the connections of a numbered conversation from 0; `received`: bytes of the client's frames that were taken.
    `below`: number of other nodes that connect to this one.
    """

    version: int
    key: str
    node: str
    node_index: int
    job_id: int
    step_id: int
    task_ids: tuple[int, ...]
    pid: int = 0
    attached: bool = False
    attempt: int = -1
    received: int = 0
    below: int = 0


class Started(msgspec.Struct, frozen=True, array_like=True):
    """Process ids of the node's tasks, in the order of `Hello.task_ids`."""

    pids: tuple[int, ...]


_encode = msgspec.msgpack.encode
_hello_decoder = msgspec.msgpack.Decoder(Hello)
_started_decoder = msgspec.msgpack.Decoder(Started)


def frame(kind: int, task: int = ALL_TASKS, payload: bytes | bytearray | memoryview = b"") -> bytes:
    """One frame. The payload is at most PAYLOAD_BYTES_MAX long: split streams before."""
    return _HEADER.pack(kind, task, len(payload)) + payload


def frames(kind: int, task: int, data: bytes | bytearray | memoryview) -> bytes:
    """Frames for a stream's bytes of any length (no frame for none)."""
    if len(data) <= PAYLOAD_BYTES_MAX:
        return frame(kind, task, data) if data else b""
    view = memoryview(data)
    pieces = range(0, len(data), PAYLOAD_BYTES_MAX)
    return b"".join(frame(kind, task, view[at : at + PAYLOAD_BYTES_MAX]) for at in pieces)


def encode_hello(hello: Hello) -> bytes:
    return frame(HELLO, ALL_TASKS, _encode(hello))


def decode_hello(payload: bytes) -> Hello:
    """The supervisor's introduction. Raises ProtocolError if it is malformed or of another version."""
    try:
        hello = _hello_decoder.decode(payload)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"bad HELLO: {error}") from error
    if hello.version != VERSION:
        raise ProtocolError(f"supervisor of {hello.node} speaks version {hello.version}, not {VERSION}")
    return hello


def encode_started(pids: tuple[int, ...]) -> bytes:
    return frame(STARTED, ALL_TASKS, _encode(Started(pids)))


def decode_started(payload: bytes) -> Started:
    """Process ids of the started tasks. Raises ProtocolError if it is malformed."""
    try:
        return _started_decoder.decode(payload)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ProtocolError(f"bad STARTED: {error}") from error


def pack_exit(status: int, flags: int = 0) -> bytes:
    """Payload of EXIT: a wait status as os.wait gives it, and EXIT_ flags."""
    return _EXIT.pack(status, flags)


def unpack_exit(payload: bytes) -> tuple[int, int]:
    """(wait status, flags) of EXIT. Raises ProtocolError."""
    return _unpack(_EXIT, payload)  # type: ignore[return-value]  # the layout has two fields


def pack_number(value: int) -> bytes:
    """Payload of SIGNAL, TERMINATE and STDIN_CREDIT."""
    return _NUMBER.pack(value)


def unpack_number(payload: bytes) -> int:
    """Value of SIGNAL, TERMINATE and STDIN_CREDIT. Raises ProtocolError for a payload of another length."""
    return _unpack(_NUMBER, payload)[0]


def pack_status(status: int) -> bytes:
    """Payload of PMI_ABORT: the exit status that the task chose."""
    return _STATUS.pack(status)


def unpack_status(payload: bytes) -> int:
    """Exit status of PMI_ABORT. Raises ProtocolError for a payload of another length."""
    return _unpack(_STATUS, payload)[0]


def pack_count(count: int) -> bytes:
    """Payload of TAKEN: number of bytes of the other end's frames that have been taken."""
    return _COUNT.pack(count)


def unpack_count(payload: bytes) -> int:
    """Byte count of TAKEN. Raises ProtocolError for a payload of another length."""
    return _unpack(_COUNT, payload)[0]


def pack_window(rows: int, columns: int) -> bytes:
    """Payload of WINDOW_SIZE: size of the client's terminal in characters."""
    return _WINDOW.pack(rows & 0xFFFF, columns & 0xFFFF)


def unpack_window(payload: bytes) -> tuple[int, int]:
    """(rows, columns) of WINDOW_SIZE, in characters. Raises ProtocolError for a payload of another length."""
    return _unpack(_WINDOW, payload)  # type: ignore[return-value]  # the layout has two fields


def _unpack(layout: Layout, payload: bytes) -> tuple[int, ...]:
    try:
        return layout.unpack(payload)
    except LayoutError as error:
        raise ProtocolError(f"payload of {len(payload)} bytes where {layout.size} belong") from error


class Decoder:
    """Cuts received bytes into frames, however they arrive. After a ProtocolError it must not be fed again."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """(kind, task, payload) of each frame that `data` completes, in order. Raises ProtocolError."""
        buffer = self._buffer
        buffer += data
        end = len(buffer)
        at = 0
        frames: list[tuple[int, int, bytes]] = []
        while end - at >= HEADER_BYTES:
            kind, task, size = _HEADER.unpack_from(buffer, at)
            if kind not in KINDS or size > (_VIA_BYTES_MAX if kind == VIA else PAYLOAD_BYTES_MAX):
                raise ProtocolError(f"impossible frame (kind {kind}, {size} bytes)")
            start = at + HEADER_BYTES
            if end - start < size:
                break
            at = start + size
            frames.append((kind, task, bytes(buffer[start:at])))
        if at:
            del buffer[:at]
        return frames


def via(node_index: int, data: bytes) -> bytes:
    """VIA frames for whole frames of any length in all. Each has as many as it can hold."""
    if len(data) <= _VIA_BYTES_MAX:
        return _HEADER.pack(VIA, node_index, len(data)) + data
    frames, begin, at = [], 0, 0
    while at < len(data):
        end = at + HEADER_BYTES + _HEADER.unpack_from(data, at)[2]
        if end - begin > _VIA_BYTES_MAX:
            frames.append(_HEADER.pack(VIA, node_index, at - begin) + data[begin:at])
            begin = at
        at = end
    frames.append(_HEADER.pack(VIA, node_index, at - begin) + data[begin:at])
    return b"".join(frames)


def may_wait(frames: bytes) -> bool:
    """Whether no user notices if a frame is a little late: that tasks run, or the end of a stream."""
    return frames[0] == STARTED or (frames[0] in (STDOUT, STDERR) and len(frames) == HEADER_BYTES)


def elsewhere(text: str) -> tuple[str, str, str] | None:
    """The parts of a client's address in a cluster of several machines, `at:HOST:@SOCKET:ADDRESS`: the machine that the
    client is on, the socket by which it is reached from others, and its address there. None for a plain address.
    """
    scheme, _, place = text.partition(":")
    if scheme != "at":
        return None
    host, _, place = place.partition(":")
    name, _, address = place.partition(":")
    return host, "\0" + name.removeprefix("@"), address


def address_at(host: str, socket_name: str, address: str) -> str:
    """The reverse of `elsewhere`; what is one already stays as it is."""
    return address if address.startswith("at:") else f"at:{host}:@{socket_name.removeprefix(chr(0))}:{address}"


#: The answer if the client was reached; and if only its machine was, because no process listens there (yet, or any
#: more). If the machine cannot be reached, the connection ends without an answer.
REACHED, ABSENT = b"\x01", b"\x03"


class Where(msgspec.Struct, frozen=True, array_like=True):
    """Where a supervisor wants to be led: to the user's socket `address` on the machine `host`, by way of the
    controller; or, if `at` is given, on the machine whose slurmd is at this address and port."""

    host: str
    address: str
    at: str = ""
    port: int = 0


def preamble(where: Where) -> bytes:
    """First bytes on that socket: two of length, then where the client is."""
    content = _encode(where)
    return len(content).to_bytes(2, "big") + content


def parse_address(text: str) -> str:
    """The Unix socket of a client: `unix:@name` -> "\\0name" (abstract), `unix:/path` -> "/path".

    Raises ValueError for anything else: the kernel says who listens at these alone.
    """
    scheme, _, name = text.partition(":")
    if scheme == "unix" and name:
        return "\0" + name[1:] if name[0] == "@" else name
    raise ValueError(f"not an address: {text!r} (unix:@name or unix:/path)")
