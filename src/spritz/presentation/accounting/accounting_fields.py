"""The catalogue of sacct's fields: heading, width, and text for a job or a step.

Source: sacct(1) Job Accounting Fields; widths as 22.05 has them, negative ones left-justified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE, STEP_MAX
from spritz.notation.duration import format_duration
from spritz.notation.hostlist import expand
from spritz.presentation.accounting import accounting_text, step_usage
from spritz.presentation.accounting.accounting_style import Style
from spritz.presentation.job.job_paths import expanded
from spritz.presentation.table import CUT, WHOLE, Constant, TableField
from spritz.presentation.users import uid_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.presentation.accounting.accounting_row import Row

    Render = Callable[[Row, "Style"], str]


def _job(name: str) -> Render:
    """A value of the job, only on the job's own line."""
    return lambda row, style: str(getattr(row.job, name)) if row.step is None else ""


def _file(name: str) -> Render:
    """A file name of the job, with patterns expanded on request."""

    def render(row: Row, style: Style) -> str:
        job = row.job
        pattern = str(getattr(job, name)) if row.step is None else ""
        if not (style.expand and pattern):
            return pattern

        return expanded(
            pattern,
            job_id=job.job_id,
            array_job_id=job.array_job_id,
            task_id=job.array_task_id,
            name=job.name,
            user=job.user,
            first_host=next(iter(expand(job.nodes)), "") if job.nodes else "",
            restarts=job.restart_count,
        )

    return render


def _uid(row: Row, style: Style) -> str:
    """The recorded uid; or the uid that the recorded name has on this machine."""
    if row.step is not None:
        return ""
    here = None
    if style.local_uid and row.job.user:
        here = uid_of(row.job.user)
    return str(row.job.uid if here is None else here)


def _both(name: str) -> Render:
    """A value of the job, on the lines of the job and its steps."""
    return lambda row, style: str(getattr(row.job, name))


def _own(name: str) -> Render:
    """A field that job and step records both have."""
    return lambda row, style: str(getattr(row.job if row.step is None else row.step, name))


def _tres(name: str) -> Render:
    def render(row: Row, style: Style) -> str:
        source = row.job if row.step is None else row.step
        text = str(getattr(source, name, ""))
        if row.step is None and name == "tres_requested" and "mem=" not in text:
            # TRES allocated by default count as requested.
            memory = [item for item in row.job.tres_allocated.split(",") if item.startswith("mem=")]
            text = ",".join([text, *memory]) if text else ""
        if not text or (style.convert and not style.unit):
            return ",".join(sorted(text.split(",")))
        from spritz.notation.tres import parse

        shown = []
        for key, value in sorted(parse(text)):
            shown.append(f"{key}={style.mib(value)}" if key in ("mem", "vmem") else f"{key}={value}")
        return ",".join(shown)

    return render


def _memory(row: Row, style: Style) -> str:
    if row.step is not None:
        return ""
    from spritz.notation.tres import parse

    amounts = dict(parse(row.job.tres_requested)) if row.job.tres_requested else {}
    if "mem" not in amounts:
        amounts = dict(parse(row.job.tres_allocated)) if row.job.tres_allocated else {}
    return style.mib(amounts.get("mem", 0))


def _start(row: Row, style: Style) -> str:
    if row.step is None and not row.job.nodes and row.job.ended_at:
        return "None"  # it ended before it ran
    return style.time(row.start, row.now)


def _submit(row: Row, style: Style) -> str:
    return style.time(row.job.submitted_at if row.step is None else row.step.started_at, row.now)


def _eligible(row: Row, style: Style) -> str:
    return style.time(row.job.eligible_at if row.step is None else row.step.started_at, row.now)


def _exit(row: Row, style: Style) -> str:
    return accounting_text.exit_code(row.job.exit_status if row.step is None else row.step.exit_status)


