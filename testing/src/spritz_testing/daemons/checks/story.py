"""A history and its final readings, put in order by job, by life and by node. All checks read this.

Words used here: a *life* of a job is one restart count of it; a *run* is one step of one life on one node, from `Began`
to `Ended`. A *subject* is what a state belongs to: a job, a task of an array, or a component of a heterogeneous job. It
is the number that the submission was answered with, and the task id or the offset (None: of neither).

A started run without an end is there until the end of the history, or until its machine loses power.
"""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.accounting.records import JobRecord
from spritz.model.ids import STEP_BATCH
from spritz_testing.daemons.history import Began, Booted, Ended, Injected, Linked, Operation, Outcome, Signalled
from spritz_testing.daemons.wanted import SUBMISSIONS, Change, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from spritz.model.job.record import Job
    from spritz_testing.daemons.checks.final import Final
    from spritz_testing.daemons.history import Entry

Subject = tuple[int, int | None]

_SIGCONT, _SIGSTOP = 18, 19

#: SIGKILL and SIGTERM. A job that ends is sent SIGCONT at the same moment, so that it hears of it.
_ENDS = 9, 15

#: Times lose a little when they become seconds since the epoch.
_INSTANT = 0.001

#: Kinds of faults in which every message comes as soon as without them.
_HARMLESS = frozenset({"clock skew", "health change", "gpu lost", "jobs fail"})

_WORDS = re.compile(r"[A-Za-z0-9_.]+")


class Run(Struct, kw_only=True):
    """One step of one life on one node."""

    began: Began
    #: inf: it has not ended
    until: float = inf
    #: None: it has not ended, or its machine lost power
    ended: Ended | None = None
    #: times during which it was stopped by a signal
    stops: list[tuple[float, float]] = []
    #: when it was ended while it was stopped, and continued for that alone; inf: it was not
    ended_stopped_at: float = inf

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries that it consists of."""
        return (self.began,) if self.ended is None else (self.began, self.ended)

    def stopped_at(self, at: float) -> bool:
        """Whether it was stopped at this moment."""
        return any(since <= at < until for since, until in self.stops)

    def owns_cpus_at(self, at: float) -> bool:
        """Whether its CPUs are not free for other jobs: those of a job that is suspended are, and of one that ends
        while it is.
        """
        return not self.stopped_at(at) and at < self.ended_stopped_at

    def seconds_by(self, at: float) -> float:
        """For how long it has run by then, without the time that it was stopped."""
        stopped = sum(min(until, at) - since for since, until in self.stops if since < at)
        return at - self.began.at - stopped


class Reported(Struct, kw_only=True):
    """A life as controller or accounting report it, in virtual time; 0.0: not yet, or never.

    A job that ended before its start is reported with a start at its end, as in Slurm; here its start is 0.0.
    """

    state: str
    started_at: float
    ended_at: float
    exit_status: int
    #: by what the controller ordered, whether or not nodes heard of it
    suspended_seconds: float


class Life(Struct, kw_only=True):
    """One life of a job, as nodes saw it and as it is reported."""

    job_id: int
    life: int
    subject: Subject
    runs: list[Run] = []
    reported: Reported | None = None

    @property
    def label(self) -> str:
        """The life's name in texts."""
        return f"job {self.job_id}" + (f" (restart {self.life})" if self.life else "")

    @property
    def began_at(self) -> float:
        """When its first processes began; inf: none did."""
        return min((run.began.at for run in self.runs), default=inf)

    @property
    def ended_at(self) -> float:
        """When its last processes ended; inf: they have not, or none began."""
        return max((run.until for run in self.runs), default=inf)

    @property
    def batch(self) -> Run | None:
        """The run of its script."""
        return next((run for run in self.runs if run.began.step_id == STEP_BATCH), None)


class Fault(Struct, kw_only=True):
    """A fault, or a reboot. `named`: words of its target, such as names of nodes and hosts."""

    since: float
    until: float
    named: frozenset[str]
    #: whether orders and reports may come late because of it
    delays: bool = True
    #: of `faults.KINDS`; "": a boot
    kind: str = ""


