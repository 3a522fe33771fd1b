"""Scripts and environments: stored once per content, durable before any event names them, removed when no job does.

`BlobStore` knows the keys in the journal, the blobs on their way there, and the bytes of each user. The single writer
adds `take_unsent()` to each group, so a blob and the event that names it become durable together.

`BlobCollector` removes blobs that no job names any more. A key that a job names was `put` for that job, or another
job named it at that time (a task of an array, the next run of a crontab's entry). So a key that no job named at some
moment, and that was not put since, is named by no job now. `put` withdraws a key from the collection in progress and
from the removals to come. What is left is removed by the single writer, which takes these keys and hands their removal
to the journal's thread in one step: a later `put` finds the key unknown, and stores the blob again after the removal.

When a script comes again whose last job has ended, by the stage of its removal:

    looked for       `put` adds it to `_named`: the collection leaves it
    found            `put` takes it out of `_unnamed`: it is not removed
    taken            `put` finds it unknown: its removal is queued, and it is stored by a group behind that
    read meanwhile   a read that began before the removal may find nothing: `_lost` leaves what was put since
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec.msgpack import Decoder, Encoder

from spritz.controller.journal.contract import BlobDamaged, Journal, JournalCorrupt, content_key
from spritz.controller.journal.reader import JournalReader
from spritz.controller.needs import Reading
from spritz.timeouts import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from spritz.model.job.record import Job

T = TypeVar("T")

#: Bytes of recently used blobs kept in memory, so that a burst of submissions launches without reading them back.
CACHE_BYTES_MAX = 8 * 1024 * 1024

#: Bytes of distinct scripts and environments that one user's jobs may hold. No limit for root and SlurmUser.
USER_BYTES_MAX = 2 * 1024**3

#: Seconds between two collections.
COLLECT_SECONDS = 30.0

#: Bytes and blobs removed in one transaction: commits wait for it, and it grows the journal's log.
REMOVED_BYTES_MAX = 4 * 1024 * 1024
REMOVED_BLOBS_MAX = 1_000

#: Jobs, or keys, looked at in one turn of the loop: about a millisecond.
SLICE = 4_000


class BlobStore:
    """Blobs by content. Call `put` before handing over the command that names a blob; `get` at a launch."""

    def __init__(self, journal: Journal, reader: JournalReader | None = None) -> None:
        self._reader = reader or JournalReader(journal)
        #: Bytes by key. A key is here from its `put`, before it is durable: two submissions of one turn share it. If
        #: its group fails, the daemon ends.
        self._known = journal.blob_sizes()
        #: the user whose job brought a blob, and the total bytes of each user's blobs
        self._owners: dict[str, int] = {}
        self._held: dict[int, int] = {}
        self._unsent: dict[str, bytes] = {}
        #: those of the group on its way: no reader of the journal finds them yet
        self._committing: dict[str, bytes] = {}
        #: keys that a collection in progress has found in use; None: none is in progress
        self._named: set[str] | None = None
        #: Keys to remove, with the number of the last event that may name them. Numbers rise, in the order of the
        #: entries: `take_unnamed` stops at the first that is too new.
        self._unnamed: dict[str, int] = {}
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
        # The job that names it is submitted after this, perhaps when the collection has passed the list of jobs.
        if self._named is not None:
            self._named.add(key)
        self._unnamed.pop(key, None)
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
        # A large script is in no cache, and until its group is committed it is not in the journal either.
        body = self._unsent.get(key) or self._committing.get(key)
        try:
            body = body or await self._reader.blob(key, seconds=seconds)
        except BlobDamaged:
            self._lost(key)
            raise
        if body is None:
            self._lost(key)
            raise JournalCorrupt(f"script or environment {key} is missing from the journal")
        self._remember(key, body)
        return body

    def _lost(self, key: str) -> None:
        """The journal has no such blob any more: the next `put` stores it again. One that was put while it was read is
        not lost.
        """
        # Between the beginning of a read and its answer the key may have been removed and put again. Forgotten now, it
        # would be stored a second time, which is harmless; but it would no longer count for its user, nor be collected.
        if key in self._known and not any(key in held for held in (self._unsent, self._committing, self._cache)):
            self._unnamed.pop(key, None)
            self._disown(key)

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

    @property
    def removable(self) -> bool:
        """Whether blobs wait for their removal."""
        return bool(self._unnamed)

    async def find_unnamed(self, jobs: Iterable[Job], sequence: int) -> None:
        """Find the blobs that none of these jobs names: all jobs of the state after event `sequence`, which is the
        current one. Yields to the loop now and then. One call at a time.
        """
        self._named = named = {""}
        try:
            for piece in _slices(list(jobs)):
                for job in piece:
                    named.add(job.spec.script_key)
                    named.add(job.spec.environment_key)
                await asyncio.sleep(0)
            for keys in _slices(list(self._known)):
                for key in keys:
                    # Still known: a read may have found it lost since the list was made. And by its first number, if
                    # it was found before: with slurmdbd far behind, a new one each time might never be reached.
                    if key not in named and key in self._known:
                        self._unnamed.setdefault(key, sequence)
                await asyncio.sleep(0)
        finally:
            self._named = None  # also when the daemon ends meanwhile

    def take_unnamed(self, sequence: int) -> set[str]:
        """Some keys that only events up to `sequence` can name; they count as unknown from now on. Their removal must
        be handed to the journal's thread before the next `take_unsent`.
        """
        taken: set[str] = set()
        size = 0
        for key, last in self._unnamed.items():
            if last > sequence or size >= REMOVED_BYTES_MAX or len(taken) >= REMOVED_BLOBS_MAX:
                break
            # Unsent: its submission was refused. Its removal would come before the group that stores it, and its key
            # would be unknown by then: the blob would stay until a restart.
            if key not in self._unsent:
                taken.add(key)
                size += self._known[key]
        for key in taken:
            del self._unnamed[key]
            self._disown(key)
            body = self._cache.pop(key, None)
            if body is not None:
                self._cache_bytes -= len(body)
        return taken

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


class Writer(Protocol):
    """The single writer, which alone removes blobs."""

    @property
    def last_sequence(self) -> int: ...

    @property
    def durable_sequence(self) -> int: ...

    async def durable(self) -> None: ...

    async def remove_unnamed_blobs(self, sequence: int) -> bool: ...


class Collecting(Reading, Protocol):
    """The blobs, the jobs that name them, and who removes the others."""

    @property
    def blobs(self) -> BlobStore: ...

    @property
    def writer(self) -> Writer: ...


class BlobCollector:
    """Removes unused scripts and environments every `COLLECT_SECONDS`.

    If accounting stores them (AccountingStoreFlags), a blob stays until slurmdbd has read the events that name it:
    `needed_after` returns the last event read.
    """

    def __init__(self, context: Collecting) -> None:
        self._context = context
        self.needed_after: Callable[[], int] | None = None
        #: number of the last event at the last collection: without new events there is nothing to find
        self._looked_at = -1
        self._wanted = asyncio.Event()

    async def run(self) -> None:
        """Runs for as long as the daemon lives."""
        while True:
            try:
                async with within(COLLECT_SECONDS):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            await self.collect()

    def hurry(self) -> None:
        """Schedule a collection soon."""
        self._wanted.set()

    async def collect(self) -> None:
        """Remove blobs that no job names any more and that accounting does not need to read any more."""
        context = self._context
        blobs, writer = context.blobs, context.writer
        sequence = writer.last_sequence
        if sequence != self._looked_at:
            self._looked_at = sequence
            await blobs.find_unnamed(context.machine.state.jobs.values(), sequence)
        while blobs.removable:
            # The jobs' ends must be durable first: after a crash that undoes its end a job must still find its script,
            # with which it is launched again.
            await writer.durable()
            last = writer.durable_sequence
            if self.needed_after is not None:
                last = min(last, self.needed_after())
            if not await writer.remove_unnamed_blobs(last):
                return


def _slices(items: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(items), SLICE):
        yield items[start : start + SLICE]


_encode = Encoder().encode
_decode: Decoder[tuple[bytes, ...]] = Decoder(tuple[bytes, ...])


def environment_blob(environment: tuple[bytes, ...]) -> bytes:
    """Encodes `NAME=value` items as one blob; empty for none."""
    return _encode(environment) if environment else b""


def environment_of(blob: bytes) -> tuple[bytes, ...]:
    """The `NAME=value` strings of a blob of `environment_blob`; none for an empty blob."""
    return _decode.decode(blob) if blob else ()
