"""When jobs that wait for their begin time or for other jobs become eligible.

Works from the starts of those other jobs, and from their ends at their time limits, as these become known one after the
other. Conditions are assumed to come true: a job that `afterok` waits for ends well, one that `afternotok` waits for
fails. Resources are not considered. The cost is the number of conditions; members of arrays and jobs of one name are
looked up once.

Source: sbatch(1) --begin, --dependency. The rules for single dependencies are in `core.decide.dependency`.
"""

from __future__ import annotations

from bisect import insort
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING

from spritz.scheduling.view.profile import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from spritz.model.job.record import Dependency
    from spritz.scheduling.view.records import JobRecord

    #: At that time the job becomes eligible, or these tasks of an array (a mask). True: with a record of their own,
    #: which ranks behind the others.
    Arrive = Callable[[float, "JobRecord", int, bool], None]
    #: have this called at that time, before any job starts then
    Call = Callable[[float, Callable[[float], None]], None]


def parts_of(record: JobRecord) -> int:
    """Number of starts that the record will have: one, or one for each pending task of an array."""
    return 1 if record.tasks is None else record.tasks.bit_count()


def tasks_in(mask: int) -> Iterator[int]:
    """Task ids in a mask, ascending."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def _whole(record: JobRecord) -> int:
    """Id of the array or heterogeneous job that it belongs to; else its own id."""
    return record.array_job_id or record.het_job_id or record.id


def _is_alive(record: JobRecord) -> bool:
    return record.pending or record.allocation is not None


class _Target:
    """The target of a dependency: a job, a task, or all of an array or heterogeneous job. `parts_open`: parts without a
    start.

    It starts with the last of its parts, and ends with the last as well.
    """

    __slots__ = ("_end_at", "_left", "_start_at", "_waiting")

    def __init__(self, parts_open: int, now: float) -> None:
        self._left = parts_open
        self._start_at = self._end_at = now if not parts_open else 0.0
        self._waiting: list[Callable[[float, float], None]] = []

    def take(self, parts: int, start_at: float, end_at: float) -> None:
        """This number of parts runs from `start_at` to `end_at`."""
        self._left -= parts
        self._start_at = max(self._start_at, start_at)
        self._end_at = max(self._end_at, end_at)
        if self._left <= 0:
            callbacks, self._waiting = self._waiting, []
            for tell in callbacks:
                tell(self._start_at, self._end_at)

    def ask(self, tell: Callable[[float, float], None]) -> None:
        """Call back with start and end, immediately or when they are known."""
        if self._left <= 0:
            tell(self._start_at, self._end_at)
        else:
            self._waiting.append(tell)


class _Waiter:
    """A job that is not eligible yet. `open`: conditions whose time is not known."""

    __slots__ = ("_arrive", "_by_task", "_early", "_left", "_others", "_since", "open", "record")

    def __init__(self, record: JobRecord, arrive: Arrive) -> None:
        self.record = record
        #: for an array whose tasks follow others: open conditions of each task, and the time of the latest that is met
        self._by_task: dict[int, tuple[int, float]] = {}
        self._left = self._others = 0
        self.open = 0
        self._arrive = arrive
        self._since = max(record.spec.begin_at, record.eligible_at)
        #: tasks whose own conditions are known: time and task id
        self._early: list[tuple[float, int]] = []

    @property
    def one_will_do(self) -> bool:
        return self.record.spec.dependency_mode == "any"

    def met(self, at: float) -> None:
        """One of the conditions comes true at that time."""
        if at >= NEVER:
            return
        if self.one_will_do:
            # With `?` the first condition decides: a job becomes eligible once.
            self._arrive(max(self._since, at), self.record, self.record.tasks or 0, False)
            return
        self._since = max(self._since, at)
        self.open -= 1
        self.go()

    def wait_by_task(self, others: int) -> None:
        """Each task has conditions of its own; `others` (a mask) keep the array's record."""
        self._others = others
        self._left = self.record.tasks or 0

    def wait_for_task(self, task_id: int, conditions: int) -> None:
        """The task waits for this number of conditions."""
        self._by_task[task_id] = conditions, 0.0

    def met_by_task(self, at: float, task_id: int) -> None:
        """One of the task's conditions comes true at that time."""
        if at >= NEVER:
            return
        unmet, since = self._by_task[task_id]
        self._by_task[task_id] = unmet - 1, max(since, at)
        if unmet == 1:
            self._early.append((max(since, at), task_id))
            self.go()

    def go(self) -> None:
        """Make eligible what no open condition holds back."""
        if self.open:
            return
        if not self._by_task:
            self._arrive(self._since, self.record, self.record.tasks or 0, False)
        for at, task_id in self._early:
            self._left &= ~(1 << task_id)
            # The last task takes over the array's own record.
            apart = not self._others >> task_id & 1 and bool(self._left or self._others)
            self._arrive(max(self._since, at), self.record, 1 << task_id, apart)
        self._early = []


