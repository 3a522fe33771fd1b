"""Permitted ranges in requests: numbers, times, texts and lists.

A daemon checks them when it decodes a request (`wire.bounded`), so that no handler meets a number that a database, a
date or a loop cannot take. They apply where a message enters and not to stored records: what an earlier release has
written to a journal stays readable, however narrow a range becomes (docs/decisions/0156).

Ranges are found by the name of a field, since a name means the same in every message and says its unit; `Struct.field`
is used where one message needs another range. Numbers without a range here have 64 bits; a test checks that no request
has one.

Narrower rules, which need the configuration, are in `core.decide.spec`. Only daemons import this.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from spritz.model.ids import INFINITE
from spritz.model.job import JobSpec
from spritz.model.node import NodeConfig
from spritz.model.partition import Partition

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
    (IDENTIFIER, "RegisterNode.jobs job_id step_id task_id component het_offset restart_count parts asked copy"),
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
    (SECONDS, "duration_seconds float_seconds half_life_seconds timeout_seconds"),
    (
        MOMENT,
        "at begin_at booted_at changed_for daemon_started_at deadline_at due_at end_at ended_at ends_at ordered_at",
    ),
    (MOMENT, "sampled_at start_at started_at starts_at utc_offset_changes utc_offset_seconds ReckonUsage.since"),
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

#: A path, an argument or a list of names: Linux bounds all arguments of a program together by 6 MiB (execve(2)), and
#: SchedulerParameters=max_submit_line_size is at most 2 MiB.
TEXT = Meta(max_length=6 * 1024 * 1024)

#: What a node says of itself: the controller's journal keeps it, with each change.
DESCRIPTION = Meta(max_length=64 * 1024)

#: Tasks of an array in hexadecimal: as many bits as the largest MaxArraySize, 4,000,001 (slurm.conf(5)).
TASK_MASK = Meta(pattern=r"\A[0-9a-fA-F]*\Z", max_length=4_000_004 // 4)

#: CPUs in hexadecimal; a node has at most 65,535 (slurm.conf(5) CPUs).
CPU_MASK = Meta(pattern=r"\A[0-9a-fA-F]+\Z", max_length=65_536 // 4)

#: Items of a list: arguments of a program, nodes of a cluster, records of one change of accounting's book.
ITEMS = Meta(max_length=1024 * 1024)

#: What a user writes down, or a program of theirs: components of a job, jobs to wait for, numbers of nodes.
MANY = Meta(max_length=64 * 1024)

#: Generic resources of a request, by name and type: each is looked at for each node.
FEW = Meta(max_length=256)

#: Ranges of numbers, by field or `Struct.field`.
NUMBERS: dict[str, Meta] = {name: bounds for bounds, names in _NUMBERS for name in names.split()}

#: Bounds of texts other than `TEXT`.
TEXTS: dict[str, Meta] = {
    "JobTarget.tasks": TASK_MASK,
    "JobPick.tasks": TASK_MASK,
    "NodeCapacity.cpus_reserved": CPU_MASK,
    **dict.fromkeys(
        (
            "RegisterNode.address",
            "RegisterNode.architecture",
            "RegisterNode.boot_id",
            "RegisterNode.extra",
            "RegisterNode.hostname",
            "RegisterNode.operating_system",
            "RegisterNode.spool_id",
            "RegisterNode.version",
            "NodeTrouble.reason",
        ),
        DESCRIPTION,
    ),
}

#: Bounds of lists other than `ITEMS`.
LISTS: dict[str, Meta] = {
    **dict.fromkeys(("components", "dependencies", "node_counts"), MANY),
    **dict.fromkeys(("gpus", "gpus_per_node", "gpus_per_task", "gpus_per_socket"), FEW),
    **dict.fromkeys(("gres", "gres_per_node", "gres_per_task"), FEW),
}

#: Records that daemons keep and send to each other. Their parts were checked in the requests that made them, perhaps
#: before there was a range.
RECORDS = frozenset({"Job", "Step", "Policy", "PolicyChange"})

#: `changes` of updates: the Struct whose fields they name, and the types of other keys.
CHANGES: dict[str, tuple[type[Struct], dict[str, object]]] = {
    "UpdateJob.changes": (JobSpec, {"array_limit": Annotated[int, COUNT], "end_at": Annotated[float, MOMENT]}),
    "UpdateNode.changes": (NodeConfig, {}),
    "UpdatePartition.changes": (Partition, {}),
}