class Story:
    """Everything that the checks look up. Nothing here changes after it was made."""

    def __init__(self, entries: Sequence[Entry], final: Final) -> None:
        self.entries = entries
        self.final = final
        self.operations = [entry for entry in entries if isinstance(entry, Operation)]
        self.node_names = frozenset(shape.name for shape in final.rules.nodes)
        self.faults = sorted(_faults(entries), key=lambda fault: fault.since)
        self.links = _links(entries)
        self.subjects = _subjects(entries, final)
        self.jobs: dict[int, Job] = {job.id: job for job in final.jobs}
        self.lives = self._lives()
        #: the submission of a job, by the number that it was answered with
        self.submissions = self._submissions()
        self._changes: dict[int, list[Operation]] = {}
        for operation in self.operations:
            if operation.job_id and operation.kind not in SUBMISSIONS:
                self._changes.setdefault(operation.job_id, []).append(operation)
        self._of_subject: dict[Subject, list[Life]] = {}
        for life in self.lives.values():
            self._of_subject.setdefault(life.subject, []).append(life)
        #: answers of `requests` and `changes`, which rules ask for again and again
        self._requests: dict[Subject, tuple[Operation, ...]] = {}
        self._effective: dict[Subject, tuple[Operation, ...]] = {}

    def subject(self, job_id: int) -> Subject:
        """The subject that this number names; of the number of an array: the array."""
        return self.subjects.get(job_id, (job_id, None))

    def wanted(self, job_id: int) -> Wanted | None:
        """What the job's submission asked for; None: there is no such submission."""
        submission = self.submissions.get(self.subject(job_id)[0])
        return submission.wanted if submission is not None and isinstance(submission.wanted, Wanted) else None

    def lives_of(self, subject: Subject) -> list[Life]:
        """The lives of a subject in their order."""
        return self._of_subject.get(subject, [])

    def lives_of_whole(self, leader: int) -> list[Life]:
        """The lives of a job with all its tasks and components."""
        return [life for life in self.lives.values() if life.subject[0] == leader]

    def changes(self, subject: Subject) -> tuple[Operation, ...]:
        """Requests that name the subject, alone or with others, and that were not refused."""
        if subject not in self._effective:
            asked = self.requests(subject)
            self._effective[subject] = tuple(one for one in asked if one.outcome is not Outcome.REFUSED)
        return self._effective[subject]

    def requests(self, subject: Subject) -> tuple[Operation, ...]:
        """Requests that name the subject, alone or with others, in the order of their calls."""
        if subject not in self._requests:
            self._requests[subject] = tuple(self._requests_of(*subject))
        return self._requests[subject]

    def _requests_of(self, leader: int, index: int | None) -> list[Operation]:
        subject = leader, index
        own = [life.job_id for life in self.lives_of(subject) if life.job_id != leader]
        named = [operation for operation in self._changes.get(leader, ()) if _names(operation, index)]
        for job_id in dict.fromkeys(own):
            named += self._changes.get(job_id, ())
        return sorted(named, key=lambda operation: operation.called_at)

    def virtual_time(self, at: float) -> float:
        """A daemon's time as virtual time; 0.0 stays."""
        return at - self.final.epoch if at else 0.0

    def earliest(self, at: float) -> float:
        """The first moment at which a controller's clock showed `at`, as the checks' times are. A time that no clock
        has shown may be wrong by all that clocks were.
        """
        return min(self._shown(at), default=at - self.final.clock_error_seconds)

    def latest(self, at: float) -> float:
        """The last moment at which a controller's clock showed `at`."""
        return max(self._shown(at), default=at + self.final.clock_error_seconds)

    def set_by(self, started_at: float, ended_at: float) -> float:
        """By how many seconds clocks of controllers were set, or differed, while a job ran with these times in its
        record (0.0: it has not ended).
        """
        since = self.earliest(self.virtual_time(started_at))
        until = self.latest(self.virtual_time(ended_at)) if ended_at else inf
        ahead = [ahead for begin, end, ahead in self.final.clocks if begin <= until and end >= since]
        return max(ahead, default=0.0) - min(ahead, default=0.0)

    def _shown(self, at: float) -> Iterator[float]:
        for since, until, ahead in self.final.clocks:
            if since - _INSTANT <= at - ahead <= until + _INSTANT:
                yield at - ahead

    def _lives(self) -> dict[tuple[int, int], Life]:
        lives: dict[tuple[int, int], Life] = {}

        def life_of(job_id: int, number: int) -> Life:
            key = (job_id, number)
            if key not in lives:
                lives[key] = Life(job_id=job_id, life=number, subject=self.subject(job_id))
            return lives[key]

        for run in runs_of(self.entries):
            life_of(run.began.job_id, run.began.restart_count).runs.append(run)
        for job in self.final.jobs:
            life_of(job.id, job.restart_count).reported = self._reported_by_job(job)
        for row in self.final.rows or ():
            if not row.array_tasks:
                life = life_of(row.job_id, row.restart_count)
                life.reported = life.reported or self._reported_by_row(row)
        return dict(sorted(lives.items()))

    def _reported_by_job(self, job: Job) -> Reported:
        ended_at = job.ended_at if job.state.ended else 0.0
        started = job.started_at != ended_at or job.allocation is not None
        return Reported(
            state=job.state.value,
            started_at=self.virtual_time(job.started_at) if started else 0.0,
            ended_at=self.virtual_time(ended_at),
            exit_status=job.exit_status,
            suspended_seconds=job.suspended_seconds,
        )

    def _reported_by_row(self, row: JobRecord) -> Reported:
        started = row.started_at != row.ended_at or row.node_count
        return Reported(
            state=row.state,
            started_at=self.virtual_time(row.started_at) if started else 0.0,
            ended_at=self.virtual_time(row.ended_at),
            exit_status=row.exit_status,
            suspended_seconds=row.suspended_seconds,
        )

    def _submissions(self) -> dict[int, Operation]:
        submissions: dict[int, Operation] = {}
        unknown: dict[str, Operation] = {}
        for operation in self.operations:
            if operation.kind not in SUBMISSIONS or not isinstance(operation.wanted, Wanted):
                continue
            if operation.outcome is Outcome.DONE:
                submissions.setdefault(operation.job_id, operation)
            elif operation.outcome is Outcome.UNKNOWN:
                unknown[operation.wanted.tag] = operation
        for tags, leader in tagged(self.final):
            for tag in tags:
                if tag in unknown:
                    submissions.setdefault(leader, unknown[tag])
        # A job that was forgotten since has no record, but nodes saw its script.
        batch = (operation for operation in unknown.values() if operation.wanted.batch)
        scripts = {operation.wanted.script: operation for operation in batch if operation.wanted.script}
        for entry in self.entries:
            if isinstance(entry, Began) and entry.step_id == STEP_BATCH and entry.script in scripts:
                submissions.setdefault(self.subject(entry.job_id)[0], scripts[entry.script])
        return submissions


