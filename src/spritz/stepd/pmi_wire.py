"""The PMI protocol on PMI_FD: bytes <-> fields, without any I/O.

PMI-1 is lines of `name=value` words. PMI-2 begins with one such line, and after its answer every message is six
characters with its length and `name=value;` pairs, in which `;;` stands for `;`.

Source: MPICH's simple PMI clients (the "PMI wire protocol"); mpi/pmi2 of Slurm speaks both.
"""

from __future__ import annotations

Fields = dict[bytes, bytes]

#: longest message; a longer one is not this protocol
MESSAGE_BYTES_MAX = 512 * 1024
_LENGTH_BYTES = 6


class WireError(ValueError):
    """The peer's bytes are no PMI; close the connection."""


class Decoder:
    """Splits a task's bytes into messages. Set `framed` after answering a PMI-2 greeting."""

    def __init__(self) -> None:
        self.framed = False
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Fields | None:
        """The next whole message; None until more has come. Raises WireError."""
        return self._next_framed() if self.framed else self._next_line()

    def _next_line(self) -> Fields | None:
        end = self._buffer.find(b"\n")
        if end < 0:
            if len(self._buffer) > MESSAGE_BYTES_MAX:
                raise WireError("a line without an end")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        words = [word.partition(b"=") for word in line.split()]
        values = {name: value for name, equals, value in words if equals}
        if b"mcmd" in values:  # several lines follow, to `endcmd`
            values[b"cmd"] = values.pop(b"mcmd")
        return values

    def _next_framed(self) -> Fields | None:
        if len(self._buffer) < _LENGTH_BYTES:
            return None
        head = bytes(self._buffer[:_LENGTH_BYTES]).strip()
        if not head.isdigit() or int(head) > MESSAGE_BYTES_MAX:
            raise WireError(f"no length: {head!r}")
        end = _LENGTH_BYTES + int(head)
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_LENGTH_BYTES:end])
        del self._buffer[:end]
        pairs = [word.partition(b"=") for word in _split(body)]
        return {name: value for name, _, value in pairs if name}


def _split(body: bytes) -> list[bytes]:
    """Words between single semicolons."""
    return [word.replace(b"\0", b";") for word in body.replace(b"\0", b"").replace(b";;", b"\0").split(b";")]


def line(fields: Fields) -> bytes:
    """A PMI-1 message: `key=value` separated by spaces, ended by a newline."""
    return b" ".join([b"%s=%s" % item for item in fields.items()]) + b"\n"


def framed(fields: Fields) -> bytes:
    """A PMI-2 message: six digits for the length, then `key=value;` pairs."""
    body = b"".join([b"%s=%s;" % (name, value.replace(b";", b";;")) for name, value in fields.items()])
    return b"%6d%s" % (len(body), body)


def process_mapping(ranks_of_nodes: tuple[tuple[int, ...], ...]) -> str:
    """Ranks of each node in MPICH's notation: `(vector,(first node,nodes,ranks on each),…)` in order of ranks."""
    place = {rank: node for node, ranks in enumerate(ranks_of_nodes) for rank in ranks}
    runs: list[list[int]] = []  # of ranks on one node: node, length
    for rank in sorted(place):
        if runs and runs[-1][0] == place[rank]:
            runs[-1][1] += 1
        else:
            runs.append([place[rank], 1])
    blocks: list[list[int]] = []  # of such runs on one node after another: first node, nodes, length
    for node, length in runs:
        if blocks and blocks[-1][2] == length and blocks[-1][0] + blocks[-1][1] == node:
            blocks[-1][1] += 1
        else:
            blocks.append([node, 1, length])
    return f"(vector,{','.join(f'({first},{nodes},{length})' for first, nodes, length in blocks)})"
