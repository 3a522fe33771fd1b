"""The copy of the leader's state that a standby keeps: an image, and every event that the leader has journaled since.

The position in the journal is the state's own version, which each applied event advances. So no failure can leave the
state at one event and its position at another: an event is never applied twice, nor left out. A copy that failed in
any other way than by its database, which breaks between groups, is discarded and read again from an image.

Source: `controller.journal.recovery`; docs/decisions/0184.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spritz.controller.journal.contract import JournalCorrupt, JournalFailed
from spritz.controller.journal.recovery import Reading, Recovered, recover, replay_after

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from spritz.controller.journal.contract import Group, Image
    from spritz.model.cluster.settings import ClusterSettings


class CopiedStore(Protocol):
    """The part of `journal_postgresql.Store` that a copy is read from."""

    def checksum(self, last: int) -> int | None: ...
    def groups(self, after: int, last: int | None = None) -> Generator[Group]: ...
    def images(self) -> Iterator[Image]: ...


class CopiedJournal(Reading, Protocol):
    """The part of a journal of one's own that a copy is completed from."""

    def checksum(self, last: int) -> int | None: ...


class JournalCopy:
    """Empty at first. `follow` and `complete` advance it."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._recovered: Recovered | None = None
        #: checksum of the group that ends at the position; None if unknown, as right after an image
        self._checksum: int | None = None

    @property
    def position(self) -> int:
        """Number of the last event in the copy; 0 for none."""
        return 0 if self._recovered is None else self._recovered.machine.state.version

    def follow(self, store: CopiedStore, last: int) -> None:
        """Advance to event `last`, the newest one of the store.

        Raises JournalFailed if the store breaks: the next call continues after the last event that was read. Raises
        JournalNewer, or JournalCorrupt if the state of event `last` cannot be known.
        """
        self._advance(_Following(store, last), store)

    def complete(self, journal: CopiedJournal) -> Recovered:
        """The state after the last event of this journal, whose lease is held. Raises as `follow` does."""
        self._advance(journal, journal)
        assert self._recovered is not None, "it has been read"
        machine, image_sequence = self._recovered.machine, self._recovered.image_sequence
        return Recovered(machine=machine, image_sequence=image_sequence, replayed=self.position - image_sequence)

    def _advance(self, reading: Reading, store: CopiedStore | CopiedJournal) -> None:
        if not self._is_of(store, reading.last_sequence):
            # Its last events were pruned; or the database is a standby's that lacked them when it was promoted.
            self._discard()
        if self._recovered is not None and reading.last_sequence > self.position:
            try:
                self._replay(reading, self._recovered)
            except JournalCorrupt:
                pass  # later events were pruned meanwhile, unless an image cannot be read either
        if self._recovered is None:
            self._recovered = recover(reading, self._settings)
        if self._checksum is None:
            self._checksum = store.checksum(self.position)

    def _is_of(self, store: CopiedStore | CopiedJournal, last: int) -> bool:
        """Whether the events of the copy are the first ones of the store."""
        return self._recovered is None or (self.position <= last and self._checksum == store.checksum(self.position))

    def _replay(self, reading: Reading, recovered: Recovered) -> None:
        try:
            replay_after(_Noting(reading, self), recovered.machine)
        except JournalFailed:
            raise  # between two groups: the state is that of the last event read
        except BaseException:
            self._discard()
            raise

    def applied(self, group: Group) -> None:
        """The copy ends with this group now."""
        self._checksum = group.checksum

    def _discard(self) -> None:
        self._recovered = self._checksum = None


class _Following:
    """The store's journal up to `last_sequence`. For `recovery`."""

    def __init__(self, store: CopiedStore, last: int) -> None:
        self._store = store
        self.last_sequence = last
        #: `recovery` asks for it if no image is usable; missing events are noticed by their numbers.
        self.oldest_sequence = 0

    def groups(self, after: int) -> Generator[Group]:
        """See `Journal.groups`."""
        return self._store.groups(after, self.last_sequence)

    def images(self) -> Iterator[Image]:
        """See `Journal.images`; only those up to `last_sequence`."""
        return (image for image in self._store.images() if image.sequence <= self.last_sequence)


class _Noting:
    """The groups of a journal; tells the copy of each one when its reader has applied it and asks for the next."""

    def __init__(self, reading: Reading, copy: JournalCopy) -> None:
        self._reading = reading
        self._copy = copy
        self.last_sequence = reading.last_sequence
        self.oldest_sequence = reading.oldest_sequence

    def groups(self, after: int) -> Generator[Group]:
        for group in self._reading.groups(after):
            yield group
            self._copy.applied(group)

    def images(self) -> Iterator[Image]:
        return self._reading.images()
