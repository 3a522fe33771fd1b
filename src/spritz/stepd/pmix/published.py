"""Entries that tasks publish for others (MPI_Publish_name and others), stored by the step's first node.

Source: the PMIx standard 4.1, "Publish/Lookup Operations".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.stepd.pmix import messages
from spritz.stepd.pmix.binding import ERR_DUPLICATE_KEY, ERR_NOT_FOUND, ERR_PARTIAL_SUCCESS, SUCCESS

if TYPE_CHECKING:
    from spritz.stepd.pmix.messages import Published
    from spritz.stepd.pmix.server import Reply


class Board:
    """Entries by key, and those who wait for some."""

    def __init__(self) -> None:
        self._entries: dict[bytes, tuple[int, bytes]] = {}
        self._waiting: list[tuple[tuple[bytes, ...], int, Reply]] = []

    def publish(self, rank: int, entries: tuple[tuple[bytes, bytes], ...], reply: Reply) -> None:
        """All of them, or none if a key is taken."""
        if any(key in self._entries for key, _ in entries):
            reply(ERR_DUPLICATE_KEY, b"")
            return
        self._entries.update({key: (rank, value) for key, value in entries})
        reply(SUCCESS, b"")
        waiting, self._waiting = self._waiting, []
        for keys, wanted, waiter in waiting:
            self.look_up(keys, wanted, waiter)

    def look_up(self, keys: tuple[bytes, ...], wait: int, reply: Reply) -> None:
        """Answer with those that are there: at once, or when there are `wait` of them."""
        entries: Published = []
        for key in keys:
            if key in self._entries:
                rank, value = self._entries[key]
                entries.append((rank, key, value))
        if len(entries) < min(wait, len(keys)):
            self._waiting.append((keys, wait, reply))
            return
        status = ERR_NOT_FOUND if not entries else SUCCESS if len(entries) == len(keys) else ERR_PARTIAL_SUCCESS
        reply(status, messages.encode_published(entries))

    def unpublish(self, rank: int, keys: tuple[bytes, ...], reply: Reply) -> None:
        """Remove these entries of a task, or all of its own."""
        for key, (owner, _) in list(self._entries.items()):
            if owner == rank and (not keys or key in keys):
                del self._entries[key]
        reply(SUCCESS, b"")
