"""The journal: what must hold of the store that keeps events, blobs and images.

Owns the contract (`Journal`) and its records. Knows nothing of what an event means: a group is a run of consecutive
events that became durable together, already encoded (`controller.events`). Implementations: `journal_sqlite` for one
controller, `journal_memory` for tests and simulation. `tests/conformance/test_journal.py` is the contract, executable.

Rules that every implementation keeps
-------------------------------------
- `append` returns only when the whole group and its blobs are durable; a failed one leaves nothing of the group behind.
- Sequence numbers are contiguous from 1; a group that does not follow the last one is refused.
- One controller at a time: opening takes a lock and raises `term` by one; an `append` after somebody else raised the
  term is refused (`JournalFenced`).
- Damage is found and told (`JournalCorrupt`), never skipped.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from hashlib import blake2b
from typing import Protocol
from zlib import crc32

from msgspec import Struct

from spritz.model.errors import SpritzError


class JournalError(SpritzError):
    """The journal cannot be used; the controller must stop, for nothing can be acknowledged any more."""


class JournalBusy(JournalError):
    """Another controller holds the lock."""


class JournalFenced(JournalError):
    """A later controller has taken over (its term is higher): this one must not write."""


class JournalCorrupt(JournalError):
    """What was read is not what was written."""


class JournalNewer(JournalError):
    """A later release wrote the journal. It is not damaged: `-i`, which sets damage aside, does not apply."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            hint="start the release that wrote it (the newest one that ran here); "
            "to go back, restore the state directory from a backup of before the upgrade",
        )


class JournalFailed(JournalError):
    """The disk refused a write: full, read-only, gone."""


class Group(Struct, frozen=True, kw_only=True, gc=False):
    """Events `first` to `last`, committed together at `at` (epoch seconds); `payload` is theirs, encoded."""

    first: int
    last: int
    at: float
    payload: bytes

    @property
    def checksum(self) -> int:
        """CRC of numbers and payload: what was read is what was written, and in its place."""
        return crc32(self.payload, crc32(b"%d-%d" % (self.first, self.last)))


class Image(Struct, frozen=True, kw_only=True, gc=False):
    """The whole state after event `sequence`, encoded."""

    sequence: int
    payload: bytes


def content_key(body: bytes) -> str:
    """Name of a blob: 40 hexadecimal digits of its BLAKE2b hash."""
    return blake2b(body, digest_size=20).hexdigest()


class Journal(Protocol):
    """The store. Not thread-safe, except that `blob` may be called from another thread than `append`."""

    @property
    def term(self) -> int:
        """This controller's reign: one higher than that of any before it."""
        ...

    @property
    def identity(self) -> int:
        """A number of its own, drawn when the journal was made: sequence numbers are unique together with it."""
        ...

    @property
    def last_sequence(self) -> int:
        """Number of the last durable event; 0 for none."""
        ...

    def append(self, group: Group, blobs: Mapping[str, bytes]) -> None:
        """Make a group and the blobs that its events name durable, both or neither.

        Raises JournalFenced, or JournalFailed when the disk refuses.
        """
        ...

    # `groups`, `blob` and `blob_sizes` block: while the daemon serves, they are called by `journal_reader` alone.

    def groups(self, after: int) -> Generator[Group]:
        """Groups that hold events later than `after`, in order; the first may begin earlier. Raises JournalCorrupt."""
        ...

    @property
    def oldest_sequence(self) -> int:
        """Number of the first event that is kept; 0 for none."""
        ...

    def blob(self, key: str) -> bytes | None:
        """The blob of that key, or None. Raises JournalCorrupt when its content does not match."""
        ...

    def blob_sizes(self) -> dict[str, int]:
        """Bytes of all stored blobs by key."""
        ...

    def remove_blobs(self, keys: set[str]) -> None:
        """Forget blobs that no record names any more, and give their room back."""
        ...

    def write_image(self, image: Image) -> None:
        """Keep an image durably. May be called in a forked child: it uses nothing that the parent has open."""
        ...

    def images(self) -> Iterator[Image]:
        """Readable images, newest first; damaged ones are left out (older ones and the groups make up for them)."""
        ...

    def prune(self, keep_after: int) -> None:
        """Forget images but the newest two, and groups that end at or before `keep_after` and the older image kept."""
        ...

    @property
    def wants_tidying(self) -> bool:
        """Whether `tidy` should be called: nothing depends on it, but that `append` stays quick."""
        ...

    def tidy(self) -> None:
        """What `append` would have to do now and then, and would take long for it."""
        ...

    def close(self) -> None:
        """Give the lock back. Idempotent."""
        ...
