"""Settings of the whole cluster that decisions depend on, and the identity of a caller.

Settings that only the shell needs (paths, ports, log levels) stay in `config`; these are read by core, scheduling and
the node machine.

Source: slurm.conf(5).
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.cluster.power import PowerPolicy
from spritz.model.cluster.preemption import PreemptionPolicy
from spritz.model.cluster.priority import PriorityPolicy
from spritz.model.cluster.topology import Topology


class Caller(Struct, frozen=True, kw_only=True, gc=False):
    """The user who makes a request, vouched for by the kernel or a verified token. `admin`: root or SlurmUser."""

    uid: int
    gid: int = -1
    user: str = ""
    group: str = ""
    groups: tuple[int, ...] = ()
    group_names: tuple[str, ...] = ()
    admin: bool = False
    host: str = ""


#: the controller itself: timers, plans, reports of its own nodes
SYSTEM = Caller(uid=0, gid=0, user="root", group="root", admin=True)


class NodeSet(Struct, frozen=True, kw_only=True, gc=False):
    """One NodeSet line with a feature: all nodes that have it."""

    name: str
    feature: str


class FeaturePolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """helpers.conf for the whole cluster. Empty without NodeFeaturesPlugins."""

    #: features that helpers report and set, in order of names
    names: tuple[str, ...] = ()
    #: features that change without a reboot
    rebootless: tuple[str, ...] = ()
    #: groups of features of which a node has at most one
    exclusive: tuple[tuple[str, ...], ...] = ()
    #: users for whose jobs nodes may be changed (empty: all)
    users: tuple[str, ...] = ()
    #: how long a node may take to come back changed
    boot_seconds: int = 300
    #: SchedulerParameters=delay_boot: how long jobs look for nodes that need no change
    delay_seconds: int = 0


class McsPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs have an MCS label, and which jobs it keeps off their nodes: MCSPlugin, MCSParameters."""

    #: none, account, group, label, user
    plugin: str = "none"
    #: every job has a label, not only jobs that ask for one
    enforced: bool = False
    #: select (labelled jobs keep others off their nodes), ondemandselect (those with --exclusive=mcs), noselect
    select: str = "ondemandselect"
    #: PrivateData=jobs shows jobs with a label to users who could have it
    private: bool = False
    #: group: the groups that give a label
    groups: tuple[str, ...] = ()


