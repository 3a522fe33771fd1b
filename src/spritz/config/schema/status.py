"""The keys that work. Change this table when a key is implemented.

`DONE`: the value has its effect. `HONOURED`: only these values have. `MOOT`: the key has no meaning in Spritz, with the
reason. All other keys of Slurm are "later": their values are checked, and cause a warning if they differ from what
Spritz does without them. Node, partition, device and cgroup keys are named `NodeName.Weight`, `PartitionName.Nodes`,
`gres.conf.File`, `cgroup.conf.ConstrainCores`; options in lists `SchedulerParameters.bf_window`.
"""

from __future__ import annotations

_SETTINGS = """
ClusterName SlurmctldHost SlurmctldAddr SlurmUser SlurmdUser SlurmctldPort SlurmdPort StateSaveLocation SlurmdSpoolDir
SlurmctldLogFile SlurmdLogFile SlurmctldPidFile SlurmdPidFile SlurmctldDebug SlurmdDebug LogTimeFormat
SlurmctldSyslogDebug SlurmdSyslogDebug
SlurmSchedLogFile SlurmSchedLogLevel
MailProg MailDomain MCSParameters GresTypes SlurmdParameters SchedulerParameters DependencyParameters LaunchParameters
PrologSlurmctld EpilogSlurmctld
CompleteWait DisableRootJobs MaxNodeCount RebootProgram
DefCpuPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode MaxMemPerCPU MaxMemPerNode
FirstJobId MaxJobId MaxJobCount MaxArraySize MaxStepCount MaxTasksPerNode MinJobAge MaxBatchRequeue
KillWait KillOnBadExit WaitTime InactiveLimit OverTimeLimit EnforcePartLimits
ResvOverRun ResvProlog ResvEpilog
SlurmctldTimeout SlurmctldPrimaryOnProg SlurmctldPrimaryOffProg
ReturnToService SlurmdTimeout MessageTimeout JobRequeue RequeueExit RequeueExitHold JobFileAppend
JobAcctGatherFrequency Prolog Epilog TaskProlog TaskEpilog PrologEpilogTimeout PrologTimeout EpilogTimeout
BatchStartTimeout
SrunProlog SrunEpilog InteractiveStepOptions SallocDefaultCommand PropagateResourceLimits PropagateResourceLimitsExcept
PropagatePrioProcess
JobSubmitPlugins CliFilterPlugins CliFilterParameters
TmpFS UnkillableStepTimeout UnkillableStepProgram HealthCheckProgram HealthCheckInterval HealthCheckTimeout
Licenses
PreemptExemptTime PreemptParameters SchedulerTimeSlice
ResumeProgram ResumeFailProgram ResumeRate ResumeTimeout SuspendProgram SuspendRate SuspendTime SuspendTimeout
SuspendExcNodes SuspendExcParts
DataParserParameters FederationParameters MetricsType MetricsParameters ScronParameters
AuthInfo AccountingStorageHost AccountingStorageBackupHost AccountingStoragePort AccountingStoreFlags MaxDBDMsgs
JobCompLoc
PriorityWeightAge PriorityMaxAge PriorityWeightJobSize PriorityWeightPartition PriorityWeightTRES PriorityFavorSmall
PriorityCalcPeriod TrackWCKey PriorityDecayHalfLife PriorityWeightFairshare PriorityWeightAssoc PriorityWeightQOS
FairShareDampeningFactor PriorityUsageResetPeriod TreeWidth
"""

_NODE = """
NodeName Boards CoreSpecCount CoresPerSocket CpuBind CPUs
CPUSpecList Features Gres MemSpecLimit NodeAddr NodeHostname Port
RealMemory Reason RestrictedCoresPerGPU Sockets SocketsPerBoard SuspendTime ThreadsPerCore TmpDisk Topology Weight
"""

