"""The job: its request (`JobSpec`) and its present state (`Job`).

`JobSpec` is shared by all tasks of an array and changes only by `scontrol update`; `Job` changes with every event and
is kept small. A pending array is one `Job` with `array` set; a task gets its own record (and id) when it starts or is
singled out.

Source: sbatch(1), scontrol(1) SPECIFICATIONS FOR UPDATE COMMAND, JOBS; slurm/slurm.h job_desc_msg_t.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field

from spritz.model.reasons import Reason
from spritz.model.resources import Allocation, GresRequest
from spritz.model.states import JobState


class Sharing(str, Enum):
    """How a job's nodes may be shared: sbatch --exclusive, --oversubscribe."""

    DEFAULT = ""
    EXCLUSIVE = "exclusive"
    USER = "user"
    MCS = "mcs"
    TOPO = "topo"
    OVERSUBSCRIBE = "oversubscribe"


class Hold(str, Enum):
    """The kind of user who holds a job back; only an operator or administrator lifts ADMIN."""

    NONE = ""
    USER = "user"
    ADMIN = "admin"


class Dependency(Struct, frozen=True, kw_only=True, gc=False):
    """One condition of --dependency.

    `kind`: after, afterany, afterok, afternotok, aftercorr, afterburstbuffer or singleton. `task_id` None: the whole
    job or array. `minutes` belongs to `after`. `state`: unfulfilled, fulfilled or failed.
    """

    kind: str
    job_id: int = 0
    task_id: int | None = None
    minutes: int = 0
    state: str = "unfulfilled"
    #: when `after:id+minutes` is fulfilled (0.0: not known before the other job starts)
    due_at: float = 0.0


class EndSignal(Struct, frozen=True, kw_only=True, gc=False):
    """--signal=[R|B]:number@seconds before the end of the time limit. `batch`: to the batch shell only."""

    signal: int
    seconds: int = 60
    batch: bool = False
    reservation: bool = False


