"""Scripts and environments: stored once per content, durable before any event names them, removed when no job does.

`BlobStore` knows the keys in the journal, the blobs on their way there, and the bytes of each user. The single writer
adds `take_unsent()` to each group, so a blob and the event that names it become durable together. `BlobCollector`
removes blobs that no job names any more.
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

#: Bytes of recently used blobs kept in memory, so that a burst of submissions launches without reading them back.
CACHE_BYTES_MAX = 8 * 1024 * 1024

#: Bytes of distinct scripts and environments that one user's jobs may hold. No limit for root and SlurmUser.
USER_BYTES_MAX = 2 * 1024**3

#: Seconds between two collections.
COLLECT_SECONDS = 30.0

#: Bytes removed in one transaction: commits wait for it, and it grows the journal's log.
REMOVED_BYTES_MAX = 4 * 1024 * 1024


class BlobStore:
    """Blobs by content. Call `put` before handing over the command that names a blob; `get` at a launch."""

    def __init__(self, journal: Journal, reader: JournalReader | None = None) -> None:
        self._reader = reader or JournalReader(journal)
        #: bytes by key
        self._known = journal.blob_sizes()
        #: the user whose job brought a blob, and the total bytes of each user's blobs
        self._owners: dict[str, int] = {}
        self._held: dict[int, int] = {}
        self._unsent: dict[str, bytes] = {}
        self._committing: dict[str, bytes] = {}
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cache_bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def attribute(self, jobs: Iterable[Job]) -> None:
        """Attribute the blobs of recovered jobs to their users."""
        for job in jobs:
            for key in (job.spec.script_key, job.spec.environment_key):
                if key in self._known:
                    self._own(key, job.spec.uid)

    def put(self, body: bytes, uid: int = -1) -> str:
        """Key of the blob; it will be durable with the next group. Empty content has the empty key.

        A new blob counts towards the limit of user `uid`.
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
        """The blob that a job names: from memory, or read from the journal.

        Raises JournalCorrupt if the journal lacks it, and WorkerTimeout if reading takes longer than `seconds`.
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
        """The blobs that the next group must carry. They can be read here until `committed`."""
        self._committing, self._unsent = self._unsent, {}
        return self._committing

    def committed(self) -> None:
        """The group with the last unsent blobs is durable."""
        self._committing = {}

    @property
    def known(self) -> set[str]:
        """Keys of all blobs that are stored or will be with the next group."""
        return set(self._known)

    def collect(self, live: set[str]) -> dict[str, int]:
        """Keys and sizes of blobs that no job names. The journal may remove them; from now on they count as unknown."""
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
    """Removes unused scripts and environments every `COLLECT_SECONDS`.

    If accounting stores them (AccountingStoreFlags), a blob stays until slurmdbd has read the events that name it:
    `needed_after` returns the last event read.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.needed_after: Callable[[], int] | None = None
        #: keys that no job named at event number `_unnamed_at`
        self._unnamed: set[str] = set()
        self._unnamed_at = 0
        #: number of the last event at the last collection: without new events there is nothing to do
        self._looked_at = -1

    async def run(self) -> None:
        """Runs for as long as the daemon lives."""
        while True:
            await self._context.clock.sleep(COLLECT_SECONDS)
            self.collect()

    def collect(self) -> None:
        """Remove blobs that no job names any more and that accounting does not need to read any more."""
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
            # The jobs' ends must be durable first: after a crash a job must still find its script.
            context.writer.when_durable(lambda: self._remove(garbage))

    def _unread(self, named: set[str]) -> set[str]:
        """Unused keys that may occur in an event which slurmdbd has not read yet."""
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
