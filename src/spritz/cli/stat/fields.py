"""Every field of sstat. Source: sstat(1) Job Status Fields; widths as 22.05 has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.accounting import JobRecord, StepRecord
from spritz.presentation import step_usage
from spritz.presentation.accounting_fields import Constant, Field, Style
from spritz.presentation.accounting_row import Row

if TYPE_CHECKING:
    from spritz.presentation.accounting_fields import Render


class Line(Row):
    """A running step. `label` is how its job is called; `pids` are of all its nodes."""

    __slots__ = ("label", "pids")

    def __init__(self, label: str, step: StepRecord, pids: list[int]) -> None:
        job = JobRecord(number=0, job_id=step.job_id)
        super().__init__(job, step, [step], 0.0, (0.0, 0.0))
        self.label = label
        self.pids = pids


def _raw(column: str, name: str) -> Render:
    """A number without a unit. What is in no list was not used."""
    return lambda row, style: step_usage.value_of(getattr(row.step, column), name) or "0"


def _size(column: str, name: str) -> Render:
    return step_usage.size(column, name)


def _step(name: str) -> Render:
    return lambda row, style: str(getattr(row.step, name))


def _pids(row: Row, style: Style) -> str:
    assert isinstance(row, Line)
    return ",".join(map(str, row.pids))


def _id(row: Row, style: Style) -> str:
    assert isinstance(row, Line)
    return row.with_step(row.label)


_FIELDS = (
    Field("AveCPU", 10, step_usage.cpu("usage_in_ave")),
    Constant("AveCPUFreq", 10, "0"),
    Field("AveDiskRead", 12, _raw("usage_in_ave", "fs/disk")),
    Field("AveDiskWrite", 12, _raw("usage_out_ave", "fs/disk")),
    Field("AvePages", 10, _raw("usage_in_ave", "pages")),
    Field("AveRSS", 10, _size("usage_in_ave", "mem")),
    Field("AveVMSize", 10, _size("usage_in_ave", "vmem")),
    Field("ConsumedEnergy", 14, _raw("usage_in_tot", "energy")),
    Field("ConsumedEnergyRaw", 17, _raw("usage_in_tot", "energy")),
    Field("JobID", -12, _id),
    Field("MaxDiskRead", 12, _raw("usage_in_max", "fs/disk")),
    Field("MaxDiskReadNode", 15, step_usage.plain("usage_in_max_node", "fs/disk")),
    Field("MaxDiskReadTask", 15, step_usage.plain("usage_in_max_task", "fs/disk")),
    Field("MaxDiskWrite", 12, _raw("usage_out_max", "fs/disk")),
    Field("MaxDiskWriteNode", 16, step_usage.plain("usage_out_max_node", "fs/disk")),
    Field("MaxDiskWriteTask", 16, step_usage.plain("usage_out_max_task", "fs/disk")),
    Field("MaxPages", 8, _raw("usage_in_max", "pages")),
    Field("MaxPagesNode", 12, step_usage.plain("usage_in_max_node", "pages")),
    Field("MaxPagesTask", 14, step_usage.plain("usage_in_max_task", "pages")),
    Field("MaxRSS", 10, _size("usage_in_max", "mem")),
    Field("MaxRSSNode", 10, step_usage.plain("usage_in_max_node", "mem")),
    Field("MaxRSSTask", 10, step_usage.plain("usage_in_max_task", "mem")),
    Field("MaxVMSize", 10, _size("usage_in_max", "vmem")),
    Field("MaxVMSizeNode", 14, step_usage.plain("usage_in_max_node", "vmem")),
    Field("MaxVMSizeTask", 14, step_usage.plain("usage_in_max_task", "vmem")),
    Field("MinCPU", 10, step_usage.cpu("usage_in_min")),
    Field("MinCPUNode", 10, step_usage.plain("usage_in_min_node", "cpu")),
    Field("MinCPUTask", 10, step_usage.plain("usage_in_min_task", "cpu")),
    Field("Nodelist", 20, _step("nodes")),
    Field("NTasks", 8, _step("tasks")),
    Field("Pids", 20, _pids),
    Constant("ReqCPUFreq", 10, "Unknown"),
    Constant("ReqCPUFreqMin", 13, "Unknown"),
    Constant("ReqCPUFreqMax", 13, "Unknown"),
    Constant("ReqCPUFreqGov", 13, "Unknown"),
    Field("TRESUsageInAve", 14, step_usage.amounts("usage_in_ave")),
    Field("TRESUsageInMax", 14, step_usage.amounts("usage_in_max")),
    Field("TRESUsageInMaxNode", 18, step_usage.names("usage_in_max_node")),
    Field("TRESUsageInMaxTask", 18, step_usage.names("usage_in_max_task")),
    Field("TRESUsageInMin", 14, step_usage.amounts("usage_in_min")),
    Field("TRESUsageInMinNode", 18, step_usage.names("usage_in_min_node")),
    Field("TRESUsageInMinTask", 18, step_usage.names("usage_in_min_task")),
    Field("TRESUsageInTot", 14, step_usage.amounts("usage_in_tot")),
    Field("TRESUsageOutAve", 15, step_usage.amounts("usage_out_ave")),
    Field("TRESUsageOutMax", 15, step_usage.amounts("usage_out_max")),
    Field("TRESUsageOutMaxNode", 19, step_usage.names("usage_out_max_node")),
    Field("TRESUsageOutMaxTask", 19, step_usage.names("usage_out_max_task")),
    Field("TRESUsageOutMin", 15, step_usage.amounts("usage_out_min")),
    Field("TRESUsageOutMinNode", 19, step_usage.names("usage_out_min_node")),
    Field("TRESUsageOutMinTask", 19, step_usage.names("usage_out_min_task")),
    Field("TRESUsageOutTot", 15, step_usage.amounts("usage_out_tot")),
)
FIELDS = {field.name.lower(): field for field in _FIELDS}

DEFAULT = (
    "jobid,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,averss,maxpages,"
    "maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,avecpufreq,reqcpufreqmin,"
    "reqcpufreqmax,reqcpufreqgov,consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,"
    "maxdiskwritenode,maxdiskwritetask,avediskwrite,tresusageinave,tresusageinmax,tresusageinmaxnode,"
    "tresusageinmaxtask,tresusageinmin,tresusageinminnode,tresusageinmintask,tresusageintot,tresusageoutave,"
    "tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutmin,tresusageoutminnode,"
    "tresusageoutmintask,tresusageouttot"
)
PIDS = "jobid,nodelist,pids"
