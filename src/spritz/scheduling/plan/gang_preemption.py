"""Preemption for a heterogeneous job: for all of its components together, or for none.

Each component in turn gets an allocation, free or with victims; what it takes counts for the next ones. All victims are
then removed from a table, and `find`, the search that also finds the job's start, must place the whole job there. The
search is repeated without each victim in turn, and a victim that can be spared is. No job is preempted for a single
component. Victims that would only be suspended run on until all components can start together.

Source: https://slurm.schedmd.com/preempt.html; https://slurm.schedmd.com/heterogeneous_jobs.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.plan import PlannedPreemption
from spritz.model.rules.job_tres import allocated_pairs
from spritz.scheduling.placement.effort import Effort
from spritz.scheduling.placement.place import place
from spritz.scheduling.plan.preemption.preemptor import active_victims, all_fits, are_suspended
from spritz.scheduling.plan.preemption.victims import remove
from spritz.scheduling.view.holders import holders_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from spritz.model.limits.guarantees import Guarantee
    from spritz.model.resources import Allocation
    from spritz.scheduling.plan.decisions import Cycle
    from spritz.scheduling.plan.gangs import Choices, Gang, Placed
    from spritz.scheduling.plan.preemption.victims import Victim
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Ints, NodeTable

    #: allocations for all components on a table that break no planned start; None if there are none
    Find = Callable[[NodeTable], list[Placed] | None]

#: Components are holders with numbers from here downwards while the search runs.
_ALIAS = -(1 << 46)
#: how many victims are tried for being spared
SPARED_MAX = 32


def make_room(cycle: Cycle, gang: Gang, choices: Sequence[Choices], find: Find) -> bool:
    """Preempt for the whole job, or wait for victims that are leaving; its resources are kept until they have left.
    False: nothing was done.
    """
    if not cycle.preemptor.enabled:
        return False
    pairs = [
        (record, request) for record, component in zip(gang.records, choices, strict=True) for request in component
    ]
    if not any(cycle.preemptor.could_preempt(record, request) for record, request in pairs):
        return False
    largest = sorted(range(len(choices)), key=lambda index: max(map(_size, choices[index])), reverse=True)
    # The largest first, since it has the least choice of nodes; the other way round in case it took the only nodes that
    # a small component can use.
    for order in (largest, largest[::-1]):
        attempt = _Attempt(cycle, gang, choices)
        placed = attempt.placed_on(find) if attempt.place_all(order) else None
        cycle.preemptor.learn(attempt.preemptor)
        if placed is not None:
            _commit(cycle, gang, placed, attempt)
            return True
    return False


def _size(request: Request) -> tuple[int, int]:
    return request.nodes_min, (request.tasks or 1) * request.cpus_per_task


def _commit(cycle: Cycle, gang: Gang, placed: Sequence[Placed], attempt: _Attempt) -> None:
    """Keep the allocations in the cycle, or start the job there, and plan the preemption of the victims."""
    active = active_victims(attempt.victims)
    at_once = are_suspended(attempt.victims) and _all_fit(cycle, gang, placed, attempt.victims)
    cycle.preemptor.leave(attempt.victims)
    parts = []
    for index, (record, (request, allocation)) in enumerate(zip(gang.records, placed, strict=True)):
        ends_at = cycle.snapshot.now + request.seconds
        broken = cycle.planned.outranked(record, gang.key, request, allocation, ends_at, any_age=True)
        cycle.planned.take_back(broken or ())
        if at_once:
            cycle.take_over(record, request, allocation)
        else:
            cycle.hold(record, request, allocation)
        victims = [victim for victim in active if attempt.claimant[victim.record.id] == index]
        parts.append(
            PlannedPreemption(
                job_id=record.id,
                allocation=allocation,
                victims=cycle.preemptor.planned(victims),
                priority=cycle.preemptor.priority(record, request),
            )
        )
    # Victims that are only to be suspended run on until the others have left.
    if at_once or not are_suspended(active):
        cycle.preemptions.append(replace(parts[0], others=tuple(parts[1:])))


def _all_fit(cycle: Cycle, gang: Gang, placed: Sequence[Placed], victims: Iterable[Victim]) -> bool:
    """Whether all components fit now, together, once these victims are suspended."""
    table = cycle.table.fork()
    for victim in victims:
        remove(table, victim)
    for record, (request, allocation) in zip(gang.records, placed, strict=True):
        if not all_fits(table, allocation):
            return False
        ends_at = cycle.snapshot.now + request.seconds
        for node, holder in holders_of(allocation, request, record.id, record.spec.uid, table, ends_at):
            table.charge(node, holder)
    return True


class _Attempt:
    """Allocations found so far, on tables, limits and licenses of the attempt's own, and the victims for each
    component.
    """

    def __init__(self, cycle: Cycle, gang: Gang, choices: Sequence[Choices]) -> None:
        self._cycle = cycle
        self._gang = gang
        self._choices = choices
        self.preemptor = cycle.preemptor.trial(cycle.table)
        self._table = cycle.table.fork()
        self._effort = Effort()
        self._limits, self._licenses = cycle.limits.fork(), cycle.licenses.pool.copy()
        self.claimant: dict[int, int] = {}
        self.victims: list[Victim] = []

    def place_all(self, order: Iterable[int]) -> bool:
        """Find allocations for all components, in this order; False if there is none for one of them."""
        return all(self._place(index) for index in order)

    def placed_on(self, find: Find) -> list[Placed] | None:
        """Where all components go when the victims have left; victims that can be spared stay."""
        self.victims = list(self.preemptor.chosen)
        without = self._cycle.preemptor.without
        # The components were placed one by one, each on whatever its victims release. Whether all start together is
        # asked of the function that will start them, with its own order and its own rules; otherwise victims might
        # leave for a job that then does not start.
        placed = find(without(self.victims))
        if placed is None:
            return None
        for victim in sorted(self.victims, key=lambda victim: victim.cost, reverse=True)[:SPARED_MAX]:
            fewer = [other for other in self.victims if other is not victim]
            places = find(without(fewer)) if len(self.victims) > 1 else None
            if places is not None:
                placed, self.victims = places, fewer
        return placed

    def _place(self, index: int) -> bool:
        for request in self._choices[index]:
            allocation = self._free(index, request) or self._room(index, request)
            if allocation is not None:
                self._take(index, request, allocation)
                return True
        return False

    def _free(self, index: int, request: Request) -> Allocation | None:
        allocation = place(self._table, request, self._cycle.snapshot.eligibility, effort=self._effort)
        return allocation if allocation is not None and self._permits(index, request, allocation, ()) else None

    def _room(self, index: int, request: Request) -> Allocation | None:
        """An allocation that is free once victims have left."""
        cycle, record = self._cycle, self._gang.records[index]
        guarantees = self._limits.within_guarantees(record, request)
        pool = self._licenses.without(cycle.licenses.reserved(request)) if request.licenses else self._licenses
        for allowed in (guarantees, ()) if guarantees else ((),):

            def accept(allocation: Allocation, allowed: tuple[Guarantee, ...] = allowed) -> bool:
                return self._permits(index, request, allocation, allowed)

            def apart() -> Ints:
                return cycle.planned.unplanned_until(cycle.snapshot.now + request.seconds, request)

            before = len(self.preemptor.chosen)
            room = self.preemptor.find(record, request, None, self._table, pool, accept, apart, allowed)
            if room is not None:
                for victim in self.preemptor.chosen[before:]:
                    self.claimant[victim.record.id] = index
                return room.allocation
        return None

    def _permits(self, index: int, request: Request, allocation: Allocation, guarantees: tuple[Guarantee, ...]) -> bool:
        """Whether the allocation breaks no planned start of a job ahead and no limit, and reclaims no more than the
        guarantee.
        """
        cycle, record = self._cycle, self._gang.records[index]
        ends_at = cycle.snapshot.now + request.seconds
        if cycle.planned.outranked(record, self._gang.key, request, allocation, ends_at, any_age=True) is None:
            return False
        if self._limits.verdict(record, request, allocation) is not None:
            return False
        return (
            guarantees == ()
            or self._limits.open_guarantees(record, request.partition, allocated_pairs(allocation)) == guarantees
        )

    def _take(self, index: int, request: Request, allocation: Allocation) -> None:
        cycle, record = self._cycle, self._gang.records[index]
        ends_at = cycle.snapshot.now + request.seconds
        holders = holders_of(allocation, request, _ALIAS - index, record.spec.uid, self._table, ends_at)
        for node, holder in holders:
            if cycle.parameters.components_apart:
                # Claim the whole node, so that the other components look for room elsewhere.
                holder.whole, holder.cpus = True, self._table.rows[node].hardware.cpus
            self._table.charge(node, holder)
        self.preemptor.charge(holders)
        self._limits.take(record, allocation, request.time_limit_minutes)
        if request.licenses:
            self._licenses.take(self._licenses.choose(request.licenses, cycle.licenses.reserved(request)) or {})
