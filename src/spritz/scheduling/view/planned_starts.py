"""Planned starts of waiting jobs: when, and on which nodes and devices, if every running job lasts to its limit.

`FutureStarts` keeps them from cycle to cycle. They belong to requests, and the earliest is for the first job of the
request. A job that starts now must not use what they hold. A planned start therefore only moves to earlier times, with
one exception: a job of higher rank that came later may push it back.

Source: Lifka 1995 (EASY: one planned start); Mu'alem and Feitelson 2001 (conservative: one for each job); slurm.conf(5)
bf_*.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from spritz.model.ids import INFINITE
from spritz.model.plan import PlannedFutureStart
from spritz.scheduling.view.holders import holders_of
from spritz.scheduling.view.node_timeline import FutureHold
from spritz.scheduling.view.request import Grain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from spritz.model.resources import Allocation
    from spritz.scheduling.view.nodes import Holder, NodeRow
    from spritz.scheduling.view.profile import Profile
    from spritz.scheduling.view.records import JobRecord, Shape
    from spritz.scheduling.view.request import Request

#: Holders with this number or a smaller one are planned starts; jobs and starts of a cycle have larger numbers.
FUTURE = -(1 << 50)


class FutureStart(FutureHold):
    """A job of `request` will start at `start_at` on `allocation`.

    `provisional`: made by a quick cycle; the next full cycle makes it again. `freed`: the projection's count of freed
    resources when it was last examined. `queued`: how many jobs had joined the queue when it was made. `holder`: the
    job that it was made for (0: none). `place`: the position of that job in the last full cycle (0: none).
    """

    __slots__ = ("allocation", "freed", "holder", "place", "provisional", "queued", "request")

    allocation: Allocation
    request: Request
    provisional: bool
    freed: int
    queued: int
    holder: int
    place: int

    def copied(self) -> FutureStart:
        """A copy for a cycle to change, since those of its snapshot belong to the projection."""
        other = FutureStart(self.start_at, self.end_at, self.parts)
        for name in ("flexible", *self.__slots__):
            setattr(other, name, getattr(self, name))
        return other


def is_flexible(request: Request, parts: Sequence[tuple[int, Holder]], rows: Sequence[NodeRow]) -> bool:
    """Whether any other CPUs, and any other devices of the same type, would serve the request as well."""
    if (
        request.tasks_per_socket
        or request.enforce_binding
        or request.share_rows
        or request.grain is Grain.SOCKET
        or request.max_cpus_per_socket < INFINITE
        or (not request.uses_gpus and any(rows[index].hardware.gpu_cores for index, _holder in parts))
    ):
        return False
    return request.grain is not Grain.CPU or all(rows[index].hardware.threads == 1 for index, _holder in parts)


#: a planned start, in a ledger or in a plan
Claim = TypeVar("Claim", FutureStart, PlannedFutureStart)


class FutureStarts:
    """Planned starts by request, ascending by start. Invariant: the profile holds every planned start, and no request
    has more of them than waiting jobs.
    """

    __slots__ = ("_made", "_numbers", "by_request", "starts", "up_version", "version")

    def __init__(self) -> None:
        #: changes whenever jobs may be able to start that planned starts held back; no two changes in any fork share a
        #: number
        self.version = 0
        self._numbers = [0]
        #: `Memory.up_version` when planned starts were last checked against nodes that are down
        self.up_version = 0
        self.by_request: dict[Request, tuple[FutureStart, ...]] = {}
        #: start times of all, ascending
        self.starts: list[float] = []
        self._made = 0

    def fork(self) -> FutureStarts:
        """A copy to change; planned starts themselves never change."""
        other = FutureStarts()
        other.by_request, other.starts = dict(self.by_request), list(self.starts)
        other._made, other.version, other.up_version = self._made, self.version, self.up_version
        other._numbers = self._numbers
        return other

    def __len__(self) -> int:
        return len(self.starts)

    def of(self, request: Request) -> tuple[FutureStart, ...]:
        """Planned starts of one request, the earliest first."""
        return self.by_request.get(request, ()) if self.by_request else ()

    def used_up_by(
        self,
        record: JobRecord,
        request: Request,
        allocation: Allocation,
        waits: Callable[[int], bool],
        *,
        in_turn: bool,
        holder_of: Callable[[FutureStart], int] = attrgetter("holder"),
    ) -> FutureStart | None:
        """The planned start of the request that this job uses up when it starts there."""
        ids, names = {record.id, record.array_job_id}, allocation.names
        return used_up(self.of(request), ids, names, waits, in_turn=in_turn, holder_of=holder_of)

    def make(
        self, profile: Profile, request: Request, start_at: float, allocation: Allocation, *, uid: int
    ) -> FutureStart:
        """A planned start; `keep` it to make it count."""
        self._made += 1
        number = FUTURE - self._made
        parts = holders_of(allocation, request, number, uid, profile.table, start_at + request.seconds)
        future_start = FutureStart(start_at, start_at + request.seconds, parts)
        future_start.allocation, future_start.request = allocation, request
        future_start.flexible = is_flexible(request, parts, profile.table.rows)
        future_start.provisional, future_start.freed, future_start.queued, future_start.holder = False, 0, 0, 0
        future_start.place = 0
        return future_start

    def moved(
        self, profile: Profile, future_start: FutureStart, start_at: float, allocation: Allocation
    ) -> FutureStart:
        """A replacement at another time or on other nodes; `keep` it to make it count."""
        uid = future_start.parts[0][1].uid
        other = self.make(profile, future_start.request, start_at, allocation, uid=uid)
        other.freed, other.queued, other.place = future_start.freed, future_start.queued, future_start.place
        other.holder = future_start.holder
        return other

    def keep(self, profile: Profile, future_start: FutureStart) -> None:
        """Hold its resources in the profile from now on."""
        items = self.of(future_start.request)
        place = bisect_right(items, future_start.start_at, key=_order)
        self.by_request[future_start.request] = (*items[:place], future_start, *items[place:])
        insort(self.starts, future_start.start_at)
        profile.hold(future_start)

    def drop(self, profile: Profile, future_start: FutureStart) -> None:
        """Give up the resources of the planned start."""
        items = self.by_request[future_start.request]
        place = items.index(future_start)
        left = items[:place] + items[place + 1 :]
        self._numbers[0] += 1
        self.version = self._numbers[0]
        if left:
            self.by_request[future_start.request] = left
        else:
            del self.by_request[future_start.request]
        del self.starts[bisect_left(self.starts, future_start.start_at)]
        profile.let_go(future_start)


def used_up(
    items: Sequence[Claim],
    ids: Collection[int],
    names: tuple[str, ...],
    waits: Callable[[int], bool],
    *,
    in_turn: bool,
    holder_of: Callable[[Claim], int] = attrgetter("holder"),
) -> Claim | None:
    """Of planned starts of one request, in order, the one that a job with these ids (its own, and its array's) uses up
    when it starts on these nodes: the one made for it, or else the first that was made for no job that still `waits`
    (asked by job id). The first of all, with `in_turn`. Of those of an array, the first on these nodes.
    """
    if in_turn:
        return items[0] if items else None
    own = [item for item in items if holder_of(item) and holder_of(item) in ids]
    if own:
        return next((item for item in own if item.allocation.names == names), own[0])
    return next((item for item in items if not waits(holder_of(item))), None)


def to_plan(
    ledger: FutureStarts,
    shapes: Mapping[Request, Shape],
    holder_of: Callable[[FutureStart], int],
    places: Mapping[int, int],
) -> tuple[PlannedFutureStart, ...]:
    """All planned starts of a ledger, for a plan. `holder_of`: the jobs for which this cycle made or kept them.
    `places`: the positions of those jobs, by `id` of the planned start.
    """
    planned = []
    for request, items in ledger.by_request.items():
        shape = shapes[request]
        # The last job of the shape is the least likely to have started when the plan is adopted.
        last = shape.jobs[shape.keys[-1]].id
        for item in items:
            planned.append(
                PlannedFutureStart(
                    job_id=last,
                    start_at=item.start_at,
                    end_at=item.end_at,
                    allocation=item.allocation,
                    provisional=item.provisional,
                    queued=item.queued,
                    freed=item.freed,
                    holder=holder_of(item),
                    place=places.get(id(item), item.place),
                    request=hash(request),
                )
            )
    return tuple(planned)


def is_same(future_start: FutureStart, to_plan: PlannedFutureStart) -> bool:
    """Whether the plan keeps this planned start as it is."""
    return (
        future_start.start_at == to_plan.start_at
        and future_start.provisional == to_plan.provisional
        and future_start.allocation == to_plan.allocation
    )


def _order(future_start: FutureStart) -> float:
    return future_start.start_at
