"""Keys of cgroup.conf. Source: cgroup.conf(5)."""

from __future__ import annotations

from spritz.config.kinds import BOOL, PATH, PERCENT, STRING, choice, integer
from spritz.config.schema.key import Key

_YES_NO = BOOL
_MB = integer(0, 2**40, "MB", name="MiB")

CGROUP_KEYS = (
    Key("AllowedKmemSpace", integer(0, 2**62), None, "Kernel memory of a job, bytes (cgroup v1)."),
    Key("AllowedRAMSpace", PERCENT, 100.0, "Memory limit in percent of the job's allocated memory."),
    Key("AllowedSwapSpace", PERCENT, 0.0, "Swap limit in percent of the job's allocated memory."),
    Key("CgroupAutomount", _YES_NO, False, "Mount missing controllers (cgroup v1)."),
    Key("CgroupJobIdPaths", _YES_NO, False, "Name directories by job id."),
    Key("CgroupMountpoint", PATH, "/sys/fs/cgroup", "Mount point of cgroups."),
    Key(
        "CgroupPlugin",
        choice("autodetect", "cgroup/v1", "cgroup/v2", "disabled", aliases={"v1": "cgroup/v1", "v2": "cgroup/v2"}),
        "autodetect",
        "Version of cgroups.",
    ),
    Key("CgroupSlice", STRING, None, "Slice that contains the jobs."),
    Key("ConstrainCores", _YES_NO, False, "Confine jobs to their CPUs."),
    Key("ConstrainDevices", _YES_NO, False, "Confine jobs to their devices."),
    Key("ConstrainKmemSpace", _YES_NO, False, "Limit kernel memory (cgroup v1)."),
    Key("ConstrainRAMSpace", _YES_NO, False, "Limit memory to the job's allocation."),
    Key("ConstrainSwapSpace", _YES_NO, False, "Limit swap."),
    Key("EnableControllers", _YES_NO, False, "Enable the controllers that are needed."),
    Key("EnableExtraControllers", STRING, None, "Further controllers to enable."),
    Key("IgnoreSystemd", _YES_NO, False, "Do not use systemd."),
    Key("IgnoreSystemdOnFailure", _YES_NO, False, "Continue without systemd if it does not answer."),
    Key("MaxKmemPercent", PERCENT, 100.0, "Most kernel memory in percent of all (cgroup v1)."),
    Key("MaxRAMPercent", PERCENT, 100.0, "Most memory of a job in percent of the node's."),
    Key("MaxSwapPercent", PERCENT, 100.0, "Most memory and swap of a job in percent of the node's memory."),
    Key("MemorySwappiness", integer(0, 100), None, "Swappiness of jobs (cgroup v1)."),
    Key("MinKmemSpace", _MB, 30, "Least kernel memory limit, MiB (cgroup v1)."),
    Key("MinRAMSpace", _MB, 30, "Least memory limit, MiB."),
    Key("SignalChildrenProcesses", _YES_NO, False, "Signal all processes of a step, not only its tasks."),
    Key("SystemdTimeout", integer(0, 2**31), 1000, "Milliseconds to wait for systemd."),
)