class ContainerOptions(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The container of a script or of a step's tasks, as --container or pyxis's options set it."""

    #: --container: the path of an OCI bundle, as given; all other fields are pyxis's
    bundle: str = ""
    #: a directory or an archive of a root file system, an image of apptainer, or the name of an image of a registry
    image: str = ""
    #: `SOURCE:TARGET`, or `SOURCE:TARGET:ro`; absolute, or SOURCE is "tmpfs"
    mounts: tuple[str, ...] = ()
    work_dir: str = ""
    writable: bool = False
    mount_home: bool = False
    #: the user is root inside
    remap_root: bool = False
    #: --container-name: writable unless the user says otherwise; with `:create` if it may not exist yet
    name: str = ""
    create: bool = False
    readonly: bool = False
    #: the file to save it to when the step has ended
    save: str = ""
    #: variables that the image may not set
    environment: tuple[str, ...] = ()
    #: the command is passed to the image's entry point
    entrypoint: bool = False


class ResourceLimit(Struct, frozen=True, gc=False):
    """One propagated rlimit: name without the RLIMIT_ prefix, soft limit (-1: unlimited)."""

    name: str
    soft: int


class CronEntry(Struct, frozen=True, kw_only=True, gc=False):
    """When a crontab entry's job runs (`model.job.cron.following`): the five time fields, and the lines of the crontab
    (from 1).
    """

    schedule: str
    line_first: int = 0
    line_last: int = 0
    #: offset of local time when the job was made, and (moment, offset from then on) of the changes known then
    utc_offset_seconds: int = 0
    utc_offset_changes: tuple[tuple[int, int], ...] = ()


class JobRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user's request, after command line, environment and #SBATCH lines are merged. None or empty: not given."""

    name: str = ""
    account: str = ""
    qos: str = ""
    wckey: str = ""
    #: `--wckey=` without a value: none, not even the user's default
    no_wckey: bool = False
    #: in order of preference; empty: the default partition
    partitions: tuple[str, ...] = ()
    reservation: str = ""
    comment: str = ""
    admin_comment: str = ""
    system_comment: str = ""
    extra: str = ""

    # -- size
    nodes_min: int = 1
    #: 0: as many as nodes_min asks, unless tasks need more
    nodes_max: int = 0
    #: --nodes=1,2,4: only these numbers of nodes are permitted (empty: all from nodes_min to nodes_max); ascending
    node_counts: tuple[int, ...] = ()
    #: --nodes was given (and not derived from the tasks)
    nodes_given: bool = False
    tasks: int = 1
    tasks_given: bool = False
    cpus_per_task: int | None = None
    tasks_per_node: int | None = None
    tasks_per_socket: int | None = None
    tasks_per_core: int | None = None
    tasks_per_gpu: int | None = None
    #: --mincpus
    cpus_per_node_min: int | None = None
    sockets_per_node: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    core_spec: int | None = None
    overcommit: bool = False
    use_min_nodes: bool = False
    spread: bool = False
    # -- memory, MiB; 0 per node: all of the node's
    memory_mib_per_node: int | None = None
    memory_mib_per_cpu: int | None = None
    memory_mib_per_gpu: int | None = None
    tmp_mib: int = 0
    # -- generic resources
    gres_per_node: tuple[GresRequest, ...] = ()
    gpus: tuple[GresRequest, ...] = ()
    gpus_per_node: tuple[GresRequest, ...] = ()
    gpus_per_task: tuple[GresRequest, ...] = ()
    gpus_per_socket: tuple[GresRequest, ...] = ()
    #: --tres-per-task: GRES other than GPUs
    gres_per_task: tuple[GresRequest, ...] = ()
    cpus_per_gpu: int | None = None
    gpu_bind: str = ""
    gres_flags: tuple[str, ...] = ()
    licenses: str = ""
    # -- placement
    features: str = ""
    prefer: str = ""
    node_list: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    contiguous: bool = False
    #: --switches: most leaf switches, and how long it waits for that (None: max_switch_wait)
    switches: int | None = None
    switch_wait_seconds: int | None = None
    #: --segment: number of nodes that must lie together in one block
    segment: int | None = None
    #: --spread-segments: no two of them in one block
    spread_segments: bool = False
    #: --reboot: its nodes boot before it begins
    reboot: bool = False
    #: --delay-boot: how long it looks for nodes that have its features already (None: delay_boot)
    delay_boot_seconds: int | None = None
    sharing: Sharing = Sharing.DEFAULT
    #: --mcs-label; once it is queued, the label that it has (see `model.rules.mcs`)
    mcs_label: str = ""
    distribution: str = ""
    # -- time
    #: minutes; None: the partition's default; INFINITE: none
    time_limit_minutes: int | None = None
    time_min_minutes: int | None = None
    begin_at: float = 0.0
    deadline_at: float = 0.0
    end_signal: EndSignal | None = None
    # -- order
    dependencies: tuple[Dependency, ...] = ()
    #: "all" (comma) or "any" (question mark)
    dependency_mode: str = "all"
    kill_on_invalid_dependency: bool | None = None
    #: `0-99:4%8` as given; empty: no array
    array: str = ""
    hold: bool = False
    nice: int = 0
    priority: int | None = None
    requeue: bool | None = None
    #: --requeue=expedite: after a node failure it starts before all other jobs; its nodes are kept for it until then
    expedite: bool = False
    no_kill: bool = False
    # -- what runs
    batch: bool = False
    #: run by another workload manager on the allocated nodes (a pod of Kubernetes): nothing is sent to the nodes, and
    #: after its end it is COMPLETING until that system reports that it is gone. Slurm's flag EXTERNAL_JOB
    external: bool = False
    #: the container of its script; None: none
    container: ContainerOptions | None = None
    #: salloc or srun without an allocation: ends when its client disconnects
    interactive: bool = False
    arguments: tuple[str, ...] = ()
    #: path of the script as given, or its name (squeue's Command)
    command: str = ""
    submit_line: str = ""
    submit_host: str = ""
    #: session of the submitting shell (AllocSID)
    submit_session: int = 0
    work_dir: str = "/"
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    #: "a" append, "t" truncate, "" the cluster's default
    open_mode: str = ""
    #: the value of --export; "" is ALL
    export: str = ""
    umask: int = 0o022
    limits: tuple[ResourceLimit, ...] = ()
    #: these limits were asked for (--propagate): PropagateResourceLimits does not take any away
    limits_asked: bool = False
    mail_types: tuple[str, ...] = ()
    mail_user: str = ""
    cpu_bind: str = ""
    memory_bind: str = ""
    #: --acctg-freq: seconds between samples of its tasks (0: none); None: JobAcctGatherFrequency
    sample_seconds: int | None = None
    #: scrontab: the job is queued again at these times, under its id
    cron: CronEntry | None = None
    # -- on which clusters of the federation
    #: --clusters: only these (empty: all)
    clusters: tuple[str, ...] = ()
    #: --cluster-constraint: clusters with one of these features, or with none of them where it begins with `!`
    cluster_features: str = ""


class JobSpec(JobRequest, frozen=True, kw_only=True, omit_defaults=True):
    """A request, and what the controller adds to it (docs/decisions/0190)."""

    #: a client's values count only for administrators
    uid: int = -1
    gid: int = -1
    user: str = ""
    group: str = ""
    #: supplementary groups, looked up at submission
    groups: tuple[int, ...] = ()
    #: total MiB that it counts for although it asks for none (`core.decide.submission.memory.with_counted_memory`)
    memory_mib_counted: int = 0
    #: it asked for no time limit: limits set it, and it changes with them while the job waits
    time_granted: bool = False
    #: limits lifted by an operator's update: `time` (MaxWall), `qos` (it need not be the user's), or a TRES
    exempt: tuple[str, ...] = ()
    #: keys of the blobs that hold script and environment (controller's journal); empty while in a request
    script_key: str = ""
    environment_key: str = ""


#: What each field of `JobSpec` declares (`model.job.duties`). Tests hold that each does, and that it is true.
#:
#: 1. the field
#: 2. when `scontrol update` may change it: never; while the job is pending; while it is active too, with effect if it
#:    is queued again; while it is running too, at once; always, which is after its end too. Behind a slash who may, if
#:    not its owner
#: 3. whether placement sees it: requests that differ only in unseen fields are placed alike
#: 4. whether each job has a value of its own or many have it alike: jobs alike share a part of their JSON records,
#:    which must not depend on fields of their own
#: 5. most characters, as in Slurm; of a list with its commas. `-`: the range of `model.bounds` is enough
#: 6. the key of the JSON record that shows it (`-`: none)
#: 7. the key of `scontrol show job` that shows it (`-`: none)
#:
#: After a semicolon, for a field on which nothing acts: why it is there all the same.
DUTIES = """\
name                        running           unseen  own    1024  name                       JobName
account                     pending           placed  alike  1024  account                    Account
qos                         pending           placed  alike  1024  qos                        QOS
wckey                       running           unseen  alike  1024  wckey                      -
no_wckey                    never             unseen  alike  -     -                          -
partitions                  pending           placed  alike  1024  partition                  Partition
reservation                 pending           placed  alike  1024  resv_name                  Reservation
comment                     always            unseen  own    1024  comment                    Comment
admin_comment               always/admin      unseen  own    1024  admin_comment              AdminComment
system_comment              always/admin      unseen  own    -     system_comment             SystemComment; shown
extra                       always            unseen  own    1024  extra                      Extra
nodes_min                   pending           placed  alike  -     node_count                 NumNodes
nodes_max                   pending           placed  alike  -     max_nodes                  -
node_counts                 pending           placed  alike  -     job_size_str               -
nodes_given                 pending           placed  alike  -     -                          NumNodes
tasks                       pending           placed  alike  -     tasks                      NumTasks
tasks_given                 pending           placed  alike  -     flags                      -
cpus_per_task               pending           placed  alike  -     cpus_per_task              CPUs/Task
tasks_per_node              pending           placed  alike  -     tasks_per_node             NtasksPerN:B:S:C
tasks_per_socket            pending           placed  alike  -     tasks_per_socket           NtasksPerN:B:S:C
tasks_per_core              pending           placed  alike  -     tasks_per_core             NtasksPerN:B:S:C
tasks_per_gpu               pending           placed  alike  -     tasks_per_tres             -
cpus_per_node_min           pending           placed  alike  -     minimum_cpus_per_node      MinCPUsNode
sockets_per_node            pending           placed  alike  -     sockets_per_node           Socks/Node
cores_per_socket            pending           placed  alike  -     cores_per_socket           ReqB:S:C:T
threads_per_core            pending           placed  alike  -     threads_per_core           ReqB:S:C:T
core_spec                   pending           placed  alike  -     core_spec                  CoreSpec
overcommit                  never             placed  alike  -     -                          -
use_min_nodes               never             placed  alike  -     flags                      -
spread                      never             placed  alike  -     flags                      SpreadJob
memory_mib_per_node         pending           placed  alike  -     memory_per_node            MinMemoryNode
memory_mib_per_cpu          pending           placed  alike  -     memory_per_cpu             MinMemoryCPU
memory_mib_per_gpu          pending           placed  alike  -     memory_per_tres            MemPerTres
tmp_mib                     pending/operator  placed  alike  -     minimum_tmp_disk_per_node  MinTmpDiskNode
gres_per_node               pending           placed  alike  -     tres_per_node              TresPerNode
gpus                        pending           placed  alike  -     tres_per_job               TresPerJob
gpus_per_node               pending           placed  alike  -     tres_per_node              TresPerNode
gpus_per_task               pending           placed  alike  -     tres_per_task              TresPerTask
gpus_per_socket             pending           placed  alike  -     tres_per_socket            TresPerSocket
gres_per_task               pending           placed  alike  -     tres_per_task              TresPerTask
cpus_per_gpu                pending           placed  alike  -     cpus_per_tres              CpusPerTres
gpu_bind                    pending           unseen  alike  -     tres_bind                  TresBind
gres_flags                  never             placed  alike  -     -                          -
licenses                    pending           placed  alike  1024  licenses                   Licenses
features                    pending           placed  alike  1024  features                   Features
prefer                      pending           placed  alike  1024  prefer                     Prefer
node_list                   pending           placed  alike  -     required_nodes             ReqNodeList
exclude                     pending           placed  alike  -     excluded_nodes             ExcNodeList
contiguous                  pending/operator  placed  alike  -     contiguous                 Contiguous
switches                    pending           placed  alike  -     required_switches          Switches
switch_wait_seconds         pending           placed  alike  -     maximum_switch_wait_time   -
segment                     never             placed  alike  -     segment_size               -
spread_segments             never             placed  alike  -     -                          -
reboot                      never             placed  alike  -     reboot                     Reboot
delay_boot_seconds          pending           placed  alike  -     delay_boot                 DelayBoot
sharing                     pending           placed  alike  -     shared                     OverSubscribe
mcs_label                   never             placed  alike  -     mcs_label                  MCS_label
distribution                pending           placed  alike  -     -                          -
time_limit_minutes          running           placed  alike  -     time_limit                 TimeLimit
time_min_minutes            pending           placed  alike  -     time_minimum               TimeMin
begin_at                    pending           unseen  own    -     start_time                 StartTime
deadline_at                 pending/operator  unseen  own    -     deadline                   Deadline
end_signal                  never             unseen  alike  -     -                          -
dependencies                pending           unseen  own    -     dependency                 Dependency
dependency_mode             pending           unseen  alike  -     -                          -
kill_on_invalid_dependency  pending           unseen  alike  -     -                          KillOInInvalidDependent
array                       never             unseen  own    4096  array_task_string          ArrayTaskId
hold                        pending           unseen  alike  -     hold                       Reason
nice                        active            unseen  own    -     nice                       Nice
priority                    active            unseen  own    -     priority                   Priority
requeue                     running           unseen  alike  -     requeue                    Requeue
expedite                    never             unseen  alike  -     -                          -
no_kill                     never             unseen  alike  -     -                          -
batch                       never             unseen  alike  -     batch_flag                 BatchFlag
external                    never             placed  alike  -     flags                      -
container                   never             unseen  alike  -     container                  Container
interactive                 never             unseen  alike  -     -                          -
arguments                   never             unseen  own    -     -                          -
command                     never             unseen  own    -     command                    Command
submit_line                 never             unseen  own    -     submit_line                -
submit_host                 never             unseen  alike  -     allocating_node            AllocNode:Sid
submit_session              never             unseen  own    -     -                          AllocNode:Sid; shown
work_dir                    pending           unseen  own    4096  current_working_directory  WorkDir
stdin                       pending           unseen  own    4096  standard_input             StdIn
stdout                      pending           unseen  own    4096  standard_output            StdOut
stderr                      pending           unseen  own    4096  standard_error             StdErr
open_mode                   never             unseen  alike  -     -                          -
export                      never             unseen  alike  -     -                          -; the command has acted
umask                       never             unseen  alike  -     -                          -
limits                      never             unseen  own    -     -                          -
limits_asked                never             unseen  alike  -     -                          -
mail_types                  running           unseen  alike  -     mail_type                  MailType
mail_user                   running           unseen  alike  1024  mail_user                  MailUser
cpu_bind                    never             unseen  alike  -     -                          -
memory_bind                 never             unseen  alike  -     -                          -
sample_seconds              never             unseen  alike  -     -                          -
cron                        never             unseen  own    -     cron                       CronJob
clusters                    pending           unseen  alike  -     -                          -
cluster_features            pending           unseen  alike  -     cluster_features           -
uid                         never             placed  alike  -     user_id                    UserId
gid                         never             placed  alike  -     group_id                   GroupId
user                        never             placed  alike  -     user_name                  UserId
group                       never             placed  alike  -     group_name                 GroupId
groups                      never             placed  own    -     -                          -
memory_mib_counted          never             placed  alike  -     tres_req_str               ReqTRES
time_granted                never             unseen  alike  -     -                          -
exempt                      never             placed  alike  -     -                          -
script_key                  never             unseen  own    -     -                          -
environment_key             never             unseen  own    -     -                          -
"""


class SiblingState(str, Enum):
    """How the copy of a job on another cluster stands, as the job's origin knows it."""

    #: to be made there; whether it is there is not known
    DUE = "due"
    PLACED = "placed"
    #: that cluster did not take it, or ended it before it ran
    REFUSED = "refused"
    #: to be removed; it may be there still
    LEAVING = "leaving"


class Sibling(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The copy of a job on another cluster, as the job's origin knows it."""

    cluster: str
    #: number of the copy: no two copies of a job have the same
    copy: int
    state: SiblingState
    #: why it was refused
    reason: str = ""
    #: requests for the lock up to this number are void: the cluster has given it back since
    asked: int = 0


class Federated(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job's record of its siblings on other clusters (docs/decisions/0197).

    The cluster that took the submission is the job's origin: it has `request` and `siblings`, and grants the lock
    without which no other may start its copy. Other clusters have `origin` and `copy`.
    """

    #: name of the origin's cluster
    origin: str
    #: at the origin the number of the last copy; elsewhere of this one
    copy: int = 0
    #: origin: what was asked, before this cluster's defaults
    request: JobSpec | None = None
    #: origin: by cluster
    siblings: tuple[Sibling, ...] = ()
    #: origin: this cluster may run it as well
    local: bool = True
    #: origin: the cluster that alone may start it ("": this one, if any). Elsewhere: "" , "wanted", "held", "returned"
    lock: str = ""
    #: origin: the cluster that has started it
    runs_on: str = ""
    #: origin: how the life on another cluster ended
    ended_as: JobState | None = None
    #: elsewhere: what the origin knows of it (`model.federation.phase_of`)
    reported: str = ""
    #: elsewhere: how often the lock was asked for
    asked: int = 0

    @property
    def is_origin(self) -> bool:
        """Whether the record is the origin's."""
        return self.request is not None

    @property
    def viable(self) -> str:
        """Clusters that may run it, with commas: known at the origin alone."""
        taking = (sibling.cluster for sibling in self.siblings if sibling.state is not SiblingState.REFUSED)
        return ",".join([*([self.origin] if self.local else []), *taking]) if self.is_origin else ""

    @property
    def active(self) -> str:
        """The viable clusters that have a copy, or the one that runs it."""
        if not self.is_origin or self.runs_on:
            return self.runs_on
        placed = (sibling.cluster for sibling in self.siblings if sibling.state is SiblingState.PLACED)
        return ",".join([*([self.origin] if self.local else []), *placed])

    @property
    def elsewhere(self) -> bool:
        """Another cluster's record of the job says more."""
        return bool(self.runs_on) or not self.is_origin


class ArrayState(Struct, frozen=True, kw_only=True, gc=False):
    """The part of an array that has no records of its own.

    `pending` is a mask of task ids in hexadecimal; `cancelled` one of those cancelled before they had a record. `limit`
    is `%N` (0: none). `task_count` and the bounds are of the whole array as submitted (for SLURM_ARRAY_*).
    """

    pending: str
    limit: int = 0
    cancelled: str = "0"
    task_count: int = 0
    task_min: int = 0
    task_max: int = 0
    task_step: int = 1


class Job(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job as the controller knows it. Times are epoch seconds, 0.0 not yet."""

    id: int
    spec: JobSpec
    state: JobState = JobState.PENDING
    #: JobFlag bits
    flags: int = 0
    reason: Reason = Reason.NONE
    #: detail after the reason: `ReqNodeNotAvail, UnavailableNodes:n1`
    reason_detail: str = ""
    priority: int = 0
    hold: Hold = Hold.NONE
    #: chosen partition; while pending, the first of spec.partitions
    partition: str = ""
    array: ArrayState | None = None
    #: number of the array this task belongs to (also set on the array's own record), 0: none
    array_job_id: int = 0
    array_task_id: int | None = None
    #: on a task's own record: limit, count and bounds of its array (`pending` is "0")
    array_of: ArrayState | None = None
    #: dependencies that are still open
    dependencies: tuple[Dependency, ...] = ()
    submitted_at: float = 0.0
    eligible_at: float = 0.0
    #: since when its age priority accrues: None means from `eligible_at` on; 0.0: a limit on accrual holds it back
    accrued_at: float | None = None
    started_at: float = 0.0
    #: end of the time limit while running; real end afterwards
    ends_at: float = 0.0
    ended_at: float = 0.0
    suspended_at: float = 0.0
    #: total seconds spent suspended since the start
    suspended_seconds: float = 0.0
    #: when it was last resumed; of an earlier life if it is before the start
    resumed_at: float = 0.0
    last_evaluated_at: float = 0.0
    expected_start_at: float = 0.0
    #: where; without a time, where it was to start before it lost its planned start
    expected_nodes: tuple[str, ...] = ()
    preempted_at: float = 0.0
    #: how it is preempted when its grace time is over: REQUEUE or CANCEL ("": it is not being preempted)
    preempt_action: str = ""
    #: while PENDING: when jobs were last preempted for it, which puts it first in the queue (0.0: none were)
    awaits_victims_since: float = field(default=0.0, name="claims_at")
    #: with PriorityFlags=INCR_ONLY: by partition, priorities that it has reached and would not have by itself now
    priorities_reached: tuple[tuple[str, float], ...] = ()
    #: while SUSPENDED: "preempt" (until another job ends), "gang" (until its next time slice), "" (by an administrator)
    suspended_by: str = ""
    #: the scheduler that started it: Submit, Main or Backfill ("": none yet)
    scheduler: str = ""
    #: number of its association (0: it has none)
    association: int = 0
    #: minutes, as granted at start; None: not yet known
    time_limit_minutes: int | None = None
    allocation: Allocation | None = None
    #: billing by its partition's TRESBillingWeights; None: its CPUs
    billing: float | None = None
    #: nodes that have not yet reported that all processes are gone
    completing: tuple[str, ...] = ()
    #: wait status (exit << 8 | signal), and the worst of the steps
    exit_status: int = 0
    derived_exit_status: int = 0
    restart_count: int = 0
    next_step_id: int = 0
    #: the --signal was sent
    end_signal_sent: bool = False
    failed_node: str = ""
    #: end of the reservation in which it runs, if that ends the job (0.0: it does not)
    reservation_ends_at: float = 0.0
    #: (name, count) of the licenses that it holds while it runs
    licenses: tuple[tuple[str, int], ...] = ()
    #: uid of the user who cancelled it; -1: not cancelled by a user
    cancelled_by_uid: int = -1
    #: when nodes that are still silent after the end get the order again (0.0: never)
    repeat_kill_at: float = 0.0
    #: the life (restart_count) whose processes the `completing` nodes still hold
    completing_life: int = 0
    #: --immediate: cancelled unless it has started by then (0.0: not asked)
    start_by_at: float = 0.0
    #: PrologFlags=Alloc: nodes on which the Prolog of this life has not ended yet; None: it runs before the first step
    prolog_nodes: tuple[str, ...] | None = None
    #: number of the heterogeneous job of which this is a component (its leader's, also on the leader); 0: of none
    het_job_id: int = 0
    #: which of its `het_size` components; their numbers are consecutive, so this is `id - het_job_id`
    het_offset: int = 0
    het_size: int = 0
    #: the key of the submission (`SubmitJob.submit_key`), on the record that its answer named
    submit_key: str = ""
    #: its siblings on other clusters of the federation; None: it has none
    federation: Federated | None = None

    @property
    def grows_older_since(self) -> float:
        """Slurm's AccrueTime: since when its age counts (0.0: not yet)."""
        if self.accrued_at is not None:
            return self.accrued_at
        kept_back = self.hold is not Hold.NONE or self.reason is Reason.BEGIN_TIME
        return 0.0 if kept_back and self.state is JobState.PENDING else self.eligible_at

    @property
    def has_script(self) -> bool:
        """Whether a batch script runs in it: in a heterogeneous job only in the first component."""
        return self.spec.batch and not self.het_offset

    @property
    def is_between_lives(self) -> bool:
        """Whether the job's allocation is that of its former life, whose nodes are not clear yet."""
        return bool(self.completing) and self.completing_life != self.restart_count

    @property
    def cpu_count(self) -> int:
        """CPUs that it holds, or the least number that it will hold."""
        # Imported where it is used: most commands read no job's size.
        from spritz.model.rules.job_tres import cpu_count

        return cpu_count(self)

    @property
    def gpu_count(self) -> int:
        """GPUs that it holds, or requests."""
        return dict(self.tres).get("gres/gpu", 0)

    @property
    def tres(self) -> list[tuple[str, int]]:
        """(name, count) of what it holds, or requests; memory in MiB."""
        from spritz.model.rules.job_tres import allocated, requested

        return requested(self) if self.allocation is None else allocated(self)

    @property
    def reservation(self) -> str:
        """The reservation in which it runs, or ran; else those that it names, or ""."""
        return (self.allocation.reservation if self.allocation is not None else "") or self.spec.reservation


def suspension(job: Job) -> tuple[float, int]:
    """When it was last suspended or resumed (0.0: never), and how many seconds it had run before it was suspended."""
    at = job.suspended_at or job.resumed_at
    if not job.started_at or at < job.started_at:
        return 0.0, 0
    return at, max(0, int(at - job.started_at - job.suspended_seconds))


class Component(Struct, frozen=True, kw_only=True):
    """A component of a heterogeneous job, with its tasks on each node as SLURM_TASKS_PER_NODE shows them."""

    job: Job
    task_counts: tuple[int, ...] = ()