_PARTITION = """
PartitionName AllocNodes AllowAccounts AllowGroups AllowQos Alternate CpuBind
Default DefaultTime DefCpuPerGPU DefMemPerCPU DefMemPerGPU
DefMemPerNode DenyAccounts DenyGroups DenyQos DisableRootJobs Exclusive ExclusiveTopo ExclusiveUser GraceTime Hidden LLN
MaxCPUsPerNode MaxCPUsPerSocket MaxMemPerCPU MaxMemPerNode MaxNodes MaxTime MinNodes Nodes OverSubscribe OverTimeLimit
PriorityJobFactor PriorityTier ReqResv RootOnly SelectTypeParameters State QOS Topology TRESBillingWeights
PowerDownOnIdle ResumeTimeout SuspendTime SuspendTimeout
"""

_OPTIONS = """
TLSParameters.ca_cert_file TLSParameters.ctld_cert_file TLSParameters.ctld_cert_key_file
TLSParameters.slurmd_cert_file TLSParameters.slurmd_cert_key_file
TLSParameters.sackd_cert_file TLSParameters.sackd_cert_key_file
TLSParameters.dbd_cert_file TLSParameters.dbd_cert_key_file
AuthAltParameters.disable_token_creation AuthAltParameters.jwks AuthAltParameters.jwt_key
AuthAltParameters.max_token_lifespan AuthAltParameters.userclaimfield
JobCompParams.flush_timeout JobCompParams.timeout JobCompParams.topic JobCompParams.enable_job_start
JobCompParams.topic_job_start
SchedulerParameters.bf_interval SchedulerParameters.bf_max_job_test SchedulerParameters.default_queue_depth
SchedulerParameters.bf_max_job_array_resv SchedulerParameters.bf_max_job_assoc
SchedulerParameters.bf_max_job_part SchedulerParameters.bf_max_job_start SchedulerParameters.bf_max_job_user
SchedulerParameters.bf_max_job_user_part SchedulerParameters.bf_min_age_reserve SchedulerParameters.bf_min_prio_reserve
SchedulerParameters.gpu_fragmentation SchedulerParameters.bf_predict SchedulerParameters.bf_job_part_count_reserve
SchedulerParameters.pack_serial_at_end SchedulerParameters.sched_max_job_start SchedulerParameters.assoc_limit_stop
SchedulerParameters.ignore_prefer_validation SchedulerParameters.ignore_constraint_validation
SchedulerParameters.allow_zero_lic SchedulerParameters.bf_licenses SchedulerParameters.time_min_as_soft_limit
SchedulerParameters.reduce_completing_frag SchedulerParameters.spec_cores_first
SchedulerParameters.bf_one_resv_per_job SchedulerParameters.bf_policy SchedulerParameters.bf_resolution
SchedulerParameters.bf_window SchedulerParameters.batch_sched_delay SchedulerParameters.defer
SchedulerParameters.defer_batch SchedulerParameters.sched_interval SchedulerParameters.sched_min_interval
SchedulerParameters.delay_boot
SchedulerParameters.max_switch_wait SchedulerParameters.enable_user_top SchedulerParameters.nohold_on_prolog_fail
SchedulerParameters.max_array_tasks SchedulerParameters.max_script_size SchedulerParameters.max_submit_line_size
SchedulerParameters.disable_hetjob_steps SchedulerParameters.extra_constraints
SchedulerParameters.bf_hetjob_immediate SchedulerParameters.bf_hetjob_prio SchedulerParameters.whole_hetjob
SchedulerParameters.whole_pack SchedulerParameters.hetjob_share_nodes
SchedulerParameters.preempt_reorder_count SchedulerParameters.preempt_strict_order
SchedulerParameters.preempt_youngest_first
PreemptParameters.min_exempt_priority PreemptParameters.reclaim_licenses PreemptParameters.reorder_count
PreemptParameters.send_user_signal PreemptParameters.strict_order PreemptParameters.suspend_grace_time
PreemptParameters.youngest_first
SlurmctldParameters.journal SlurmctldParameters.revision SlurmctldParameters.reboot_from_controller
SlurmdParameters.shutdown_on_reboot
SlurmctldParameters.cloud_reg_addrs SlurmctldParameters.idle_on_node_suspend
SlurmctldParameters.max_powered_nodes SlurmctldParameters.preempt_send_user_signal
SlurmctldParameters.enable_expedited_requeue SlurmctldParameters.node_reg_mem_percent
SlurmctldParameters.drain_failing_nodes SlurmctldParameters.failing_node_seconds
SlurmctldParameters.user_resv_delete SlurmctldParameters.enable_configless AuthInfo.socket
SlurmctldParameters.rl_enable SlurmctldParameters.rl_bucket_size SlurmctldParameters.rl_log_freq
SlurmctldParameters.rl_refill_period SlurmctldParameters.rl_refill_rate SlurmctldParameters.rl_table_size
SchedulerParameters.requeue_delay SchedulerParameters.jobs_per_user_per_hour
DependencyParameters.kill_invalid_depend DependencyParameters.max_depend_depth
LaunchParameters.use_interactive_step CliFilterParameters.cli_filter_lua_path
MetricsParameters.ignore_private_data MpiParams.ports
TaskPluginParam.Autobind TaskPluginParam.Cores TaskPluginParam.None TaskPluginParam.Sockets TaskPluginParam.Threads
TaskPluginParam.SlurmdOffSpec
SlurmdParameters.config_overrides SlurmdParameters.private_hosts SlurmdParameters.dcgm_job_mapping_dir
"""

