"""What the scheduler remembers of jobs: far less than the core, and changed in place.

Owns the queue of waiting jobs, grouped by equal request (`Shape`): one test of a shape answers for all its jobs. No
policy except the order.

Source: slurm.conf(5) PriorityTier; squeue(1) JOB REASON CODES.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from spritz.model.reasons import CORE_REASONS, Reason

if TYPE_CHECKING:
    from spritz.model.job.record import Dependency, JobSpec
    from spritz.model.limits.ledger import LedgerKey
    from spritz.model.resources import Allocation
    from spritz.scheduling.view.nodes import NodeRow
    from spritz.scheduling.view.request import Request

#: (−PriorityTier, −rank, submission time, job id): ascending is first to last
SortKey = tuple[int, float, float, int]
#: a sort key as a cycle completes it (guarantees, predictions)
Rank = tuple[float, ...]
#: a shape in the order of its next job: rank, `Shape.order`, position of the job in the shape
Entry = tuple[Rank, int, int, "Shape"]


class JobRecord:
    """One job or pending array.

    `tasks` is the mask of an array's pending tasks (None: not an array record). `entries` are its places in the queue,
    one per partition. `allocation`, `request`, `ends_at` and `licenses` are set while it holds resources; `completing`
    names the nodes that have not yet released an ended life of the job.
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
        #: id of the heterogeneous job whose component this is (0: none), and its number of components
        self.het_job_id = 0
        self.het_size = 0
        self.pending = False
        self.held = False
        #: it has waited long enough and now takes any number of leaf switches
        self.any_switches = False
        #: nodes may be rebooted for it
        self.may_boot = False
        #: suspended by an administrator: its CPUs are free
        self.suspended = False
        #: suspended by the scheduler: its CPUs are kept for it; only jobs that may preempt it use them
        self.stopped = False
        #: in its grace time; it will soon have ended
        self.preempting = False
        #: it lost a node and goes before all others; what it still holds is kept until it can start again
        self.expediting = False
        #: other jobs were preempted for it: it goes before all others until it starts
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
        #: what it counts towards limits while it runs
        self.charge: Charge | None = None
        self.completing: set[str] = set()
        #: dependencies that are still open
        self.dependencies: tuple[Dependency, ...] = ()
        self.entries: list[tuple[SortKey, Shape]] = []
        #: value of `Queue.count` when it joined the queue
        self.queued = 0
        #: time until which its rank stays as it is
        self.ranked_until = 0.0
        #: number of ended jobs of its user that the prediction is based on, and predicted run time in seconds
        self.predicted: tuple[int, float] | None = None

    @property
    def waiting(self) -> bool:
        """Only resources and limits keep the job from starting."""
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
        """It waits for its begin time or for other jobs, and joins the queue afterwards."""
        return self.pending and not self.held and self.reason in (Reason.DEPENDENCY, Reason.BEGIN_TIME)

    @property
    def names(self) -> tuple[str, ...]:
        """Nodes on which it holds resources."""
        return self.allocation.names if self.allocation is not None else ()

    @property
    def all_names(self) -> tuple[str, ...]:
        """Nodes on which it holds resources or that it keeps other jobs off."""
        return self.allocation.held if self.allocation is not None else ()

    def set_reason(self, reason: Reason, detail: str = "") -> None:
        self.reason = reason
        self.reason_detail = detail

    def dependencies_of(self, task_id: int) -> tuple[Dependency, ...]:
        """Dependencies of this task of the array, once it has a record of its own."""
        return tuple(
            replace(item, task_id=task_id) if item.kind == "aftercorr" and item.task_id is None else item
            for item in self.dependencies
        )

    def split(self, job_id: int, task_id: int) -> JobRecord:
        """Take this task out of the array: a record of its own."""
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
    """A request did not fit when the projection's count of freed resources was `freed`.

    It cannot fit unless resources were freed since. If it failed only because of planned starts of other jobs,
    `version` is the ledger's version then, and a later version may let it start (None: it did not fit at all).
    """

    freed: int
    version: int | None = None


