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
    """`NO`, `EXCLUSIVE`, `YES[:n]`, `FORCE[:n]`; without a number Slurm takes 4."""
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
    """Accounts and QOS are kept in lower case, as Slurm does."""
    return _names_or_all(text.lower())


def _all_text(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) and value else "ALL"


#: an allow list: empty means all
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
    Key("AllowAccounts", _ALLOW_LOWER, (), "Accounts that may use it."),
    Key("AllowGroups", _ALLOW, (), "Groups that may use it."),
    Key("AllowQos", _ALLOW_LOWER, (), "QOS that may use it."),
    Key("Alternate", STRING, "", "Partition used while this one is DRAIN or INACTIVE."),
    Key("CpuBind", CPU_BIND, None, "Default binding of tasks."),
    Key("Default", BOOL, False, "Jobs that name no partition go here."),
    Key("DefaultTime", TIME_MINUTES, None, "Time limit of jobs that give none; MaxTime if not set.", ("DefTime",)),
    Key("DefCpuPerGPU", integer(0, 2**32), 0, "CPUs given for each GPU if the job does not say."),
    Key("DefMemPerCPU", MIB, 0, "Memory given for each CPU if the job does not say, MiB."),
    Key("DefMemPerGPU", MIB, 0, "Memory given for each GPU if the job does not say, MiB."),
    Key("DefMemPerNode", MIB, 0, "Memory given on each node if the job does not say, MiB."),
    Key("DenyAccounts", _ALLOW_LOWER, (), "Accounts that may not use it."),
    Key("DenyGroups", _ALLOW, (), "Groups that may not use it."),
    Key("DenyQos", _ALLOW_LOWER, (), "QOS that may not use it."),
    Key("DisableRootJobs", BOOL, None, "User root may run no jobs here."),
    Key("Exclusive", choice("NO", "NODE", "USER", "TOPO"), "NO", "What of it a job has for itself."),
    Key("ExclusiveTopo", BOOL, False, "A job has its topology segment for itself."),
    Key("ExclusiveUser", BOOL, False, "Nodes are one user's at a time."),
    Key("GraceTime", integer(0, 2**32 - 3, "sec"), 0, "Time between the warning and the end of a preempted job."),
    Key("Hidden", BOOL, False, "Not shown unless asked for."),
    Key("LLN", BOOL, False, "Least loaded nodes first."),
    Key("MaxCPUsPerNode", _COUNT, INFINITE, "CPUs of one node that its jobs may have together."),
    Key("MaxCPUsPerSocket", _COUNT, INFINITE, "CPUs of one socket that its jobs may have together."),
    Key("MaxMemPerCPU", MIB, 0, "Most memory for each CPU, MiB."),
    Key("MaxMemPerNode", MIB, 0, "Most memory on a node, MiB."),
    Key("MaxNodes", _COUNT, INFINITE, "Most nodes of a job."),
    Key("MaxTime", TIME_MINUTES, INFINITE, "Longest time limit."),
    Key("MinNodes", integer(0, 0xFFFFFFFD), 0, "Fewest nodes of a job."),
    Key("Nodes", STRING, "", "Nodes and node sets, or ALL."),
    Key("OverSubscribe", OVERSUBSCRIBE, "NO", "Whether jobs share resources, or get whole nodes.", ("Shared",)),
    Key("OverTimeLimit", minutes(unlimited=True), None, "Minutes a job may exceed its time limit."),
    Key("PowerDownOnIdle", BOOL, False, "Power nodes down as soon as they are idle."),
    Key("PreemptMode", PREEMPT_MODE, None, "What happens to a preempted job."),
    Key("PriorityJobFactor", integer(0, SMALL_MAX), 1, "Factor of job priority."),
    Key("PriorityTier", integer(0, SMALL_MAX), 1, "Jobs of a higher tier are looked at first."),
    Key("QOS", STRING, "", "QOS whose limits the partition takes."),
    Key("ReqResv", BOOL, False, "Jobs must name a reservation."),
    Key("ResumeTimeout", integer(0, SMALL_MAX, "sec", unlimited=True), None, "Time a node may take to resume."),
    Key("RootOnly", BOOL, False, "Only root may submit."),
    Key(
        "SelectTypeParameters",
        flags("CR_Core", "CR_Core_Memory", "CR_Socket", "CR_Socket_Memory", upper=True),
        None,
        "Which parts of a node its jobs get.",
    ),
    Key(
        "State",
        choice("UP", "DOWN", "DRAIN", "INACTIVE", aliases={"inact": "INACTIVE"}),
        "UP",
        "Whether jobs are accepted and started.",
    ),
    Key("SuspendTime", integer(0, 2**31, "sec", unlimited=True), None, "Idle time before power saving."),
    Key("SuspendTimeout", integer(0, SMALL_MAX, "sec", unlimited=True), None, "Time a node may take to suspend."),
    Key("Topology", STRING, None, "Name of the topology it uses."),
    Key("TRESBillingWeights", TRES_WEIGHTS, None, "What each resource costs."),
)
