"""Recovery: from the journal on disk to the state after its last event.

Loads the newest readable image, then applies every later event, in order and without gaps. Anything else is damage and
stops the start. So does an image or event of a later release, although that is no damage: an older release must not go
on without it. Source: `controller.journal.contract`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from spritz.controller.journal.contract import Group, Image, JournalCorrupt, JournalError, JournalNewer
from spritz.controller.journal.events import decode_group
from spritz.core.machine import Machine
from spritz.model.errors import UnsupportedFormat

if TYPE_CHECKING:
    from spritz.model.cluster.settings import ClusterSettings

#: Records live long and form no cycles, and scanning all of them delays requests by tenths of a second. So young
#: objects are scanned, and all objects only after a million more have survived.
GC_THRESHOLDS = (10_000, 5, 20)


class Recovered(Struct, frozen=True, kw_only=True):
    """The recovered machine; `image_sequence`: last event of the image; `replayed`: number of later events."""

    machine: Machine
    image_sequence: int
    replayed: int


class Reading(Protocol):
    """The part of a journal that recovery uses."""

    @property
    def last_sequence(self) -> int: ...
    @property
    def oldest_sequence(self) -> int: ...
    def groups(self, after: int) -> Generator[Group]: ...
    def images(self) -> Iterator[Image]: ...


def recover(journal: Reading, settings: ClusterSettings) -> Recovered:
    """The state of the journal's last event.

    Raises JournalNewer, or JournalCorrupt if that state cannot be known for certain.
    """
    # Replay creates only long-lived records: collecting garbage meanwhile wastes time (`main` does the same).
    gc.disable()
    try:
        machine, image_sequence = _from_image(journal, settings)
        replayed = _replay(journal, machine, image_sequence)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
    return Recovered(machine=machine, image_sequence=image_sequence, replayed=replayed)


def _from_image(journal: Reading, settings: ClusterSettings) -> tuple[Machine, int]:
    problem: Exception | None = None
    for image in journal.images():
        if image.sequence > journal.last_sequence:
            raise JournalCorrupt(
                f"an image holds event {image.sequence}, but the journal ends at {journal.last_sequence}",
                hint="the journal was truncated or replaced; restore the state directory as a whole",
            )
        try:
            return machine_of(image), image.sequence
        except JournalNewer:
            raise
        except Exception as error:
            # An older image and the events after it replace this one; if there is none, this cause is reported.
            problem = error
    if problem is not None and journal.oldest_sequence > 1:
        raise JournalCorrupt(f"no image of the state can be used: {problem!r}") from problem
    return Machine(settings), 0


def machine_of(image: Image) -> Machine:
    """The state in an image. Raises JournalNewer; any other exception means that the image is damaged."""
    try:
        return Machine.from_image(image.payload)
    except UnsupportedFormat as error:
        raise JournalNewer(f"the image of event {image.sequence}: {error.message}") from error


def _replay(journal: Reading, machine: Machine, after: int) -> int:
    at = after
    for group in journal.groups(after):
        if group.first > at + 1:
            raise JournalCorrupt(f"events {at + 1} to {group.first - 1} are missing from the journal")
        for number, event in enumerate(decode_group(group), group.first):
            # An image may end in the middle of a group: it holds the first events of that group already.
            if number > at:
                try:
                    machine.apply(event)
                except Exception as error:
                    raise JournalCorrupt(
                        f"event {number} ({type(event).__name__}) of the journal does not fit the state: {error!r}"
                    ) from error
        at = group.last
    if at != journal.last_sequence:
        raise JournalCorrupt(f"the journal ends at event {journal.last_sequence}, but only {at} could be read")
    return at - after


def replay_after(journal: Reading, machine: Machine) -> int:
    """Apply the events that the state does not hold yet: its version is the last one that it holds. Returns their
    number.

    Raises JournalNewer, or JournalCorrupt if some are missing or damaged.
    """
    return _replay(journal, machine, machine.state.version)


def best_image(images: Iterable[Image], unreadable: Callable[[str], None]) -> Machine | None:
    """The state of the first usable image; None if there is none. `unreadable` is called with a text about each damaged
    one.

    Raises JournalNewer.
    """
    for image in images:
        try:
            return machine_of(image)
        except JournalNewer:
            raise
        except Exception as error:  # for `-i`, which skips what cannot be read
            unreadable(f"the image of event {image.sequence}: {error!r}")
    return None


def replay_readable(journal: Reading, machine: Machine, unreadable: Callable[[str], None]) -> None:
    """`-i`: apply the events after the image, up to the first that is missing, damaged or does not fit.

    `unreadable` is called with a text about that event. Raises JournalNewer.
    """
    try:
        _replay(journal, machine, machine.state.version)
    except JournalNewer:
        raise
    except JournalError as error:
        unreadable(error.message)
