"""What several parts of the controller use of others, one member each.

A part declares at its head what it uses: a Protocol made of these, of `journal.kept`, of `writer.durable.Writing`, and
of members that few parts use. `context` has all of them, and no part knows it.

Bases are in alphabetical order everywhere, so that a Protocol made of such Protocols has an order, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from msgspec import Struct

    from spritz.controller.callers.identity import Identity
    from spritz.controller.configuration import Configuration
    from spritz.core.effects import Effect
    from spritz.core.machine import Outcome
    from spritz.core.state import State
    from spritz.model.cluster.settings import Caller
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


class Logged(Protocol):
    @property
    def log(self) -> Logger: ...


class Reading(Protocol):
    """The core, for reading."""

    @property
    def machine(self) -> MachineView: ...


class Spawning(Protocol):
    """The daemon's asyncio tasks."""

    @property
    def tasks(self) -> Supervisor: ...


class MachineView(Protocol):
    """Read-only access to the core (`core.Machine`) for all but the single writer."""

    @property
    def state(self) -> State:
        """The state; must not be changed."""
        ...

    def check(self, command: Struct, now: float, caller: Caller = ...) -> Outcome: ...

    def trial(self, command: Struct, now: float, caller: Caller = ...) -> AbstractContextManager[Outcome]: ...

    def next_deadline(self) -> float | None: ...

    def pending_effects(self, node: str | None = None) -> list[Effect]: ...

    def image(self) -> bytes: ...
