"""squeue's `-O` names of a job, those of `-o` letters included.

Source: squeue(1) --Format; headers and empty texts as 22.05 prints them, names of later releases up to 25.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.presentation import job_fields
from spritz.presentation.columns import Field
from spritz.presentation.job_fields import LETTERS, NA, NULL
from spritz.presentation.local_time import clock_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Plain = dict[str, Any]


def _fixed(header: str, text: str) -> Field:
    """A value that no job of ours can have other than so."""
    return Field(header, (), lambda now: text)


def _no(header: str, why: str) -> Field:
    return Field(header, refused=why)


def _or_null(now: float, value: object) -> str:
    return str(value) if value else NULL


def _or(empty: str) -> Callable[[float, object], str]:
    return lambda now, value: empty if value is None or value == "" else str(value)


def _moment(now: float, at: float) -> str:
    return clock_text(at) if at else NA


def _flag(now: float, value: object) -> str:
    return "1" if value else "0"


def _switch_wait(now: float, value: object) -> str:
    from spritz.notation.duration import format_elapsed

    return format_elapsed(value) if isinstance(value, int) else "0:00"


def _pending_time(now: float, state: str, submitted: float, started: float) -> str:
    return str(max(0, int((started if started and state != "PENDING" else now) - submitted)))


def _minutes_or_zero(now: float, minutes: int | None) -> str:
    from spritz.notation.duration import format_elapsed

    return format_elapsed((minutes or 0) * 60)


def _exit(now: float, status: int) -> str:
    return str(status)


def _requests(now: float, requests: list[Any], *more: list[Any]) -> str:
    return job_fields.tres_text([*requests, *(one for several in more for one in several)])


def _per_task(now: float, gpus: list[Any], others: list[Any], cpus: int | None) -> str:
    words = [f"cpu={cpus}"] if cpus else []
    text = job_fields.tres_text([*gpus, *others])
    if text != NA:
        words.append(text)
    return ",".join(words) or NA


def _per_gpu(now: float, count: int | None) -> str:
    return f"gres/gpu:{count}" if count else NA


def _cluster(now: float) -> str:
    from spritz.client.locate import locate_controller

    return locate_controller().cluster_name


def _max_nodes(now: float, most: int, allocation: Plain | None, least: int) -> str:
    """Nodes that the job has; before it starts the most that it wants, where it says so."""
    return str(len(allocation["nodes"]) if allocation else most or least)


def _array_pattern(task: int | None, array: object) -> str:
    return "slurm-%A_%a.out" if task is not None or array else "slurm-%j.out"


def _stdout(now: float, batch: bool, pattern: str, work_dir: str, task: int | None, array: object) -> str:
    from spritz.presentation.job_paths import file_pattern

    return file_pattern(pattern, work_dir, default=_array_pattern(task, array)) if batch else ""


def _stderr(now: float, batch: bool, pattern: str, output: str, work_dir: str, task: int | None, array: object) -> str:
    from spritz.presentation.job_paths import file_pattern

    return file_pattern(pattern or output, work_dir, default=_array_pattern(task, array)) if batch else ""


def _stdin(now: float, batch: bool, pattern: str, work_dir: str) -> str:
    from spritz.presentation.job_paths import file_pattern

    return file_pattern(pattern, work_dir, default="/dev/null") if batch else ""


_SIZE = ("allocation", "spec.tasks", "spec.cpus_per_task", "spec.nodes_min", "spec.overcommit")
_EXCLUSIVE = {"exclusive": "YES", "user": "USER", "mcs": "MCS", "topo": "TOPO"}
_NO_PORTS = "ports are not reserved"

_EXPANSION = (
    "id",
    "array_job_id",
    "array_task_id",
    "array",
    "spec.name",
    "spec.user",
    "allocation",
    "restart_count",
)


def _expanded(field: Field) -> Field:
    """The same file name with its patterns filled in."""
    count = len(field.needs)

    def render(now: float, *values: Any) -> str:
        from spritz.presentation.job_paths import expanded

        job_id, own, task, array, name, user, allocation, restarts = values[count:]
        return expanded(
            field.render(now, *values[:count]),
            job_id=job_id,
            array_job_id=own or (job_id if array else 0),
            task_id=task,
            name=name,
            user=user,
            first_host=allocation["nodes"][0]["node"] if allocation else "",
            restarts=restarts,
        )

    return Field(field.header, (*field.needs, *_EXPANSION), render)


def with_patterns_expanded(fields: dict[str, Field]) -> dict[str, Field]:
    """--expand-patterns"""
    return fields | {name: _expanded(fields[name]) for name in ("stderr", "stdin", "stdout")}


#: names in lower case
NAMES: dict[str, Field] = {
    "account": LETTERS["a"],
    "accruetime": Field("ACCRUE_TIME", ("grows_older_since",), _moment),
    "admin_comment": Field("ADMIN_COMMENT", ("spec.admin_comment",), _or_null),
    "allocnodes": Field("ALLOC_NODES", ("spec.submit_host",), _or_null),
    "allocsid": Field("ALLOC_SID", ("spec.submit_session",)),
    "arrayjobid": LETTERS["F"],
    "arraytaskid": LETTERS["K"],
    "associd": Field("ASSOC_ID", ("association",)),
    "batchflag": Field("BATCH_FLAG", ("spec.batch",), _flag),
    "batchhost": LETTERS["B"],
    "boardspernode": _fixed("BOARDS_PER_NODE", "0"),
    "burstbuffer": _fixed("BURST_BUFFER", NULL),
    "burstbufferstate": _fixed("BURST_BUFFER_STATE", NULL),
    "cluster": Field("CLUSTER", (), _cluster),
    "clusterfeature": _fixed("CLUSTER_FEATURES", NULL),
    "command": LETTERS["o"],
    "comment": LETTERS["k"],
    "container": _fixed("CONTAINER", NULL),
    "containerid": _fixed("CONTAINER_ID", NULL),
    "contiguous": LETTERS["O"],
    "corespec": LETTERS["X"],
    "cores": LETTERS["I"],
    "cpufreq": _no("CPUFREQ", "it is of steps"),
    "cpus-per-task": Field("CPUS_PER_TASK", ("spec.cpus_per_task",), lambda now, count: str(count or 1)),
    "cpus-per-tres": Field("CPUS_PER_TRES", ("spec.cpus_per_gpu",), _per_gpu),
    "cronjob": _fixed("CRON_JOB", "No"),
    "deadline": Field("DEADLINE", ("spec.deadline_at",), _moment),
    "delayboot": Field("DELAY_BOOT", ("spec.delay_boot_seconds",), _switch_wait),
    "dependency": LETTERS["E"],
    "derivedec": Field("DERIVED_EC", ("derived_exit_status",), _exit),
    "eligibletime": Field("ELIGIBLE_TIME", ("eligible_at",), _moment),
    "endtime": LETTERS["e"],
    "exclusive": Field(
        "EXCLUSIVE",
        ("spec.sharing",),
        lambda now, kind: _EXCLUSIVE.get(kind, "NO"),
    ),
    "excnodes": LETTERS["x"],
    "exit_code": Field("EXIT_CODE", ("exit_status",), _exit),
    "extra": Field("EXTRA", ("spec.extra",), _or_null),
    "feature": LETTERS["f"],
    "groupid": LETTERS["G"],
    "groupname": LETTERS["g"],
    "hetjobid": Field("HET_JOB_ID", ("het_job_id",), lambda now, whole: str(whole) if whole else NA),
    "hetjobidset": Field(
        "HET_JOB_ID_SET",
        ("het_job_id", "het_size"),
        lambda now, whole, size: f"{whole}-{whole + size - 1}" if whole else NA,
    ),
    "hetjoboffset": Field(
        "HET_JOB_OFFSET", ("het_job_id", "het_offset"), lambda now, whole, offset: str(offset) if whole else NA
    ),
    "jobarrayid": LETTERS["i"],
    "jobid": LETTERS["A"],
    "lastschedeval": Field("LAST_SCHED_EVAL", ("last_evaluated_at",), _moment),
    "licenses": LETTERS["W"],
    "licensesalloc": Field(
        "LICENSES_ALLOC",
        ("state", "spec.licenses"),
        lambda now, state, text: (text if state in ("RUNNING", "SUSPENDED") else "") or NULL,
    ),
    "maxcpus": Field("MAX_CPUS", _SIZE, lambda now, *size: str(job_fields.cpu_count(*size))),
    "maxnodes": Field("MAX_NODES", ("spec.nodes_max", "allocation", "spec.nodes_min"), _max_nodes),
    "mcslabel": Field("MCSLABEL", ("spec.mcs_label",), lambda now, label: label or NULL),
    "mem-per-tres": Field("MEM_PER_TRES", ("spec.memory_mib_per_gpu",), _per_gpu),
    "mincpus": LETTERS["c"],
    "minmemory": LETTERS["m"],
    "mintime": Field("TIME_MIN", ("spec.time_min_minutes",), _minutes_or_zero),
    "mintmpdisk": LETTERS["d"],
    "name": LETTERS["j"],
    "network": _fixed("NETWORK", NULL),
    "nice": LETTERS["y"],
    "nodelist": LETTERS["N"],
    "nodes": _no("NODES", "it is of steps; use NodeList or NumNodes"),
    "ntperboard": _fixed("NTASKS_PER_BOARD", "0"),
    "ntpercore": Field("NTASKS_PER_CORE", ("spec.tasks_per_core",), _or(NA)),
    "ntpernode": Field("NTASKS_PER_NODE", ("spec.tasks_per_node",), lambda now, count: str(count or 0)),
    "ntpersocket": Field("NTASKS_PER_SOCKET", ("spec.tasks_per_socket",), _or(NA)),
    "numcpus": LETTERS["C"],
    "numnodes": LETTERS["D"],
    "numtasks": Field("TASKS", ("spec.tasks",)),
    "origin": _fixed("ORIGIN", "NA"),
    "originraw": _fixed("ORIGIN_RAW", "NA"),
    "oversubscribe": LETTERS["h"],
    "partition": LETTERS["P"],
    "pendingtime": Field("PENDING_TIME", ("state", "submitted_at", "started_at"), _pending_time),
    "preempttime": Field("PREEMPT_TIME", ("preempted_at",), _moment),
    "prefer": Field("PREFER", ("spec.prefer",), _or_null),
    "priority": LETTERS["p"],
    "prioritylong": LETTERS["Q"],
    "profile": _fixed("PROFILE", "NotSet"),
    "qos": LETTERS["q"],
    "reason": LETTERS["r"],
    "reasonlist": LETTERS["R"],
    "reboot": Field("REBOOT", ("spec.reboot",), _flag),
    "reqnodes": LETTERS["n"],
    "reqswitch": Field("REQ_SWITCH", ("spec.switches",), lambda now, value: str(value or 0)),
    "requeue": Field(
        "REQUEUE", ("spec.batch", "spec.requeue"), lambda now, batch, word: _flag(now, batch and word is not False)
    ),
    "reservation": LETTERS["v"],
    "resizetime": _fixed("RESIZE_TIME", NA),
    "restartcnt": Field("RESTART_COUNT", ("restart_count",)),
    "resvport": _no("RESV_PORTS", _NO_PORTS),
    "resvports": _no("RESV_PORTS", _NO_PORTS),
    "schednodes": LETTERS["Y"],
    "sct": LETTERS["z"],
    "segmentsize": Field("SEGMENT_SIZE", ("spec.segment",), lambda now, value: str(value) if value else NA),
    "siblingsactive": _fixed("ACTIVE_SIBLINGS", "NA"),
    "siblingsactiveraw": _fixed("ACTIVE_SIBLINGS_RAW", "NA"),
    "siblingsviable": _fixed("VIABLE_SIBLINGS", "NA"),
    "siblingsviableraw": _fixed("VIABLE_SIBLINGS_RAW", "NA"),
    "sockets": LETTERS["H"],
    "sperboard": _fixed("SOCKETS_PER_BOARD", "0"),
    "starttime": LETTERS["S"],
    "state": LETTERS["T"],
    "statecompact": LETTERS["t"],
    "stderr": Field(
        "STDERR",
        ("spec.batch", "spec.stderr", "spec.stdout", "spec.work_dir", "array_task_id", "array"),
        _stderr,
    ),
    "stdin": Field("STDIN", ("spec.batch", "spec.stdin", "spec.work_dir"), _stdin),
    "stdout": Field("STDOUT", ("spec.batch", "spec.stdout", "spec.work_dir", "array_task_id", "array"), _stdout),
    "stepid": _no("STEPID", "it is of steps"),
    "stepname": _no("NAME", "it is of steps"),
    "stepstate": _no("STATE", "it is of steps"),
    "submittime": LETTERS["V"],
    "system_comment": Field("SYSTEM_COMMENT", ("spec.system_comment",), _or_null),
    "threads": LETTERS["J"],
    "timeleft": LETTERS["L"],
    "timelimit": LETTERS["l"],
    "timeused": LETTERS["M"],
    "tres": job_fields.TRES_ALLOC,
    "tres-alloc": job_fields.TRES_ALLOC,
    "tres-bind": Field("TRES_BIND", ("spec.gpu_bind",), lambda now, bind: f"gres/gpu:{bind}" if bind else NA),
    "tres-freq": _fixed("TRES_FREQ", NA),
    "tres-per-job": Field("TRES_PER_JOB", ("spec.gpus",), _requests),
    "tres-per-node": LETTERS["b"],
    "tres-per-socket": Field("TRES_PER_SOCKET", ("spec.gpus_per_socket",), _requests),
    "tres-per-step": _no("TRES_PER_STEP", "it is of steps"),
    "tres-per-task": Field(
        "TRES_PER_TASK", ("spec.gpus_per_task", "spec.gres_per_task", "spec.cpus_per_task"), _per_task
    ),
    "userid": LETTERS["U"],
    "username": LETTERS["u"],
    "wait4switch": Field("WAIT4SWITCH", ("spec.switch_wait_seconds",), _switch_wait),
    "wckey": LETTERS["w"],
    "workdir": LETTERS["Z"],
}
