"""Reservations as a cycle sees them: holds in the profile of free resources, and views of it for jobs inside one.

To a job outside any reservation, reserved CPUs are taken for the whole time; nothing else keeps it off them. A job
inside a reservation reads a `ReservationView`: the profile without the reservations that give way to its own. Which job
may use which reservation is decided in `model.rules.reservation_use`.

Source: scontrol(1) RESERVATIONS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from spritz.model.reasons import Reason
from spritz.model.resources import GresAllocation, mask_text
from spritz.model.rules.reservation_use import (
    accepts,
    gives_way,
    is_confined,
    licenses_kept,
    names_of,
    outlasts,
    overlaps,
    starts_jobs,
)
from spritz.scheduling.view.node_timeline import FutureHold
from spritz.scheduling.view.nodes import Holder
from spritz.scheduling.view.profile import NEVER, Profile
from spritz.scheduling.view.records import Verdict

if TYPE_CHECKING:
    from spritz.model.job.record import JobSpec
    from spritz.model.node.reservation import Reservation
    from spritz.model.resources import Allocation
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import NodeTable

#: Holders with this number or a smaller one are reservations; planned starts have larger numbers.
RESERVED = -(1 << 52)
#: number of occurrences of a recurring reservation that planned starts avoid
OCCURRENCES = 5

#: stands for a reservation that does not exist or that the job may not use; no reservation has this name
NONE = "-"

MAINTENANCE = "Reserved for maintenance"
OTHERS = "May be reserved for other job"


class Booking(FutureHold):
    """One occurrence of a reservation: what it takes of the nodes, and when."""

    __slots__ = ("reservation",)

    reservation: Reservation


def bookings(reservation: Reservation, table: NodeTable, end_of_times: float = NEVER) -> list[Booking]:
    """What the reservation takes, and when. A floating one takes nothing: it acts on the length of jobs
    (`too_long`).
    """
    if reservation.floating:
        return []
    occurrences = []
    for start_at, end_at in reservation.spans(OCCURRENCES):
        parts = []
        for name in reservation.nodes:
            index = table.index_of.get(name)
            if index is None:
                continue
            mask = reservation.mask_on(name)
            cpus = table.rows[index].hardware.cpus if mask is None else mask
            gres = next((gres for node, gres in reservation.gres if node == name), ())
            parts.append((index, _holder(RESERVED - reservation.id, cpus, end_at, gres, whole=mask is None)))
        booking = Booking(start_at, end_at, parts)
        booking.reservation = reservation
        occurrences.append(booking)
    return occurrences


def _holder(number: int, cpus: int, ends_at: float, gres: tuple[GresAllocation, ...] = (), *, whole: bool) -> Holder:
    return Holder(number, uid=-1, partition="", cpus=cpus, memory_mib=0, gres=gres, whole=whole, ends_at=ends_at)


class Reserved:
    """All reservations by name, and the holds that keep their nodes from other jobs."""

    __slots__ = ("by_name", "holds")

    def __init__(self) -> None:
        self.by_name: dict[str, Reservation] = {}
        self.holds: dict[str, list[Booking]] = {}

    def put(self, reservation: Reservation, profile: Profile) -> None:
        """Add or replace a reservation, in the profile as well."""
        self.drop(reservation.name, profile)
        self.by_name[reservation.name] = reservation
        held = self.holds[reservation.name] = bookings(reservation, profile.table)
        for hold in held:
            profile.hold(hold)

    def drop(self, name: str, profile: Profile) -> None:
        """Remove a reservation and give back what it holds."""
        for hold in self.holds.pop(name, ()):
            profile.let_go(hold)
        self.by_name.pop(name, None)

    def book(self, profile: Profile) -> None:
        """Enter all reservations into a new profile."""
        self.holds = {name: bookings(item, profile.table) for name, item in self.by_name.items()}
        for holds in self.holds.values():
            for hold in holds:
                profile.hold(hold)

    def names_for(self, spec: JobSpec) -> list[str]:
        """Reservations in which the job may run, in order of preference; "" if it may run outside of reservations."""
        if spec.reservation:
            # A user may have been removed from a reservation for which jobs of the user still wait.
            named = [name for name in names_of(spec) if name in self.by_name]
            return [name for name in named if accepts(self.by_name[name], spec)] or [NONE]
        return ["", *(name for name, item in self.by_name.items() if accepts(item, spec))]

    def first_start(self) -> float:
        """When the first occurrence begins, or began."""
        return min((hold.start_at for holds in self.holds.values() for hold in holds), default=NEVER)

    def starts(self) -> list[float]:
        """Start times of all occurrences, in seconds since the epoch."""
        return [hold.start_at for holds in self.holds.values() for hold in holds]

    def verdict(self, request: Request, now: float) -> Verdict | None:
        """What holds back every job of the request: its reservation does not exist or is not active."""
        if not request.reservation:
            return None
        reservation = self.by_name.get(request.reservation)
        if reservation is None or not starts_jobs(reservation, now):
            return Verdict(Reason.RESERVATION)
        return None

    def window(self, request: Request) -> tuple[float, float]:
        """The times between which the request may start."""
        reservation = self.by_name.get(request.reservation)
        if reservation is None or reservation.flexible:
            return -NEVER, NEVER
        return reservation.start_at, reservation.end_at

    def nodes(self) -> Mapping[str, tuple[str, ...] | None]:
        """By reservation, the nodes to which its jobs are confined (None: not confined)."""
        return {name: item.nodes if is_confined(item) else None for name, item in self.by_name.items()}

    def gives_way(self, item: Reservation, request: Request) -> bool:
        """Whether jobs of the request may use its nodes as if it did not exist."""
        return gives_way(item, self.by_name.get(request.reservation), request.leaving_seconds)

    def seen_by(self, request: Request) -> tuple[str, int]:
        """Requests with equal values see the same reservations, through the same `ReservationView`. ("", -1): all."""
        leaving = request.leaving_seconds
        return request.reservation, leaving if any(
            reservation.lets_in(leaving) for reservation in self.by_name.values()
        ) else -1

    def licenses_kept(self, request: Request, now: float, used: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
        """Licenses kept from a job of the request that starts now. `used`: by each reservation's own jobs."""
        reservation = self.by_name.get(request.reservation)
        return licenses_kept(
            self.by_name.values(), reservation, now, request.limit_seconds, lambda name: used.get(name, {})
        )

    def too_long(self, request: Request) -> tuple[str, ...]:
        """Floating reservations that the request could never end before."""
        return tuple(
            name
            for name, item in self.by_name.items()
            if item.floating and outlasts(request.limit_seconds, item) and not self.gives_way(item, request)
        )

    def met(self, request: Request, now: float) -> list[Booking]:
        """Occurrences that a job of the request would run into if it started now."""
        return [
            hold
            for holds in self.holds.values()
            for hold in holds
            if overlaps((hold.start_at, hold.end_at), now, request.limit_seconds)
            and not self.gives_way(hold.reservation, request)
        ]