def _met_by_start(waiter: _Waiter, seconds: float, start_at: float, _end_at: float) -> None:
    waiter.met(start_at + seconds)


def _met_by_end(waiter: _Waiter, _start_at: float, end_at: float) -> None:
    waiter.met(end_at)


def _task_met(waiter: _Waiter, task_id: int, _start_at: float, end_at: float) -> None:
    waiter.met_by_task(end_at, task_id)


class _Name:
    """Jobs of one user and name. A singleton waits until all jobs before it have ended and none runs; parts of one
    array or heterogeneous job do not wait for each other.
    """

    __slots__ = ("_asked", "_call", "_end_at", "_latest", "_left", "_next", "_since", "_wholes", "waiting")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._wholes: list[int] = []
        self._left: dict[int, int] = {}
        self._end_at: dict[int, float] = {}
        self._next = 0
        self._since = 0.0
        #: the two arrays or jobs that end last, and when
        self._latest: list[tuple[int, float]] = []
        self._asked: set[int] = set()
        self.waiting: dict[int, list[_Waiter]] = {}

    def add(self, record: JobRecord) -> None:
        whole = _whole(record)
        if whole not in self._left:
            insort(self._wholes, whole)
            self._left[whole] = 0
        self._left[whole] += parts_of(record)

    def take(self, record: JobRecord, parts: int, end_at: float) -> None:
        """Some parts hold the name until that time."""
        whole = _whole(record)
        self._left[whole] -= parts
        self._end_at[whole] = max(self._end_at.get(whole, 0.0), end_at)
        if not record.pending:
            self._since = max(self._since, end_at)
        # Two suffice: whichever job or array asks, the latest end of all *others* is the first or the second of them.
        others = [entry for entry in self._latest if entry[0] != whole]
        self._latest = sorted([*others, (whole, self._end_at[whole])], key=lambda entry: -entry[1])[:2]

    def _let_go(self, whole: int, at: float) -> None:
        """All jobs before it have ended; later ones may have started meanwhile."""
        busy_until = max((end_at for other, end_at in self._latest if other != whole), default=0.0)
        if busy_until > at:
            self._let_go_at(whole, busy_until)
            return
        for waiter in self.waiting.pop(whole, ()):
            waiter.met(at)

    def _let_go_at(self, whole: int, at: float) -> None:
        if at < NEVER:
            self._call(at, partial(self._let_go, whole))

    def advance(self) -> None:
        """Make the next job eligible if the ends of all before it are known."""
        while self._next < len(self._wholes):
            whole = self._wholes[self._next]
            if whole in self.waiting and whole not in self._asked:
                self._asked.add(whole)
                self._let_go_at(whole, self._since)
            if self._left[whole] > 0:
                return
            self._since = max(self._since, self._end_at.get(whole, 0.0))
            self._next += 1


