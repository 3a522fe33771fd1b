"""Every field of sacct: its width, and its text for a job or a step.

Source: sacct(1) Job Accounting Fields; widths as 22.05 has them, negative ones left-justified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE, STEP_MAX
from spritz.notation.duration import format_duration
from spritz.notation.memory import format_units
from spritz.presentation import accounting_text, step_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spritz.presentation.accounting_row import Row

    Render = Callable[[Row, "Style"], str]


class Style:
    """How values are shown: SLURM_TIME_FORMAT, --units, --noconvert, SLURM_BITSTR_LEN, --expand-patterns,
    --use-local-uid."""

    __slots__ = ("array_length", "convert", "environ", "expand", "local_uid", "qos_numbers", "unit")

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        unit: str = "",
        convert: bool = True,
        expand: bool = False,
        local_uid: bool = False,
    ) -> None:
        self.environ = environ
        self.expand = expand
        self.local_uid = local_uid
        self.unit = unit
        #: of each QOS, where they are asked for
        self.qos_numbers: Mapping[str, int] = {}
        self.convert = convert
        text = environ.get("SLURM_BITSTR_LEN", "")
        self.array_length = int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 64

    def time(self, at: float, now: float) -> str:
        """A point in time."""
        return accounting_text.moment(at, now, self.environ)

    def size(self, bytes_: float, *, exact: bool) -> str:
        """An amount of bytes."""
        if self.unit:
            value = bytes_ / 1024 ** ("KMGTP".index(self.unit) + 1)
            if value.is_integer():
                return f"{value:.0f}{self.unit}" if value else "0"
            return f"{value:.2f}{self.unit}"
        return format_units(bytes_, exact=exact, convert=self.convert)

    def mib(self, mib: int) -> str:
        """An amount of MiB."""
        return (
            self.size(mib * 1024.0 * 1024.0, exact=True) if self.unit else format_units(mib, "M", convert=self.convert)
        )


class Field:
    """One column. `refused` is never set: every field prints, as --helpformat promises.

    `needs` is empty for those that can only have one text: what they tell of is not recorded.
    """

    __slots__ = ("name", "needs", "refused", "render", "width")

    def __init__(self, name: str, width: int, render: Render) -> None:
        self.name = name
        self.width = width
        self.render = render
        self.refused = ""
        self.needs: tuple[str, ...] = ("job",)

    @property
    def header(self) -> str:
        """The heading is the name."""
        return self.name


class Constant(Field):
    """A field with one text."""

    def __init__(self, name: str, width: int, text: str) -> None:
        super().__init__(name, width, lambda *_: text)
        self.needs = ()


def _job(name: str) -> Render:
    """A value of the job, on its own line only."""
    return lambda row, style: str(getattr(row.job, name)) if row.step is None else ""


def _file(name: str) -> Render:
    """A file of the job's, with its patterns filled in if that is asked for."""

    def render(row: Row, style: Style) -> str:
        job = row.job
        pattern = str(getattr(job, name)) if row.step is None else ""
        if not (style.expand and pattern):
            return pattern
        from spritz.notation.hostlist import expand
        from spritz.presentation.job_paths import expanded

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
    """As it was recorded; or the number that its name has here."""
    if row.step is not None:
        return ""
    here = None
    if style.local_uid and row.job.user:
        from spritz.presentation.people import uid_of

        here = uid_of(row.job.user)
    return str(row.job.uid if here is None else here)


def _both(name: str) -> Render:
    """A value of the job, on every line of it."""
    return lambda row, style: str(getattr(row.job, name))


def _own(name: str) -> Render:
    """A value that jobs and steps have."""
    return lambda row, style: str(getattr(row.job if row.step is None else row.step, name))


def _tres(name: str) -> Render:
    def render(row: Row, style: Style) -> str:
        source = row.job if row.step is None else row.step
        text = str(getattr(source, name, ""))
        if row.step is None and name == "tres_requested" and "mem=" not in text:
            # What it was given by default it has asked for.
            given = [item for item in row.job.tres_allocated.split(",") if item.startswith("mem=")]
            text = ",".join([text, *given]) if text else ""
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

    found = dict(parse(row.job.tres_requested)) if row.job.tres_requested else {}
    if "mem" not in found:
        found = dict(parse(row.job.tres_allocated)) if row.job.tres_allocated else {}
    return style.mib(found.get("mem", 0))


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
    """As Slurm lays tasks out unless told: in turn over the nodes where there is one for each, else node by node."""
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