def _limit(row: Row, style: Style) -> str:
    minutes = row.job.time_limit_minutes
    if row.step is not None:
        return ""
    if minutes is None:
        return "Partition_Limit"
    return "UNLIMITED" if minutes == INFINITE else format_duration(minutes * 60)


def _raw_limit(row: Row, style: Style) -> str:
    minutes = row.job.time_limit_minutes
    if row.step is not None:
        return ""
    if minutes is None:
        return "Partition_Limit"
    return "UNLIMITED" if minutes == INFINITE else str(minutes)


def _nodes(row: Row, style: Style) -> str:
    return (row.job.nodes if row.step is None else row.step.nodes) or "None assigned"


def _node_count(row: Row, style: Style) -> str:
    count = row.job.node_count if row.step is None else row.step.node_count
    return str(count or row.job.requested_nodes)


def _layout(row: Row, style: Style) -> str:
    """Slurm's default task layout: cyclic if there is a node for each task, else block."""
    step = row.step
    if step is None:
        return ""
    if step.step_id > STEP_MAX:
        return "Unknown"
    word = step.layout.partition(":")[0].capitalize()
    return word or ("Cyclic" if step.tasks <= step.node_count else "Block")


def _requested_cpus(row: Row, style: Style) -> str:
    return str(row.job.requested_cpus if row.step is None else row.step.cpus)


def _requested_nodes(row: Row, style: Style) -> str:
    return str(row.job.requested_nodes if row.step is None else row.step.node_count)


def _cpu(which: int) -> Render:
    def render(row: Row, style: Style) -> str:
        pair = row.cpu_seconds()
        return accounting_text.cpu_time(sum(pair) if which == 2 else pair[which])

    return render


def _usage(prefix: str, way: str) -> list[TableField]:
    """The fields TRESUsageIn… or TRESUsageOut…."""
    column = f"usage_{way}"
    wide, wider = len(prefix) + 3, len(prefix) + 7
    fields = [TableField(f"{prefix}Ave", wide, step_usage.amounts(f"{column}_ave"))]
    for bound in ("Max", "Min"):
        name = f"{column}_{bound.lower()}"
        fields.append(TableField(f"{prefix}{bound}", wide, step_usage.amounts(name)))
        fields.append(TableField(f"{prefix}{bound}Node", wider, step_usage.names(f"{name}_node")))
        fields.append(TableField(f"{prefix}{bound}Task", wider, step_usage.names(f"{name}_task")))
    fields.append(TableField(f"{prefix}Tot", wide, step_usage.amounts(f"{column}_tot")))
    return fields


def _family(
    name: str, way: str, key: str, shown: Callable[[str, str], Render], widths: tuple[int, int, int, int]
) -> list[TableField]:
    """The fields AveX, MaxX, MaxXNode, MaxXTask."""
    peak = f"usage_{way}_max"
    return [
        TableField(f"Ave{name}", widths[0], shown(f"usage_{way}_ave", key)),
        TableField(f"Max{name}", widths[1], shown(peak, key)),
        TableField(f"Max{name}Node", widths[2], step_usage.plain(f"{peak}_node", key)),
        TableField(f"Max{name}Task", widths[3], step_usage.plain(f"{peak}_task", key)),
    ]


def _qos_number(row: Row, style: Style) -> str:
    return str(style.qos_numbers.get(row.job.qos, 0)) if row.step is None else ""


def _frequency(row: Row, style: Style) -> str:
    """The text of 22.05: frequencies cannot be requested."""
    return "0" if row.step is not None and row.step.step_id > STEP_MAX else "Unknown"


def _flags(row: Row, style: Style) -> str:
    """Flags as 22.05 prints them: all records come from the controller."""
    if row.step is not None:
        return ""
    return f"Sched{row.job.scheduler},StartRecieved" if row.job.scheduler else "StartRecieved"