class ClusterSettings(Struct, frozen=True, kw_only=True):
    """Typed slurm.conf values that decisions use. Seconds, minutes and MiB as the names say; 0 or None as in the
    manual."""

    cluster_name: str = "cluster"
    slurm_user: str = "root"
    first_job_id: int = 1
    max_job_id: int = 0x03FF0000
    max_job_count: int = 10_000
    max_array_size: int = 1001
    max_step_count: int = 40_000
    max_tasks_per_node: int = 512
    #: most nodes, including dynamic ones (0: as many as the file has)
    max_node_count: int = 0
    #: TaskPluginParam: none, sockets, cores, threads; `autobind=cores` only where tasks fit no whole parts; "": neither
    cpu_bind: str = ""
    #: sets of nodes by which partitions name theirs
    node_sets: tuple[NodeSet, ...] = ()
    min_job_age_seconds: int = 300
    kill_wait_seconds: int = 30
    kill_on_bad_exit: bool = False
    wait_seconds: int = 0
    inactive_limit_seconds: int = 0
    over_time_minutes: int = 0
    #: ResvOverRun (None: for ever)
    reservation_over_run_minutes: int | None = 0
    #: SlurmdParameters=config_overrides: do not compare what a node reports with slurm.conf
    config_overrides: bool = False
    #: node_reg_mem_percent: percentage of its configured memory that a node must report, for cloud nodes and others
    cloud_memory_percent: float = 90.0
    memory_percent: float = 100.0
    #: user_resv_delete: users of a reservation may delete it
    user_deletes_reservations: bool = False
    slurmd_timeout_seconds: int = 300
    #: 0, 1, 2
    return_to_service: int = 0
    job_requeue: bool = True
    max_batch_requeue: int = 5
    #: how long a requeued job waits (BeginTime), so that the cause of its failure can pass
    requeue_delay_seconds: float = 5.0
    #: SlurmctldParameters=enable_expedited_requeue
    expedited_requeue: bool = False
    #: SlurmctldParameters=drain_failing_nodes: a node is drained when so many jobs in a row have failed there at once,
    #: that is within failing_node_seconds (0: never)
    drain_failing_nodes: int = 0
    failing_node_seconds: int = 10
    requeue_exit: tuple[int, ...] = ()
    requeue_exit_hold: tuple[int, ...] = ()
    #: ALL, ANY, NO
    enforce_part_limits: str = "NO"
    default_memory_mib_per_cpu: int = 0
    default_memory_mib_per_node: int = 0
    default_memory_mib_per_gpu: int = 0
    default_cpus_per_gpu: int = 0
    max_memory_mib_per_cpu: int = 0
    max_memory_mib_per_node: int = 0
    gres_types: tuple[str, ...] = ()
    #: CR_Core, CR_CPU, CR_Socket …, lower case without the memory part
    consumable: str = "core"
    memory_consumable: bool = True
    one_task_per_core: bool = False
    least_loaded: bool = False
    #: CR_CORE_DEFAULT_DIST_BLOCK: cores of one socket after the other, unless --distribution says otherwise
    block_cores: bool = False
    select_linear: bool = False
    #: CR_Pack_Nodes: tasks fill one node after the other instead of being spread evenly
    pack_nodes: bool = False
    #: ENFORCE_BINDING_GRES: as if every job said --gres-flags=enforce-binding; LL_SHARED_GRES: take shares from the GPU
    #: that has given out the fewest, not the most
    enforce_gres_binding: bool = False
    least_loaded_shares: bool = False
    #: MULTIPLE_SHARING_GRES_PJ: a job's shares on a node may lie on several GPUs; ONE_TASK_PER_SHARING_GRES: as if
    #: every job said --gres-flags=one-task-per-sharing
    several_sharing: bool = False
    one_task_per_sharing: bool = False
    scheduler_parameters: tuple[tuple[str, str], ...] = ()
    #: sched/builtin: strict order within a partition
    scheduler_builtin: bool = False
    priority_multifactor: bool = True
    priority_weight_age: int = 0
    priority_max_age_seconds: int = 7 * 86_400
    priority_weight_jobsize: int = 0
    priority_weight_partition: int = 0
    priority_policy: PriorityPolicy = PriorityPolicy()
    job_file_append: bool = False
    #: MpiParams=ports: first and last of those that steps may reserve (0, 0: none)
    mpi_ports: tuple[int, int] = (0, 0)
    #: ScronParameters: users have crontabs; only `scancel --cron` cancels their jobs
    crontabs: bool = False
    explicit_scancel: bool = False
    kill_invalid_dependency: bool = False
    max_dependency_depth: int = 10
    max_script_bytes: int = 4 * 1024 * 1024
    max_submit_line_bytes: int = 1024 * 1024
    licenses: tuple[tuple[str, int], ...] = ()
    #: AccountingStorageEnforce, including what each value implies
    enforce: tuple[str, ...] = ()
    #: TrackWCKey: a job without a wckey gets its user's default one, marked "*"
    track_wckey: bool = False
    #: the kinds of records hidden from other users: jobs, reservations
    private_data: tuple[str, ...] = ()
    #: there is a PrologSlurmctld: a job is CONFIGURING until it has run
    prolog_slurmctld: bool = False
    #: PrologFlags, including what they imply (Contain and DeferBatch: Alloc)
    prolog_flags: tuple[str, ...] = ()
    #: CompleteWait: no job starts until a completing job has ended, or has been completing for this many seconds
    complete_wait_seconds: int = 0
    preemption: PreemptionPolicy = PreemptionPolicy()
    power: PowerPolicy = PowerPolicy()
    #: helpers.conf: features that nodes can change
    features: FeaturePolicy = FeaturePolicy()
    mcs: McsPolicy = McsPolicy()
    #: networks; the first one serves partitions that name none
    topologies: tuple[Topology, ...] = ()
    #: TopologyParam=TopoOptional: only jobs that ask for switches are placed by the network
    topology_optional: bool = False
    #: TopologyParam=TopoMaxSizeUnroll: number of sizes tried on blocks (0: the largest and the least)
    topology_sizes_max: int = 0
