"""The catalogue of squeue's fields of a job: letter, names, heading, required values, and text.

To add a field, add one entry to `FIELDS` below; the functions before it make the texts.
docs/checklists/listing-field.md names the other places.

Values come as plain msgpack: records as dicts (defaults left out), tuples as lists. Source: squeue(1) `-o` and `-O`;
texts as 22.05 prints them, `gres/gpu:1` and later names as 25.05 does.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.client.locate import locate_controller
from spritz.model.ids import INFINITE
from spritz.notation.duration import format_elapsed
from spritz.notation.hostlist import compress
from spritz.presentation.columns import Field, by_letter, by_name, itself
from spritz.presentation.job import job_text, job_times

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Plain = dict[str, Any]

NULL = "(null)"
NA = "N/A"


def _or_null(now: float, value: object) -> str:
    return str(value) if value else NULL


def _hosts_or_blank(now: float, names: list[str]) -> str:
    if not names:
        return ""

    return compress(names)


def _label(now: float, job_id: int, array_job: int, task: int | None, array: Plain | None, het_job: int) -> str:
    return job_text.job_label(job_id, array_job, task, array, _bitstr_length() if array else 0, het_job)


def _labels(
    now: float,
    jobs: list[int],
    arrays: list[int],
    tasks: list[int | None],
    array_states: list[Plain | None],
    leaders: list[int],
) -> list[str]:
    if not any(arrays) and not any(array_states) and not any(leaders):
        return list(map(str, jobs))
    return [_label(now, *row) for row in zip(jobs, arrays, tasks, array_states, leaders, strict=True)]


def _partitions(now: float, states: list[str], names: list[str], requested: list[list[str]]) -> list[str]:
    return [
        ",".join(every) if every and state == "PENDING" else name
        for state, name, every in zip(states, names, requested, strict=True)
    ]


def _bitstr_length() -> int:
    from spritz.notation.ranges import bitstr_length

    return bitstr_length(os.environ.get("SLURM_BITSTR_LEN"))


def _array_task(now: float, task: int | None, array: Plain | None) -> str:
    if array:
        from spritz.notation.ranges import format_array

        return format_array(int(array["pending"], 16), array.get("limit", 0), _bitstr_length())
    return NA if task is None else str(task)


def allocated_hosts(allocation: Plain | None) -> str:
    """The allocation's nodes as a hostlist."""
    if not allocation:
        return ""

    return compress(node["node"] for node in allocation["nodes"])


def _node_list(now: float, allocation: Plain | None) -> str:
    return allocated_hosts(allocation)


