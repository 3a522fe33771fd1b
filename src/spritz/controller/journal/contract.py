"""The journal's contract: the store of events, blobs and images.

Owns the contract (`Journal`) and its records. Knows nothing about the meaning of events: a group is a run of
consecutive events that became durable together, already encoded (`controller.journal.events`). Implementations:
`sqlite` for one controller, `postgresql` for several, `spritz_testing.memory_journal` for tests.
`tests/conformance/test_journal.py` is the contract, executable.

Rules that every implementation keeps
-------------------------------------
- `append` returns only when the whole group and its blobs are durable; a failed one leaves nothing of the group behind.
- Sequence numbers are contiguous from 1; a group that does not follow the last one is refused.
- One controller at a time: opening takes a lock and raises `term` by one; an `append` after another
  controller raised the term is refused (`JournalFenced`).
- Damage is detected and reported (`JournalCorrupt`), never skipped: also that of the journal's end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from hashlib import blake2b
from typing import Protocol
from zlib import crc32

from msgspec import Struct

from spritz.model.errors import SpritzError


class JournalError(SpritzError):
    """The journal cannot be used. The controller must stop: it can acknowledge nothing any more."""


class JournalBusy(JournalError):
    """Another controller holds the journal's lock: two writers would interleave events."""


class JournalFenced(JournalError):
    """A later controller has taken over (its term is higher): this controller must not write."""


class JournalCorrupt(JournalError):
    """The data read differs from the data written."""


class JournalNewer(JournalError):
    """A later release wrote the journal. It is not damaged, so `-i`, which drops damage, does not apply."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            hint="start the release that wrote it (the newest one that ran here); "
            "to go back, restore the journal (StateSaveLocation, or its database) from a backup of before the upgrade",
        )


class JournalLost(JournalError):
    """The store lost events after it had acknowledged them: the state in memory is no longer the journal's."""


class JournalFailed(JournalError):
    """The disk refused a write: full, read-only or gone."""


class Group(Struct, frozen=True, kw_only=True, gc=False):
    """Events `first` to `last`, committed together at `at` (epoch seconds); `payload` holds them, encoded."""

    first: int
    last: int
    at: float
    payload: bytes

    @property
    def checksum(self) -> int:
        """CRC of numbers and payload: detects changed and misplaced groups."""
        return crc32(self.payload, crc32(b"%d-%d" % (self.first, self.last)))


class Image(Struct, frozen=True, kw_only=True, gc=False):
    """The whole state after event `sequence`, encoded."""

    sequence: int
    payload: bytes


class BlobDamaged(JournalCorrupt):
    """The content of a blob is not that of its key. The row can be written again."""


def content_key(body: bytes) -> str:
    """Name of a blob: 40 hexadecimal digits of its BLAKE2b hash."""
    return blake2b(body, digest_size=20).hexdigest()


class Journal(Protocol):
    """The store. Not thread-safe, except that `blob` may be called from another thread than `append`."""

    @property
    def term(self) -> int:
        """This controller's term: higher than that of any controller before it."""
        ...

    def raise_term(self, above: int) -> None:
        """Raise `term` above this number, which a node has heard from a controller whose events are not here; durable
        on return. Only the controller whose term it is may: raises JournalFenced, JournalFailed.
        """
        ...

    @property
    def identity(self) -> int:
        """A random number drawn when the journal was created: makes sequence numbers unique across journals."""
        ...

    @property
    def last_sequence(self) -> int:
        """Number of the last durable event; 0 for none."""
        ...

    def append(self, group: Group, blobs: Mapping[str, bytes]) -> None:
        """Make a group and the blobs that its events name durable, atomically.

        Raises JournalFenced, or JournalFailed when the disk refuses.
        """
        ...

    @property
    def ids_below(self) -> int:
        """A number above all job ids that may have been given, if the store keeps one; else 0."""
        ...

    def reserve_ids(self, below: int) -> None:
        """Job ids below this number may be given from now on: durable on return, apart from the events.

        If events are lost nevertheless, their ids are not given again. Raises JournalFailed.
        """
        ...

    # `groups`, `blob` and `blob_sizes` block: while the daemon serves, only `reader` calls them.

    def groups(self, after: int) -> Generator[Group]:
        """Groups that hold events later than `after`, in order; the first may begin earlier. Raises JournalCorrupt."""
        ...

    @property
    def oldest_sequence(self) -> int:
        """Number of the oldest event kept; 0 for none."""
        ...

    def blob(self, key: str) -> bytes | None:
        """The blob of that key, or None. Raises JournalCorrupt when its content does not match."""
        ...

    def blob_sizes(self) -> dict[str, int]:
        """Size in bytes of all stored blobs by key."""
        ...

    def remove_blobs(self, keys: set[str]) -> None:
        """Remove blobs that no record names any more, and free their space."""
        ...

    def write_image(self, image: Image) -> None:
        """Store an image durably. May be called in a forked child: it uses nothing that the parent has open."""
        ...

    def images(self) -> Iterator[Image]:
        """Readable images, newest first. Damaged images are skipped: older ones and the groups replace them."""
        ...

    def prune(self, keep_after: int) -> None:
        """Remove images except the newest two, and groups that end at or before both `keep_after` and the
        older image.
        """
        ...

    @property
    def wants_tidying(self) -> bool:
        """Whether `tidy` should be called. Only the speed of `append` depends on it."""
        ...

    def tidy(self) -> None:
        """Maintenance that `append` would otherwise have to do now and then, slowly."""
        ...

    def close(self) -> None:
        """Release the lock, so that another controller may open the journal. May be called twice."""
        ...
