"""When and where a blocked job will start, and the promises made to those that wait.

`earliest` looks for the first moment at which a request fits into a profile. A `FutureStart` is such a start, exact to
the device, if every running job lasts to its limit and promises before it are kept. `FutureStarts` keeps the promises
from cycle to cycle: equal requests share them, the earliest to the first in the queue. A later job may start only
beside what is promised, so a promised start moves forward, or back for those that came later but rank higher.

Source: Lifka 1995 (EASY: one promise); Mu'alem and Feitelson 2001 (conservative: a promise each); slurm.conf(5) bf_*.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.model.plan import PlannedPromise
from spritz.scheduling.view.holders import holders_of
from spritz.scheduling.view.profile import Hold
from spritz.scheduling.view.request import Grain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spritz.model.resources import Allocation
    from spritz.scheduling.view.nodes import Holder, NodeRow
    from spritz.scheduling.view.profile import Profile
    from spritz.scheduling.view.records import Shape
    from spritz.scheduling.view.request import Request

#: Holders with this number or less are promises: no job and no start of a cycle has one.
FUTURE = -(1 << 50)


class FutureStart(Hold):
    """A job of this request will start at `start_at` with `allocation`. `provisional`: made in passing by a quick
    cycle, to be made again in its turn. `freed`: what had been freed when it was last looked at. `queued`: how many
    jobs had joined the queue when it was made. `holder`: the job that was told of it (0: none). `place`: its job's in
    the order of the last full cycle (0: none).
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
        """The same again, for a cycle to change: those that it was given are the projection's."""
        other = FutureStart(self.start_at, self.end_at, self.parts)
        for name in ("flexible", *self.__slots__):
            setattr(other, name, getattr(self, name))
        return other


def is_flexible(request: Request, parts: Sequence[tuple[int, Holder]], rows: Sequence[NodeRow]) -> bool:
    """Would any CPUs, and any devices of the same type, do for this request?"""
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


class FutureStarts:
    """Promises by request, those of each ascending by start. Invariant: every promise of it is held in its profile, and
    no request has more of them than jobs that wait.
    """

    __slots__ = ("_made", "_numbers", "promises", "starts", "up_version", "version")

    def __init__(self) -> None:
        #: the number of the last event that may let a job start that promises kept back; one of its own in all forks
        self.version = 0
        self._numbers = [0]
        #: of the memory, when promises were last checked against nodes that are down
        self.up_version = 0
        self.promises: dict[Request, tuple[FutureStart, ...]] = {}
        #: of all of them, ascending
        self.starts: list[float] = []
        self._made = 0

    def fork(self) -> FutureStarts:
        """A ledger of one's own; promises themselves do not change."""
        other = FutureStarts()
        other.promises, other.starts = dict(self.promises), list(self.starts)
        other._made, other.version, other.up_version = self._made, self.version, self.up_version
        other._numbers = self._numbers
        return other

    def __len__(self) -> int:
        return len(self.starts)

    def of(self, request: Request) -> tuple[FutureStart, ...]:
        """Those of one request."""
        return self.promises.get(request, ()) if self.promises else ()

    def make(
        self, profile: Profile, request: Request, start_at: float, allocation: Allocation, *, uid: int
    ) -> FutureStart:
        """A promise, not yet kept."""
        self._made += 1
        number = FUTURE - self._made
        parts = holders_of(allocation, request, number, uid, profile.table, start_at + request.seconds)
        promise = FutureStart(start_at, start_at + request.seconds, parts)
        promise.allocation, promise.request = allocation, request
        promise.flexible = is_flexible(request, parts, profile.table.rows)
        promise.provisional, promise.freed, promise.queued, promise.holder = False, 0, 0, 0
        promise.place = 0
        return promise

    def moved(self, profile: Profile, promise: FutureStart, start_at: float, allocation: Allocation) -> FutureStart:
        """One in its stead, not yet kept and told to nobody."""
        uid = promise.parts[0][1].uid
        other = self.make(profile, promise.request, start_at, allocation, uid=uid)
        other.freed, other.queued, other.place = promise.freed, promise.queued, promise.place
        return other

    def keep(self, profile: Profile, promise: FutureStart) -> None:
        """From now on nobody may take what it needs."""
        items = self.of(promise.request)
        place = bisect_right(items, promise.start_at, key=_order)
        self.promises[promise.request] = (*items[:place], promise, *items[place:])
        insort(self.starts, promise.start_at)
        profile.hold(promise)

    def drop(self, profile: Profile, promise: FutureStart) -> None:
        """It is kept no longer."""
        items = self.promises[promise.request]
        place = items.index(promise)
        left = items[:place] + items[place + 1 :]
        self._numbers[0] += 1
        self.version = self._numbers[0]
        if left:
            self.promises[promise.request] = left
        else:
            del self.promises[promise.request]
        del self.starts[bisect_left(self.starts, promise.start_at)]
        profile.let_go(promise)


def to_plan(
    ledger: FutureStarts, shapes: Mapping[Request, Shape], holders: Mapping[int, int], places: Mapping[int, int]
) -> tuple[PlannedPromise, ...]:
    """All promises of a ledger as a plan has them. `holders`: jobs that were told of them just now, and `places`: their
    order where that has been looked at, by `id` of the promise.
    """
    found = []
    for request, items in ledger.promises.items():
        shape = shapes[request]
        # The last of them is the least likely to have started when the plan is taken up.
        last = shape.jobs[shape.keys[-1]].id
        for item in items:
            found.append(
                PlannedPromise(
                    job_id=last,
                    start_at=item.start_at,
                    end_at=item.end_at,
                    allocation=item.allocation,
                    provisional=item.provisional,
                    queued=item.queued,
                    freed=item.freed,
                    holder=holders.get(id(item), item.holder),
                    place=places.get(id(item), item.place),
                )
            )
    return tuple(found)


def is_same(promise: FutureStart, to_plan: PlannedPromise) -> bool:
    """Does the plan keep this promise?"""
    return (
        promise.start_at == to_plan.start_at
        and promise.provisional == to_plan.provisional
        and promise.allocation == to_plan.allocation
    )


def _order(promise: FutureStart) -> float:
    return promise.start_at
