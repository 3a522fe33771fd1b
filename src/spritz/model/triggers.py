"""Triggers: programs that run when something happens to a node, a job or a daemon.

Source: strigger(1).
"""

from __future__ import annotations

from msgspec import Struct

#: events of nodes: all, some, or those of a job
NODE_EVENTS = ("down", "drained", "fail", "up")
#: checked by time: a node that stays idle, and a job near its time limit
TIMED_EVENTS = ("idle", "time")
#: events of daemons, by the resource that `strigger --get` names
DAEMON_EVENTS = {
    "primary_slurmctld_failure": "slurmctld",
    "primary_slurmctld_resumed_operation": "slurmctld",
    "primary_slurmctld_resumed_control": "slurmctld",
    "backup_slurmctld_assumed_control": "slurmctld",
    "primary_slurmdbd_failure": "slurmdbd",
    "primary_slurmdbd_resumed_operation": "slurmdbd",
}
EVENTS = frozenset({*NODE_EVENTS, *TIMED_EVENTS, *DAEMON_EVENTS, "fini", "reconfig"})

#: most seconds before or after the event
OFFSET_MAX = 32_000


class Pull(Struct, frozen=True, gc=False):
    """The program of trigger `id` is to run at `due_at` with this argument: nodes, a job or the name of the event."""

    id: int
    due_at: float
    argument: str


class Trigger(Struct, frozen=True, kw_only=True):
    """One trigger. `pulls`: its event has happened, and the program has not been started yet."""

    id: int
    events: tuple[str, ...]
    program: str
    uid: int
    user: str = ""
    #: 0: of nodes or daemons
    job_id: int = 0
    #: a hostlist; "*" for every node
    nodes: str = "*"
    #: seconds after the event (negative: before it, if that can be known)
    offset_seconds: int = 0
    #: --flags=PERM: it stays after its event has happened
    permanent: bool = False
    pulls: tuple[Pull, ...] = ()

    @property
    def resource(self) -> str:
        """RES_TYPE: job, node, slurmctld or slurmdbd."""
        return "job" if self.job_id else DAEMON_EVENTS.get(self.events[-1], "node")


class SetTrigger(Struct, frozen=True, kw_only=True):
    """`strigger --set`. The controller fills in `user`. Reply: `Done`."""

    events: tuple[str, ...]
    program: str
    job_id: int = 0
    nodes: str = "*"
    offset_seconds: int = 0
    permanent: bool = False


class ClearTriggers(Struct, frozen=True, kw_only=True):
    """`strigger --clear`: triggers that match everything given. Reply: `Done`."""

    id: int = 0
    job_id: int = 0
    uid: int = -1


class ListTriggers(Struct, frozen=True, kw_only=True):
    """`strigger --get`: triggers that have not fired. Reply: `Triggers`."""


class Triggers(Struct, frozen=True, kw_only=True):
    """Reply to ListTriggers: triggers that wait for their event."""

    triggers: tuple[Trigger, ...] = ()


class PullTriggers(Struct, frozen=True, kw_only=True):
    """From the controller itself: events of these triggers have happened. `gone`: triggers of jobs that have ended."""

    pulls: tuple[Pull, ...] = ()
    gone: tuple[int, ...] = ()


class FireTriggers(Struct, frozen=True, kw_only=True):
    """From the controller itself: their programs are about to be started."""

    pulls: tuple[Pull, ...]