_FIELDS = (
    TableField("Account", 10, _both("account")),
    TableField("AdminComment", 15, _job("admin_comment")),
    TableField("AllocCPUS", 10, lambda row, style: str(row.cpus or row.job.requested_cpus)),
    TableField("AllocNodes", 10, _own("node_count")),
    TableField("AllocTRES", 10, _tres("tres_allocated")),
    TableField("AssocID", 7, _both("association_id")),
    TableField("AveCPU", 10, step_usage.cpu("usage_in_ave")),
    TableField("AveCPUFreq", 10, lambda row, style: "0" if row.step is not None else ""),
    *_family("DiskRead", "in", "fs/disk", step_usage.disk, (14, 12, 15, 15)),
    *_family("DiskWrite", "out", "fs/disk", step_usage.disk, (14, 12, 16, 16)),
    *_family("Pages", "in", "pages", step_usage.count, (10, 8, 12, 14)),
    *_family("RSS", "in", "mem", step_usage.size, (10, 10, 10, 10)),
    *_family("VMSize", "in", "vmem", step_usage.size, (10, 10, 14, 14)),
    Constant("BlockID", 16, ""),
    TableField("Cluster", 10, _both("cluster")),
    TableField("Comment", 14, _job("comment")),
    TableField("Constraints", 19, _job("constraints")),
    TableField("ConsumedEnergy", 14, lambda row, style: step_usage.energy_text(row, convert=style.convert)),
    TableField("ConsumedEnergyRaw", 17, lambda row, style: step_usage.energy_text(row)),
    TableField("Container", 19, lambda row, style: (row.job if row.step is None else row.step).container or ""),
    TableField("CPUTime", 10, lambda row, style: format_duration(row.elapsed * row.cpus), overflow=WHOLE),
    TableField("CPUTimeRAW", 10, lambda row, style: str(row.elapsed * row.cpus), overflow=WHOLE),
    TableField("DBIndex", -10, _both("number"), overflow=WHOLE),
    TableField(
        "DerivedExitCode",
        15,
        lambda row, style: accounting_text.derived_exit_code(row.job.derived_exit_status) if row.step is None else "",
    ),
    TableField("Elapsed", 10, lambda row, style: format_duration(row.elapsed), overflow=WHOLE),
    TableField("ElapsedRaw", 10, lambda row, style: str(row.elapsed), overflow=WHOLE),
    TableField("Eligible", 19, _eligible, overflow=CUT),
    TableField("End", 19, lambda row, style: style.time(row.end, row.now), overflow=CUT),
    TableField("ExitCode", 8, _exit),
    TableField("Extra", 30, _job("extra")),
    TableField("FailedNode", 20, _job("failed_node")),
    TableField("Flags", 19, _flags),
    TableField("GID", 6, _job("gid")),
    TableField("Group", 9, _job("group")),
    TableField("JobID", -12, lambda row, style: row.with_step(row.job_name(style.array_length))),
    TableField("JobIDRaw", -12, lambda row, style: row.with_step(str(row.job.job_id))),
    TableField("JobName", 10, _own("name")),
    TableField("Layout", 9, _layout),
    TableField("Licenses", 20, _job("licenses")),
    TableField("McsLabel", 12, _job("mcs_label")),
    TableField("MinCPU", 10, step_usage.cpu("usage_in_min")),
    TableField("MinCPUNode", 10, step_usage.plain("usage_in_min_node", "cpu")),
    TableField("MinCPUTask", 10, step_usage.plain("usage_in_min_task", "cpu")),
    TableField("NCPUS", 10, lambda row, style: str(row.cpus or row.job.requested_cpus)),
    TableField("NNodes", 8, _node_count),
    TableField("NodeList", 15, _nodes),
    TableField("NTasks", 8, lambda row, style: str(row.step.tasks) if row.step is not None else ""),
    TableField("OverSubscribe", 13, _job("sharing")),
    TableField("Partition", 10, _job("partition")),
    TableField(
        "Planned", 10, lambda row, style: format_duration(row.planned) if row.step is None else "", overflow=WHOLE
    ),
    TableField(
        "PlannedCPU",
        10,
        lambda row, style: format_duration(row.planned * row.job.requested_cpus) if row.step is None else "",
        overflow=WHOLE,
    ),
    TableField(
        "PlannedCPURAW",
        13,
        lambda row, style: str(row.planned * row.job.requested_cpus) if row.step is None else "",
        overflow=WHOLE,
    ),
    TableField("Priority", 10, _job("priority"), overflow=WHOLE),
    TableField("QOS", 10, _job("qos")),
    TableField("QOSRAW", 6, _qos_number),
    TableField("QOSREQ", 10, _job("qos")),
    TableField("Reason", 22, _job("reason")),
    TableField("ReqCPUFreq", 10, _frequency),
    TableField("ReqCPUFreqGov", 13, _frequency),
    TableField("ReqCPUFreqMax", 13, _frequency),
    TableField("ReqCPUFreqMin", 13, _frequency),
    TableField("ReqCPUS", 8, _requested_cpus),
    TableField("ReqMem", 10, _memory),
    TableField("ReqNodes", 8, _requested_nodes),
    TableField("ReqReservation", 20, _job("reservation")),
    TableField("ReqTRES", 10, _tres("tres_requested")),
    TableField("Reservation", 20, _job("reservation")),
    TableField("ReservationId", 8, lambda row, style: str(row.job.reservation_id or "") if row.step is None else ""),
    TableField(
        "Reserved", 10, lambda row, style: format_duration(row.planned) if row.step is None else "", overflow=WHOLE
    ),
    TableField(
        "ResvCPU",
        10,
        lambda row, style: format_duration(row.planned * row.job.requested_cpus) if row.step is None else "",
        overflow=WHOLE,
    ),
    TableField(
        "ResvCPURAW",
        10,
        lambda row, style: str(row.planned * row.job.requested_cpus) if row.step is None else "",
        overflow=WHOLE,
    ),
    TableField("Restarts", 8, _job("restart_count")),
    TableField("Start", 19, _start, overflow=CUT),
    TableField("State", 10, lambda row, style: row.state),
    TableField("StdErr", 20, _file("stderr")),
    TableField("StdIn", 20, _file("stdin")),
    TableField("StdOut", 20, _file("stdout")),
    TableField("Submit", 19, _submit, overflow=CUT),
    TableField("SubmitLine", 20, _own("submit_line")),
    TableField("Suspended", 10, lambda row, style: format_duration(row.suspended), overflow=WHOLE),
    TableField("SystemComment", 15, _job("system_comment")),
    TableField("SystemCPU", 10, _cpu(1)),
    TableField("Timelimit", 10, _limit),
    TableField("TimelimitRaw", 10, _raw_limit),
    TableField("TotalCPU", 10, _cpu(2)),
    *_usage("TRESUsageIn", "in"),
    *_usage("TRESUsageOut", "out"),
    TableField("UID", 6, _uid),
    TableField("User", 9, _job("user")),
    TableField("UserCPU", 10, _cpu(0)),
    TableField("WCKey", 10, _job("wckey")),
    TableField("WCKeyID", 10, lambda row, style: "0" if row.step is None else ""),
    TableField("WorkDir", 20, _job("work_dir")),
)

#: in the order of --helpformat
FIELDS: dict[str, TableField] = {
    field.header.lower(): field for field in sorted(_FIELDS, key=lambda one: one.header.lower())
}

DEFAULT = "jobid,jobname,partition,account,alloccpus,state,exitcode"
BRIEF = "jobid,state,exitcode"
LONG = (
    "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,"
    "averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,elapsed,"
    "state,exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,"
    "maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,reqtres,"
    "alloctres,tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,tresusageinmin,tresusageinminnode,"
    "tresusageinmintask,tresusageintot,tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutave,"
    "tresusageouttot"
)