_SELECT = """
CR_CPU CR_CPU_Memory CR_Core CR_Core_Memory CR_Socket CR_Socket_Memory CR_Memory CR_ONE_TASK_PER_CORE CR_LLN
CR_Pack_Nodes CR_CORE_DEFAULT_DIST_BLOCK ENFORCE_BINDING_GRES LL_SHARED_GRES
MULTIPLE_SHARING_GRES_PJ ONE_TASK_PER_SHARING_GRES
"""


_DATABASE = """
DbdAddr DbdHost DbdPort DebugLevel LogFile LogTimeFormat PidFile SlurmUser StorageHost StorageLoc StorageParameters
StoragePass StoragePassScript StoragePort StorageType StorageUrl StorageUser
PurgeEventAfter PurgeJobAfter PurgeJobEnvAfter PurgeJobScriptAfter PurgeStepAfter PurgeSuspendAfter PurgeTXNAfter
PurgeResvAfter PurgeUsageAfter ArchiveResvs ArchiveUsage
DebugLevelSyslog AllResourcesAbsolute AllowNoDefAcct DefaultQOS DisableCoordDBD MaxQueryTimeRange MessageTimeout
StorageBackupHost DbdBackupHost AuthAltParameters TLSParameters
ArchiveDir ArchiveEvents ArchiveJobs ArchiveScript ArchiveSteps ArchiveSuspend ArchiveTXN MaxPurgeLimit
"""


def _prefixed(prefix: str, names: str) -> frozenset[str]:
    return frozenset(f"{prefix}.{name}" for name in names.split())


DONE: frozenset[str] = (
    frozenset(_SETTINGS.split())
    | _prefixed("NodeName", _NODE)
    | _prefixed("PartitionName", _PARTITION)
    | _prefixed("DownNodes", "DownNodes Reason State")
    | _prefixed("NodeSet", "NodeSet Feature Nodes")
    | _prefixed("gres.conf", "Cores Count File Flags Links MultipleFiles Name NodeName Type")
    | _prefixed("topology.conf", "BlockName BlockSizes LinkSpeed Nodes SwitchName Switches")
    | _prefixed("helpers.conf", "AllowUserBoot BootTime ExecTime Feature Flags Helper MutuallyExclusive NodeName")
    | _prefixed("cgroup.conf", "CgroupPlugin")
    | _prefixed("cgroup.conf", "ConstrainCores ConstrainDevices ConstrainRAMSpace ConstrainSwapSpace")
    | _prefixed("cgroup.conf", "AllowedRAMSpace AllowedSwapSpace MaxRAMPercent MinRAMSpace")
    | _prefixed("job_container.conf", "AutoBasePath BasePath Dirs InitScript NodeName Shared")
    | _prefixed("oci.conf", "ContainerPath CreateEnvFile DisableCleanup DisableHooks EnvExclude IgnoreFileConfigJson")
    | _prefixed("oci.conf", "MountSpoolDir RunTimeCreate RunTimeDelete RunTimeEnvExclude RunTimeKill RunTimeQuery")
    | _prefixed("oci.conf", "RunTimeRun RunTimeStart")
    | _prefixed("slurmdbd.conf", _DATABASE)
    | frozenset(_OPTIONS.split())
)

