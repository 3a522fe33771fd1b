"""Events about jobs, in the order of a job's life.

A whole `Job` travels only where most of it is new (`JobQueued`, `JobUpdated`); other events carry only what changed.
"""

from __future__ import annotations

from msgspec import field

from spritz.model.events.base import Event
from spritz.model.job.record import Dependency, Hold, Job
from spritz.model.plan import PendingNote
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation
from spritz.model.states import JobState


class JobQueued(Event, frozen=True, kw_only=True):
    """A submission was accepted. `job` is complete, including its id."""

    concerns = "accounting subscribers"

    job: Job


class ArrayTaskSplit(Event, frozen=True, kw_only=True):
    """A task of a pending array got a record of its own, `job_id`; the array's own id if it was the last task left."""

    concerns = "accounting subscribers"

    array_job_id: int
    task_id: int
    job_id: int


class ArrayTasksCancelled(Event, frozen=True, kw_only=True):
    """Some, not all, pending tasks of an array were cancelled: they never had and never will have a record.

    `tasks` is a mask in hexadecimal.
    """

    concerns = "accounting subscribers"

    array_job_id: int
    tasks: str
    by_uid: int = -1


class JobUpdated(Event, frozen=True, kw_only=True):
    """`scontrol update` or `top` changed a job: `job` is the whole new record. State, allocation and steps are
    unchanged.
    """

    concerns = "accounting subscribers"

    job: Job


class JobHeld(Event, frozen=True, kw_only=True):
    """A pending job (or the pending part of an array) is held; its priority is 0."""

    concerns = "accounting subscribers"

    job_id: int
    hold: Hold
    reason: Reason
    detail: str = ""


class JobReleased(Event, frozen=True, kw_only=True):
    """The job's hold was lifted: it may start again."""

    concerns = "accounting subscribers"

    job_id: int
    priority: int
    reason: Reason = Reason.NONE
    eligible_at: float = 0.0


class JobBecameEligible(Event, frozen=True, kw_only=True):
    """The begin time has come and no dependency is open: the scheduler may consider the job."""

    concerns = "accounting subscribers"

    job_id: int
    reason: Reason = Reason.NONE


class JobAccrued(Event, frozen=True, kw_only=True):
    """Limits on accrual let this job's age priority accrue from `since` on (0.0: no longer, or not yet)."""

    concerns = ""

    job_id: int
    since: float = 0.0


class DependenciesChanged(Event, frozen=True, kw_only=True):
    """Some dependencies were fulfilled or failed. `eligible_at` 0.0: still waiting."""

    concerns = "accounting subscribers"

    job_id: int
    dependencies: tuple[Dependency, ...]
    reason: Reason
    eligible_at: float = 0.0


class JobsNoted(Event, frozen=True, kw_only=True):
    """The scheduler's newest reasons and expected starts, for jobs where they changed."""

    concerns = "accounting subscribers"

    notes: tuple[PendingNote, ...]


class PrioritiesReached(Event, frozen=True, kw_only=True):
    """With PriorityFlags=INCR_ONLY: priorities that pending jobs keep although the factors behind them have fallen."""

    concerns = ""

    #: job id, partition, priority
    marks: tuple[tuple[int, str, float], ...]


class JobStarted(Event, frozen=True, kw_only=True):
    """The job holds its allocation. A batch job's pseudo step begins with this; no StepOpened follows for it.

    `ends_at`: end of the time limit (0.0: none). `time_limit_minutes` as granted (INFINITE: none).
    """

    concerns = "accounting subscribers"

    job_id: int
    allocation: Allocation
    time_limit_minutes: int
    ends_at: float = 0.0
    #: (name, count) of the licenses that it holds until it ends
    licenses: tuple[tuple[str, int], ...] = ()
    #: PrologSlurmctld or Prologs run first: nothing is launched before JobConfigured
    configuring: bool = False
    #: some of its nodes are powered up first: nothing runs before JobNodesUp
    powering_up: bool = field(default=False, name="waking")
    #: priority in force when it started (0: the record's)
    priority: int = 0
    #: billing by TRESBillingWeights; None: its CPUs
    billing: float | None = None
    #: the scheduler that started it, as in Slurm: Submit, Main or Backfill ("": not recorded)
    scheduler: str = ""
    #: id of its association (0: none)
    association: int = 0


