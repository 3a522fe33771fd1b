"""Deadlines at which the core must be called again: one deadline per job, as data.

`job_rows` says, from the record alone, what about a job falls due, and when. Its deadline is the earliest of these
times, `Deadlines` finds the earliest of all jobs, and `decide.due` carries out the row that is due. That must move it:
otherwise `Tick` would be due for ever.

Source: slurm.conf(5) MinJobAge, OverTimeLimit, KillWait, GraceTime; sbatch(1) --begin, --deadline, --signal,
--immediate.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from spritz.core.flags import COMPLETING
from spritz.core.job import het
from spritz.core.job.siblings import locked_elsewhere, peers
from spritz.model.ids import INFINITE
from spritz.model.limits.minutes import job_seconds
from spritz.model.reasons import Reason
from spritz.model.states import JobState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spritz.core.job.charges import Charge
    from spritz.model.cluster.settings import ClusterSettings
    from spritz.model.job.record import Job
    from spritz.model.job.step import Step
    from spritz.model.limits.rules import Rules
    from spritz.model.node.partition import Partition

#: added to the last time at which a pending job can start and still meet its --deadline
DEADLINE_GRACE_SECONDS = 1.0

NEVER = float("inf")

#: seconds after the start of a job at which its steps exist and can receive the signal of --signal
LISTENING_SECONDS = 5.0

K = TypeVar("K", int, str)

#: superseded deadlines that a heap may hold, beyond as many as there are deadlines in force
SUPERSEDED_MAX = 64

#: OverTimeLimit=UNLIMITED as stored (minutes, 16 bit in Slurm)
OVER_TIME_UNLIMITED = 65_535


class Deadlines(Generic[K]):
    """Next deadline by job id (or node name), and the earliest of all. Setting and reading are O(log n)."""

    __slots__ = ("_heap", "_times")

    def __init__(self) -> None:
        self._times: dict[K, float] = {}
        self._heap: list[tuple[float, K]] = []

    def set(self, job_id: K, at: float) -> float:
        """Set the deadline of a job; NEVER removes it. Returns what it was before."""
        times = self._times
        if at == NEVER:
            return times.pop(job_id, NEVER)
        before = times.get(job_id, NEVER)
        if before == at:
            return at
        times[job_id] = at
        # The old entry stays in the heap and is skipped when it surfaces (`_times` no longer agrees): removing it would
        # cost O(n).
        heappush(self._heap, (at, job_id))
        if len(self._heap) > 2 * len(times) + SUPERSEDED_MAX:
            # Superseded entries stay in the heap until they surface; those of long limits would pile up for days.
            self._heap = [(time, number) for number, time in times.items()]
            heapify(self._heap)
        return before

    def all(self) -> dict[K, float]:
        """Every deadline (seconds since the epoch) by key; not a copy."""
        return self._times

    def __contains__(self, job_id: K) -> bool:
        return job_id in self._times

    def is_due(self, job_id: K, now: float) -> bool:
        """Whether the job's deadline is at or before `now`."""
        return self._times.get(job_id, NEVER) <= now

    def next(self) -> float | None:
        """The earliest deadline; None if there is none."""
        heap, times = self._heap, self._times
        while heap:
            at, job_id = heap[0]
            if times.get(job_id) == at:
                return at
            heappop(heap)
        return None

    def due(self, now: float) -> list[K]:
        """Jobs whose deadline is at or before `now`, earliest first. They stay due until their record changes."""
        heap, times = self._heap, self._times
        due: list[tuple[float, K]] = []
        while heap and heap[0][0] <= now:
            entry = heappop(heap)
            if times.get(entry[1]) == entry[0] and (not due or due[-1] != entry):
                due.append(entry)
        # What is due leaves only when its record gives another deadline. If a decision overlooks it, the next Tick
        # finds it again.
        for entry in due:
            heappush(heap, entry)
        return [job_id for _at, job_id in due]

    def items(self) -> Iterator[tuple[K, float]]:
        """All (key, deadline) pairs in no order, for invariants."""
        return iter(self._times.items())


class Due(Enum):
    """The kinds of deadlines of a job; `decide.due` has the decision of each."""

    #: the time that preemption left it is over
    GRACE = "grace"
    #: it must have ended by now (running), or cannot any more (waiting): --deadline
    DEADLINE = "deadline"
    TIME_LIMIT = "time limit"
    END_SIGNAL = "end signal"
    REPEAT_KILL = "repeat kill"
    #: --immediate
    START_BY = "start by"
    BEGIN = "begin"
    #: a dependency may be fulfilled: after:JOB+MINUTES
    DEPENDENCY = "dependency"
    PURGE = "purge"


#: When, and what. Of several that are due the first counts.
Rows = Sequence[tuple[float, Due]]


class Timed(het.WithJobs, Protocol):
    """What times of jobs depend on (`state.State`)."""

    @property
    def settings(self) -> ClusterSettings: ...

    @property
    def partitions(self) -> Mapping[str, Partition]: ...

    @property
    def rules(self) -> Rules: ...

    @property
    def charges(self) -> Mapping[int, Charge]: ...

    @property
    def arrays_live(self) -> Mapping[int, int]: ...


def job_deadline(state: Timed, job: Job) -> float:
    """When something about this job falls due; NEVER if not before its record changes."""
    return min([at for at, _ in job_rows(state, job)], default=NEVER)


