"""DebugFlags: subjects that are logged in full at any log level.

For most subjects the log shows the core's events, never with scripts or environments. Requests and full cycles are not
events; their counters report them. Source: slurm.conf(5) DebugFlags, scontrol(1) setdebugflags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spritz.config.schema.status import HONOURED
from spritz.controller.needs import Logged
from spritz.model.errors import SpritzError
from spritz.model.events import cluster, job, reservation, step
from spritz.notation.hostlist import compress

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spritz.controller.diagnostics import Counting
    from spritz.model.events import Event

_POWER = (cluster.NodesPowered, cluster.PowerProgramBegan, cluster.NodesNotResumed, cluster.NodeKept, job.JobNodesUp)

#: flag -> the events that it logs
EVENTS: dict[str, tuple[type[Event], ...]] = {
    "Accrue": (job.JobAccrued,),
    "Dependency": (job.DependenciesChanged, job.JobBecameEligible),
    "Gang": (cluster.TimeSliceEnded, job.JobSuspended, job.JobResumed),
    "Power": _POWER,
    "PowerSave": _POWER,
    "Reservation": (
        reservation.ReservationCreated,
        reservation.ReservationUpdated,
        reservation.ReservationBegan,
        reservation.ReservationDeleted,
    ),
    "Steps": (step.StepOpened, step.StepLaunched, step.StepNodeEnded, step.StepEnded, step.StepCancelled),
}

#: fields of an event that are logged, if it has them
_FIELDS = ("job_id", "step_id", "node", "nodes", "name", "state", "exit_status", "error")


class Logging(Logged, Protocol):
    """Where what the flags name is logged, and what hears of it."""

    @property
    def counting(self) -> Counting: ...


class DebugFlags:
    """`flags` are in force. `listen` gets every event; `request` and `full_cycle` are called for those."""

    def __init__(self, context: Logging) -> None:
        self._log = context.log
        self._counting = context.counting
        self.flags: frozenset[str] = frozenset()
        self._kinds: frozenset[type] = frozenset()

    def put(self, flags: Iterable[str]) -> None:
        """Replace the flags in force. Flags without effect here are left out: the configuration warns of them."""
        self.flags = frozenset(flags) & HONOURED["DebugFlags"]
        self._kinds = frozenset(kind for flag in self.flags for kind in EVENTS.get(flag, ()))
        self._counting.calls.heard = self.request if self.flags & {"AuditRPCs", "Protocol"} else None
        self._counting.full.heard = self.full_cycle if "Backfill" in self.flags else None

    def change(self, flag: str, on: bool) -> None:
        """Add or remove a flag. Raises SpritzError for a flag without effect."""
        if flag not in HONOURED["DebugFlags"]:
            raise SpritzError(f"DebugFlags={flag} is not supported by Spritz", code="ESLURM_NOT_SUPPORTED")
        self.put(self.flags | {flag} if on else self.flags - {flag})

    def listen(self, events: Sequence[Event]) -> None:
        """Log the events of the subjects in force."""
        if not self._kinds:
            return
        for event in events:
            if type(event) in self._kinds:
                self._log.info(f"debug.{type(event).__name__}", **_fields_of(event))

    def request(self, kind: str, uid: int, seconds: float) -> None:
        """Log a request that was answered."""
        self._log.info("debug.request", kind=kind, uid=uid, milliseconds=round(seconds * 1e3, 3))

    def full_cycle(self, seconds: float, *, depth: int, tried: int, queue: int) -> None:
        """Log a finished full (backfill) cycle."""
        self._log.info("debug.full_cycle", seconds=round(seconds, 6), depth=depth, tried=tried, pending=queue)


def _fields_of(event: Event) -> dict[str, object]:
    if isinstance(event, step.StepOpened):
        opened = event.step
        return {"job_id": opened.job_id, "step_id": opened.step_id, "nodes": compress(opened.node_names)}
    return {name: getattr(event, name) for name in _FIELDS if getattr(event, name, None) not in (None, "")}
