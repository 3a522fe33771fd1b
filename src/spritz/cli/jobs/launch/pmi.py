"""The hub of a step's PMI servers: at each fence, sends the entries that tasks have put to all nodes.

Source: srun(1) --mpi=pmi2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.jobs.launch.listener import send_all
from spritz.stepd import protocol
from spritz.stepd.pmi import entry_frames, read_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.cli.jobs.launch.listener import Link


class Hub:
    """Collects fences, one after the other. `links` returns the connected supervisors. `nodes`: their final number."""

    def __init__(self, links: Callable[[], Iterable[Link]], nodes: int) -> None:
        self._links = links
        self._nodes = nodes
        self._entries: dict[bytes, bytes] = {}
        self._arrived: set[Link] = set()

    def fence(self, link: Link, payload: bytes, *, last: bool) -> None:
        """Entries of a node; `last`: the node's tasks all wait in the fence now. Raises ProtocolError."""
        self._entries.update(read_entries(payload))
        if last:
            self._arrived.add(link)
        if len(self._arrived) == self._nodes:
            frames = entry_frames(protocol.PMI_KVS, self._entries)
            self._entries.clear()
            self._arrived.clear()
            send_all(self._links(), frames)