def job_rows(state: Timed, job: Job) -> Rows:
    """The times at which something falls due for a job; a time may be NEVER."""
    if job.state is JobState.RUNNING:
        return ((job.ends_at, Due.GRACE),) if job.preempt_action else _running(state, job)
    if job.flags & COMPLETING:
        return ((job.repeat_kill_at or NEVER, Due.REPEAT_KILL),)
    if job.state is JobState.PENDING:
        return () if locked_elsewhere(job) else _waiting(job)
    if job.state is JobState.SUSPENDED:
        return ((job.ends_at, Due.GRACE),) if job.preempt_action else ()
    return ((_purged_at(state, job), Due.PURGE),)


def _running(state: Timed, job: Job) -> Rows:
    ends_at = _spent_at(state, job)
    if job.reservation_ends_at:
        minutes = state.settings.reservation_over_run_minutes
        ends_at = min(ends_at, NEVER if minutes is None else job.reservation_ends_at + minutes * 60.0)
    if not job.ends_at:
        return (job.spec.deadline_at or NEVER, Due.DEADLINE), (ends_at, Due.TIME_LIMIT)
    ends_at = min(ends_at, job.ends_at + _over_time_seconds(state, job))
    signal_at = NEVER if job.end_signal_sent or job.spec.end_signal is None else _end_signal_at(job)
    return (job.spec.deadline_at or NEVER, Due.DEADLINE), (ends_at, Due.TIME_LIMIT), (signal_at, Due.END_SIGNAL)


def _over_time_seconds(state: Timed, job: Job) -> float:
    """Seconds by which the job may exceed its time limit: the partition's OverTimeLimit, else the cluster's."""
    partition = state.partitions.get(job.partition)
    minutes = state.settings.over_time_minutes
    if partition is not None and partition.over_time_minutes is not None:
        minutes = partition.over_time_minutes
    return NEVER if minutes >= OVER_TIME_UNLIMITED else minutes * 60.0


def _spent_at(state: Timed, job: Job) -> float:
    """When a running job will have used up its own TRES minutes (MaxTRESMinsPerJob)."""
    enforce = state.settings.enforce
    charge = state.charges.get(job.id)
    if charge is None or "limits" not in enforce or "safe" in enforce:
        return NEVER
    spec = job.spec
    job_limits = state.rules.job_limits(spec.account, spec.user, job.partition, spec.qos)
    if not job_limits.timed:
        return NEVER
    return job.started_at + job.suspended_seconds + job_seconds(job_limits, charge.tres)


def _end_signal_at(job: Job) -> float:
    """When the signal of --signal is due.

    A job with less time left than its --signal asks for gets the signal shortly after its start, when its steps can
    receive it. (Slurm checks time limits every 30 s, and sends it then.)
    """
    assert job.spec.end_signal is not None, "the caller has looked"
    at = job.ends_at - job.spec.end_signal.seconds
    return at if at > job.started_at else min(job.started_at + LISTENING_SECONDS, job.ends_at - 1.0)


def _waiting(job: Job) -> Rows:
    rows = []
    if job.spec.deadline_at:
        rows.append((latest_start(job), Due.DEADLINE))
    if job.start_by_at:
        rows.append((job.start_by_at, Due.START_BY))
    if job.reason is Reason.BEGIN_TIME:
        rows.append((job.eligible_at, Due.BEGIN))
    for dependency in job.dependencies:
        if dependency.due_at and dependency.kind == "after":
            rows.append((dependency.due_at, Due.DEPENDENCY))
    return rows


def latest_start(job: Job) -> float:
    """The last time at which a waiting job may start and still end before its --deadline; NEVER without one."""
    if not job.spec.deadline_at:
        return NEVER
    minutes = job.spec.time_min_minutes or job.time_limit_minutes or 0
    seconds = minutes * 60.0 if minutes < INFINITE else 0.0
    return job.spec.deadline_at - seconds + DEADLINE_GRACE_SECONDS


def _purged_at(state: Timed, job: Job) -> float:
    """MinJobAge after its end; tasks of an array and components wait for the last of them, and a federated job until
    other clusters know of its end.

    MinJobAge=0 keeps records for ever.
    """
    age = state.settings.min_job_age_seconds
    if not age or (job.array_job_id and state.arrays_live.get(job.array_job_id)) or peers(job):
        return NEVER
    if job.het_job_id:
        whole = het.members(state, job)
        if any(not member.state.ended or member.flags & COMPLETING for member in whole):
            return NEVER
        return max(member.ended_at for member in whole) + age
    return job.ended_at + age


def step_key(job_id: int, step_id: int) -> int:
    """One integer key for a step; unique among all steps."""
    return job_id << 32 | step_id


def step_deadline(step: Step, job: Job | None) -> float:
    """End of a step's own time limit, until its end has been ordered. Time stands still while the job is suspended.

    The end of a job, and of a life of it, orders the end of its steps: they have no deadline from then on.
    """
    minutes = step.spec.time_limit_minutes
    if not minutes or minutes >= INFINITE or step.cancelled:
        return NEVER
    if job is not None and (
        job.state is JobState.SUSPENDED or job.state.ended or job.restart_count != step.restart_count
    ):
        return NEVER
    return step.started_at + step.suspended_seconds + minutes * 60.0
