"""Data of `slurmdbd`: its records, the controller's outbox, and questions about the past.

Records are what the tables hold, column by column (`accounting.schema`), and what the wire carries. Each life of a job
is one `JobRecord`: a requeued job has several, distinguished by `restart_count`, and a reused job id gets new ones.

Times are epoch seconds, 0.0 not yet. Source: sacct(1), slurmdbd(8).
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.job.record import Job
from spritz.model.job.step import Step


class JobRecord(Struct, kw_only=True, omit_defaults=True):
    """One life of one job. Not frozen: ingest builds it up event by event.

    `number` is unique in its cluster and grows: the position, among all events that the cluster ever sent, of the event
    that began this life. It does not depend on how events were batched or repeated.
    """

    number: int
    job_id: int
    #: filled in where records leave the database
    cluster: str = ""
    restart_count: int = 0
    array_job_id: int = 0
    array_task_id: int | None = None
    #: pending tasks of an array, or tasks cancelled together: a mask in hexadecimal ("": not an array's own record)
    array_tasks: str = ""
    array_limit: int = 0
    #: array tasks cancelled before they had records of their own; listed with their array's newest run
    aside: bool = False
    het_job_id: int = 0
    het_offset: int | None = None
    uid: int = -1
    gid: int = -1
    user: str = ""
    group: str = ""
    account: str = ""
    qos: str = ""
    wckey: str = ""
    partition: str = ""
    reservation: str = ""
    name: str = ""
    state: str = "PENDING"
    #: JobFlag bits at the end of this life
    flags: int = 0
    reason: str = "None"
    reason_detail: str = ""
    submitted_at: float = 0.0
    eligible_at: float = 0.0
    started_at: float = 0.0
    ended_at: float = 0.0
    #: when it was suspended (0.0: it is not), and for how long it was suspended before
    suspended_at: float = 0.0
    suspended_seconds: float = 0.0
    #: minutes; None: not known before the start
    time_limit_minutes: int | None = None
    priority: int = 0
    exit_status: int = 0
    derived_exit_status: int = 0
    cancelled_by: int = -1
    requested_cpus: int = 0
    requested_nodes: int = 0
    tres_requested: str = ""
    tres_allocated: str = ""
    #: hostlist, and how many
    nodes: str = ""
    node_count: int = 0
    cpus: int = 0
    failed_node: str = ""
    licenses: str = ""
    constraints: str = ""
    sharing: str = ""
    batch: bool = False
    work_dir: str = ""
    command: str = ""
    submit_line: str = ""
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    comment: str = ""
    admin_comment: str = ""
    system_comment: str = ""
    extra: str = ""
    #: keys of the documents that hold script and environment
    script_key: str = ""
    environment_key: str = ""
    #: Submit, Main or Backfill ("": it has not started)
    scheduler: str = ""
    #: 0: none
    association_id: int = 0
    mcs_label: str = ""
    #: number of the reservation (0: none, or not known)
    reservation_id: int = 0
    #: --container
    container: str | None = None


class StepRecord(Struct, kw_only=True, omit_defaults=True):
    """One step of one life of a job. Usage is the sum of what its nodes have reported."""

    #: the number of the JobRecord
    number: int
    step_id: int
    job_id: int
    name: str = ""
    state: str = "RUNNING"
    started_at: float = 0.0
    ended_at: float = 0.0
    suspended_seconds: float = 0.0
    exit_status: int = 0
    cancelled_by: int = -1
    oom: bool = False
    tasks: int = 1
    cpus: int = 0
    nodes: str = ""
    node_count: int = 0
    tres_allocated: str = ""
    layout: str = ""
    submit_line: str = ""
    work_dir: str = ""
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    #: seconds of all tasks
    user_cpu_seconds: float = 0.0
    system_cpu_seconds: float = 0.0
    #: `TRESUsageIn*` and `TRESUsageOut*` by name, in base units, as `name=number` lists
    usage_in_max: str = ""
    usage_in_max_node: str = ""
    usage_in_max_task: str = ""
    usage_in_min: str = ""
    usage_in_min_node: str = ""
    usage_in_min_task: str = ""
    usage_in_ave: str = ""
    usage_in_tot: str = ""
    usage_out_max: str = ""
    usage_out_max_node: str = ""
    usage_out_max_task: str = ""
    usage_out_min: str = ""
    usage_out_min_node: str = ""
    usage_out_min_task: str = ""
    usage_out_ave: str = ""
    usage_out_tot: str = ""
    #: the usage on each node, where there are several: `n1:cpu=10,mem=2048;n2:…`
    usage_nodes: str | None = None
    #: --container
    container: str | None = None


class ReasonRecord(Struct, kw_only=True):
    """The job waited for this from `at` on. `place`: the event's position among all that the cluster sent."""

    number: int
    place: int
    at: float
    reason: str
    detail: str = ""


