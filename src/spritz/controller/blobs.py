"""Scripts and environments: stored once per content, on disk before any event names them, forgotten when no job does.

`BlobStore` owns which keys the journal has, what is on its way there, and how much of it each user has. The single
writer takes `take_unsent()` along with each group, so that a blob and the event that names it become durable together.
`BlobCollector` removes what no job names any more.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from spritz.controller.journal import Journal, JournalCorrupt, content_key
from spritz.controller.journal_reader import JournalReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.controller.context import Context
    from spritz.model.job import Job

#: Bytes of recently used blobs that are kept in memory: a burst of submissions launches without reading them back.
CACHE_BYTES_MAX = 8 * 1024 * 1024

#: Bytes of distinct scripts and environments that the jobs of one user may hold. Root and SlurmUser have no limit.
USER_BYTES_MAX = 2 * 1024**3

#: Seconds between two collections.
COLLECT_SECONDS = 30.0

#: Bytes that the journal removes in one transaction: commits wait for it, and its log must not grow.
REMOVED_BYTES_MAX = 4 * 1024 * 1024


class BlobStore:
    """Blobs by content. `put` before handing the command over; `get` when launching."""

    def __init__(self, journal: Journal, reader: JournalReader | None = None) -> None:
        self._reader = reader or JournalReader(journal)
        #: bytes by key
        self._known = journal.blob_sizes()
        #: the user whose job brought a blob, and the bytes of all blobs of a user
        self._owners: dict[str, int] = {}
        self._held: dict[int, int] = {}
        self._unsent: dict[str, bytes] = {}
        self._committing: dict[str, bytes] = {}
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cache_bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def attribute(self, jobs: Iterable[Job]) -> None:
        """Count the blobs of recovered jobs for their users."""
        for job in jobs:
            for key in (job.spec.script_key, job.spec.environment_key):
                if key in self._known:
                    self._own(key, job.spec.uid)

    def put(self, body: bytes, uid: int = -1) -> str:
        """Key of the blob; it will be durable with the next group. Empty content has the empty key.

        A new blob counts for the user `uid`.
        """
        if not body:
            return ""
        key = content_key(body)
        if key not in self._known:
            self._known[key] = len(body)
            self._unsent[key] = body
            self._own(key, uid)
        self._remember(key, body)
        return key

    async def get(self, key: str, *, seconds: float | None = None) -> bytes:
        """The blob of a key that some job names: at once from memory, or read from the journal.

        Raises JournalCorrupt if the journal does not have it, and WorkerTimeout if it cannot be read in `seconds`.
        """
        if not key:
            return b""
        body = self._cache.get(key)
        if body is not None:
            self._cache.move_to_end(key)
            return body
        body = self._unsent.get(key) or self._committing.get(key) or await self._reader.blob(key, seconds=seconds)
        if body is None:
            raise JournalCorrupt(f"script or environment {key} is missing from the journal")
        self._remember(key, body)
        return body

    def held_bytes(self, uid: int) -> int:
        """Bytes of the blobs that jobs of a user brought."""
        return self._held.get(uid, 0)

    def _own(self, key: str, uid: int) -> None:
        if key not in self._owners:
            self._owners[key] = uid
            self._held[uid] = self._held.get(uid, 0) + self._known[key]

    def _disown(self, key: str) -> None:
        size = self._known.pop(key)
        uid = self._owners.pop(key, None)
        if uid is not None:
            self._held[uid] -= size
            if not self._held[uid]:
                del self._held[uid]

    def take_unsent(self) -> dict[str, bytes]:
        """What the next group must carry. Readable here until `committed`."""
        self._committing, self._unsent = self._unsent, {}
        return self._committing

    def committed(self) -> None:
        """The group that took the last blobs is durable."""
        self._committing = {}

    @property
    def known(self) -> set[str]:
        """Keys of everything that is stored, or will be with the next group."""
        return set(self._known)

    def collect(self, live: set[str]) -> dict[str, int]:
        """Keys that the journal may remove because no job names them, and their bytes; from now on they are unknown."""
        garbage = self._known.keys() - live - self._unsent.keys() - self._committing.keys()
        sizes = {key: self._known[key] for key in sorted(garbage)}
        for key in sizes:
            self._disown(key)
            body = self._cache.pop(key, None)
            if body is not None:
                self._cache_bytes -= len(body)
        return sizes

    def _remember(self, key: str, body: bytes) -> None:
        if len(body) > CACHE_BYTES_MAX // 4:
            return
        if key not in self._cache:
            self._cache_bytes += len(body)
            self._cache[key] = body
        self._cache.move_to_end(key)
        while self._cache_bytes > CACHE_BYTES_MAX:
            _, dropped = self._cache.popitem(last=False)
            self._cache_bytes -= len(dropped)


class BlobCollector:
    """Removes scripts and environments that no job names, every `COLLECT_SECONDS`.

    Where accounting stores them (AccountingStoreFlags), a blob stays until slurmdbd has read the events that name it:
    `needed_after` gives the last event that it has read.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.needed_after: Callable[[], int] | None = None
        #: keys that no job named when event `_unnamed_at` was the last
        self._unnamed: set[str] = set()
        self._unnamed_at = 0
        #: the last event of the last collection: without a new one there is nothing to do
        self._looked_at = -1

    async def run(self) -> None:
        """Collect for as long as the daemon lives."""
        while True:
            await self._context.clock.sleep(COLLECT_SECONDS)
            self.collect()

    def collect(self) -> None:
        """Remove now what is superfluous."""
        context = self._context
        sequence = context.writer.last_sequence
        if sequence == self._looked_at and not self._unnamed:
            return
        self._looked_at = sequence
        named: set[str] = set()
        for job in context.machine.state.jobs.values():
            named.add(job.spec.script_key)
            named.add(job.spec.environment_key)
        garbage = context.blobs.collect(named | self._unread(named))
        if garbage:
            # A crash must not find the jobs without their scripts: their end is durable first.
            context.writer.when_durable(lambda: self._remove(garbage))

    def _unread(self, named: set[str]) -> set[str]:
        """Keys that no job names any more, but that an event may name which slurmdbd has yet to read."""
        if self.needed_after is None:
            return set()
        known = self._context.blobs.known
        unread = known - self._unnamed if self.needed_after() >= self._unnamed_at else known
        self._unnamed, self._unnamed_at = known - named, self._looked_at
        return unread

    def _remove(self, garbage: dict[str, int]) -> None:
        piece: set[str] = set()
        size = 0
        for key, length in garbage.items():
            piece.add(key)
            size += length
            if size >= REMOVED_BYTES_MAX:
                self._remove_piece(piece)
                piece, size = set(), 0
        if piece:
            self._remove_piece(piece)

    def _remove_piece(self, keys: set[str]) -> None:
        self._context.writer.maintain(partial(self._context.journal.remove_blobs, keys))