class Conditions:
    """Conditions of all jobs in `ineligible`. Call `placed` for each `wanted` record when its start is known, then
    `begin`.
    """

    def __init__(
        self, records: Mapping[int, JobRecord], ineligible: Iterable[JobRecord], now: float, arrive: Arrive, call: Call
    ) -> None:
        self._records = records
        self._now = now
        self._waiters = [_Waiter(record, arrive) for record in ineligible]
        self._targets: dict[tuple[int, int | None], _Target] = {}
        self._names: dict[tuple[int, str], _Name] = {}
        self._begun = False
        #: by array job id, records of arrays that are waited for; for those in `_by_task` single tasks are
        self._arrays: dict[int, list[JobRecord]] = {}
        self._by_task: set[int] = set()
        #: jobs whose starts matter
        self.wanted: dict[int, JobRecord] = {}
        self._look(call)
        for waiter in self._waiters:
            self._ask(waiter)

    def begin(self) -> None:
        """The starts of all running jobs and of jobs with expected starts have been reported: begin."""
        self._begun = True
        for name in self._names.values():
            name.advance()
        for waiter in self._waiters:
            if not waiter.record.dependencies:
                waiter.go()

    def placed(self, record: JobRecord, tasks: int, start_at: float, end_at: float) -> None:
        """The job, or these tasks of it, starts at `start_at` and has ended at `end_at` (NEVER: unknown)."""
        if record.id not in self.wanted:
            return
        whole, parts = _whole(record), tasks.bit_count() or 1
        for number in {whole, record.id if record.het_job_id else whole}:
            target = self._targets.get((number, None))
            if target is not None:
                target.take(parts, start_at, end_at)
        if whole in self._by_task:
            for task_id in tasks_in(tasks) if record.array_task_id is None else (record.array_task_id,):
                target = self._targets.get((whole, task_id))
                if target is not None:
                    target.take(1, start_at, end_at)
        name = self._names.get((record.spec.uid, record.spec.name))
        if name is not None:
            name.take(record, parts, end_at)
            if self._begun:
                name.advance()

    # -- dependencies

    def _look(self, call: Call) -> None:
        """Find members of arrays, and jobs with the names of singletons."""
        named = {item.job_id for waiter in self._waiters for item in waiter.record.dependencies if item.job_id}
        arrays = {
            number for number in named if number in self._records and self._records[number].array_job_id == number
        }
        self._names = {
            (waiter.record.spec.uid, waiter.record.spec.name): _Name(call)
            for waiter in self._waiters
            if any(item.kind == "singleton" for item in waiter.record.dependencies)
        }
        if not arrays and not self._names:
            return
        self._arrays = {number: [] for number in arrays}
        for record in self._records.values():
            if not _is_alive(record):
                continue
            if record.array_job_id in arrays:
                self._arrays[record.array_job_id].append(record)
            name = self._names.get((record.spec.uid, record.spec.name)) if self._names else None
            if name is not None:
                name.add(record)
                self.wanted[record.id] = record

    def _ask(self, waiter: _Waiter) -> None:
        record = waiter.record
        items = [item for item in record.dependencies if item.state != "failed"]
        waiter.open = len(items)
        by_task: list[Dependency] = []
        if record.tasks is not None and not waiter.one_will_do:
            by_task = [item for item in items if item.kind == "aftercorr" and item.job_id in self._arrays]
            self._ask_by_task(waiter, by_task)
        for item in items:
            if item.kind == "singleton":
                name = self._names[record.spec.uid, record.spec.name]
                name.waiting.setdefault(_whole(record), []).append(waiter)
            elif item.due_at:
                waiter.met(item.due_at)
            elif item in by_task:
                continue
            elif item.kind == "after":
                self._target(item.job_id, item.task_id).ask(partial(_met_by_start, waiter, item.minutes * 60.0))
            else:
                self._target(item.job_id, item.task_id).ask(partial(_met_by_end, waiter))

    def _ask_by_task(self, waiter: _Waiter, items: Sequence[Dependency]) -> None:
        """Tasks wait for their counterparts; tasks without one wait for the whole array."""
        if not items:
            return
        waiter.open -= len(items)
        tasks = [self._tasks_of(item.job_id) for item in items]
        waiter.wait_by_task((waiter.record.tasks or 0) & ~reduce(or_, tasks))
        for task_id in tasks_in(waiter.record.tasks or 0):
            # An array without this task does not matter to a task that has a counterpart in another array.
            numbers = [item.job_id for item, mask in zip(items, tasks, strict=True) if mask >> task_id & 1]
            counterpart = task_id if numbers else None
            numbers = numbers or [item.job_id for item in items]
            waiter.wait_for_task(task_id, len(numbers))
            for number in numbers:
                self._target(number, counterpart).ask(partial(_task_met, waiter, task_id))

    def _tasks_of(self, array: int) -> int:
        """All tasks that have not ended, as a mask."""
        tasks = self._records[array].tasks or 0
        for member in self._arrays[array]:
            tasks |= 1 << member.array_task_id if member.array_task_id is not None else 0
        return tasks

    def _target(self, number: int, task_id: int | None) -> _Target:
        if number not in self._arrays:
            task_id = None
        target = self._targets.get((number, task_id))
        if target is None:
            parts = self._members(number)
            if task_id is not None:
                parts = [
                    member for member in parts if member.array_task_id == task_id or (member.tasks or 0) >> task_id & 1
                ]
                self._by_task.add(number)
            self.wanted.update((member.id, member) for member in parts)
            parts_open = sum(map(parts_of, parts)) if task_id is None else len(parts)
            target = self._targets[number, task_id] = _Target(parts_open, self._now)
        return target

    def _members(self, number: int) -> list[JobRecord]:
        if number in self._arrays:
            return self._arrays[number]
        record = self._records.get(number)
        if record is None:
            return []
        numbers = range(number, number + record.het_size) if record.het_job_id == number else (number,)
        return [
            member
            for member_id in numbers
            if (member := self._records.get(member_id)) is not None and _is_alive(member)
        ]
