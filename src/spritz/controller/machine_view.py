"""Read-only access to the core, for all but the single writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from msgspec import Struct

    from spritz.core.effects import Effect
    from spritz.core.machine import Outcome
    from spritz.core.state import State
    from spritz.model.cluster import Caller


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
