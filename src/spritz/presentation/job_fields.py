"""Every squeue field of a job: what it needs of the record, and how it is shown.

Values come as plain msgpack: records as dicts (defaults left out), tuples as lists. Source: squeue(1) `-o` and `-O`;
texts as 22.05 prints them,
`gres/gpu:1` as 25.05 does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.presentation import job_text, job_times
from spritz.presentation.columns import Field, itself

if TYPE_CHECKING:
    from typing import Any

    Plain = dict[str, Any]

NULL = "(null)"
NA = "N/A"


def _or_null(now: float, value: object) -> str:
    return str(value) if value else NULL


def _hosts_or_blank(now: float, names: list[str]) -> str:
    if not names:
        return ""
    from spritz.notation.hostlist import compress

    return compress(names)


def _label(now: float, job_id: int, array_job: int, task: int | None, array: Plain | None, het_job: int) -> str:
    return job_text.job_label(job_id, array_job, task, array, _bitstr_length() if array else 0, het_job)


def _labels(
    now: float,
    jobs: list[int],
    arrays: list[int],
    tasks: list[int | None],
    rest: list[Plain | None],
    leaders: list[int],
) -> list[str]:
    if not any(arrays) and not any(rest) and not any(leaders):
        return list(map(str, jobs))
    return [_label(now, *row) for row in zip(jobs, arrays, tasks, rest, leaders, strict=True)]


def _partitions(now: float, states: list[str], names: list[str], asked: list[list[str]]) -> list[str]:
    return [
        ",".join(every) if every and state == "PENDING" else name
        for state, name, every in zip(states, names, asked, strict=True)
    ]


def _bitstr_length() -> int:
    import os

    from spritz.notation.ranges import bitstr_length

    return bitstr_length(os.environ.get("SLURM_BITSTR_LEN"))


def _array_task(now: float, task: int | None, array: Plain | None) -> str:
    if array:
        from spritz.notation.ranges import format_array

        return format_array(int(array["pending"], 16), array.get("limit", 0), _bitstr_length())
    return NA if task is None else str(task)


def node_count(state: str, allocation: Plain | None, spec_nodes: int, tasks: int, per_task: int | None) -> int:
    """Nodes held, or the least that will be."""
    return len(allocation["nodes"]) if allocation else spec_nodes


def allocated_hosts(allocation: Plain | None) -> str:
    """Hostlist of the allocation."""
    if not allocation:
        return ""
    from spritz.notation.hostlist import compress

    return compress(node["node"] for node in allocation["nodes"])


def _node_list(now: float, allocation: Plain | None) -> str:
    return allocated_hosts(allocation)


#: states in which `%R` tells why in place of where
_EXPLAINED = frozenset({"PENDING", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE"})


def _reservation(now: float, asked: str, allocation: Plain | None) -> str:
    """The one in which the job runs, else those that it names."""
    inside = allocation.get("reservation") if allocation is not None else ""
    return _or_null(now, inside or asked)


def _reason(now: float, reason: str, detail: str, state: str, action: str) -> str:
    """Differs: a running job that has been told to make room (GraceTime) says so, where Slurm says None
    (docs/decisions/0162)."""
    if action and state == "RUNNING" and reason in ("", "None"):
        return "BeingPreempted"
    return job_text.reason_text(reason, detail)


def _node_list_or_reason(now: float, state: str, allocation: Plain | None, reason: str, detail: str) -> str:
    if state in _EXPLAINED:
        return f"({job_text.reason_text(reason, detail)})"
    return allocated_hosts(allocation)


def cpu_count(allocation: Plain | None, tasks: int, per_task: int | None, nodes: int, overcommit: bool) -> int:
    """CPUs held, or the least that will be."""
    if allocation:
        return sum(int(node["cpus"], 16).bit_count() for node in allocation["nodes"])
    return max(nodes, tasks * (per_task or 1) if not overcommit else nodes)


def _cpus(now: float, allocation: Plain | None, tasks: int, per_task: int | None, nodes: int, overcommit: bool) -> str:
    return str(cpu_count(allocation, tasks, per_task, nodes, overcommit))


def memory_text(per_node: int | None, per_cpu: int | None, per_gpu: int | None, *, convert: bool = True) -> str:
    """MIN_MEMORY: of a node, or of a CPU; 0 when nothing was asked."""
    from spritz.notation.memory import format_mib

    value = per_node if per_node is not None else per_cpu if per_cpu is not None else None
    if not value:
        return "0"
    return format_mib(value, convert=convert)


def _memory_unconverted(now: float, per_node: int | None, per_cpu: int | None, per_gpu: int | None) -> str:
    return memory_text(per_node, per_cpu, per_gpu, convert=False)


def unconverted(fields: dict[str, Field]) -> dict[str, Field]:
    """--noconvert: the same fields, memory in MiB (2048M stays 2048M)."""
    memory, tres = LETTERS["m"], TRES_ALLOC
    plain_memory = Field(memory.header, memory.needs, _memory_unconverted, sort=memory.sort)
    plain_tres = Field(tres.header, tres.needs, _tres_unconverted)
    changed = {memory: plain_memory, tres: plain_tres}
    return {name: changed.get(field, field) for name, field in fields.items()}


def _memory(now: float, per_node: int | None, per_cpu: int | None, per_gpu: int | None) -> str:
    return memory_text(per_node, per_cpu, per_gpu)


def tres_text(requests: list[Plain] | list[list[Any]]) -> str:
    """`gres/gpu:a100:2,…`; N/A when nothing was asked."""
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


def tres_alloc(
    allocation: Plain | None,
    cpus: int,
    memory_mib: int,
    nodes: int,
    *,
    convert: bool = True,
    billing: float | None = None,
) -> str:
    """`cpu=8,mem=200M,node=2,billing=8,gres/gpu=2`."""
    from spritz.notation.memory import format_mib

    counted: dict[str, int] = {}
    if allocation:
        memory_mib = sum(node.get("memory_mib", 0) for node in allocation["nodes"])
        for node in allocation["nodes"]:
            for gres in node.get("gres", ()):
                name = f"gres/{gres['name']}"
                counted[name] = counted.get(name, 0) + gres.get("count", 0)
                if gres.get("type"):
                    typed = f"{name}:{gres['type']}"
                    counted[typed] = counted.get(typed, 0) + gres.get("count", 0)
    words = [f"cpu={cpus}"]
    if memory_mib:
        words.append(f"mem={format_mib(memory_mib, convert=convert)}")
    words += [f"node={nodes}", f"billing={cpus if billing is None else int(billing)}"]
    words += [f"{name}={count}" for name, count in counted.items()]
    return ",".join(words)


def _tres_alloc(
    now: float,
    allocation: Plain | None,
    tasks: int,
    per_task: int | None,
    nodes: int,
    overcommit: bool,
    mem_node: int | None,
    mem_cpu: int | None,
    mem_counted: int,
    gres: list[Any],
    gpus: list[Any],
    gpus_of_job: list[Any],
    billing: float | None,
    *,
    convert: bool = True,
) -> str:
    cpus = cpu_count(allocation, tasks, per_task, nodes, overcommit)
    count = len(allocation["nodes"]) if allocation else nodes
    memory = mem_node * nodes if mem_node else mem_cpu * cpus if mem_cpu else mem_counted
    text = tres_alloc(allocation, cpus, memory, count, convert=convert, billing=billing)
    if allocation is None:
        for one, times in (*((one, nodes) for one in (*gres, *gpus)), *((one, 1) for one in gpus_of_job)):
            name, kind, number = one["name"], one.get("type", ""), one.get("count", 1) * times
            text += f",gres/{name}={number}"
            if kind:
                text += f",gres/{name}:{kind}={number}"
    return text


def _tres_unconverted(now: float, *values: Any) -> str:
    return _tres_alloc(now, *values, convert=False)


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
_SIZE = ("allocation", "spec.tasks", "spec.cpus_per_task", "spec.nodes_min", "spec.overcommit")
_LIMIT = ("time_limit_minutes", "spec.time_limit_minutes")


def _nodes_order(allocation: Plain | None, nodes: int) -> int:
    return len(allocation["nodes"]) if allocation else nodes


def _count_nodes(now: float, allocation: Plain | None, nodes: int) -> str:
    return str(len(allocation["nodes"]) if allocation else nodes)


ACCOUNT = Field("ACCOUNT", ("spec.account",), _or_null)
LABEL = Field(
    "JOBID",
    ("id", "array_job_id", "array_task_id", "array", "het_job_id"),
    _label,
    sort=_label_order,
    many=_labels,
)
NAME = Field("NAME", ("spec.name",))
STATE = Field(
    "STATE", ("state", "flags"), lambda now, state, flags: job_text.state_name(state, flags), sort=job_text.state_name
)
STATE_COMPACT = Field(
    "ST", ("state", "flags"), lambda now, state, flags: job_text.state_compact(state, flags), sort=job_text.state_name
)
REASON = Field("REASON", ("reason", "reason_detail", "state", "preempt_action"), _reason)
REASON_LIST = Field("NODELIST(REASON)", ("state", "allocation", "reason", "reason_detail"), _node_list_or_reason)
GRES_PER_NODE = Field("TRES_PER_NODE", ("spec.gres_per_node", "spec.gpus_per_node"), _tres)

TRES_ALLOC = Field(
    "TRES_ALLOC",
    (
        *_SIZE,
        "spec.memory_mib_per_node",
        "spec.memory_mib_per_cpu",
        "spec.memory_mib_counted",
        "spec.gres_per_node",
        "spec.gpus_per_node",
        "spec.gpus",
        "billing",
    ),
    _tres_alloc,
)

#: `-o` letters
LETTERS: dict[str, Field] = {
    "a": ACCOUNT,
    "A": Field("JOBID", ("id",), sort=itself),
    "b": GRES_PER_NODE,
    "B": Field("EXEC_HOST", ("allocation", "spec.batch"), _first_host),
    "c": Field(
        "MIN_CPUS",
        ("spec.cpus_per_node_min", "spec.cpus_per_task"),
        lambda now, a, b: str(a or b or 1),
        sort=lambda a, b: a or b or 1,
    ),
    "C": Field("CPUS", _SIZE, _cpus, sort=cpu_count),
    "d": Field("MIN_TMP_DISK", ("spec.tmp_mib",), _or_zero, sort=_number),
    "D": Field("NODES", ("allocation", "spec.nodes_min"), _count_nodes, sort=_nodes_order),
    "e": Field(
        "END_TIME",
        (
            "state",
            "ends_at",
            "ended_at",
            "time_limit_minutes",
            "spec.time_limit_minutes",
            "expected_start_at",
            "spec.begin_at",
        ),
        job_times.end,
        sort=job_times.end_order,
    ),
    "E": Field("DEPENDENCY", ("dependencies", "spec.dependency_mode"), _dependency),
    "f": Field("FEATURES", ("spec.features",), _or_null),
    "F": Field(
        "ARRAY_JOB_ID",
        ("id", "array_job_id"),
        lambda now, id, array: str(array or id),
        sort=lambda id, array: array or id,
    ),
    "g": Field("GROUP", ("spec.group",)),
    "G": Field("GROUP", ("spec.gid",), sort=_number),
    "h": Field("OVER_SUBSCRIBE", ("spec.sharing",), _share),
    "H": Field("SOCKETS_PER_NODE", ("spec.sockets_per_node",), _star),
    "i": LABEL,
    "I": Field("CORES_PER_SOCKET", ("spec.cores_per_socket",), _star),
    "j": NAME,
    "J": Field("THREADS_PER_CORE", ("spec.threads_per_core",), _star),
    "k": Field("COMMENT", ("spec.comment",), _or_null),
    "K": Field("ARRAY_TASK_ID", ("array_task_id", "array"), _array_task, sort=lambda task, array: _number(task)),
    "l": Field("TIME_LIMIT", _LIMIT, job_times.limit, sort=job_times.limit_order, duration=True),
    "L": Field("TIME_LEFT", (*_LIMIT, *_TIMES), job_times.left, sort=job_times.left_order, duration=True),
    "m": Field(
        "MIN_MEMORY",
        ("spec.memory_mib_per_node", "spec.memory_mib_per_cpu", "spec.memory_mib_per_gpu"),
        _memory,
        sort=lambda node, cpu, gpu: node or cpu or gpu or 0,
    ),
    "M": Field("TIME", _TIMES, job_times.used, sort=job_times.used_order, duration=True),
    "n": Field("REQ_NODES", ("spec.node_list",), _hosts_or_blank),
    "N": Field("NODELIST", ("allocation",), _node_list),
    "o": Field("COMMAND", ("spec.command",), _or_null),
    "O": Field("CONTIGUOUS", ("spec.contiguous",), _flag),
    "p": Field("PRIORITY", ("priority",), _priority_share, sort=_number),
    "P": Field(
        "PARTITION",
        ("state", "partition", "spec.partitions"),
        lambda now, state, name, every: _partitions(now, [state], [name], [every])[0],
        many=_partitions,
    ),
    "q": Field("QOS", ("spec.qos",), _or_null),
    "Q": Field("PRIORITY", ("priority",), sort=_number),
    "r": REASON,
    "R": REASON_LIST,
    "s": Field("", (), lambda now: ""),
    "S": Field(
        "START_TIME",
        ("state", "started_at", "expected_start_at", "spec.begin_at", "eligible_at"),
        job_times.start,
        sort=job_times.start_order,
    ),
    "t": STATE_COMPACT,
    "T": STATE,
    "u": Field("USER", ("spec.user",)),
    "U": Field("UID", ("spec.uid",), sort=_number),
    "v": Field("RESERVATION", ("spec.reservation", "allocation"), _reservation),
    "V": Field("SUBMIT_TIME", ("submitted_at",), job_times.moment, sort=lambda at: at),
    "w": Field("WCKEY", ("spec.wckey",), _or_null),
    "W": Field("LICENSES", ("spec.licenses",), _or_null),
    "x": Field("EXC_NODES", ("spec.exclude",), _hosts_or_blank),
    "X": Field("CORE_SPEC", ("spec.core_spec",), _or_na),
    "y": Field("NICE", ("spec.nice",), sort=_number),
    "Y": Field("SCHEDNODES", ("expected_nodes",), lambda now, names: _hosts_or_blank(now, names) or NULL),
    "z": Field("S:C:T", ("spec.sockets_per_node", "spec.cores_per_socket", "spec.threads_per_core"), _stars),
    "Z": Field("WORK_DIR", ("spec.work_dir",)),
}
