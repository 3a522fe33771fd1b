"""Commands about reservations. Source: scontrol(1) create, update, delete ReservationName."""

from __future__ import annotations

from msgspec import Struct


class ReservationRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The requested fields; None leaves a field as it is, or at its default. Times in seconds since the epoch.

    Users and groups are names; the controller looks them up and adds `gids`. `users`, `accounts` and `groups` are the
    whole new list. `flags_added` and `flags_removed` are for updates with += and -=.
    """

    name: str = ""
    start_at: float | None = None
    end_at: float | None = None
    duration_seconds: float | None = None
    #: named nodes; ("ALL",) for all, of the partition with PART_NODES
    nodes: tuple[str, ...] | None = None
    #: number of nodes; several numbers are added up
    node_count: int | None = None
    #: number of cores: of each of the nodes in turn, or in total
    core_counts: tuple[int, ...] | None = None
    cpu_count: int | None = None
    #: GRES in total, as (name, type, count), and per node
    gres: tuple[tuple[str, str, int], ...] | None = None
    gres_per_node: tuple[tuple[str, str, int], ...] | None = None
    licenses: tuple[tuple[str, int], ...] | None = None
    comment: str | None = None
    partition: str | None = None
    features: str | None = None
    users: tuple[str, ...] | None = None
    users_denied: bool = False
    users_added: tuple[str, ...] = ()
    users_removed: tuple[str, ...] = ()
    accounts: tuple[str, ...] | None = None
    accounts_denied: bool = False
    accounts_added: tuple[str, ...] = ()
    accounts_removed: tuple[str, ...] = ()
    groups: tuple[str, ...] | None = None
    gids: tuple[int, ...] = ()
    flags: tuple[str, ...] | None = None
    flags_added: tuple[str, ...] = ()
    flags_removed: tuple[str, ...] = ()
    purge_seconds: int | None = None
    max_start_delay_seconds: int | None = None
    float_seconds: float | None = None
    #: go on to the next occurrence of a recurring one
    skip: bool = False
    #: offset of local time when it begins (or now, if that is sooner), and (time, offset) of changes in the coming
    #: years
    utc_offset_seconds: int = 0
    utc_offset_changes: tuple[tuple[int, int], ...] = ()


class CreateReservation(Struct, frozen=True, kw_only=True):
    """`scontrol create reservation`. Administrators only. Reply: `ReservationMade`."""

    request: ReservationRequest


class ReservationMade(Struct, frozen=True, kw_only=True):
    """Reply to CreateReservation: the name that it got."""

    name: str


class UpdateReservation(Struct, frozen=True, kw_only=True):
    """`scontrol update ReservationName=`; `request.name` says which. Administrators only. Reply: `Done`."""

    request: ReservationRequest


class DeleteReservation(Struct, frozen=True, kw_only=True):
    """`scontrol delete ReservationName=`: refused while jobs use it. Administrators, and with USER_DELETE all its
    users. Reply: `Done`.
    """

    name: str