class Shape:
    """All waiting jobs of one request: `keys` ascend, `jobs` has the record of each.

    `failure`, `verdict` and `stuck` are findings of cycles; a plan is the same without them. `verdict` was last given
    to all its jobs. `stuck`: for a version of the nodes' states, why it cannot start however long it waits (None: it
    can).
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
        #: number of the shape, in order of first use; breaks ties between shapes
        self.order = order
        self.keys: list[SortKey] = []
        self.jobs: dict[SortKey, JobRecord] = {}
        self.failure: Failure | None = None
        self.verdict: Verdict | None = None
        self.stuck: tuple[int, Verdict | None] | None = None
        #: as the request's
        self.queue_key = request.queue_key
        #: least CPUs and GPUs on each node of the job; 0 CPUs where CPUs are shared, as free CPUs do not matter then
        self.floor = (0 if request.share_rows else request.cpus_floor, request.gpus_floor)
        self._fit: Request | None = None

    @property
    def fit(self) -> Request:
        """The request without its times. Whether it fits now depends on nothing else."""
        if self._fit is None:
            self._fit = replace(self.request, time_limit_minutes=0, time_min_minutes=0, soft_minutes=0, component=0)
        return self._fit

    def could_use(self, row: NodeRow) -> bool:
        """Whether the node has enough free CPUs and GPUs for the least part of the job. Quick, and never
        wrongly False.
        """
        cpus, gpus = self.floor
        if row.free_cpus.bit_count() < cpus:
            return False
        return not gpus or row.gres_free.get("gpu", 0).bit_count() >= gpus

    def could_use_any(self, rooms: list[tuple[int, int]]) -> bool:
        """The same for nodes given by (free CPUs, free GPUs)."""
        cpus, gpus = self.floor
        return any(free_cpus >= cpus and free_gpus >= gpus for free_cpus, free_gpus in rooms)

    def add(self, key: SortKey, record: JobRecord) -> None:
        """Add a waiting job at its place in the order."""
        if not self.keys or key > self.keys[-1]:
            self.keys.append(key)
        else:
            # `failure` speaks for all jobs of the shape. A failure for want of resources holds for any rank; one
            # because of planned starts only for ranks behind theirs.
            if key < self.keys[0] and self.failure is not None and self.failure.version is not None:
                # Planned starts of other jobs may not hold back one that ranks higher, so the failure may not apply to
                # it.
                self.failure = None
            insort(self.keys, key)
        self.jobs[key] = record

    def remove(self, key: SortKey) -> None:
        """The job does not wait any more."""
        if self.jobs.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]


class Queue:
    """All jobs that could start if resources were free.

    `unsettled`: jobs whose reason is neither Priority nor the last verdict on all jobs of their requests, and so may
    need another: new jobs, the first of each partition, and special cases.
    """

    __slots__ = ("_made", "count", "gangs", "shapes", "shrunk", "unsettled")

    def __init__(self) -> None:
        self.shapes: dict[Request, Shape] = {}
        self.unsettled: dict[int, JobRecord] = {}
        #: components of heterogeneous jobs, by id of the whole job and their own
        self.gangs: dict[int, dict[int, JobRecord]] = {}
        #: requests with fewer jobs than when their planned starts were last checked
        self.shrunk: set[Request] = set()
        self._made = 0
        #: number of jobs that have ever joined
        self.count = 0

    def __len__(self) -> int:
        return sum(len(shape.keys) for shape in self.shapes.values())

    def add(self, record: JobRecord, requests: list[tuple[int, float, Request]]) -> None:
        """The job waits with any of these requests: (PriorityTier, rank, request) each."""
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
        """The job does not wait any more."""
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
        """The job's reason, or the verdict on its requests, has changed."""
        if record.reason is Reason.PRIORITY or _says_the_same(record):
            self.unsettled.pop(record.id, None)
        elif record.entries:
            self.unsettled[record.id] = record

    def forget_failures(self) -> None:
        """Let every shape be tested again."""
        for shape in self.shapes.values():
            shape.failure = None


def _says_the_same(record: JobRecord) -> bool:
    """Whether the job's reason is the verdict on all its requests."""
    # A long queue has one reason for nearly all its jobs. Jobs are looked at one by one only if theirs differs
    # (`Queue.unsettled`), so that notes cost what has changed and not what waits.
    reason, detail = record.reason, record.reason_detail
    return (
        bool(record.entries)
        and not record.expected_start_at
        and all(
            shape.verdict is not None and shape.verdict.reason is reason and shape.verdict.detail == detail
            for _key, shape in record.entries
        )
    )


class Charge(NamedTuple):
    """Where a running job counts, and how much. `nodes`: its nodes, if a limit needs them."""

    keys: tuple[LedgerKey, ...]
    tres: tuple[tuple[str, int], ...]
    nodes: tuple[str, ...] = ()