#: states in which `%R` shows the reason instead of the nodes
_EXPLAINED = frozenset({"PENDING", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE"})


def _reservation(now: float, requested: str, allocation: Plain | None) -> str:
    """The reservation in which the job runs, else the requested ones."""
    inside = allocation.get("reservation") if allocation is not None else ""
    return _or_null(now, inside or requested)


def _reason(now: float, reason: str, detail: str, state: str, action: str) -> str:
    """Differs: for a running job that must make room (GraceTime) this is the reason; Slurm shows None
    (docs/decisions/0033).
    """
    if action and state == "RUNNING" and reason in ("", "None"):
        return "BeingPreempted"
    return job_text.reason_text(reason, detail)


def _node_list_or_reason(now: float, state: str, allocation: Plain | None, reason: str, detail: str) -> str:
    if state in _EXPLAINED:
        return f"({job_text.reason_text(reason, detail)})"
    return allocated_hosts(allocation)


def memory_text(per_node: int | None, per_cpu: int | None, per_gpu: int | None, *, convert: bool = True) -> str:
    """MIN_MEMORY: for a node or a CPU; 0 without a request."""
    from spritz.notation.memory import format_mib

    value = per_node if per_node is not None else per_cpu if per_cpu is not None else None
    if not value:
        return "0"
    return format_mib(value, convert=convert)


def _memory_unconverted(now: float, per_node: int | None, per_cpu: int | None, per_gpu: int | None) -> str:
    return memory_text(per_node, per_cpu, per_gpu, convert=False)


def _memory(now: float, per_node: int | None, per_cpu: int | None, per_gpu: int | None) -> str:
    return memory_text(per_node, per_cpu, per_gpu)


def tres_text(requests: list[Plain] | list[list[Any]]) -> str:
    """Requested GRES such as `gres/gpu:a100:2,…`; N/A without a request."""
    words = []
    for request in requests:
        if isinstance(request, dict):
            name, kind, count = request["name"], request.get("type", ""), request.get("count", 1)
        else:
            name, kind, count = request
        words.append(f"gres/{name}:{kind}:{count}" if kind else f"gres/{name}:{count}")
    return ",".join(words) or NA


def _tres(now: float, requests: list[Plain], more: list[Plain] | None = None) -> str:
    return tres_text([*requests, *(more or [])])


def _tres_alloc(now: float, pairs: list[list[Any]], *, convert: bool = True) -> str:
    """TRES in Slurm's order: `cpu=8,mem=200M,node=2,billing=8,gres/gpu=2`; without `mem` if it is 0."""
    from spritz.notation.tres import format as tres_pairs

    return tres_pairs(((name, count) for name, count in pairs), convert=convert)


def _tres_unconverted(now: float, pairs: list[list[Any]]) -> str:
    return _tres_alloc(now, pairs, convert=False)


def _share(now: float, sharing: str) -> str:
    return job_text.SHARING[sharing]


def _star(now: float, count: int | None) -> str:
    return "*" if count is None else str(count)


def _stars(now: float, sockets: int | None, cores: int | None, threads: int | None) -> str:
    return ":".join(_star(now, count) for count in (sockets, cores, threads))


def _dependency(now: float, dependencies: list[Plain], mode: str) -> str:
    from spritz.notation import dependency

    if not dependencies:
        return NULL
    words = [
        dependency.format_one(
            dependency.Dependency(d["kind"], d.get("job_id", 0), d.get("task_id"), d.get("minutes", 0)),
            d.get("state", "unfulfilled"),
        )
        for d in dependencies
    ]
    return ("?" if mode == "any" else ",").join(words)


def _first_host(now: float, allocation: Plain | None, batch: bool) -> str:
    return allocation["nodes"][0]["node"] if allocation and batch else "n/a"


def _flag(now: float, value: object) -> str:
    return "1" if value else "0"


def _or_na(now: float, value: object) -> str:
    return NA if value is None or value == "" else str(value)


def _or_zero(now: float, value: object) -> str:
    return str(value or 0)


def _priority_share(now: float, priority: int) -> str:
    return f"{priority / 0xFFFFFFFF:.14f}"


def _label_order(job_id: int, array_job: int, task: int | None, array: Plain | None, het_job: int) -> tuple[int, int]:
    return (array_job or job_id, INFINITE if task is None else task)


def _number(value: int | None) -> int:
    return value or 0


_TIMES = ("state", "started_at", "ended_at", "suspended_seconds", "suspended_at")
_START = ("state", "started_at", "ended_at", "expected_start_at", "spec.begin_at", "eligible_at")
_LIMIT = ("time_limit_minutes", "spec.time_limit_minutes")


def _nodes_order(allocation: Plain | None, nodes: int) -> int:
    return len(allocation["nodes"]) if allocation else nodes


def _count_nodes(now: float, allocation: Plain | None, nodes: int) -> str:
    return str(len(allocation["nodes"]) if allocation else nodes)


def _or(empty: str) -> Callable[[float, object], str]:
    return lambda now, value: empty if value is None or value == "" else str(value)


def _switch_wait(now: float, value: object) -> str:
    return format_elapsed(value) if isinstance(value, int) else "0:00"


def _pending_time(now: float, state: str, submitted: float, started: float) -> str:
    return str(max(0, int((started if started and state != "PENDING" else now) - submitted)))


def _minutes_or_zero(now: float, minutes: int | None) -> str:
    return format_elapsed((minutes or 0) * 60)


def _exit(now: float, status: int) -> str:
    return str(status)


def _requests(now: float, requests: list[Any], *more: list[Any]) -> str:
    return tres_text([*requests, *(request for several in more for request in several)])


def _per_task(now: float, gpus: list[Any], others: list[Any], cpus: int | None) -> str:
    words = [f"cpu={cpus}"] if cpus else []
    text = tres_text([*gpus, *others])
    if text != NA:
        words.append(text)
    return ",".join(words) or NA


def _per_gpu(now: float, count: int | None) -> str:
    return f"gres/gpu:{count}" if count else NA


def _of_federation(now: float, text: str | None) -> str:
    return text or "NA"


def cluster_name(now: float) -> str:
    """The name of the cluster that is asked."""
    return locate_controller().cluster_name


def _max_nodes(now: float, most: int, allocation: Plain | None, least: int) -> str:
    """The job's nodes; before the start its maximum, if it has one."""
    return str(len(allocation["nodes"]) if allocation else most or least)


def _array_pattern(task: int | None, array: object) -> str:
    return "slurm-%A_%a.out" if task is not None or array else "slurm-%j.out"


def _stdout(now: float, batch: bool, pattern: str, work_dir: str, task: int | None, array: object) -> str:
    from spritz.presentation.job.job_paths import file_pattern

    return file_pattern(pattern, work_dir, default=_array_pattern(task, array)) if batch else ""


def _stderr(now: float, batch: bool, pattern: str, output: str, work_dir: str, task: int | None, array: object) -> str:
    from spritz.presentation.job.job_paths import file_pattern

    return file_pattern(pattern or output, work_dir, default=_array_pattern(task, array)) if batch else ""


def _stdin(now: float, batch: bool, pattern: str, work_dir: str) -> str:
    from spritz.presentation.job.job_paths import file_pattern

    return file_pattern(pattern, work_dir, default="/dev/null") if batch else ""


_EXCLUSIVE = {"exclusive": "YES", "user": "USER", "mcs": "MCS", "topo": "TOPO"}
_NO_PORTS = "ports are reserved for steps: `squeue --steps` has them"

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
    """The field of a file name, with its patterns expanded."""
    count = len(field.needs)

    def render(now: float, *values: Any) -> str:
        from spritz.presentation.job.job_paths import expanded

        job_id, array_job, task, array, name, user, allocation, restarts = values[count:]
        return expanded(
            field.render(now, *values[:count]),
            job_id=job_id,
            array_job_id=array_job or (job_id if array else 0),
            task_id=task,
            name=name,
            user=user,
            first_host=allocation["nodes"][0]["node"] if allocation else "",
            restarts=restarts,
        )

    return Field(field.header, (*field.needs, *_EXPANSION), render)


def _fixed(header: str, text: str, name: str) -> Field:
    """A field that has the same text for every job."""
    return Field(header, (), lambda now: text, name=name)


def _refused(header: str, why: str, *names: str) -> Field:
    """A name of squeue(1) that is refused."""
    return Field(header, refused=why, name=names[0], aliases=names[1:])


#: every field, by its name
FIELDS: tuple[Field, ...] = (
    Field("ACCOUNT", ("spec.account",), _or_null, letter="a", name="account"),
    Field("ACCRUE_TIME", ("grows_older_since",), job_times.moment, name="accruetime"),
    Field("ADMIN_COMMENT", ("spec.admin_comment",), _or_null, name="admin_comment"),
    Field("ALLOC_NODES", ("spec.submit_host",), _or_null, name="allocnodes"),
    Field("ALLOC_SID", ("spec.submit_session",), name="allocsid"),
    Field(
        "ARRAY_JOB_ID",
        ("id", "array_job_id"),
        lambda now, id, array: str(array or id),
        sort=lambda id, array: array or id,
        letter="F",
        name="arrayjobid",
    ),
    Field(
        "ARRAY_TASK_ID",
        ("array_task_id", "array"),
        _array_task,
        sort=lambda task, array: _number(task),
        letter="K",
        name="arraytaskid",
    ),
    Field("ASSOC_ID", ("association",), name="associd"),
    Field("BATCH_FLAG", ("spec.batch",), _flag, name="batchflag"),
    Field("EXEC_HOST", ("allocation", "spec.batch"), _first_host, letter="B", name="batchhost"),
    _fixed("BOARDS_PER_NODE", "0", "boardspernode"),
    _fixed("BURST_BUFFER", NULL, "burstbuffer"),
    _fixed("BURST_BUFFER_STATE", NULL, "burstbufferstate"),
    Field("CLUSTER", (), cluster_name, name="cluster"),
    Field("CLUSTER_FEATURES", ("spec.cluster_features",), lambda now, text: text or NULL, name="clusterfeature"),
    Field("COMMAND", ("spec.command",), _or_null, letter="o", name="command"),
    Field("COMMENT", ("spec.comment",), _or_null, letter="k", name="comment"),
    Field("CONTAINER", ("spec.container.bundle",), _or_null, name="container"),
    _fixed("CONTAINER_ID", NULL, "containerid"),
    Field("CONTIGUOUS", ("spec.contiguous",), _flag, letter="O", name="contiguous"),
    Field("CORES_PER_SOCKET", ("spec.cores_per_socket",), _star, letter="I", name="cores"),
    Field("CORE_SPEC", ("spec.core_spec",), _or_na, letter="X", name="corespec"),
    _refused("CPUFREQ", "it is of steps", "cpufreq"),
    Field("CPUS_PER_TASK", ("spec.cpus_per_task",), lambda now, count: str(count or 1), name="cpus-per-task"),
    Field("CPUS_PER_TRES", ("spec.cpus_per_gpu",), _per_gpu, name="cpus-per-tres"),
    Field("CRON_JOB", ("spec.cron",), lambda now, entry: "No" if entry is None else "Yes", name="cronjob"),
    Field("DEADLINE", ("spec.deadline_at",), job_times.moment, name="deadline"),
    Field("DELAY_BOOT", ("spec.delay_boot_seconds",), _switch_wait, name="delayboot"),
    Field("DEPENDENCY", ("dependencies", "spec.dependency_mode"), _dependency, letter="E", name="dependency"),
    Field("DERIVED_EC", ("derived_exit_status",), _exit, name="derivedec"),
    Field("ELIGIBLE_TIME", ("eligible_at", "spec.begin_at"), job_times.eligible, name="eligibletime"),
    Field(
        "END_TIME",
        (*_START, "ends_at", *_LIMIT),
        job_times.end,
        sort=job_times.end_order,
        letter="e",
        name="endtime",
    ),
    Field("EXCLUSIVE", ("spec.sharing",), lambda now, kind: _EXCLUSIVE.get(kind, "NO"), name="exclusive"),
    Field("EXC_NODES", ("spec.exclude",), _hosts_or_blank, letter="x", name="excnodes"),
    Field("EXIT_CODE", ("exit_status",), _exit, name="exit_code"),
    Field("EXTRA", ("spec.extra",), _or_null, name="extra"),
    Field("FEATURES", ("spec.features",), _or_null, letter="f", name="feature"),
    Field("GROUP", ("spec.gid",), sort=_number, letter="G", name="groupid"),
    Field("GROUP", ("spec.group",), letter="g", name="groupname"),
    Field("HET_JOB_ID", ("het_job_id",), lambda now, whole: str(whole) if whole else NA, name="hetjobid"),
    Field(
        "HET_JOB_ID_SET",
        ("het_job_id", "het_size"),
        lambda now, whole, size: f"{whole}-{whole + size - 1}" if whole else NA,
        name="hetjobidset",
    ),
    Field(
        "HET_JOB_OFFSET",
        ("het_job_id", "het_offset"),
        lambda now, whole, offset: str(offset) if whole else NA,
        name="hetjoboffset",
    ),
    Field(
        "JOBID",
        ("id", "array_job_id", "array_task_id", "array", "het_job_id"),
        _label,
        sort=_label_order,
        many=_labels,
        letter="i",
        name="jobarrayid",
    ),
    Field("JOBID", ("id",), sort=itself, letter="A", name="jobid"),
    Field("LAST_SCHED_EVAL", ("last_evaluated_at",), job_times.moment, name="lastschedeval"),
    Field("LICENSES", ("spec.licenses",), _or_null, letter="W", name="licenses"),
    Field(
        "LICENSES_ALLOC",
        ("state", "spec.licenses", "licenses"),
        lambda now, state, text, held: job_text.licenses_held(state, text, held) or NULL,
        name="licensesalloc",
    ),
    Field("MAX_CPUS", ("cpu_count",), lambda now, count: str(count), name="maxcpus"),
    Field("MAX_NODES", ("spec.nodes_max", "allocation", "spec.nodes_min"), _max_nodes, name="maxnodes"),
    Field("MCSLABEL", ("spec.mcs_label",), lambda now, label: label or NULL, name="mcslabel"),
    Field("MEM_PER_TRES", ("spec.memory_mib_per_gpu",), _per_gpu, name="mem-per-tres"),
    Field(
        "MIN_CPUS",
        ("spec.cpus_per_node_min", "spec.tasks_per_node", "spec.cpus_per_task"),
        lambda now, *counts: str(job_text.least_cpus(*counts)),
        sort=lambda *counts: job_text.least_cpus(*counts),
        letter="c",
        name="mincpus",
    ),
    Field(
        "MIN_MEMORY",
        ("spec.memory_mib_per_node", "spec.memory_mib_per_cpu", "spec.memory_mib_per_gpu"),
        _memory,
        sort=lambda node, cpu, gpu: node or cpu or gpu or 0,
        letter="m",
        name="minmemory",
    ),
    Field("TIME_MIN", ("spec.time_min_minutes",), _minutes_or_zero, name="mintime"),
    Field("MIN_TMP_DISK", ("spec.tmp_mib",), _or_zero, sort=_number, letter="d", name="mintmpdisk"),
    Field("NAME", ("spec.name",), letter="j", name="name"),
    _fixed("NETWORK", NULL, "network"),
    Field("NICE", ("spec.nice",), sort=_number, letter="y", name="nice"),
    Field("NODELIST", ("allocation",), _node_list, letter="N", name="nodelist"),
    _refused("NODES", "it is of steps; use NodeList or NumNodes", "nodes"),
    _fixed("NTASKS_PER_BOARD", "0", "ntperboard"),
    Field("NTASKS_PER_CORE", ("spec.tasks_per_core",), _or(NA), name="ntpercore"),
    Field("NTASKS_PER_NODE", ("spec.tasks_per_node",), lambda now, count: str(count or 0), name="ntpernode"),
    Field("NTASKS_PER_SOCKET", ("spec.tasks_per_socket",), _or(NA), name="ntpersocket"),
    Field("CPUS", ("cpu_count",), lambda now, count: str(count), sort=_number, letter="C", name="numcpus"),
    Field("NODES", ("allocation", "spec.nodes_min"), _count_nodes, sort=_nodes_order, letter="D", name="numnodes"),
    Field("TASKS", ("spec.tasks",), name="numtasks"),
    Field("ORIGIN", ("federation.origin",), _of_federation, name="origin"),
    _fixed("ORIGIN_RAW", "NA", "originraw"),
    Field("OVER_SUBSCRIBE", ("spec.sharing",), _share, letter="h", name="oversubscribe"),
    Field(
        "PARTITION",
        ("state", "partition", "spec.partitions"),
        lambda now, state, name, every: _partitions(now, [state], [name], [every])[0],
        many=_partitions,
        letter="P",
        name="partition",
    ),
    Field("PENDING_TIME", ("state", "submitted_at", "started_at"), _pending_time, name="pendingtime"),
    Field("PREEMPT_TIME", ("preempted_at",), job_times.moment, name="preempttime"),
    Field("PREFER", ("spec.prefer",), _or_null, name="prefer"),
    Field("PRIORITY", ("priority",), _priority_share, sort=_number, letter="p", name="priority"),
    Field("PRIORITY", ("priority",), sort=_number, letter="Q", name="prioritylong"),
    _fixed("PROFILE", "NotSet", "profile"),
    Field("QOS", ("spec.qos",), _or_null, letter="q", name="qos"),
    Field("REASON", ("reason", "reason_detail", "state", "preempt_action"), _reason, letter="r", name="reason"),
    Field(
        "NODELIST(REASON)",
        ("state", "allocation", "reason", "reason_detail"),
        _node_list_or_reason,
        letter="R",
        name="reasonlist",
    ),
    Field("REBOOT", ("spec.reboot",), _flag, name="reboot"),
    Field("REQ_NODES", ("spec.node_list",), _hosts_or_blank, letter="n", name="reqnodes"),
    Field("REQ_SWITCH", ("spec.switches",), lambda now, value: str(value or 0), name="reqswitch"),
    Field(
        "REQUEUE",
        ("spec.batch", "spec.requeue"),
        lambda now, batch, word: _flag(now, batch and word is not False),
        name="requeue",
    ),
    Field("RESERVATION", ("spec.reservation", "allocation"), _reservation, letter="v", name="reservation"),
    _fixed("RESIZE_TIME", NA, "resizetime"),
    Field("RESTART_COUNT", ("restart_count",), name="restartcnt"),
    _refused("RESV_PORTS", _NO_PORTS, "resvport", "resvports"),
    Field("", (), lambda now: "", letter="s"),
    Field(
        "SCHEDNODES",
        ("expected_start_at", "expected_nodes"),
        lambda now, start_at, names: (_hosts_or_blank(now, names) if start_at else "") or NULL,
        letter="Y",
        name="schednodes",
    ),
    Field(
        "S:C:T",
        ("spec.sockets_per_node", "spec.cores_per_socket", "spec.threads_per_core"),
        _stars,
        letter="z",
        name="sct",
    ),
    Field("SEGMENT_SIZE", ("spec.segment",), lambda now, value: str(value) if value else NA, name="segmentsize"),
    Field("ACTIVE_SIBLINGS", ("federation.active",), _of_federation, name="siblingsactive"),
    _fixed("ACTIVE_SIBLINGS_RAW", "NA", "siblingsactiveraw"),
    Field("VIABLE_SIBLINGS", ("federation.viable",), _of_federation, name="siblingsviable"),
    _fixed("VIABLE_SIBLINGS_RAW", "NA", "siblingsviableraw"),
    Field("SOCKETS_PER_NODE", ("spec.sockets_per_node",), _star, letter="H", name="sockets"),
    _fixed("SOCKETS_PER_BOARD", "0", "sperboard"),
    Field(
        "START_TIME",
        _START,
        job_times.start,
        sort=job_times.start_order,
        letter="S",
        name="starttime",
    ),
    Field(
        "STATE",
        ("state", "flags"),
        lambda now, state, flags: job_text.state_name(state, flags),
        sort=job_text.state_name,
        letter="T",
        name="state",
    ),
    Field(
        "ST",
        ("state", "flags"),
        lambda now, state, flags: job_text.state_compact(state, flags),
        sort=job_text.state_name,
        letter="t",
        name="statecompact",
    ),
    Field(
        "STDERR",
        ("spec.batch", "spec.stderr", "spec.stdout", "spec.work_dir", "array_task_id", "array"),
        _stderr,
        name="stderr",
    ),
    Field("STDIN", ("spec.batch", "spec.stdin", "spec.work_dir"), _stdin, name="stdin"),
    Field("STDOUT", ("spec.batch", "spec.stdout", "spec.work_dir", "array_task_id", "array"), _stdout, name="stdout"),
    _refused("STEPID", "it is of steps", "stepid"),
    _refused("NAME", "it is of steps", "stepname"),
    _refused("STATE", "it is of steps", "stepstate"),
    Field("SUBMIT_TIME", ("submitted_at",), job_times.moment, sort=lambda at: at, letter="V", name="submittime"),
    Field("SYSTEM_COMMENT", ("spec.system_comment",), _or_null, name="system_comment"),
    Field("THREADS_PER_CORE", ("spec.threads_per_core",), _star, letter="J", name="threads"),
    Field(
        "TIME_LEFT",
        (*_LIMIT, *_TIMES),
        job_times.left,
        sort=job_times.left_order,
        duration=True,
        letter="L",
        name="timeleft",
    ),
    Field(
        "TIME_LIMIT", _LIMIT, job_times.limit, sort=job_times.limit_order, duration=True, letter="l", name="timelimit"
    ),
    Field("TIME", _TIMES, job_times.used, sort=job_times.used_order, duration=True, letter="M", name="timeused"),
    Field(
        "TRES_ALLOC",
        ("tres",),
        _tres_alloc,
        name="tres",
        aliases=("tres-alloc",),
    ),
    Field("TRES_BIND", ("spec.gpu_bind",), lambda now, bind: f"gres/gpu:{bind}" if bind else NA, name="tres-bind"),
    _fixed("TRES_FREQ", NA, "tres-freq"),
    Field("TRES_PER_JOB", ("spec.gpus",), _requests, name="tres-per-job"),
    Field("TRES_PER_NODE", ("spec.gpus_per_node", "spec.gres_per_node"), _tres, letter="b", name="tres-per-node"),
    Field("TRES_PER_SOCKET", ("spec.gpus_per_socket",), _requests, name="tres-per-socket"),
    _refused("TRES_PER_STEP", "it is of steps", "tres-per-step"),
    Field(
        "TRES_PER_TASK",
        ("spec.gpus_per_task", "spec.gres_per_task", "spec.cpus_per_task"),
        _per_task,
        name="tres-per-task",
    ),
    Field("UID", ("spec.uid",), sort=_number, letter="U", name="userid"),
    Field("USER", ("spec.user",), letter="u", name="username"),
    Field("WAIT4SWITCH", ("spec.switch_wait_seconds",), _switch_wait, name="wait4switch"),
    Field("WCKEY", ("spec.wckey",), _or_null, letter="w", name="wckey"),
    Field("WORK_DIR", ("spec.work_dir",), letter="Z", name="workdir"),
)

#: by letter, for `-o`
LETTERS = by_letter(FIELDS)

#: by name, for `-O`, in lower case
NAMES = by_name(FIELDS)


def unconverted(fields: dict[str, Field]) -> dict[str, Field]:
    """--noconvert: the same fields with memory in MiB (2048M stays 2048M)."""
    memory, tres = LETTERS["m"], NAMES["tres-alloc"]
    plain_memory = Field(memory.header, memory.needs, _memory_unconverted, sort=memory.sort)
    plain_tres = Field(tres.header, tres.needs, _tres_unconverted)
    changed = {memory: plain_memory, tres: plain_tres}
    return {name: changed.get(field, field) for name, field in fields.items()}


def with_patterns_expanded(fields: dict[str, Field]) -> dict[str, Field]:
    """--expand-patterns: the same fields with file name patterns expanded."""
    return fields | {name: _expanded(fields[name]) for name in ("stderr", "stdin", "stdout")}