class SuspensionRecord(Struct, kw_only=True):
    """The job was suspended from `started_at` to `ended_at` (0.0: still is)."""

    number: int
    started_at: float
    ended_at: float = 0.0


class NodeEventRecord(Struct, kw_only=True):
    """A time during which a node was not available, and why; for `node` "" the TRES of the whole cluster (`tres`).

    Slurm's `sacctmgr show event`.
    """

    place: int
    node: str = ""
    nodes: str = ""
    started_at: float = 0.0
    ended_at: float = 0.0
    state: str = ""
    flags: int = 0
    reason: str = ""
    reason_uid: int = 0
    tres: str = ""
    #: for the cluster: the resources of each node, as `cpu=4,mem=8000M@n[1-4];cpu=…@…`
    node_tres: str = ""


class ReservationRecord(Struct, kw_only=True):
    """A reservation from `started_at` to `ended_at`; a change of nodes, users or flags begins a new record.

    `number` is the position of the event that began it. `closed`: nothing will change it any more. Lists are
    comma-separated texts; a leading `-` of `users` or `accounts`: all but these.
    """

    number: int
    reservation_id: int
    name: str
    started_at: float = 0.0
    ended_at: float = 0.0
    nodes: str = ""
    tres: str = ""
    flags: str = ""
    users: str = ""
    accounts: str = ""
    closed: bool = False


# -- the outbox: from a controller to slurmdbd


