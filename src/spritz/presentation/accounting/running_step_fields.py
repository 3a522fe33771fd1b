"""The catalogue of sstat's fields. Source: sstat(1) Job Status Fields; widths as 22.05 has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.accounting.records import JobRecord, StepRecord
from spritz.presentation.accounting import step_usage
from spritz.presentation.accounting.accounting_row import Row
from spritz.presentation.accounting.accounting_style import Style
from spritz.presentation.table import Constant, TableField

if TYPE_CHECKING:
    from spritz.presentation.accounting.accounting_fields import Render


class Line(Row):
    """A running step. `label`: its job's id as shown; `pids`: on all its nodes."""

    __slots__ = ("label", "pids")

    def __init__(self, label: str, step: StepRecord, pids: list[int]) -> None:
        job = JobRecord(number=0, job_id=step.job_id)
        super().__init__(job, step, [step], 0.0, (0.0, 0.0))
        self.label = label
        self.pids = pids


def _raw(column: str, name: str) -> Render:
    """A number without a unit. A name that is in no list counts as 0."""
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
    TableField("AveCPU", 10, step_usage.cpu("usage_in_ave")),
    Constant("AveCPUFreq", 10, "0"),
    TableField("AveDiskRead", 12, _raw("usage_in_ave", "fs/disk")),
    TableField("AveDiskWrite", 12, _raw("usage_out_ave", "fs/disk")),
    TableField("AvePages", 10, _raw("usage_in_ave", "pages")),
    TableField("AveRSS", 10, _size("usage_in_ave", "mem")),
    TableField("AveVMSize", 10, _size("usage_in_ave", "vmem")),
    TableField("ConsumedEnergy", 14, _raw("usage_in_tot", "energy")),
    TableField("ConsumedEnergyRaw", 17, _raw("usage_in_tot", "energy")),
    TableField("JobID", -12, _id),
    TableField("MaxDiskRead", 12, _raw("usage_in_max", "fs/disk")),
    TableField("MaxDiskReadNode", 15, step_usage.plain("usage_in_max_node", "fs/disk")),
    TableField("MaxDiskReadTask", 15, step_usage.plain("usage_in_max_task", "fs/disk")),
    TableField("MaxDiskWrite", 12, _raw("usage_out_max", "fs/disk")),
    TableField("MaxDiskWriteNode", 16, step_usage.plain("usage_out_max_node", "fs/disk")),
    TableField("MaxDiskWriteTask", 16, step_usage.plain("usage_out_max_task", "fs/disk")),
    TableField("MaxPages", 8, _raw("usage_in_max", "pages")),
    TableField("MaxPagesNode", 12, step_usage.plain("usage_in_max_node", "pages")),
    TableField("MaxPagesTask", 14, step_usage.plain("usage_in_max_task", "pages")),
    TableField("MaxRSS", 10, _size("usage_in_max", "mem")),
    TableField("MaxRSSNode", 10, step_usage.plain("usage_in_max_node", "mem")),
    TableField("MaxRSSTask", 10, step_usage.plain("usage_in_max_task", "mem")),
    TableField("MaxVMSize", 10, _size("usage_in_max", "vmem")),
    TableField("MaxVMSizeNode", 14, step_usage.plain("usage_in_max_node", "vmem")),
    TableField("MaxVMSizeTask", 14, step_usage.plain("usage_in_max_task", "vmem")),
    TableField("MinCPU", 10, step_usage.cpu("usage_in_min")),
    TableField("MinCPUNode", 10, step_usage.plain("usage_in_min_node", "cpu")),
    TableField("MinCPUTask", 10, step_usage.plain("usage_in_min_task", "cpu")),
    TableField("Nodelist", 20, _step("nodes")),
    TableField("NTasks", 8, _step("tasks")),
    TableField("Pids", 20, _pids),
    Constant("ReqCPUFreq", 10, "Unknown"),
    Constant("ReqCPUFreqMin", 13, "Unknown"),
    Constant("ReqCPUFreqMax", 13, "Unknown"),
    Constant("ReqCPUFreqGov", 13, "Unknown"),
    TableField("TRESUsageInAve", 14, step_usage.amounts("usage_in_ave")),
    TableField("TRESUsageInMax", 14, step_usage.amounts("usage_in_max")),
    TableField("TRESUsageInMaxNode", 18, step_usage.names("usage_in_max_node")),
    TableField("TRESUsageInMaxTask", 18, step_usage.names("usage_in_max_task")),
    TableField("TRESUsageInMin", 14, step_usage.amounts("usage_in_min")),
    TableField("TRESUsageInMinNode", 18, step_usage.names("usage_in_min_node")),
    TableField("TRESUsageInMinTask", 18, step_usage.names("usage_in_min_task")),
    TableField("TRESUsageInTot", 14, step_usage.amounts("usage_in_tot")),
    TableField("TRESUsageOutAve", 15, step_usage.amounts("usage_out_ave")),
    TableField("TRESUsageOutMax", 15, step_usage.amounts("usage_out_max")),
    TableField("TRESUsageOutMaxNode", 19, step_usage.names("usage_out_max_node")),
    TableField("TRESUsageOutMaxTask", 19, step_usage.names("usage_out_max_task")),
    TableField("TRESUsageOutMin", 15, step_usage.amounts("usage_out_min")),
    TableField("TRESUsageOutMinNode", 19, step_usage.names("usage_out_min_node")),
    TableField("TRESUsageOutMinTask", 19, step_usage.names("usage_out_min_task")),
    TableField("TRESUsageOutTot", 15, step_usage.amounts("usage_out_tot")),
)
FIELDS = {field.header.lower(): field for field in _FIELDS}

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
