"""Collectives and queries of a node's PMIx server that involve other nodes. No I/O.

Source: the PMIx standard 4.1, "Server-Specific Interfaces".
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from spritz.stepd.pmix import messages
from spritz.stepd.pmix.binding import ERR_NOT_FOUND, SUCCESS, WILDCARD
from spritz.stepd.pmix.published import Board

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.stepd.pmix.messages import Body, Message
    from spritz.stepd.pmix.server import Reply
    from spritz.stepd.spec import Pmix

#: the node that keeps what is published
_KEEPER = 0


class Exchange:
    """`send` reaches the other nodes; `local_data(rank, reply)` asks the library for what a task here has put."""

    def __init__(self, about: Pmix, send: Callable[[Message], None], local_data: Callable[[int, Reply], None]) -> None:
        self._about = about
        self._send = send
        self._local_data = local_data
        self._node_of = {rank: node for node, ranks in enumerate(about.ranks) for rank in ranks}
        self._collectives: dict[bytes, Reply] = {}
        self._asked: dict[int, Reply] = {}
        self._count = 0
        self._board = Board()

    def collect(self, kind: bytes, ranks: tuple[int, ...], data: bytes, reply: Reply) -> None:
        """A collective of these ranks. The ranks identify it: the same set meets again only after it has finished."""
        everybody = WILDCARD in ranks
        nodes = range(len(self._about.nodes)) if everybody else sorted({self._node_of.get(rank, -1) for rank in ranks})
        if nodes[0] < 0:
            reply(ERR_NOT_FOUND, b"")
        elif len(nodes) == 1:
            reply(SUCCESS, data)
        else:
            who = b"*" if everybody else hashlib.sha256(repr(ranks).encode()).digest()
            key = kind + b":" + who
            self._collectives[key] = reply
            self._send(messages.Gather(key, tuple(nodes), data))

    def fetch(self, rank: int, reply: Reply) -> None:
        """Get the data that a task has put."""
        node = self._node_of.get(rank)
        if node is None:
            reply(ERR_NOT_FOUND, b"")
        else:
            self._ask(node, messages.Fetch(rank), reply)

    def publish(self, rank: int, entries: tuple[tuple[bytes, bytes], ...], reply: Reply) -> None:
        """Store entries published by a task here."""
        self._ask(_KEEPER, messages.Publish(rank, entries), reply)

    def look_up(self, keys: tuple[bytes, ...], wait: int, reply: Reply) -> None:
        """Answer with the entries under these keys, now or when there are `wait` of them."""
        self._ask(_KEEPER, messages.Lookup(keys, wait), reply)

    def unpublish(self, rank: int, keys: tuple[bytes, ...], reply: Reply) -> None:
        """Remove entries of a task here: these, or all."""
        self._ask(_KEEPER, messages.Unpublish(rank, keys), reply)

    def take(self, message: Message) -> None:
        """Process a message from the client or, through it, another node. Raises ProtocolError."""
        if isinstance(message, messages.Gathered):
            reply = self._collectives.pop(message.key, None)
            if reply is not None:
                reply(SUCCESS, message.data)
        elif isinstance(message, messages.Answer):
            reply = self._asked.pop(message.number, None)
            if reply is not None:
                reply(message.status, message.data)
        elif isinstance(message, messages.Question):
            asker, number = message.sender, message.number
            self._do(
                messages.decode_body(message.body),
                lambda status, data: self._send(messages.Answer(asker, self._about.node, number, status, data)),
            )

    def _ask(self, node: int, body: Body, reply: Reply) -> None:
        if node == self._about.node:
            self._do(body, reply)
            return
        self._count += 1
        self._asked[self._count] = reply
        self._send(messages.Question(node, self._about.node, self._count, messages.encode_body(body)))

    def _do(self, body: Body, reply: Reply) -> None:
        """Carry out a request of this node or another one."""
        if isinstance(body, messages.Fetch):
            self._local_data(body.rank, reply)
        elif isinstance(body, messages.Publish):
            self._board.publish(body.rank, body.entries, reply)
        elif isinstance(body, messages.Lookup):
            self._board.look_up(body.keys, body.wait, reply)
        else:
            self._board.unpublish(body.rank, body.keys, reply)
