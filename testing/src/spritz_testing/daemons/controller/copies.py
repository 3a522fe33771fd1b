"""Rule 4 for controllers over one database: copies of the state are equal at every event, and a loss is noticed.

The reference is a machine that applies each committed group once, as it stands in the database. A standby's copy must
have its image at the event that it has reached, and so must the state of the leader when all of it is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.controller.journal.contract import JournalError
from spritz.controller.journal.copy import JournalCopy
from spritz.controller.journal.recovery import machine_of
from spritz.controller.lead import standby
from spritz.core.machine import Machine
from spritz_testing.daemons.controller import checks_inside
from spritz_testing.daemons.controller.standby import Stored
from spritz_testing.daemons.system import threads
from spritz_testing.daemons.system.world import EPOCH

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import ModuleType

    from spritz.controller.journal.contract import Group, Image
    from spritz.controller.journal.copy import CopiedJournal, CopiedStore
    from spritz.controller.journal.recovery import Recovered
    from spritz.model.cluster.settings import ClusterSettings
    from spritz_testing.daemons.database import Database
    from spritz_testing.daemons.system.world import Process, World

COPY_IS_JOURNAL = "4: a standby's image is the leader's"
LOSS_IS_NOTICED = "4: a leader notices that the database lost what it acknowledged"

#: Seconds between two comparisons of a copy, at least: an image takes long to make.
_COMPARE_SECONDS = 15.0

#: Seconds in which a leader must have noticed a loss: it writes a heartbeat each second.
_NOTICE_SECONDS = 60.0


class ObservedCopy(JournalCopy):
    """The standby's own, which is compared now and then, and always when it takes over."""

    def __init__(self, settings: ClusterSettings) -> None:
        super().__init__(settings)
        self._compared_at = threads.world().now
        self._compared = 0

    def follow(self, store: CopiedStore, last: int) -> None:
        super().follow(store, last)
        now = threads.world().now
        if now >= self._compared_at + _COMPARE_SECONDS and self.position > self._compared:
            self._compared_at, self._compared = now, self.position
            self._compare()

    def complete(self, journal: CopiedJournal) -> Recovered:
        recovered = super().complete(journal)
        self._compare()
        return recovered

    def _compare(self) -> None:
        process = threads.world().running
        if self._recovered is not None and process.host.database is not None:
            text = reference_of(process.host.database).difference(self._recovered.machine)
            if text:
                report(process, COPY_IS_JOURNAL, text)


_references: dict[Database, Reference] = {}


def reference_of(database: Database) -> Reference:
    return _references.setdefault(database, Reference(database))


class Reference:
    """The state as the groups in a database lead to it, each applied once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._machine: Machine | None = None
        #: checksum of the last group that was applied
        self._checksum = 0

    def difference(self, machine: Machine) -> str:
        """How a state differs from this one at the same event. "" if it does not, or if that cannot be told: the
        database was set back meanwhile, or does not have the beginning any more.
        """
        version = machine.state.version
        reading = Until(self._database, version)
        if reading.last_sequence != version:
            return ""
        again = self._machine
        if again is None or again.state.version > version or reading.checksum(again.state.version) != self._checksum:
            again = self._machine = _oldest(reading, machine)
        if again is None:
            return ""
        try:
            checks_inside.replay(reading, again)
        except JournalError as error:
            self._machine = None
            return f"the journal cannot be read up to event {version}: {error.message}"
        self._checksum = reading.checksum(version)
        threads.world().count("copy compared")
        return "" if again.image() == machine.image() else f"another state than the journal's at event {version}"


def _oldest(reading: Until, machine: Machine) -> Machine | None:
    """The state before the oldest group, None if it is not known."""
    if reading.oldest_sequence == 1:
        return Machine(machine.state.settings)
    image = min(reading.images(), key=lambda image: image.sequence, default=None)
    return None if image is None else machine_of(image)


class Until(Stored):
    """The journal up to an event. `last_sequence` is another one if no group ends with it."""

    def __init__(self, database: Database, last: int) -> None:
        super().__init__(database)
        self._last = last

    @property
    def last_sequence(self) -> int:
        return self._last if self.checksum(self._last) else 0

    def groups(self, after: int) -> Generator[Group]:
        return (group for group in super().groups(after) if group.last <= self._last)

    def images(self) -> Iterator[Image]:
        return (image for image in super().images() if image.sequence <= self._last)


def report(process: Process, rule: str, text: str) -> None:
    """Note a violation."""
    world: World = process.world
    world.violations.append((rule, world.now - EPOCH, f"{process}: {text}"))
    world.tell(f"VIOLATION {rule}: {text}")


def expect_end(process: Process) -> None:
    """The database has lost work that this leader acknowledged: it must end soon, to begin again as a standby."""

    def look(was_stopped: bool) -> None:
        if not process.is_alive:
            process.world.count("loss noticed")
        elif process.is_stopped or was_stopped:
            process.world.after(_NOTICE_SECONDS, lambda: look(process.is_stopped))
        else:
            report(process, LOSS_IS_NOTICED, f"it goes on after {_NOTICE_SECONDS:g} seconds")

    process.world.after(_NOTICE_SECONDS, lambda: look(process.is_stopped))


def names() -> list[tuple[ModuleType, str, object]]:
    return [(standby, "JournalCopy", ObservedCopy)]
