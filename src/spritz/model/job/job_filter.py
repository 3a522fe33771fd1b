"""Which jobs a command or query is about.

Apart from `job`, whose records take a listing longer to import than its own modules.

Source: squeue(1), scancel(1).
"""

from __future__ import annotations

from msgspec import Struct


class JobTarget(Struct, frozen=True, gc=False):
    """A job, an array's own id, or some of an array's tasks. `tasks` is a mask in hexadecimal, "" for all.

    The id of a heterogeneous job's leader means all components, `component` one of them.
    """

    job_id: int
    tasks: str = ""
    step_id: int | None = None
    component: int | None = None


class JobFilter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs are meant, as scancel's and squeue's options say. Empty fields match everything; all others must
    match.
    """

    targets: tuple[JobTarget, ...] = ()
    users: tuple[int, ...] = ()
    accounts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    #: JobState values or names of flags (COMPLETING …); empty: the command's default
    states: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    reservation: str = ""
    wckeys: tuple[str, ...] = ()
    licenses: tuple[str, ...] = ()