#: Key -> values that have their effect; other values cause a warning.
HONOURED: dict[str, frozenset[str]] = {
    "AcctGatherEnergyType": frozenset({"acct_gather_energy/gpu", "acct_gather_energy/none", "acct_gather_energy/rapl"}),
    "AuthAltTypes": frozenset({"auth/jwt"}),
    "slurmdbd.conf.AuthAltTypes": frozenset({"auth/jwt"}),
    # On a single machine the kernel identifies all callers, whatever the key says.
    "AuthType": frozenset({"auth/slurm", "auth/munge"}),
    "slurmdbd.conf.AuthType": frozenset({"auth/slurm"}),
    "slurmdbd.conf.TLSType": frozenset({"tls/none", "tls/s2n"}),
    "AccountingStorageType": frozenset({"accounting_storage/none", "accounting_storage/slurmdbd"}),
    "AccountingStorageEnforce": frozenset(
        {"1", "2", "all", "associations", "limits", "qos", "safe", "wckeys", "nojobs", "nosteps"}
    ),
    "JobCompType": frozenset(
        f"jobcomp/{name}" for name in ("none", "elasticsearch", "filetxt", "kafka", "lua", "script")
    ),
    "JobAcctGatherParams": frozenset({"DisableGPUAcct", "NoShared", "OverMemoryKill", "UsePss"}),
    "JobAcctGatherType": frozenset({"jobacct_gather/none", "jobacct_gather/linux", "jobacct_gather/cgroup"}),
    "DebugFlags": frozenset(
        {
            "Accrue",
            "AuditRPCs",
            "Backfill",
            "Dependency",
            "Gang",
            "Power",
            "PowerSave",
            "Protocol",
            "Reservation",
            "Steps",
        }
    ),
    "MpiDefault": frozenset({"none", "openmpi", "pmi2", "pmix", "pmix_v4", "pmix_v5"}),
    "PreemptType": frozenset({"preempt/none", "preempt/partition_prio", "preempt/qos"}),
    "PreemptMode": frozenset({"OFF", "CANCEL", "REQUEUE", "SUSPEND", "GANG", "PRIORITY", "WITHIN"}),
    "PartitionName.PreemptMode": frozenset({"OFF", "CANCEL", "REQUEUE", "SUSPEND", "GANG", "PRIORITY"}),
    "PriorityFlags": frozenset(
        {"ACCRUE_ALWAYS", "SMALL_RELATIVE_TO_TIME", "NO_NORMAL_ALL", "NO_NORMAL_ASSOC", "NO_NORMAL_PART"}
        | {
            "CALCULATE_RUNNING",
            "INCR_ONLY",
            "NO_NORMAL_QOS",
            "NO_NORMAL_TRES",
            "NO_FAIR_TREE",
            "DEPTH_OBLIVIOUS",
            "MAX_TRES",
            "MAX_TRES_GRES",
        }
    ),
    "PriorityType": frozenset({"priority/basic", "priority/multifactor"}),
    "ProctrackType": frozenset({"proctrack/cgroup", "proctrack/linuxproc", "proctrack/pgid"}),
    "SchedulerType": frozenset({"sched/backfill", "sched/builtin"}),
    "SelectType": frozenset({"select/cons_tres", "select/cons_res", "select/linear"}),
    "TaskPlugin": frozenset({"task/none", "task/affinity", "task/cgroup"}),
    "TopologyPlugin": frozenset(
        {"topology/flat", "topology/default", "topology/none", "topology/tree", "topology/block"}
    ),
    "TopologyParam": frozenset(
        {
            "BlockAsNodeRank",
            "Dragonfly",
            "RoutePart",
            "RouteTree",
            "SwitchAsNodeRank",
            "TopoMaxSizeUnroll",
            "TopoOptional",
        }
    ),
    "MCSPlugin": frozenset({"mcs/none", "mcs/account", "mcs/group", "mcs/label", "mcs/user"}),
    "NodeFeaturesPlugins": frozenset({"node_features/helpers"}),
    "PrEpPlugins": frozenset({"prep/script"}),
    "LaunchType": frozenset({"launch/slurm"}),
    "JobContainerType": frozenset({"job_container/none", "job_container/tmpfs"}),
    "NamespaceType": frozenset({"namespace/none"}),
    "BurstBufferType": frozenset({"burst_buffer/none"}),
    "CoreSpecPlugin": frozenset({"core_spec/none"}),
    "PowerPlugin": frozenset({"power/none"}),
    "SwitchType": frozenset({"switch/none"}),
    "TLSType": frozenset({"tls/none", "tls/s2n"}),
    "RoutePlugin": frozenset({"route/default"}),
    "PrologFlags": frozenset({"Alloc", "Contain", "DeferBatch", "ForceRequeueOnFail", "NoHold", "Serial"}),
    "ReconfigFlags": frozenset({"KeepPartInfo", "KeepPartState", "KeepPowerSaveSettings"}),
    "SelectTypeParameters": frozenset(_SELECT.split()),
    "HealthCheckNodeState": frozenset({"ALLOC", "ANY", "CYCLE", "IDLE", "MIXED", "START_ONLY"}),
    "NodeName.State": frozenset({"UNKNOWN", "DOWN", "DRAIN", "EXTERNAL", "FAIL", "FAILING", "FUTURE", "CLOUD"}),
    "SuspendExcStates": frozenset(
        {"CLOUD", "DOWN", "DRAIN", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "FAIL", "INVALID_REG", "MAINTENANCE"}
        | {"NOT_RESPONDING", "RESERVED"}
    ),
    "PrivateData": frozenset({"all", "cloud", "jobs", "nodes", "partitions", "reservations", "usage", "users"}),
    "slurmdbd.conf.DebugFlags": frozenset(
        {"AuditRPCs", "DB_ASSOC", "DB_EVENT", "DB_JOB", "DB_QOS", "DB_QUERY", "DB_RESERVATION", "DB_RESOURCE"}
        | {"DB_STEP", "DB_TRES", "DB_USAGE", "DB_WCKEY"}
    ),
    "slurmdbd.conf.PrivateData": frozenset({"accounts", "events", "jobs", "reservations", "usage", "users"}),
    "gres.conf.AutoDetect": frozenset({"off", "nvml", "nvidia"}),
}