class RegisterCluster(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A controller has connected and has events up to `last_sequence`. Reply: `ClusterRegistered`.

    The first time it leaves out the events of its own life, which may have numbers that lost ones had.

    `journal` identifies the journal: another number means that sequence numbers began again. Events before
    `oldest_sequence` are no longer kept.
    """

    cluster: str
    journal: int
    last_sequence: int
    oldest_sequence: int = 0
    term: int = 0
    host: str = ""
    port: int = 0
    version: str = ""
    #: AccountingStoreFlags
    store: tuple[str, ...] = ()
    #: format of the events that it writes (`model.stored.FORMAT`); controllers without this field write format 1
    format: int = 1


class ClusterRegistered(Struct, frozen=True, kw_only=True):
    """Events up to `sequence` are stored; send what follows. `set_aside` as in `EventsStored`.

    `set_back_from`: the last event that was stored, if the journal ends earlier now (0: it does not): it was restored
    from a copy. `last_job_id` is then the highest one on record.
    """

    sequence: int
    set_aside: int = 0
    set_back_from: int = 0
    last_job_id: int = 0


class SetAside(Struct, frozen=True, kw_only=True):
    """An event that could not be stored, and why. `place`: its position among all that the cluster ever sent."""

    cluster: str
    place: int
    kind: str
    error: str


class EventGroup(Struct, frozen=True, gc=False):
    """Events `first` to `last` as the journal holds them (`model.events.codec`)."""

    first: int
    last: int
    payload: bytes


class StoreEvents(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The next events of a cluster, in order. Reply when they are durable: `EventsStored`.

    Events that are stored already are skipped, so anything may be sent again. `documents`: scripts and environments by
    key.
    """

    cluster: str
    journal: int
    groups: list[EventGroup]
    documents: dict[str, bytes] = {}


class EventsStored(Struct, frozen=True, kw_only=True):
    """Everything up to `sequence` is in the database, and will not be asked for again.

    `set_aside`: how many of the cluster's events could not be stored.
    """

    sequence: int
    set_aside: int = 0


class StoreState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The controller's state, in pieces, for when events that the database lacks are no longer kept.

    `sequence` is the state's; the last piece (`last`) makes it the cluster's. Reply: `EventsStored`.
    """

    cluster: str
    journal: int
    sequence: int
    at: float
    jobs: list[Job]
    steps: list[Step]
    last: bool = False


class FlushEvents(Struct, frozen=True, kw_only=True):
    """slurmdbd asks a controller for its last durable event, and to send all events up to it now. Reply:
    `EventsFlushed`.
    """


class EventsFlushed(Struct, frozen=True, kw_only=True):
    """Number of the last durable event."""

    sequence: int


# -- questions


class JobPick(Struct, frozen=True, gc=False):
    """One item of `sacct -j`: `12`, `12_3`, `12_[3-5]` (a mask in hexadecimal), `12.batch`, `12+1`."""

    job_id: int
    tasks: str = ""
    step_id: int | None = None
    het_offset: int | None = None


#: most jobs that one question may name; clients with more ask several times
PICKS_MAX = 20_000

#: Seconds after which a requeued job that may not run yet is listed as pending. 22.05 took 3 to 5.
NEW_LIFE_SECONDS = 5.0


class SelectJobs(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Lives of jobs with their steps. Streamed: `JobRecords`, ordered by job id. Empty or None: no condition.

    `starts_at` and `ends_at` bound a window of time. Without `states`, jobs that existed at any time in it; with them,
    jobs that were in such a state at any time in it (sacct(1) --state).
    """

    clusters: tuple[str, ...] = ()
    picks: tuple[JobPick, ...] = ()
    users: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    accounts: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    wckeys: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    associations: tuple[int, ...] = ()
    #: the scheduler that started them
    schedulers: tuple[str, ...] = ()
    #: only jobs of this user, or charged to these accounts (PrivateData)
    owner: int | None = None
    owner_accounts: tuple[str, ...] = ()
    starts_at: float | None = None
    ends_at: float | None = None
    cpus_min: int | None = None
    cpus_max: int | None = None
    nodes_min: int | None = None
    nodes_max: int | None = None
    time_limit_min: int | None = None
    time_limit_max: int | None = None
    #: every life of a job, not only the last
    duplicates: bool = False
    steps: bool = True
    #: only the steps that were picked by `step_id`, and jobs without eligible time too, as `-j` does
    not_eligible: bool = False

    @property
    def last_moment(self) -> float | None:
        """The end of the window's last second: times of records have fractions, those of Slurm's records do not."""
        return int(self.ends_at) + 0.999999 if self.ends_at else None


class JobWithSteps(Struct, frozen=True, kw_only=True):
    """A life of a job and its steps, in the order of their numbers: pseudo steps first."""

    job: JobRecord
    steps: list[StepRecord] = []


class JobRecords(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Piece of the answer to `SelectJobs`. `now`: the daemon's clock.

    `behind`, in the first piece: clusters whose newest events could not be awaited; their controllers know more.
    """

    now: float
    jobs: list[JobWithSteps]
    behind: tuple[str, ...] = ()


class AskHistory(Struct, frozen=True, kw_only=True):
    """The history of jobs over all their lives, including reasons for waiting and suspensions. Reply: `Histories`."""

    clusters: tuple[str, ...] = ()
    picks: tuple[JobPick, ...] = ()


class JobHistory(Struct, frozen=True, kw_only=True):
    """One life of a job. Reasons in the order of their times: each holds until the next, or the start."""

    job: JobRecord
    steps: list[StepRecord]
    reasons: list[ReasonRecord]
    suspensions: list[SuspensionRecord]


class Histories(Struct, frozen=True, kw_only=True):
    """Reply to AskHistory: at most `HISTORIES_MAX` lives."""

    now: float
    lives: list[JobHistory]


HISTORIES_MAX = 1_000


class GetDocuments(Struct, frozen=True, kw_only=True):
    """Scripts (`script`) or environments of the newest lives of jobs. Streamed: `Documents`."""

    clusters: tuple[str, ...] = ()
    picks: tuple[JobPick, ...] = ()
    environment: bool = False


class Document(Struct, frozen=True, kw_only=True):
    """The script or environment kept of a job; None if none was."""

    cluster: str
    job: JobRecord
    body: bytes | None = None


class Documents(Struct, frozen=True, kw_only=True):
    """Piece of the answer to GetDocuments."""

    documents: list[Document]
