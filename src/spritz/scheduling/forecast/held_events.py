"""Events of the simulation in `held_jobs`. They are never journaled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spritz.scheduling.forecast.held_groups import HeldGroup
    from spritz.scheduling.view.records import Charge, JobRecord


class JobEnd(Struct, frozen=True, gc=False):
    """A job ends at its time limit: its charge, its licenses, and its array (0: none)."""

    charge: Charge
    licenses: Mapping[str, int]
    array: int
    ends_at: float
    factor: float


class Arrival(Struct, frozen=True):
    """The job, or these tasks of it, becomes eligible. `apart`: with a record of their own, which has a later id."""

    record: JobRecord
    tasks: int
    apart: bool


class Recheck(Struct, frozen=True):
    """Usage has decayed enough for the first job of the group."""

    line: HeldGroup


class Call(Struct, frozen=True):
    """Call the function with the time of the event."""

    function: Callable[[float], None]
