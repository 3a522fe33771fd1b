"""Commands about jobs. Replies are named in the docstrings; a refusal is a `Rejection`.

Source: sbatch(1), scancel(1), scontrol(1).
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import JobSpec

#: most characters of a submission's key
SUBMIT_KEY_LENGTH_MAX = 64


class SubmitJob(Struct, frozen=True, kw_only=True):
    """A new job. Reply: `JobSubmitted`. `test_only` decides and plans, and changes nothing; reply `WillRun`.

    Script and environment travel apart from the spec and are stored as blobs under their keys before the event is
    journaled. `immediate_seconds`: refuse or cancel unless it starts within this many seconds (None: not asked).
    `submit_key`: chosen by the command, different for each submission. While the job that it queued is known, another
    submission of the same user with this key queues nothing and is answered with that job's id: a command whose answer
    was lost asks again (docs/decisions/0161). For a heterogeneous job the leader's counts.
    """

    spec: JobSpec
    script: bytes = b""
    environment: tuple[bytes, ...] = ()
    test_only: bool = False
    immediate_seconds: int | None = None
    #: Fields that the caller's rights do not restrict: a plugin of the site has set them, or SlurmUser acts for the
    #: caller. The controller fills this in.
    granted: tuple[str, ...] = ()
    submit_key: str = ""


class SubmitHetJob(Struct, frozen=True, kw_only=True):
    """A heterogeneous job: all components, or none. The first one is the leader, and brings script and environment.

    Reply: `JobSubmitted` with the leader's number, or `WillRun` (`test_only` of the first holds for all).
    """

    components: tuple[SubmitJob, ...]


class JobSubmitted(Struct, frozen=True, kw_only=True):
    """Reply to SubmitJob and SubmitHetJob. `messages` are for the user's standard error."""

    job_id: int
    messages: tuple[str, ...] = ()


class WillRun(Struct, frozen=True, kw_only=True):
    """Reply to SubmitJob(test_only): expected start, nodes, CPUs and partition. `messages` are for standard error."""

    job_id: int
    start_at: float
    nodes: str
    cpus: int
    partition: str
    messages: tuple[str, ...] = ()


class CancelJobs(Struct, frozen=True, kw_only=True):
    """scancel. Signal 0 or SIGKILL without `batch`/`full` ends jobs (TERM, CONT, KillWait, KILL); other signals are
    only sent.

    `batch`: to the batch shell only. `full`: to the shell and all steps. Neither: to the steps, not the shell. `hurry`
    skips staging out burst buffers, of which there are none. Reply: `CancelResult`.
    """

    filter: JobFilter
    signal: int = 0
    batch: bool = False
    full: bool = False
    hurry: bool = False
    comment: str = ""
    #: --cron: jobs of crontabs as well, with ScronParameters=explicit_scancel
    cron: bool = False


class CancelOutcome(Struct, frozen=True, kw_only=True, gc=False):
    """The result for one target: `code` "" is success, else an ESLURM name."""

    job_id: int
    label: str
    step_id: int | None = None
    code: str = ""
    message: str = ""


class CancelResult(Struct, frozen=True, kw_only=True):
    """Reply to CancelJobs: an outcome for each target or, for a filter, each job that matched."""

    outcomes: tuple[CancelOutcome, ...] = ()


class UpdateJob(Struct, frozen=True, kw_only=True):
    """`scontrol update JobId=`. `changes` maps JobSpec fields (and `array_limit`, `hold`, `end_at`) to new values,
    typed as there; None resets.

    Values are msgpack-plain. Reply: `Done`.
    """

    target: JobTarget
    changes: dict[str, object]
    #: with a change of `priority`: the priority in force now. The controller fills this in.
    priority_now: int | None = None


class HoldJob(Struct, frozen=True, kw_only=True):
    """`scontrol hold` (as administrator) or `uhold`. Reply: `Done`."""

    target: JobTarget
    by_user: bool = False


class ReleaseJob(Struct, frozen=True, kw_only=True):
    """`scontrol release`: end the hold on a pending job. Reply: `Done`."""

    target: JobTarget


class RequeueJob(Struct, frozen=True, kw_only=True):
    """`scontrol requeue` and `requeuehold`; `special_exit` is `State=SpecialExit`. Reply: `Done`."""

    target: JobTarget
    hold: bool = False
    special_exit: bool = False
    incomplete_only: bool = False


class SuspendJob(Struct, frozen=True, kw_only=True):
    """`scontrol suspend`: administrators only. Reply: `Done`."""

    target: JobTarget


class ResumeJob(Struct, frozen=True, kw_only=True):
    """`scontrol resume`: let a suspended job go on. Reply: `Done`."""

    target: JobTarget


class TopJob(Struct, frozen=True, kw_only=True):
    """`scontrol top`: first among its user's jobs. Reply: `Done`. `priorities`: those in force, by job, for all jobs of
    their groups; the controller fills them in.
    """

    targets: tuple[JobTarget, ...]
    priorities: tuple[tuple[int, int], ...] = ()


class NotifyJob(Struct, frozen=True, kw_only=True):
    """`scontrol notify`: write a line to the job's standard error. Reply: `Done`."""

    target: JobTarget
    message: str


class FinishAllocation(Struct, frozen=True, kw_only=True):
    """salloc or srun releases its allocation. `out_of_memory`: srun's step ended so. Reply: `Done`."""

    job_id: int
    exit_status: int = 0
    out_of_memory: bool = False


class Done(Struct, frozen=True, kw_only=True):
    """Success without a value. `messages` are for standard error or output; `told`: messages of the site's plugins for
    the user; `missing`: array tasks that were named and do not exist (`8-9`).
    """

    messages: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    missing: str = ""
