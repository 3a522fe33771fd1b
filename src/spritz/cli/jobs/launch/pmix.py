"""The hub of a step's PMIx servers: collectives of nodes, and queries from a node's server to another's.

Source: srun(1) --mpi=pmix; `stepd.pmix.messages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.stepd.pmix.messages import Answer, Assembler, Gather, Gathered, Message, Question, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.cli.jobs.launch.listener import Link

#: PMIX_ERR_NOT_FOUND, which the hub answers for a node that has ended.
_NOT_FOUND = -46


class PmixHub:
    """Carries messages between nodes, by their rank in the step. `links` returns the connected supervisors."""

    def __init__(self, links: Callable[[], Iterable[Link]]) -> None:
        self._links = links
        self._assemblers: dict[int, Assembler] = {}
        #: unfinished collectives, by key: data of the nodes that have contributed
        self._parts: dict[bytes, dict[int, bytes]] = {}
        #: unanswered queries: (node queried, querying node, number)
        self._asked: set[tuple[int, int, int]] = set()

    def take(self, link: Link, payload: bytes, *, last: bool) -> None:
        """Handle a frame from a node. Raises ProtocolError."""
        message = self._assemblers.setdefault(link.rank, Assembler()).feed(payload, last=last)
        if isinstance(message, Gather):
            parts = self._parts.setdefault(message.key, {})
            parts[link.rank] = message.data
            if parts.keys() >= set(message.nodes):
                del self._parts[message.key]
                together = b"".join([data for _rank, data in sorted(parts.items())])
                self._send(set(message.nodes), Gathered(message.key, together))
        elif isinstance(message, Question):
            if self._send({message.to}, message):
                self._asked.add((message.to, link.rank, message.number))
            else:
                self._answer_for(message.to, link.rank, message.number)
        elif isinstance(message, Answer):
            self._asked.discard((link.rank, message.to, message.number))
            self._send({message.to}, message)

    def ended(self, rank: int) -> None:
        """A node has ended and answers no more queries: answer those that wait for it."""
        for node, asker, number in [query for query in self._asked if query[0] == rank]:
            self._asked.discard((node, asker, number))
            self._answer_for(node, asker, number)

    def _answer_for(self, node: int, asker: int, number: int) -> None:
        self._send({asker}, Answer(asker, node, number, _NOT_FOUND))

    def _send(self, nodes: set[int], message: Message) -> bool:
        """Send a message to connected nodes; False if none of them is connected."""
        data = frames(message)
        connected = [link for link in self._links() if not link.closed and link.rank in nodes]
        for link in connected:
            link.send(data)
        return bool(connected)