#: Key -> what Spritz does instead, for the warning about the key.
MOOT: dict[str, str] = {
    "oci.conf.SrunArgs": "scrun is not built",
    "oci.conf.SrunPath": "scrun is not built",
    "oci.conf.DebugFlags": "it is for scrun, which is not built",
    "oci.conf.FileDebug": "it is for scrun, which is not built",
    "oci.conf.StdIODebug": "it is for scrun, which is not built",
    "oci.conf.SyslogDebug": "it is for scrun, which is not built",
    "SchedulerParameters.bb_array_stage_cnt": "there are no burst buffers",
    "SchedulerParameters.disable_job_shrink": "running jobs keep their size",
    "SchedulerParameters.bf_allow_magnetic_slot": "starts in magnetic reservations are planned like others",
    "SchedulerParameters.correspond_after_task_cnt": "each array task finds its corresponding task",
    "SchedulerParameters.enable_hetjob_steps": "steps may span components of a heterogeneous job",
    "SchedulerParameters.no_backup_scheduling": "there is one controller",
    "SchedulerParameters.bf_busy_nodes": "planned starts use nodes that are busy until then",
    "SchedulerParameters.bf_topopt_enable": "no start is delayed for a better placement",
    "SchedulerParameters.bf_topopt_iterations": "no start is delayed for a better placement",
    "SchedulerParameters.default_gbytes": "removed from Slurm: sizes without a unit are megabytes",
    "SchedulerParameters.bf_running_job_reserve": "in all plans, running jobs keep their resources until their limits",
    "SchedulerParameters.Ignore_NUMA": "sockets are those that the system reports",
    "SchedulerParameters.enable_job_state_cache": "queries are answered from memory and delay no other request",
    "SchedulerParameters.no_env_cache": "environments come with the job",
    "SchedulerParameters.requeue_setup_env_fail": "environments come with the job",
    "SchedulerParameters.step_retry_count": "steps wait in the controller, and start as soon as resources are free",
    "SchedulerParameters.step_retry_time": "steps wait in the controller, and start as soon as resources are free",
    "PrivateData.accounts": "slurmdbd keeps accounts: slurmdbd.conf has it too",
    "PrivateData.events": "slurmdbd keeps events: slurmdbd.conf has it too",
    "SelectTypeParameters.OTHER_CONS_RES": "it was for machines that Slurm no longer supports",
    "SelectTypeParameters.OTHER_CONS_TRES": "it was for machines that Slurm no longer supports",
    "SchedulerParameters.bf_continue": "a full cycle works on its own copy and is never interrupted",
    "SchedulerParameters.bf_max_time": "a full cycle runs in its own process; bf_max_job_test limits its work",
    "SchedulerParameters.bf_node_space_size": "the profile of free resources grows as necessary",
    "SchedulerParameters.bf_window_linear": "free resources are known to the second over the whole window",
    "SchedulerParameters.bf_yield_interval": "a full cycle runs in its own process and delays no request",
    "SchedulerParameters.bf_yield_rpc_cnt": "a full cycle runs in its own process and delays no request",
    "SchedulerParameters.bf_yield_sleep": "a full cycle runs in its own process and delays no request",
    "SchedulerParameters.build_queue_timeout": "the queue is always in order, and not built for each cycle",
    "SchedulerParameters.max_rpc_cnt": "requests are answered during cycles",
    "SchedulerParameters.max_sched_time": "quick cycles take at most a third of the controller's time",
    "SchedulerParameters.partition_job_depth": "equal requests are tested once, so depth costs nothing",
    "SchedulerParameters.salloc_wait_nodes": "a job waits until all of its nodes are ready",
    "SchedulerParameters.sbatch_wait_nodes": "a job waits until all of its nodes are ready",
    "SlurmctldParameters.power_save_interval": "nodes are checked when an action is due",
    "SlurmctldParameters.power_save_min_interval": "nodes are checked when an action is due",
    "SlurmctldParameters.cloud_dns": "slurmd connects to the controller, from any address",
    "GroupUpdateForce": "groups are looked up for each submission, and stored with the job",
    "GroupUpdateTime": "groups are looked up for each submission, and stored with the job",
    "NodeName.TRESWeights": "it compares nodes of several clusters; sibling jobs start on the first cluster that can",
    "CommunicationParameters.NoAddrCache": "addresses are looked up when they are needed",
    "AccountingStoragePass": "Spritz authenticates by itself",
    "AccountingStorageTRES": "all resources that jobs use are accounted",
    "AccountingStorageUser": "slurmdbd authenticates its callers by itself",
    "TCPTimeout": "a connection is made within MessageTimeout",
    "CredType": "launches on other machines are signed by a key derived from the cluster's (docs/decisions/0176)",
    "PluginDir": "Spritz loads none of Slurm's C plugins",
    "PlugStackConfig": "Spritz runs no SPANK plugins",
    "SlurmctldPlugstack": "Spritz loads none of Slurm's C plugins",
    "RoutePlugin": "TopologyParam=RouteTree makes branches follow the switches",
    "EpilogMsgTime": "reports are not delayed",
    "HashPlugin": "messages have another format",
    "GetEnvTimeout": "environments come with the job",
    "slurmdbd.conf.AuthInfo": "Spritz authenticates by itself",
    "slurmdbd.conf.CommitDelay": "each batch is committed before its acknowledgement",
    "slurmdbd.conf.HashPlugin": "messages have another format",
    "slurmdbd.conf.Parameters": "user names keep their capital letters",
    "slurmdbd.conf.PluginDir": "Spritz loads none of Slurm's C plugins",
    "slurmdbd.conf.TCPTimeout": "slurmdbd makes no connections to controllers",
    "slurmdbd.conf.TrackWCKey": "wckeys of jobs are always stored and reported",
    "cgroup.conf.CgroupMountpoint": "mounted cgroups are found in /proc/self/mountinfo",
    "cgroup.conf.CgroupAutomount": "Spritz mounts nothing",
}
