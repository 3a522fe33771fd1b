"""Queries of `sreport` to `slurmdbd`.

Times are whole seconds since the epoch. Usage is count times seconds, memory MiB times seconds. Source: sreport(1).
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.accounting.records import JobPick, ReservationRecord


class AskUsage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Usage from `starts_at` to `ends_at`, which are full hours. Streamed: `UsageReport`.

    Empty: every cluster. The present hour is not included.
    """

    clusters: tuple[str, ...] = ()
    starts_at: int
    ends_at: int
    #: also for users and accounts, not only for clusters
    holders: bool = True


class ClusterUsage(Struct, frozen=True, kw_only=True, gc=False):
    """How one TRES of a cluster was used."""

    cluster: str
    tres: str
    #: the most that existed
    count: int
    allocated: int
    down: int
    planned_down: int
    idle: int
    planned: int
    #: requests of waiting jobs beyond the existing resources
    over: int

    @property
    def reported(self) -> int:
        """Reported time: the sum over all states."""
        return self.allocated + self.down + self.planned_down + self.idle + self.planned


class HolderUsage(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The usage of one TRES by a user of an account (user "": time reserved for the account)."""

    cluster: str
    account: str
    user: str
    wckey: str = ""
    qos: str = ""
    tres: str
    seconds: int


class UsageReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Piece of the answer to AskUsage."""

    clusters: list[ClusterUsage] = []
    holders: list[HolderUsage] = []


class AskJobSizes(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs that ran in a span, by size. Reply: `JobSizes`. Empty: no condition."""

    clusters: tuple[str, ...] = ()
    starts_at: int
    ends_at: int
    picks: tuple[JobPick, ...] = ()
    users: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    partitions: tuple[str, ...] = ()
    wckeys: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


class JobSize(Struct, frozen=True, kw_only=True, gc=False):
    """Jobs of one account and wckey with equally many CPUs: how many, and their seconds in the span, summed.

    `used`: count of each TRES times seconds, as `cpu=3600,mem=14400000` (memory in MiB).
    """

    cluster: str
    account: str
    wckey: str
    cpus: int
    jobs: int
    seconds: int
    used: str


class JobSizes(Struct, frozen=True, kw_only=True):
    """Reply to AskJobSizes: one entry for each size of job."""

    sizes: list[JobSize]


class AskReservations(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reservations that were active at any time of a span. Reply: `ReservationReport`."""

    clusters: tuple[str, ...] = ()
    starts_at: int
    ends_at: int
    names: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


class ReservationUsage(Struct, frozen=True, kw_only=True):
    """One reservation, and what its jobs used of it: (TRES, count times seconds)."""

    cluster: str
    record: ReservationRecord
    used: list[tuple[str, int]]


class ReservationReport(Struct, frozen=True, kw_only=True):
    """Reply to AskReservations: each reservation with its use in that span."""

    reservations: list[ReservationUsage]