def _usage(prefix: str, way: str) -> list[Field]:
    """TRESUsageIn… or TRESUsageOut…"""
    column = f"usage_{way}"
    wide, wider = len(prefix) + 3, len(prefix) + 7
    fields = [Field(f"{prefix}Ave", wide, step_usage.amounts(f"{column}_ave"))]
    for bound in ("Max", "Min"):
        name = f"{column}_{bound.lower()}"
        fields.append(Field(f"{prefix}{bound}", wide, step_usage.amounts(name)))
        fields.append(Field(f"{prefix}{bound}Node", wider, step_usage.names(f"{name}_node")))
        fields.append(Field(f"{prefix}{bound}Task", wider, step_usage.names(f"{name}_task")))
    fields.append(Field(f"{prefix}Tot", wide, step_usage.amounts(f"{column}_tot")))
    return fields


def _family(
    name: str, way: str, key: str, shown: Callable[[str, str], Render], widths: tuple[int, int, int, int]
) -> list[Field]:
    """AveX, MaxX, MaxXNode, MaxXTask."""
    peak = f"usage_{way}_max"
    return [
        Field(f"Ave{name}", widths[0], shown(f"usage_{way}_ave", key)),
        Field(f"Max{name}", widths[1], shown(peak, key)),
        Field(f"Max{name}Node", widths[2], step_usage.plain(f"{peak}_node", key)),
        Field(f"Max{name}Task", widths[3], step_usage.plain(f"{peak}_task", key)),
    ]


def _qos_number(row: Row, style: Style) -> str:
    return str(style.qos_numbers.get(row.job.qos, 0)) if row.step is None else ""


def _frequency(row: Row, style: Style) -> str:
    """Nobody can ask for one. 22.05 writes this so."""
    return "0" if row.step is not None and row.step.step_id > STEP_MAX else "Unknown"


def _flags(row: Row, style: Style) -> str:
    """Written as Slurm 22.05 writes it: accounting has every job that it shows from the controller."""
    if row.step is not None:
        return ""
    return f"Sched{row.job.scheduler},StartRecieved" if row.job.scheduler else "StartRecieved"


