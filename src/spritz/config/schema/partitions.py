"""Keys of PartitionName lines. Source: slurm.conf(5) PARTITION CONFIGURATION."""

from __future__ import annotations

from spritz.config.kinds import (
    BOOL,
    MIB,
    SMALL_MAX,
    STRING,
    TIME_MINUTES,
    TRES_WEIGHTS,
    Kind,
    choice,
    flags,
    integer,
    minutes,
    words_of,
)
from spritz.config.schema.key import Key
from spritz.config.schema.nodes import CPU_BIND
from spritz.config.schema.scheduling import PREEMPT_MODE
from spritz.model.ids import INFINITE

_COUNT = integer(0, 0xFFFFFFFD, unlimited=True)


def _share(text: str) -> str:
    """Parse `NO`, `EXCLUSIVE`, `YES[:n]` or `FORCE[:n]`; the number is 4 by default, as in Slurm."""
    word, colon, number = text.upper().partition(":")
    if word in ("NO", "EXCLUSIVE") and not colon:
        return word
    if word not in ("YES", "FORCE"):
        raise ValueError
    count = int(number) if colon else 4
    if not 1 <= count <= 0x7FFF:
        raise ValueError
    return f"{word}:{count}"


OVERSUBSCRIBE = Kind(
    name="choice",
    accepted="NO, EXCLUSIVE, YES[:count] or FORCE[:count]",
    parse=_share,
    show=str,
    write=str,
    words=("NO", "EXCLUSIVE", "YES", "FORCE"),
)


def _names_or_all(text: str) -> tuple[str, ...]:
    return () if text.upper() == "ALL" else words_of(text)


def _lower_names_or_all(text: str) -> tuple[str, ...]:
    """Parse names of accounts or QOS, which are lower case as in Slurm."""
    return _names_or_all(text.lower())


def _all_text(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) and value else "ALL"


#: An allow list; empty means all.
_ALLOW = Kind(
    name="list", accepted="names separated by commas, or ALL", parse=_names_or_all, show=_all_text, write=_all_text
)
_ALLOW_LOWER = Kind(
    name="list",
    accepted="names separated by commas, or ALL",
    parse=_lower_names_or_all,
    show=_all_text,
    write=_all_text,
)

PARTITION_KEYS = (
    Key("PartitionName", STRING, None, "Name of the partition; DEFAULT sets values for the lines below."),
    Key("AllocNodes", STRING, None, "Nodes from which jobs may be submitted."),
    Key("AllowAccounts", _ALLOW_LOWER, (), "Accounts that may use the partition."),
    Key("AllowGroups", _ALLOW, (), "Groups that may use the partition."),
    Key("AllowQos", _ALLOW_LOWER, (), "QOS that may use the partition."),
    Key("Alternate", STRING, "", "Partition used while this one is DRAIN or INACTIVE."),
    Key("CpuBind", CPU_BIND, None, "Default binding of tasks."),
    Key("Default", BOOL, False, "The partition of jobs that name none."),
    Key("DefaultTime", TIME_MINUTES, None, "Time limit of jobs without one; MaxTime by default.", ("DefTime",)),
    Key("DefCpuPerGPU", integer(0, 2**32), 0, "CPUs for each GPU of a job that requests none."),
    Key("DefMemPerCPU", MIB, 0, "Memory for each CPU of a job that requests none, MiB."),
    Key("DefMemPerGPU", MIB, 0, "Memory for each GPU of a job that requests none, MiB."),
    Key("DefMemPerNode", MIB, 0, "Memory on each node of a job that requests none, MiB."),
    Key("DenyAccounts", _ALLOW_LOWER, (), "Accounts that may not use the partition."),
    Key("DenyGroups", _ALLOW, (), "Groups that may not use the partition."),
    Key("DenyQos", _ALLOW_LOWER, (), "QOS that may not use the partition."),
    Key("DisableRootJobs", BOOL, None, "Refuse jobs of user root."),
    Key("Exclusive", choice("NO", "NODE", "USER", "TOPO"), "NO", "What a job does not share with other jobs."),
    Key("ExclusiveTopo", BOOL, False, "A job does not share its topology segment."),
    Key("ExclusiveUser", BOOL, False, "A node runs jobs of a single user at a time."),
    Key("GraceTime", integer(0, 2**32 - 3, "sec"), 0, "Time between the warning and the end of a preempted job."),
    Key("Hidden", BOOL, False, "Hidden from commands without --all."),
    Key("LLN", BOOL, False, "Use the least loaded nodes first."),
    Key("MaxCPUsPerNode", _COUNT, INFINITE, "CPUs of a node that the partition's jobs may use in total."),
    Key("MaxCPUsPerSocket", _COUNT, INFINITE, "CPUs of a socket that the partition's jobs may use in total."),
    Key("MaxMemPerCPU", MIB, 0, "Maximum memory for each CPU, MiB."),
    Key("MaxMemPerNode", MIB, 0, "Maximum memory on a node, MiB."),
    Key("MaxNodes", _COUNT, INFINITE, "Maximum nodes of a job."),
    Key("MaxTime", TIME_MINUTES, INFINITE, "Maximum time limit."),
    Key("MinNodes", integer(0, 0xFFFFFFFD), 0, "Minimum nodes of a job."),
    Key("Nodes", STRING, "", "Nodes and node sets, or ALL."),
    Key("OverSubscribe", OVERSUBSCRIBE, "NO", "Whether jobs share resources, or get whole nodes.", ("Shared",)),
    Key("OverTimeLimit", minutes(unlimited=True), None, "Minutes a job may exceed its time limit."),
    Key("PowerDownOnIdle", BOOL, False, "Power nodes down as soon as they are idle."),
    Key("PreemptMode", PREEMPT_MODE, None, "What happens to a preempted job."),
    Key("PriorityJobFactor", integer(0, SMALL_MAX), 1, "Factor of job priority."),
    Key("PriorityTier", integer(0, SMALL_MAX), 1, "The scheduler considers jobs of a higher tier first."),
    Key("QOS", STRING, "", "QOS whose limits apply to the partition."),
    Key("ReqResv", BOOL, False, "Jobs must name a reservation."),
    Key("ResumeTimeout", integer(0, SMALL_MAX, "sec", unlimited=True), None, "Time limit for a node to resume."),
    Key("RootOnly", BOOL, False, "Only root may submit."),
    Key(
        "SelectTypeParameters",
        flags("CR_Core", "CR_Core_Memory", "CR_Socket", "CR_Socket_Memory", upper=True),
        None,
        "The parts of a node that are allocated to jobs.",
    ),
    Key(
        "State",
        choice("UP", "DOWN", "DRAIN", "INACTIVE", aliases={"inact": "INACTIVE"}),
        "UP",
        "Whether jobs are accepted and started.",
    ),
    Key("SuspendTime", integer(0, 2**31, "sec", unlimited=True), None, "Idle time before power saving."),
    Key("SuspendTimeout", integer(0, SMALL_MAX, "sec", unlimited=True), None, "Time limit for a node to suspend."),
    Key("Topology", STRING, None, "Name of the partition's topology."),
    Key("TRESBillingWeights", TRES_WEIGHTS, None, "Billing weight of each resource."),
)