def tagged(final: Final) -> Iterable[tuple[tuple[str, str], int]]:
    """The texts of each final record that may hold a submission's tag, and the number that the submission made."""
    for job in final.jobs:
        yield (job.spec.comment, job.spec.name), job.array_job_id or job.het_job_id or job.id
    for row in final.rows or ():
        yield (row.comment, row.name), row.array_job_id or row.het_job_id or row.job_id


def _names(operation: Operation, index: int | None) -> bool:
    change = operation.wanted
    tasks = change.tasks if isinstance(change, Change) else ()
    return not tasks or index is None or index in tasks


def _faults(entries: Iterable[Entry]) -> Iterable[Fault]:
    for entry in entries:
        if isinstance(entry, Injected):
            named = frozenset(_WORDS.findall(entry.target))
            delays = entry.kind not in _HARMLESS
            until = max(entry.at, entry.until)
            yield Fault(since=entry.at, until=until, named=named, delays=delays, kind=entry.kind)
        elif isinstance(entry, Booted):
            yield Fault(since=entry.at, until=entry.at, named=frozenset({entry.node}))


def _links(entries: Iterable[Entry]) -> dict[str, list[float]]:
    """When each node was told that it is registered."""
    links: dict[str, list[float]] = {}
    for entry in entries:
        if isinstance(entry, Linked):
            links.setdefault(entry.node, []).append(entry.at)
    return links


def _subjects(entries: Iterable[Entry], final: Final) -> dict[int, Subject]:
    subjects: dict[int, Subject] = {}
    for entry in entries:
        if isinstance(entry, Began) and (entry.array_job_id or entry.het_job_id):
            leader = entry.array_job_id or entry.het_job_id
            subjects[entry.job_id] = leader, entry.array_task_id if entry.array_job_id else entry.job_id - leader
    records: list[Job | JobRecord] = [*final.jobs, *(final.rows or ())]
    for record in records:
        number = record.job_id if isinstance(record, JobRecord) else record.id
        if record.array_job_id and record.array_task_id is not None:
            subjects[number] = record.array_job_id, record.array_task_id
        elif record.het_job_id:
            subjects[number] = record.het_job_id, number - record.het_job_id
    return subjects


def parts_of(leader: int, wanted: Wanted) -> list[Subject]:
    """The subjects of a submission: tasks, components, or the job itself."""
    parts: list[Subject] = [(leader, part) for part in wanted.array_tasks or range(wanted.het_size)]
    return parts or [(leader, None)]


def runs_of(entries: Iterable[Entry]) -> list[Run]:
    """All runs in the order of their beginnings. An end without a beginning is left out (see `starts`)."""
    runs: list[Run] = []
    open_runs: dict[tuple[str, int, int, int], Run] = {}
    for entry in entries:
        if isinstance(entry, Began):
            run = open_runs[_key(entry)] = Run(began=entry, stops=[])
            runs.append(run)
        elif isinstance(entry, Ended):
            _end(open_runs.pop(_key(entry), None), entry.at, None if entry.lost else entry)
        elif isinstance(entry, Booted):
            for key in [key for key in open_runs if key[0] == entry.node]:
                _end(open_runs.pop(key), entry.at, None)
        elif isinstance(entry, Signalled):
            _stop_or_continue(open_runs.get(_key(entry)), entry)
    return runs


def _key(entry: Began | Ended | Signalled) -> tuple[str, int, int, int]:
    return entry.node, entry.job_id, entry.restart_count, entry.step_id


def _end(run: Run | None, at: float, ended: Ended | None) -> None:
    if run is not None:
        _close_stop(run, at)
        run.until, run.ended = at, ended


def _stop_or_continue(run: Run | None, signalled: Signalled) -> None:
    if run is None:
        return
    if signalled.number == _SIGSTOP and not run.stopped_at(signalled.at):
        run.stops.append((signalled.at, inf))
    elif signalled.number == _SIGCONT:
        _close_stop(run, signalled.at)
    elif signalled.number in _ENDS and run.stops and run.stops[-1][1] == signalled.at:
        run.ended_stopped_at = signalled.at


def _close_stop(run: Run, at: float) -> None:
    if run.stops and run.stops[-1][1] == inf:
        run.stops[-1] = run.stops[-1][0], at
