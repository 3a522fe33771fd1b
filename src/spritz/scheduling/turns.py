"""When jobs come under the limits that hold them back, and get the licenses that they lack: a reckoning over the ends
of what runs, by its time limits.

Limits on what runs at a time are reckoned with, nodes are not (`forecast` does that). What holds a job back by itself,
by minutes of use or by fair share is not foreseen. Estimates for `squeue --start`, and never promises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from spritz.model.limits.check import exceeded
from spritz.model.limits.ledger import Ledger
from spritz.notation.licenses import parse as license_choices
from spritz.scheduling.licenses import NOTHING, LicensePool
from spritz.scheduling.limits import Charge, count_in, wanted_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.model.limits.bounds import Tres
    from spritz.model.limits.ledger import Key
    from spritz.model.limits.rules import Party
    from spritz.scheduling.limits import Limits
    from spritz.scheduling.records import JobRecord, Shape, SortKey
    from spritz.scheduling.request import Request
    from spritz.scheduling.snapshot import Snapshot

#: So often is asked whether a job is within its limits; what waits behind that goes on at the pace found until then.
CHECKS = 10_000


class _Line:
    """Jobs of one shape in order of the queue: who they are to the limits, what each takes, and when they got it."""

    __slots__ = ("done", "first_at", "jobs", "last_at", "left", "let_in", "licenses", "party", "request", "tres")

    def __init__(
        self, request: Request, jobs: list[tuple[SortKey, JobRecord]], party: Party | None, tres: Tres
    ) -> None:
        self.request = request
        self.jobs = jobs
        self.party = party
        self.tres = tres
        self.licenses = request.licenses
        #: jobs that have their turns, tasks that the next one has left, and tasks of all that have been let in
        self.done = self.let_in = 0
        self.left = _tasks(jobs[0][1])
        self.first_at = self.last_at = 0.0

    @property
    def keys(self) -> tuple[Key, ...]:
        return self.party.keys if self.party is not None else ()

    @property
    def over(self) -> bool:
        return self.done == len(self.jobs)

    def take(self, at: float) -> None:
        """One more task starts."""
        self.first_at = self.first_at or at
        self.last_at = at
        self.let_in += 1
        self.left -= 1
        if not self.left:
            self.done += 1
            self.left = 0 if self.over else _tasks(self.jobs[self.done][1])


def _tasks(record: JobRecord) -> int:
    return 1 if record.tasks is None else record.tasks.bit_count() or 1


class Turns:
    """`limits` and `licenses` are as after the cycle's starts."""

    def __init__(self, snapshot: Snapshot, limits: Limits, licenses: LicensePool) -> None:
        self._rules = snapshot.rules
        self._now = snapshot.now
        self._ledger = limits.in_use.fork()
        self._licenses = licenses.copy()
        self._order = count()
        self._checks = 0
        records = snapshot.records
        self._ends: list[tuple[float, int, Charge, Mapping[str, int]]] = [
            (max(ends_at, self._now), next(self._order), record.charge or Charge((), ()), record.licenses)
            for ends_at, number in snapshot.ends
            if (record := records[number]).charge is not None or record.licenses
        ]
        self._ends += [(ends_at, next(self._order), charge, NOTHING) for ends_at, charge in limits.starting]
        heapify(self._ends)

    def times(self, shapes: Iterable[Shape], started: Collection[int]) -> dict[int, float]:
        """Of all jobs that limits or licenses hold back: when they do no more, by job number."""
        lines = [line for shape in shapes if (line := self._line(shape, started)) is not None]
        touched: dict[object, list[_Line]] = {}
        for line in lines:
            names = {name for needs in license_choices(line.licenses) for name in needs}
            for key in (*line.keys, *names):
                touched.setdefault(key, []).append(line)
        found: dict[int, float] = {}
        while self._ends and self._checks < CHECKS and not all(line.over for line in lines):
            at = self._ends[0][0]
            some: dict[int, _Line] = {}
            while self._ends and self._ends[0][0] == at:
                _at, _order, charge, licenses = heappop(self._ends)
                count_in(self._ledger, charge, -1)
                self._licenses.give_back(licenses)
                some |= {id(line): line for key in (*charge.keys, *licenses) for line in touched.get(key, ())}
            self._let_in([line for line in some.values() if not line.over], at, found)
        for line in lines:
            self._go_on(line, found)
        return found

    def _line(self, shape: Shape, started: Collection[int]) -> _Line | None:
        """None for what is held back by something else, or for good."""
        request = shape.request
        jobs = [(key, record) for key in shape.keys if (record := shape.jobs[key]).id not in started]
        if not jobs:
            return None
        party = None
        tres: Tres = ()
        if request.billed is not None:
            account, user, qos, exempt = request.billed
            party = self._rules.party(account, user, request.partition, qos, exempt)
            tres = tuple(self._rules.priced(request.partition, wanted_by(jobs[0][1].spec, request)))
        line = _Line(request, jobs, party, tres)
        empty = LicensePool(self._licenses.total.items())
        if self._fits(line, self._ledger, self._licenses) is not None or self._fits(line, Ledger(), empty) is None:
            return None
        return line

    def _fits(self, line: _Line, ledger: Ledger, licenses: LicensePool) -> Mapping[str, int] | None:
        """The licenses that a job of the line gets; None if it must wait."""
        self._checks += 1
        request = line.request
        if line.party is not None and exceeded(
            line.party, ledger, line.tres, request.time_limit_minutes, nodes=request.nodes_min
        ):
            return None
        return licenses.choose(line.licenses)

    def _let_in(self, lines: list[_Line], at: float, found: dict[int, float]) -> None:
        """Those that may start by now, in order of the queue."""
        queue = [(line.jobs[line.done][0], number, line) for number, line in enumerate(lines)]
        heapify(queue)
        while queue and self._checks < CHECKS:
            _key, number, line = heappop(queue)
            licenses = self._fits(line, self._ledger, self._licenses)
            if licenses is None:
                continue
            found.setdefault(line.jobs[line.done][1].id, at)
            line.take(at)
            order = next(self._order)
            # As if on nodes of its own: where it will be nobody knows.
            nodes = range(line.request.nodes_min) if self._rules.shares_nodes else ()
            charge = Charge(line.keys, line.tres, tuple(f"{order}/{place}" for place in nodes))
            count_in(self._ledger, charge)
            self._licenses.take(licenses)
            heappush(self._ends, (at + line.request.seconds, order, charge, licenses))
            if not line.over:
                heappush(queue, (line.jobs[line.done][0], number, line))

    def _go_on(self, line: _Line, found: dict[int, float]) -> None:
        """The others of a line that has begun to move, at its pace."""
        if not line.let_in:
            return
        pace = (line.last_at - line.first_at) / (line.let_in - 1) if line.let_in > 1 else line.request.seconds
        at, left = line.last_at, line.left
        for _key, record in line.jobs[line.done :]:
            found.setdefault(record.id, at + pace)
            at += pace * (left or _tasks(record))
            left = 0