class JobPrologsBegan(Event, frozen=True, kw_only=True):
    """PrologFlags=Alloc: the Prolog runs on every node of the job now, not before its first step there."""

    concerns = "subscribers"

    job_id: int


class JobNodeReady(Event, frozen=True, kw_only=True):
    """The job's Prolog has succeeded on `node`."""

    concerns = "subscribers"

    job_id: int
    node: str


class JobNodesUp(Event, frozen=True, kw_only=True):
    """The nodes that were powered up for the job have all registered: its time begins now. `ends_at` as in
    JobStarted.
    """

    concerns = "accounting subscribers"

    job_id: int
    ends_at: float = 0.0


class JobConfigured(Event, frozen=True, kw_only=True):
    """PrologSlurmctld and the Prologs that the job waits for have run: it is no longer CONFIGURING."""

    concerns = "subscribers"

    job_id: int


class EndSignalSent(Event, frozen=True, kw_only=True):
    """`--signal` went out before the end of the time limit."""

    concerns = ""

    job_id: int


class JobSuspended(Event, frozen=True, kw_only=True):
    """All processes were sent the order to stop; CPUs count as free, memory and GRES do not.

    `by`: "preempt", "gang", or "" for an administrator. For a job that is suspended already, only this changes.
    """

    concerns = "accounting subscribers"

    job_id: int
    by: str = ""


class JobResumed(Event, frozen=True, kw_only=True):
    """Processes go on; the time limit moved by the time suspended.

    `resumed_at` is what the job's record keeps of `at`; 0.0 in events of format 1, whose images have no such field.
    """

    concerns = "accounting subscribers"

    job_id: int
    ends_at: float
    suspended_seconds: float
    resumed_at: float = 0.0


class JobPreempted(Event, frozen=True, kw_only=True):
    """The job must make room for `by_job_id`: it has until `ends_at`, then it is requeued or cancelled (`mode`)."""

    # accounting: JobEnded, JobSuspended or JobRequeued follows
    concerns = "subscribers"

    job_id: int
    mode: str
    ends_at: float
    by_job_id: int = 0
    #: the account that reclaims its guarantee ("": ordinary preemption)
    reclaimed_for: str = ""


class JobNodeFailed(Event, frozen=True, kw_only=True):
    """A node of a running job is lost and the job goes on without it (`--no-kill`)."""

    concerns = "accounting subscribers"

    job_id: int
    node: str


class JobEnded(Event, frozen=True, kw_only=True):
    """This life of the job has ended. The job is COMPLETING while `completing` names nodes that still hold its
    processes.
    """

    concerns = "accounting subscribers"

    job_id: int
    state: JobState
    reason: Reason = Reason.NONE
    reason_detail: str = ""
    exit_status: int = 0
    derived_exit_status: int = 0
    completing: tuple[str, ...] = ()
    failed_node: str = ""
    #: uid of the user who cancelled it (sacct's "CANCELLED by"); -1: not cancelled by a user
    by_uid: int = -1
    #: when nodes that are still silent get the order again (0.0: never)
    repeat_kill_at: float = 0.0


class KillRepeated(Event, frozen=True, kw_only=True):
    """Nodes of an ended job were silent for too long, and the order to end it was sent again; next time at
    `repeat_kill_at`.
    """

    concerns = ""

    job_id: int
    repeat_kill_at: float


class JobNodeGone(Event, frozen=True, kw_only=True):
    """No process of an ended job is left on `node`; the last such event ends COMPLETING. `lost`: the node died with its
    part of the job.
    """

    concerns = "subscribers"

    job_id: int
    node: str
    lost: bool = False


class JobRequeued(Event, frozen=True, kw_only=True):
    """The job, ended just before, is pending again under its id; it cannot start before the old nodes have
    released it.
    """

    concerns = "accounting subscribers"

    job_id: int
    restart_count: int
    eligible_at: float
    priority: int
    hold: Hold = Hold.NONE
    #: JobFlag bits to add: REQUEUED, REQUEUE_HOLD, SPECIAL_EXIT
    flags: int = 0
    reason: Reason = Reason.BEGIN_TIME
    reason_detail: str = ""
    #: an earlier `--begin` is replaced by this (0.0: none)
    begin_at: float = 0.0


class JobsPurged(Event, frozen=True, kw_only=True):
    """MinJobAge passed: the records are deleted. Their scripts and environments may be deleted too."""

    concerns = "subscribers"

    job_ids: tuple[int, ...]