def crossed(reserved: Reserved, request: Request, allocation: Allocation, at: float) -> float | None:
    """End of the last reservation that the allocation would run into before the job's limit; None if there is none.

    Only for jobs that are planned to end before their limits; other jobs find reserved resources taken.
    """
    if not request.soft_minutes or not reserved.holds:
        return None
    names = set(allocation.names)
    return max((hold.end_at for hold in reserved.met(request, at) if names & set(hold.reservation.nodes)), default=None)


class _Watched(set[int]):
    """Stale nodes of a table that several profiles follow."""

    def __init__(self, items: Iterable[int]) -> None:
        super().__init__(items)
        self.followers: list[set[int]] = []

    def add(self, item: int) -> None:
        super().add(item)
        for follower in self.followers:
            follower.add(item)


class ReservationView(Profile):
    """A profile as jobs of one reservation see it."""

    __slots__ = ("_stale",)

    _stale: set[int]

    @property
    def stale(self) -> set[int]:
        """The view's own stale nodes: the profile that it was made from has another set."""
        return self._stale


def view_of(profile: Profile, reserved: Reserved, request: Request) -> ReservationView:
    """The profile as jobs of the request see it: without reservations that give way, and confined to the
    request's own.
    """
    profile.settle()
    table = profile.table
    # A profile computes a changed node again when it is read, and takes it off the set of stale nodes. Several profiles
    # over one table cannot share that set: the first reader would hide the change from the others. So each view has a
    # set of its own, which hears of every addition.
    watched = table.stale
    if not isinstance(watched, _Watched):
        watched = table.stale = _Watched(watched)
    view = ReservationView.__new__(ReservationView)
    view._stale = set()
    profile.fork_into(view, table)
    watched.followers.append(view._stale)
    reservation = reserved.by_name.get(request.reservation)
    for holds in reserved.holds.values():
        for hold in holds:
            if reserved.gives_way(hold.reservation, request):
                view.let_go(hold)
    # A job inside a reservation of some cores of a node sees the others as taken for ever; so placement, which knows
    # nothing of reservations, stays inside.
    if reservation is not None and reservation.cpus and not reservation.flexible:
        view.hold(_rest(reservation, table))
    return view


def _rest(reservation: Reservation, table: NodeTable) -> FutureHold:
    """A hold, for ever, on the CPUs and devices of its nodes that the reservation does not have."""
    parts = []
    for name, mask in reservation.cpus:
        index = table.index_of.get(name)
        if index is not None:
            hardware = table.rows[index].hardware
            others = hardware.cpus & ~int(mask, 16)
            devices = tuple(
                GresAllocation(name=kind, count=left.bit_count(), indexes=mask_text(left))
                for kind, reserved_mask in reservation.devices_on(name).items()
                if kind in hardware.pools and (left := hardware.pools[kind].masks.get("", 0) & ~reserved_mask)
            )
            parts.append((index, _holder(RESERVED - (1 << 40) - reservation.id, others, NEVER, devices, whole=False)))
    return FutureHold(-NEVER, NEVER, parts)
