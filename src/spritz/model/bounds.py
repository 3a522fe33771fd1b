"""Permitted ranges in requests: numbers, times, texts and lists.

A daemon checks them when it decodes a request (`wire.bounded`), so that no handler meets a number that a database, a
date or a loop cannot take. They apply where a message enters and not to stored records: what an earlier release has
written to a journal stays readable, however narrow a range becomes (docs/decisions/0156).

Ranges are found by the name of a field, since a name means the same in every message and says its unit; `Struct.field`
is used where one message needs another range. Numbers without a range here have 64 bits; a test checks that no request
has one.

Narrower rules, which need the configuration, are in `core.decide.submission.spec`. Only daemons import this.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from spritz.model.ids import INFINITE
from spritz.model.job.record import JobSpec
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig

#: Jobs, steps and tasks have 32-bit numbers; the last ones name pseudo steps (slurm/slurm.h SLURM_BATCH_SCRIPT).
IDENTIFIER = Meta(ge=0, le=0xFFFFFFFF)

#: Nodes, CPUs, tasks, jobs and shares: 32 bits, the last two values for NO_VAL and INFINITE (slurm/slurm.h).
COUNT = Meta(ge=0, le=INFINITE)

#: Priorities are 32-bit numbers, limits and weights of partitions and nodes as well (slurm.conf(5), sacctmgr(1)).
PRIORITY = Meta(ge=0, le=INFINITE)

#: Time limits are 32-bit numbers of minutes (job_desc_msg_t.time_limit), INFINITE for none.
MINUTES = Meta(ge=0, le=INFINITE)

#: Whole seconds of a delay, a wait or an interval: 32 bits, as in job_desc_msg_t and slurm.conf(5).
DELAY = Meta(ge=0, le=INFINITE)

#: Seconds that may have a fraction, up to as many as INFINITE minutes have.
SECONDS = Meta(ge=0, le=INFINITE * 60)

#: Epoch seconds, from midnight of 1970-01-01 in any time zone. The year 9999 is excluded, so that in no time zone the
#: end of an hour, day or month is after the last date of `datetime`.
MOMENT = Meta(ge=-86_400, le=253_370_764_800)

#: uid_t and gid_t without the last value, which means "no change" to chown(2) and setresuid(2); -1 here: not given.
USER_OR_GROUP = Meta(ge=-1, le=0xFFFFFFFE)

#: A number of a process or session: pid_t has 31 bits (proc_sys_kernel_pid_max(5): at most 2**22).
PROCESS = Meta(ge=0, le=2**31 - 1)

#: MiB: as many as a signed 64-bit number of bytes can count.
MEBIBYTES = Meta(ge=0, le=2**43)

#: Generic resources and licenses, of which there may be billions (`bandwidth:4G`): exact in a double, as JSON has them,
#: and small enough to be added up in 64 bits.
DEVICES = Meta(ge=0, le=2**53)

#: A figure of a device: -1 if it does not report it.
AMOUNT_TOLD = Meta(ge=-1, le=2**31 - 1)

#: 1 to SIGRTMAX (signal(7)); 0 stands for none.
SIGNAL = Meta(ge=0, le=64)

#: --signal has 16 bits for the signal and for the seconds (sbatch(1)); sizes of a terminal and ports have 16 bits.
SHORT = Meta(ge=0, le=0xFFFF)

#: NICE_OFFSET (slurm/slurm.h) to either side of zero.
NICE = Meta(ge=-(2**31), le=2**31 - 1)

#: A wait status, or a program's own exit code, as an int of C.
STATUS = Meta(ge=-(2**31), le=2**31 - 1)

#: Permission bits of a file.
PERMISSIONS = Meta(ge=0, le=0o7777)

#: Numbers of events, lives of jobs and versions: half of what 64-bit integers hold, so that they can be counted up.
SERIAL = Meta(ge=0, le=2**62)

#: Numbers of rows in tables (those of new associations are negative), resource limits and what tasks have used: signed
#: 64-bit integers, as SQL and the kernel have them.
LONG = Meta(ge=-(2**63), le=2**63 - 1)

#: Factors and weights that administrators set, and measured amounts: any finite number that can be added up.
AMOUNT = Meta(ge=-1e18, le=1e18)

_NUMBERS: tuple[tuple[Meta, str], ...] = (
    (
        IDENTIFIER,
        "RegisterNode.jobs job_id last_job_id step_id task_id component het_offset restart_count parts asked copy",
    ),
    (
        COUNT,
        "nodes_min nodes_max node_counts node_count min_nodes max_nodes tasks task_counts relative switches segment",
    ),
    (COUNT, "tasks_per_node tasks_per_socket tasks_per_core tasks_per_gpu"),
    (COUNT, "cpus cpus_min cpus_max cpu_count core_counts core_spec boards sockets sockets_per_node cores_per_socket"),
    (COUNT, "threads_per_core cpus_per_task cpus_per_node_min cpus_per_gpu default_cpus_per_gpu cores_per_gpu"),
    (COUNT, "max_cpus_per_node max_cpus_per_socket cpu_load cpus_used first_index line_first line_last"),
    (COUNT, "shares grp_jobs grp_jobs_accrue grp_submit max_jobs max_jobs_accrue max_jobs_accrue_pa"),
    (COUNT, "max_jobs_accrue_pu max_jobs_pa max_jobs_pu max_submit max_submit_pa max_submit_pu"),
    (PRIORITY, "priority priority_now priorities priority_job_factor priority_tier min_prio_threshold weight"),
    (PRIORITY, "factor level percent FederationMember.number"),
    (MINUTES, "time_limit_minutes time_min_minutes default_time_minutes max_time_minutes over_time_minutes minutes"),
    (MINUTES, "time_limit_min time_limit_max grp_wall max_wall reclaim_after"),
    (DELAY, "immediate_seconds switch_wait_seconds delay_boot_seconds sample_seconds wait_seconds kill_wait_seconds"),
    (DELAY, "grace_seconds preempt_exempt_seconds purge_seconds max_start_delay_seconds resume_after_seconds"),
    (DELAY, "suspend_seconds suspend_timeout_seconds resume_timeout_seconds"),
    (SECONDS, "duration_seconds float_seconds half_life_seconds term_seconds timeout_seconds"),
    (
        MOMENT,
        "at begin_at booted_at changed_for daemon_started_at deadline_at due_at end_at ended_at ends_at ordered_at",
    ),
    (MOMENT, "sampled_at start_at started_at starts_at utc_offset_changes utc_offset_seconds runs ReckonUsage.since"),
    (USER_OR_GROUP, "uid gid gids groups users owner allow_gids deny_gids reason_uid by_uid"),
    (PROCESS, "client_pid submit_session"),
    (MEBIBYTES, "memory_mib memory_mib_per_node memory_mib_per_cpu memory_mib_per_gpu memory_mib_counted"),
    (MEBIBYTES, "memory_reserved_mib free_memory_mib tmp_mib default_memory_mib_per_cpu default_memory_mib_per_gpu"),
    (MEBIBYTES, "default_memory_mib_per_node max_memory_mib_per_cpu max_memory_mib_per_node"),
    (DEVICES, "count gres gres_per_node licenses per_device"),
    (AMOUNT_TOLD, "busy_percent milliwatts celsius GpuSample.index TakeOver.index"),
    (MEBIBYTES, "memory_used_mib disk_read_mib disk_written_mib"),
    (SIGNAL, "signal"),
    (SHORT, "EndSignal.signal end_signal seconds port ports node_ports pty_columns pty_rows tree_width"),
    (NICE, "nice offset_seconds"),
    (STATUS, "status exit_status derived_exit_status"),
    (PERMISSIONS, "umask"),
    (
        SERIAL,
        "first last sequence last_sequence oldest_sequence since term version unless_version numbers journal format",
    ),
    (LONG, "id associations keys soft limits"),
    (LONG, "total largest largest_task smallest smallest_task energy_joules pages"),
    (AMOUNT, "cpu_system_seconds cpu_user_seconds read_mib rss_peak_mib vm_peak_mib written_mib"),
    (AMOUNT, "billing_weights limit_factor usage_factor usage_threshold weights"),
)

#: A word of a few, such as a kind or a state.
WORD = Meta(max_length=256)

#: A name, a host or a key: 1,024 characters, as in Slurm.
NAME = Meta(max_length=1024)

#: A path: PATH_MAX of Linux.
PATH = Meta(max_length=4096)

#: A value of an option, or an argument of a program: 128 KiB, the most that Linux passes to a program as one
#: (MAX_ARG_STRLEN; execve(2)).
OPTION = Meta(max_length=128 * 1024)

#: Names of nodes or jobs in one text: a cluster has at most 65,536 nodes.
NAMES = Meta(max_length=1024 * 1024)

#: The line that made a job: SchedulerParameters=max_submit_line_size is at most 2 MiB.
COMMAND_LINE = Meta(max_length=2 * 1024 * 1024)

#: A file that a user has written, or an expression over many records: Linux bounds all arguments of a program together
#: by 6 MiB (execve(2)).
TEXT = Meta(max_length=6 * 1024 * 1024)

#: A node's text about itself: the controller's journal keeps it, with each change.
DESCRIPTION = Meta(max_length=64 * 1024)

#: Tasks of an array in hexadecimal: as many bits as the largest MaxArraySize, 4,000,001 (slurm.conf(5)).
TASK_MASK = Meta(pattern=r"\A[0-9a-fA-F]*\Z", max_length=4_000_004 // 4)

#: CPUs in hexadecimal; a node has at most 65,535 (slurm.conf(5) CPUs).
CPU_MASK = Meta(pattern=r"\A[0-9a-fA-F]+\Z", max_length=65_536 // 4)

#: Items of a list: arguments of a program, nodes of a cluster, records of one change of accounting's book.
ITEMS = Meta(max_length=1024 * 1024)

#: Lists that a user writes, or a program of theirs: components of a job, jobs to wait for, numbers of nodes; the groups
#: of a user (NGROUPS_MAX).
MANY = Meta(max_length=64 * 1024)

#: Lists of which a request has a few entries: generic resources (each is looked at for each node), clusters, flags,
#: kinds of mail.
FEW = Meta(max_length=256)

#: Ranges of numbers, by field or `Struct.field`.
NUMBERS: dict[str, Meta] = {name: bounds for bounds, names in _NUMBERS for name in names.split()}

_TEXTS: tuple[tuple[Meta, str], ...] = (
    (WORD, "admin consumable dependency_mode error_kind flag initial_state key kind kinds level next_state open_mode"),
    (WORD, "oversubscribe phase preempt_mode server_type sign state states stdin_task store schedulers"),
    (WORD, "GresRequest.type events exempt granted gres_flags mail_types flags_added flags_removed"),
    (WORD, "ReservationRequest.flags GresCapacity.flags GresCapacity.type SetDebugFlag.flag ResourceLimit.name"),
    (WORD, "StepSpec.limits fields mpi"),
    (NAME, "account accounts accounts_added accounts_removed allow_accounts deny_accounts owner_accounts parent"),
    (NAME, "allow_alloc_nodes allow_groups deny_groups group groups allow_qos deny_qos alternate cluster"),
    (NAME, "cluster_name clusters organization origin federation feature name names node user users users_added"),
    (NAME, "users_removed partition partitions server host hostname address node_addresses io_address io_key"),
    (NAME, "environment_key script_key submit_key submit_host boot_id spool_id version architecture mcs_label wckey"),
    (NAME, "wckeys default_qos default_wckey schedule mail_user periods partition_qos features_active"),
    (NAME, "features_changeable NodeConfig.features RebootNode.features node_list exclude nodes JobFilter.licenses"),
    (NAME, "ReservationRequest.gres ReservationRequest.licenses gres_per_node billing_weights"),
    (NAME, "ContainerOptions.environment keys weights largest"),
    (PATH, "bundle directory image path save script stderr stdin stdout task_epilog task_prolog work_dir files"),
    (PATH, "ContainerOptions.name"),
    (OPTION, "admin_comment arguments argv array cluster_features command comment constraints cores cpu_bind"),
    (OPTION, "distribution export extra features gpu_bind gres_text guarantee licenses line links memory_bind"),
    (OPTION, "message mounts multi_prog prefer program qos preempt reservation system_comment topology cause"),
    (OPTION, "description flags billing_weights_text tres grp_tres grp_tres_mins grp_tres_run_mins max_tres"),
    (OPTION, "max_tres_mins max_tres_mins_pj max_tres_pa max_tres_per_node max_tres_pj max_tres_pn max_tres_pu"),
    (OPTION, "max_tres_run_mins_pa max_tres_run_mins_pu min_tres_pj reasons reason"),
    (NAMES, "SetTrigger.nodes SelectJobs.nodes SelectEvents.nodes AskJobSizes.nodes AskReservations.nodes nodes_text"),
    (NAMES, "error"),
    (COMMAND_LINE, "submit_line"),
    (TEXT, "text documents"),
    (DESCRIPTION, "RegisterNode.address RegisterNode.architecture RegisterNode.boot_id RegisterNode.extra"),
    (DESCRIPTION, "RegisterNode.hostname RegisterNode.operating_system RegisterNode.spool_id RegisterNode.version"),
    (DESCRIPTION, "NodeTrouble.reason"),
    (TASK_MASK, "JobTarget.tasks JobPick.tasks"),
    (CPU_MASK, "NodeCapacity.cpus_reserved"),
)

#: Bounds of texts, by field or `Struct.field`. A test checks that no request has a text without one.
TEXTS: dict[str, Meta] = {name: bounds for bounds, names in _TEXTS for name in names.split()}

_LISTS: tuple[tuple[Meta, str], ...] = (
    (
        ITEMS,
        "argv arguments environment associations documents drops jobs keys numbers picks puts running runs samples",
    ),
    (ITEMS, "steps tasks task_counts components node_addresses node_ports"),
    (MANY, "SubmitHetJob.components dependencies node_counts targets parts multi_prog metrics weights partition_qos"),
    (MANY, "exclude node_list nodes names core_counts priorities groups gids allow_gids deny_gids accounts"),
    (MANY, "accounts_added accounts_removed allow_accounts deny_accounts owner_accounts allow_alloc_nodes"),
    (MANY, "allow_groups deny_groups allow_qos deny_qos qos users users_added users_removed partitions wckeys"),
    (MANY, "licenses files features features_active features_changeable tres UpdateCrontab.jobs NodeSample.gpus"),
    (MANY, "fields"),
    (FEW, "gpus gpus_per_node gpus_per_task gpus_per_socket gres gres_per_node gres_per_task clusters exempt events"),
    (FEW, "flags flags_added flags_removed granted gres_flags kinds limits mail_types periods mounts reasons"),
    (FEW, "schedulers states store utc_offset_changes billing_weights constraints"),
)

#: Bounds of lists, likewise.
LISTS: dict[str, Meta] = {name: bounds for bounds, names in _LISTS for name in names.split()}

#: Records that daemons keep and send to each other. Their parts were checked in the requests that made them, perhaps
#: before there was a range.
RECORDS = frozenset({"Job", "Step", "Policy", "PolicyChange"})

#: `changes` of updates: the Struct whose fields they name, and the types of other keys.
CHANGES: dict[str, tuple[type[Struct], dict[str, object]]] = {
    "UpdateJob.changes": (JobSpec, {"array_limit": Annotated[int, COUNT], "end_at": Annotated[float, MOMENT]}),
    "UpdateNode.changes": (NodeConfig, {}),
    "UpdatePartition.changes": (Partition, {}),
}
