"""A journal in memory, for tests and simulation: "durable" means held by the `MemoryStore`, which outlives its journal.

Passes the same conformance suite as the real journals. Not available to sites.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

from spritz.controller.journal.contract import (
    BlobDamaged,
    Group,
    Image,
    JournalBusy,
    JournalCorrupt,
    JournalError,
    JournalFenced,
    content_key,
)


class MemoryStore:
    """The "disk": outlives the journals that use it one after another."""

    def __init__(self) -> None:
        self.term = 0
        self.groups: list[Group] = []
        self.checksums: dict[int, int] = {}
        self.blobs: dict[str, bytes] = {}
        self.images: dict[int, bytes] = {}
        self.locked = False
        self.ids_below = 0


class MemoryJournal:
    def __init__(self, store: MemoryStore) -> None:
        if store.locked:
            raise JournalBusy("another slurmctld uses this store")
        store.locked = True
        store.term += 1
        self._store = store
        self._open = True
        self.term = store.term
        self.identity = id(store)

    @property
    def last_sequence(self) -> int:
        return self._store.groups[-1].last if self._store.groups else 0

    @property
    def oldest_sequence(self) -> int:
        return self._store.groups[0].first if self._store.groups else 0

    def raise_term(self, above: int) -> None:
        self._check_term()
        if above >= self.term:
            self.term = self._store.term = above + 1

    def append(self, group: Group, blobs: Mapping[str, bytes]) -> None:
        self._check_term()
        if group.first != self.last_sequence + 1 or group.last < group.first:
            raise JournalError(f"events {group.first} to {group.last} do not follow event {self.last_sequence}")
        self._store.blobs.update(blobs)
        self._store.groups.append(group)
        self._store.checksums[group.last] = group.checksum

    @property
    def ids_below(self) -> int:
        return self._store.ids_below

    def reserve_ids(self, below: int) -> None:
        self._check_term()
        self._store.ids_below = below

    def groups(self, after: int) -> Generator[Group]:
        expected: int | None = None
        for group in list(self._store.groups):
            if group.last <= after:
                continue
            if group.checksum != self._store.checksums[group.last]:
                raise JournalCorrupt(f"events {group.first} to {group.last} of the journal are damaged")
            if expected is not None and group.first != expected:
                raise JournalCorrupt(f"events {expected} to {group.first - 1} are missing")
            expected = group.last + 1
            yield group

    def blob(self, key: str) -> bytes | None:
        body = self._store.blobs.get(key)
        if body is not None and content_key(body) != key:
            raise BlobDamaged(f"blob {key} is damaged")
        return body

    def blob_sizes(self) -> dict[str, int]:
        return {key: len(body) for key, body in self._store.blobs.items()}

    def remove_blobs(self, keys: set[str]) -> None:
        self._check_term()
        for key in keys:
            self._store.blobs.pop(key, None)

    def write_image(self, image: Image) -> None:
        self._store.images[image.sequence] = image.payload

    def images(self) -> Iterator[Image]:
        for sequence in sorted(self._store.images, reverse=True):
            yield Image(sequence=sequence, payload=self._store.images[sequence])

    def prune(self, keep_after: int) -> None:
        self._check_term()
        kept = sorted(self._store.images, reverse=True)[:2]
        self._store.images = {sequence: self._store.images[sequence] for sequence in kept}
        if len(kept) == 2:
            limit = min(keep_after, kept[1])
            self._store.groups = [group for group in self._store.groups if group.last > limit]

    @property
    def wants_tidying(self) -> bool:
        return False

    def tidy(self) -> None: ...

    def close(self) -> None:
        if self._open:
            self._open = False
            self._store.locked = False

    def _check_term(self) -> None:
        if self._store.term != self.term:
            raise JournalFenced(f"the store belongs to term {self._store.term}, ours is {self.term}")