_FIELDS = (
    Field("Account", 10, _both("account")),
    Field("AdminComment", 15, _job("admin_comment")),
    Field("AllocCPUS", 10, lambda row, style: str(row.cpus or row.job.requested_cpus)),
    Field("AllocNodes", 10, _own("node_count")),
    Field("AllocTRES", 10, _tres("tres_allocated")),
    Field("AssocID", 7, _both("association_id")),
    Field("AveCPU", 10, step_usage.cpu("usage_in_ave")),
    Field("AveCPUFreq", 10, lambda row, style: "0" if row.step is not None else ""),
    *_family("DiskRead", "in", "fs/disk", step_usage.disk, (14, 12, 15, 15)),
    *_family("DiskWrite", "out", "fs/disk", step_usage.disk, (14, 12, 16, 16)),
    *_family("Pages", "in", "pages", step_usage.count, (10, 8, 12, 14)),
    *_family("RSS", "in", "mem", step_usage.size, (10, 10, 10, 10)),
    *_family("VMSize", "in", "vmem", step_usage.size, (10, 10, 14, 14)),
    Constant("BlockID", 16, ""),
    Field("Cluster", 10, _both("cluster")),
    Field("Comment", 14, _job("comment")),
    Field("Constraints", 19, _job("constraints")),
    Field("ConsumedEnergy", 14, lambda row, style: step_usage.energy_text(row, convert=style.convert)),
    Field("ConsumedEnergyRaw", 17, lambda row, style: step_usage.energy_text(row)),
    Constant("Container", 19, ""),
    Field("CPUTime", 10, lambda row, style: format_duration(row.elapsed * row.cpus)),
    Field("CPUTimeRAW", 10, lambda row, style: str(row.elapsed * row.cpus)),
    Field("DBIndex", -10, _both("number")),
    Field(
        "DerivedExitCode",
        15,
        lambda row, style: accounting_text.derived_exit_code(row.job.derived_exit_status) if row.step is None else "",
    ),
    Field("Elapsed", 10, lambda row, style: format_duration(row.elapsed)),
    Field("ElapsedRaw", 10, lambda row, style: str(row.elapsed)),
    Field("Eligible", 19, _eligible),
    Field("End", 19, lambda row, style: style.time(row.end, row.now)),
    Field("ExitCode", 8, _exit),
    Field("Extra", 30, _job("extra")),
    Field("FailedNode", 20, _job("failed_node")),
    Field("Flags", 19, _flags),
    Field("GID", 6, _job("gid")),
    Field("Group", 9, _job("group")),
    Field("JobID", -12, lambda row, style: row.with_step(row.job_name(style.array_length))),
    Field("JobIDRaw", -12, lambda row, style: row.with_step(str(row.job.job_id))),
    Field("JobName", 10, _own("name")),
    Field("Layout", 9, _layout),
    Field("Licenses", 20, _job("licenses")),
    Field("McsLabel", 12, _job("mcs_label")),
    Field("MinCPU", 10, step_usage.cpu("usage_in_min")),
    Field("MinCPUNode", 10, step_usage.plain("usage_in_min_node", "cpu")),
    Field("MinCPUTask", 10, step_usage.plain("usage_in_min_task", "cpu")),
    Field("NCPUS", 10, lambda row, style: str(row.cpus or row.job.requested_cpus)),
    Field("NNodes", 8, _node_count),
    Field("NodeList", 15, _nodes),
    Field("NTasks", 8, lambda row, style: str(row.step.tasks) if row.step is not None else ""),
    Field("OverSubscribe", 13, _job("sharing")),
    Field("Partition", 10, _job("partition")),
    Field("Planned", 10, lambda row, style: format_duration(row.planned) if row.step is None else ""),
    Field(
        "PlannedCPU",
        10,
        lambda row, style: format_duration(row.planned * row.job.requested_cpus) if row.step is None else "",
    ),
    Field(
        "PlannedCPURAW", 13, lambda row, style: str(row.planned * row.job.requested_cpus) if row.step is None else ""
    ),
    Field("Priority", 10, _job("priority")),
    Field("QOS", 10, _job("qos")),
    Field("QOSRAW", 6, _qos_number),
    Field("QOSREQ", 10, _job("qos")),
    Field("Reason", 22, _job("reason")),
    Field("ReqCPUFreq", 10, _frequency),
    Field("ReqCPUFreqGov", 13, _frequency),
    Field("ReqCPUFreqMax", 13, _frequency),
    Field("ReqCPUFreqMin", 13, _frequency),
    Field("ReqCPUS", 8, _requested_cpus),
    Field("ReqMem", 10, _memory),
    Field("ReqNodes", 8, _requested_nodes),
    Field("ReqReservation", 20, _job("reservation")),
    Field("ReqTRES", 10, _tres("tres_requested")),
    Field("Reservation", 20, _job("reservation")),
    Field("ReservationId", 8, lambda row, style: str(row.job.reservation_id or "") if row.step is None else ""),
    Field("Reserved", 10, lambda row, style: format_duration(row.planned) if row.step is None else ""),
    Field(
        "ResvCPU",
        10,
        lambda row, style: format_duration(row.planned * row.job.requested_cpus) if row.step is None else "",
    ),
    Field("ResvCPURAW", 10, lambda row, style: str(row.planned * row.job.requested_cpus) if row.step is None else ""),
    Field("Restarts", 8, _job("restart_count")),
    Field("Start", 19, _start),
    Field("State", 10, lambda row, style: row.state),
    Field("StdErr", 20, _file("stderr")),
    Field("StdIn", 20, _file("stdin")),
    Field("StdOut", 20, _file("stdout")),
    Field("Submit", 19, _submit),
    Field("SubmitLine", 20, _own("submit_line")),
    Field("Suspended", 10, lambda row, style: format_duration(row.suspended)),
    Field("SystemComment", 15, _job("system_comment")),
    Field("SystemCPU", 10, _cpu(1)),
    Field("Timelimit", 10, _limit),
    Field("TimelimitRaw", 10, _raw_limit),
    Field("TotalCPU", 10, _cpu(2)),
    *_usage("TRESUsageIn", "in"),
    *_usage("TRESUsageOut", "out"),
    Field("UID", 6, _uid),
    Field("User", 9, _job("user")),
    Field("UserCPU", 10, _cpu(0)),
    Field("WCKey", 10, _job("wckey")),
    Field("WCKeyID", 10, lambda row, style: "0" if row.step is None else ""),
    Field("WorkDir", 20, _job("work_dir")),
)

#: in the order of --helpformat
FIELDS: dict[str, Field] = {field.name.lower(): field for field in sorted(_FIELDS, key=lambda one: one.name.lower())}

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
