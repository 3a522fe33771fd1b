"""What several parts of the controller use of others, one member each.

A part declares at its head what it uses, as a Protocol made of these and of members that few parts use; `context` has
all of them. (Bases are in alphabetical order everywhere, so that Protocols made of such Protocols have an order, too.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spritz.controller.writer.durable import Writing as Writing

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.controller.configuration import Configuration
    from spritz.controller.identity import Identity
    from spritz.controller.journal.contract import Journal
    from spritz.controller.journal.reader import JournalReader
    from spritz.controller.machine_view import MachineView
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger
    from spritz.runtime.tasks import Supervisor


class Clocked(Protocol):
    @property
    def clock(self) -> Clock: ...


class Configured(Protocol):
    """The configuration in force."""

    @property
    def configuration(self) -> Configuration: ...


class Counted(Protocol):
    """More counters for `Statistics`: each function returns name -> value."""

    @property
    def counters(self) -> list[Callable[[], dict[str, float]]]: ...


class Identifying(Protocol):
    """Who asks."""

    @property
    def identity(self) -> Identity: ...


class Journaled(Protocol):
    @property
    def journal(self) -> Journal: ...


class Logged(Protocol):
    @property
    def log(self) -> Logger: ...


class Reading(Protocol):
    """The core, for reading."""

    @property
    def machine(self) -> MachineView: ...


class Replaying(Protocol):
    """Reads of the journal while the daemon serves."""

    @property
    def reader(self) -> JournalReader: ...


class Spawning(Protocol):
    """The daemon's asyncio tasks."""

    @property
    def tasks(self) -> Supervisor: ...
