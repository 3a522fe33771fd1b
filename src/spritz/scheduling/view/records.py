"""What the scheduler remembers of a job: far less than the core, and changed in place.

Owns the queue of waiting jobs, grouped by equal request (`Shape`): one test of a shape answers for all its jobs. No
policy but the order.

Source: slurm.conf(5) PriorityTier; squeue(1) JOB REASON CODES.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from spritz.model.reasons import CORE_REASONS, Reason

if TYPE_CHECKING:
    from spritz.model.job import Dependency, JobSpec
    from spritz.model.resources import Allocation
    from spritz.scheduling.view.charges import Charge
    from spritz.scheduling.view.nodes import NodeRow
    from spritz.scheduling.view.request import Request

#: (−PriorityTier, −rank, submitted, number): ascending is first to last.
SortKey = tuple[int, float, float, int]
#: the same with what a cycle makes of it
Rank = tuple[float, ...]
#: one shape in the order of its next job: rank, number of the shape, place of the job
Entry = tuple[Rank, int, int, "Shape"]


class JobRecord:
    """One job or pending array.

    `tasks` is the mask of an array's pending tasks (None: no array record). `entries` are its places in the queue, one
    per partition, while it waits there. `allocation`, `request`, `ends_at` and `licenses` are set while it holds
    anything; `completing` names the nodes that have not let go of an ended life.
    """

    __slots__ = (
        "accrued_at",
        "allocation",
        "any_switches",
        "array_job_id",
        "array_task_id",
        "charge",
        "claiming",
        "completing",
        "dependencies",
        "eligible_at",
        "ends_at",
        "entries",
        "expected_nodes",
        "expected_start_at",
        "expediting",
        "held",
        "het_job_id",
        "het_size",
        "id",
        "licenses",
        "may_boot",
        "pending",
        "predicted",
        "preempting",
        "priority",
        "queued",
        "ranked_until",
        "reason",
        "reason_detail",
        "request",
        "spec",
        "started_at",
        "stopped",
        "submitted_at",
        "suspended",
        "suspended_seconds",
        "tasks",
    )

    def __init__(self, job_id: int, spec: JobSpec) -> None:
        self.id = job_id
        self.spec = spec
        self.array_job_id = 0
        self.array_task_id: int | None = None
        self.tasks: int | None = None
        #: the heterogeneous job of which it is a component (0: none), and how many there are
        self.het_job_id = 0
        self.het_size = 0
        self.pending = False
        self.held = False
        #: it has waited long enough for few leaf switches
        self.any_switches = False
        #: nodes may be rebooted for it
        self.may_boot = False
        #: by an administrator: its CPUs are free
        self.suspended = False
        #: by the scheduler: its CPUs wait for it, and only jobs that may preempt it use them
        self.stopped = False
        #: it is in its grace time and will soon be gone
        self.preempting = False
        #: it lost a node and goes before all others; what it still holds is kept until it can start again
        self.expediting = False
        #: others were preempted for it: it goes before all until it starts
        self.claiming = False
        self.started_at = 0.0
        self.suspended_seconds = 0.0
        self.priority = 0
        self.submitted_at = 0.0
        self.eligible_at = 0.0
        self.accrued_at: float | None = None
        self.reason = Reason.NONE
        self.reason_detail = ""
        self.expected_start_at = 0.0
        self.expected_nodes: tuple[str, ...] = ()
        self.allocation: Allocation | None = None
        self.request: Request | None = None
        self.ends_at = 0.0
        self.licenses: dict[str, int] = {}
        #: what it counts for limits while it runs
        self.charge: Charge | None = None
        self.completing: set[str] = set()
        #: those that are still open
        self.dependencies: tuple[Dependency, ...] = ()
        self.entries: list[tuple[SortKey, Shape]] = []
        #: `Queue.count` when it took its place in the queue
        self.queued = 0
        #: its rank stays as it is until then
        self.ranked_until = 0.0
        #: predicted run time, seconds, and how many jobs of its user that was learnt from
        self.predicted: tuple[int, float] | None = None

    @property
    def waiting(self) -> bool:
        """Nothing but resources and limits keeps the job from starting."""
        return (
            self.pending
            and not self.held
            and self.eligible_at > 0.0
            and self.reason not in CORE_REASONS
            and self.allocation is None
            and self.tasks != 0
        )

    @property
    def awaits_eligibility(self) -> bool:
        """It waits for its begin time or for other jobs, and will be in the queue once these let it."""
        return self.pending and not self.held and self.reason in (Reason.DEPENDENCY, Reason.BEGIN_TIME)

    @property
    def names(self) -> tuple[str, ...]:
        """Nodes of which it holds a part."""
        return self.allocation.names if self.allocation is not None else ()

    @property
    def all_names(self) -> tuple[str, ...]:
        """These, and those that it keeps others off."""
        return self.allocation.held if self.allocation is not None else ()

    def set_reason(self, reason: Reason, detail: str = "") -> None:
        """Set why the job waits."""
        self.reason = reason
        self.reason_detail = detail

    def dependencies_of(self, task_id: int) -> tuple[Dependency, ...]:
        """What this task of the array waits for, once it has a record of its own."""
        return tuple(
            replace(item, task_id=task_id) if item.kind == "aftercorr" and item.task_id is None else item
            for item in self.dependencies
        )

    def split(self, job_id: int, task_id: int) -> JobRecord:
        """The record of one task of this array, as it leaves it."""
        task = JobRecord(job_id, self.spec)
        task.array_job_id = self.array_job_id
        task.array_task_id = task_id
        task.pending = True
        task.held = self.held
        task.any_switches = self.any_switches
        task.may_boot = self.may_boot
        task.priority = self.priority
        task.submitted_at = self.submitted_at
        task.eligible_at = self.eligible_at
        task.dependencies = self.dependencies_of(task_id)
        task.accrued_at = self.accrued_at
        task.reason = self.reason
        task.reason_detail = self.reason_detail
        task.expected_start_at = self.expected_start_at
        task.expected_nodes = self.expected_nodes
        return task


class Verdict(Struct, frozen=True, gc=False):
    """Why a job waits: a reason and its detail, as squeue shows them."""

    reason: Reason
    detail: str = ""


class Failure(Struct, frozen=True):
    """A request did not fit when `freed` was the projection's count.

    It fits no better unless a node was freed since, or, where it fitted but for planned starts to others, one of them
    was dropped since the ledger's `version` (None: it did not fit at all).
    """

    freed: int
    version: int | None = None


class Shape:
    """All waiting jobs of one request: `keys` ascend, `jobs` has the record of each.

    `failure`, `verdict` and `stuck` are what cycles remember of it; a plan is the same without them. `verdict` was last
    given to all its jobs; `stuck` says, for a version of which nodes are up, why it cannot start however long it waits
    (None: it can).
    """

    __slots__ = (
        "_fit",
        "failure",
        "floor",
        "jobs",
        "keys",
        "order",
        "queue_key",
        "request",
        "stuck",
        "verdict",
    )

    def __init__(self, request: Request, order: int) -> None:
        self.request = request
        #: a number of its own, in order of first use: ties between shapes are settled by it
        self.order = order
        self.keys: list[SortKey] = []
        self.jobs: dict[SortKey, JobRecord] = {}
        self.failure: Failure | None = None
        self.verdict: Verdict | None = None
        self.stuck: tuple[int, Verdict | None] | None = None
        #: the request's
        self.queue_key = request.queue_key
        #: CPUs and GPUs that each node of the job gives at least; where CPUs are shared, free ones do not matter
        self.floor = (0 if request.share_rows else request.cpus_floor, request.gpus_floor)
        self._fit: Request | None = None

    @property
    def fit(self) -> Request:
        """The request without its times: whether there is a place now depends on nothing else."""
        if self._fit is None:
            self._fit = replace(self.request, time_limit_minutes=0, time_min_minutes=0, soft_minutes=0, component=0)
        return self._fit

    def could_use(self, row: NodeRow) -> bool:
        """Quick test, never wrongly no: has the node enough free CPUs and GPUs for the least part of the job?"""
        cpus, gpus = self.floor
        if row.free_cpus.bit_count() < cpus:
            return False
        return not gpus or row.gres_free.get("gpu", 0).bit_count() >= gpus

    def could_use_any(self, rooms: list[tuple[int, int]]) -> bool:
        """The same for nodes given by (free CPUs, free GPUs)."""
        cpus, gpus = self.floor
        return any(free_cpus >= cpus and free_gpus >= gpus for free_cpus, free_gpus in rooms)

    def add(self, key: SortKey, record: JobRecord) -> None:
        """One more job."""
        if not self.keys or key > self.keys[-1]:
            self.keys.append(key)
        else:
            if key < self.keys[0] and self.failure is not None and self.failure.version is not None:
                # What is planned to others may not hold back one that ranks higher.
                self.failure = None
            insort(self.keys, key)
        self.jobs[key] = record

    def remove(self, key: SortKey) -> None:
        """The job waits no longer."""
        if self.jobs.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]


class Queue:
    """All jobs that could start if there were room.

    `unsettled`: those whose reason is neither Priority nor what was last said of all jobs of their requests, and so may
    need another: new ones, the first of each partition, and special cases.
    """

    __slots__ = ("_made", "count", "gangs", "shapes", "shrunk", "unsettled")

    def __init__(self) -> None:
        self.shapes: dict[Request, Shape] = {}
        self.unsettled: dict[int, JobRecord] = {}
        #: components of heterogeneous jobs, by the number of the whole and their own
        self.gangs: dict[int, dict[int, JobRecord]] = {}
        #: requests with fewer jobs than when their planned starts were last checked
        self.shrunk: set[Request] = set()
        self._made = 0
        #: jobs that have joined so far
        self.count = 0

    def __len__(self) -> int:
        return sum(len(shape.keys) for shape in self.shapes.values())

    def add(self, record: JobRecord, requests: list[tuple[int, float, Request]]) -> None:
        """The job waits for any of these requests; (PriorityTier, rank, request) each."""
        self.count += 1
        record.queued = self.count
        for tier, rank, request in requests:
            shape = self.shapes.get(request)
            if shape is None:
                self._made += 1
                shape = self.shapes[request] = Shape(request, self._made)
            key = (-tier, -rank, record.submitted_at, record.id)
            shape.add(key, record)
            record.entries.append((key, shape))
        if record.het_job_id and record.entries:
            self.gangs.setdefault(record.het_job_id, {})[record.id] = record
        self.note(record)

    def remove(self, record: JobRecord) -> None:
        """The job waits no longer."""
        for key, shape in record.entries:
            shape.remove(key)
            self.shrunk.add(shape.request)
            if not shape.keys:
                self.shapes.pop(shape.request, None)
        record.entries.clear()
        self.unsettled.pop(record.id, None)
        gang = self.gangs.get(record.het_job_id) if record.het_job_id else None
        if gang is not None and gang.pop(record.id, None) is not None and not gang:
            del self.gangs[record.het_job_id]

    def note(self, record: JobRecord) -> None:
        """The job's reason, or what is said of its requests, has changed."""
        if record.reason is Reason.PRIORITY or _says_the_same(record):
            self.unsettled.pop(record.id, None)
        elif record.entries:
            self.unsettled[record.id] = record

    def forget_failures(self) -> None:
        """Let every shape be tested again."""
        for shape in self.shapes.values():
            shape.failure = None


def _says_the_same(record: JobRecord) -> bool:
    """Does the job wait for what all its requests wait for?"""
    reason, detail = record.reason, record.reason_detail
    return (
        bool(record.entries)
        and not record.expected_start_at
        and all(
            shape.verdict is not None and shape.verdict.reason is reason and shape.verdict.detail == detail
            for _key, shape in record.entries
        )
    )
