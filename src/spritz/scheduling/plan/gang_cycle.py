"""How a cycle considers a heterogeneous job: all components start, or each gets its reason and all get one planned
start.

The rules are those for a single job (`cycle`): limits, licenses, planned starts of other jobs, the head of each queue,
and preemption (`gang_preemption`).

Source: https://slurm.schedmd.com/heterogeneous_jobs.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.reasons import Reason
from spritz.scheduling.plan.gang_preemption import make_room
from spritz.scheduling.plan.gangs import start_now
from spritz.scheduling.plan.power_up import POWERED
from spritz.scheduling.plan.verdicts import reserved_verdict, stuck_verdict
from spritz.scheduling.view.records import Failure, Verdict
from spritz.scheduling.view.reservations import crossed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.model.resources import Allocation
    from spritz.model.rules.licenses import LicensePool
    from spritz.notation.licenses import Needs
    from spritz.scheduling.plan.decisions import Cycle
    from spritz.scheduling.plan.gangs import Choices, Gang, Placed
    from spritz.scheduling.plan.limits import Limits
    from spritz.scheduling.view.profile import Profile
    from spritz.scheduling.view.records import Shape
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import NodeTable

BLOCKED = Verdict(Reason.PRIORITY)
RESOURCES = Verdict(Reason.RESOURCES)
LICENSES = Verdict(Reason.LICENSES)


def consider(cycle: Cycle, gang: Gang) -> None:
    """Start all components, or preempt for all, or plan one common start."""
    if not gang.complete:
        # Some components are held or not eligible; the others wait for them.
        _say(cycle, gang, RESOURCES)
        return
    shapes: list[list[Shape]] = []
    for record in gang.records:
        verdicts = [(cycle.gate(shape), shape) for shape in gang.shapes(record)]
        open_ones = [shape for verdict, shape in verdicts if verdict is None]
        limited = [cycle.limits.verdict(record, shape.request) for shape in open_ones]
        if not open_ones:
            _say(cycle, gang, next(verdict for verdict, _shape in verdicts if verdict is not None))
            return
        if limited and None not in limited:
            _say(cycle, gang, next(limit for limit in limited if limit is not None))
            return
        shapes.append([shape for shape, verdict in zip(open_ones, limited, strict=True) if verdict is None])
    trial = Trial(cycle, gang)
    placed = _find(cycle, shapes, trial)
    if placed is not None:
        for index, (request, allocation) in enumerate(placed):
            cycle.start(gang.records[index], request, (allocation, None), None, trial.licenses[index])
        return
    may_start = trial.verdict is None and not _is_late(cycle, shapes)
    if may_start:
        choices = [[shape.request for shape in component_shapes] for component_shapes in shapes]
        if make_room(cycle, gang, choices, lambda table: _place(cycle, table, choices, Trial(cycle, gang))):
            return
    blocked = frozenset(cycle.blocked_queues)
    _wait(cycle, gang, shapes, trial.verdict)
    if may_start and cycle.full:
        _start_planned(cycle, gang, shapes, blocked)


def _queues(shapes: Sequence[Sequence[Shape]]) -> set[tuple[str, str]]:
    return {shape.request.queue_key for component_shapes in shapes for shape in component_shapes}


def _start_planned(
    cycle: Cycle, gang: Gang, shapes: Sequence[Sequence[Shape]], blocked: frozenset[tuple[str, str]]
) -> None:
    """Start the job if its new planned start is due at this very moment: lower-ranked jobs made way for it.

    The next cycle would be late, and a start that is late ends late: a job that is planned right behind it would clash
    with it, be planned again behind it, and clash with it once more in the cycle after that, without end.

    `blocked`: the queues with a blocked job before this one. In the other queues it overtakes no job, and blocks none.
    """
    choices = [[shape.request for shape in component_shapes] for component_shapes in shapes]
    if not all(any(_is_due(cycle, request) for request in component) for component in choices):
        return
    trial = Trial(cycle, gang)
    placed = cycle.backfill.due_together(choices)
    if placed is not None and all(trial.accept(index, part) for index, part in enumerate(placed)):
        cycle.blocked_queues &= blocked
        for index, (request, allocation) in enumerate(placed):
            cycle.start(gang.records[index], request, (allocation, None), None, trial.licenses[index])


def _is_due(cycle: Cycle, request: Request) -> bool:
    """Whether the planned start of a component can be carried out now."""
    future_start = cycle.planned.of_component(request)
    return future_start is not None and cycle.planned.free_allocation(future_start) is not None


class Trial:
    """Limits and licenses while components are placed one after the other."""

    def __init__(self, cycle: Cycle, gang: Gang) -> None:
        self._cycle = cycle
        self._gang = gang
        self._limits: Limits = cycle.limits.fork()
        self._licenses: LicensePool = cycle.licenses.pool.copy()
        self._needs: Needs = {}
        self._allocations: list[Allocation] = []
        #: by component, the licenses that it takes
        self.licenses: dict[int, Needs] = {}
        #: the last limit that was reached
        self.verdict: Verdict | None = None

    def accept(self, index: int, placed: Placed | None) -> bool:
        """Whether the component may have this allocation in addition to those before it. `placed` None: forget them
        all.
        """
        cycle = self._cycle
        if placed is None:
            self._limits, self._licenses, self._needs = cycle.limits.fork(), cycle.licenses.pool.copy(), {}
            self._allocations = []
            return True
        request, allocation = placed
        if crossed(cycle.snapshot.reserved, request, allocation, cycle.snapshot.now):
            return False
        # Components are tried one after the other, each with those before it charged: two components may each be within
        # a limit, or within the free licences, and exceed them together.
        record = self._gang.records[index]
        verdict = self._limits.verdict(record, request, allocation)
        chosen = self._licenses.choose(request.licenses, cycle.licenses.reserved(request)) if request.licenses else {}
        if chosen:
            needs = {name: count + self._needs.get(name, 0) for name, count in chosen.items()}
            chosen = chosen if cycle.licenses.spared(self._gang.records, request, needs) else None
            self._needs |= needs
        if verdict is None and not cycle.power_up.allows(*self._allocations, allocation):
            verdict = POWERED
        if verdict is not None or chosen is None:
            self.verdict = verdict or LICENSES
            return False
        self._allocations.append(allocation)
        self._limits.take(record, allocation, request.time_limit_minutes)
        self._licenses.take(chosen)
        self.licenses[index] = chosen
        return True


def _find(cycle: Cycle, shapes: Sequence[Sequence[Shape]], trial: Trial) -> list[Placed] | None:
    """Allocations for all components that are free now and do not delay planned starts of other jobs."""
    if _is_late(cycle, shapes):
        return None
    lines = _queues(shapes)
    snapshot, future_starts, kept = cycle.snapshot, cycle.backfill, cycle.planned
    # Resources freed in any of its partitions may help, and so may planned starts that were dropped.
    freed = sum(snapshot.partition_freed.get(name, 0) for name in {line[0] for line in lines})
    # The failure of the whole job is kept at the first shape of its first component. That shape belongs to this job
    # alone (`Request.component`).
    first_shape = shapes[0][0]
    # Only resources freed in one of these partitions, or another set of planned starts, can make room. If neither has
    # changed since the last failure, the search would fail again.
    if cycle.findings.failure(first_shape) == Failure(freed, kept.version):
        return None
    choices = [[shape.request for shape in component_shapes] for component_shapes in shapes]
    places = _place(cycle, cycle.table, choices, trial)
    if places is None and trial.verdict is None:
        # Try the planned start that is due, or that would be planned next.
        places = future_starts.due_together(choices)
        trial.accept(0, None)
        if places is not None and not all(trial.accept(index, placed) for index, placed in enumerate(places)):
            places = None
    # A limit's refusal is not remembered: its usage may fall without any resource being freed.
    failed = places is None and trial.verdict is None
    cycle.findings.failures[first_shape] = Failure(freed, kept.version) if failed else None
    return places


def _is_late(cycle: Cycle, shapes: Sequence[Sequence[Shape]]) -> bool:
    """Whether blocked jobs of higher rank in these queues must start first (no more backfill is allowed)."""
    return bool(_queues(shapes) & cycle.blocked_queues) and not cycle.search.may_overtake()


def _place(cycle: Cycle, table: NodeTable, choices: Sequence[Choices], trial: Trial) -> list[Placed] | None:
    """Allocations for all components on that table that break no planned start."""
    snapshot, planned_starts = cycle.snapshot, cycle.planned
    planned = [
        future_start
        for component in choices
        for choice in component
        if (future_start := planned_starts.of_component(choice)) is not None
    ]
    cycle.search.examined += len(choices)

    def profile_of(request: Request, table: NodeTable) -> Profile:
        return planned_starts.profile_over(table, request)

    return start_now(
        table,
        profile_of,
        choices,
        snapshot.eligibility,
        snapshot.now,
        planned,
        trial.accept,
        apart=cycle.parameters.components_apart,
    )


def _wait(cycle: Cycle, gang: Gang, shapes: Sequence[Sequence[Shape]], limit: Verdict | None) -> None:
    snapshot = cycle.snapshot
    for component_shapes in shapes:
        stuck = [stuck_verdict(snapshot, cycle.findings, shape) for shape in component_shapes]
        if None not in stuck:
            _say(cycle, gang, next(found_verdict for found_verdict in stuck if found_verdict is not None))
            return
    # A limit frees up at a time that is not known, so the job waits without holding back lower jobs. Licences get a
    # planned start like nodes do, unless the time at which they are free is unknown too.
    never = any(all(cycle.licenses.never(shape.request) for shape in component_shapes) for component_shapes in shapes)
    if limit is not None and (limit is not LICENSES or never):
        _say(cycle, gang, limit)
        return
    lines = _queues(shapes)
    head = bool(lines - cycle.blocked_queues)
    cycle.blocked_queues.update(lines)
    for record, component_shapes in zip(gang.records, shapes, strict=True):
        verdict = next(
            (
                found_verdict
                for shape in component_shapes
                if (found_verdict := reserved_verdict(snapshot, cycle.findings, cycle.table, shape.request)) is not None
            ),
            limit or (RESOURCES if head else BLOCKED),
        )
        for shape in component_shapes:
            cycle.notes.shape(shape, verdict)
        cycle.notes.job(record, verdict)
    cycle.backfill.wait_together(
        gang, [[shape.request for shape in component_shapes] for component_shapes in shapes], shapes, head=head
    )


def _say(cycle: Cycle, gang: Gang, verdict: Verdict) -> None:
    """Note the reason for every waiting component, and drop their planned starts."""
    cycle.planned.take_back(
        future_start
        for record in gang.records
        for shape in gang.shapes(record)
        if (future_start := cycle.planned.of_component(shape.request)) is not None
    )
    for record in gang.records:
        cycle.notes.job(record, verdict)
