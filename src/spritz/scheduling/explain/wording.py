"""Plain words for requests, counts and spans. Computes no figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.notation.duration import format_duration
from spritz.notation.ranges import format_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spritz.model.job.record import Job
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request

#: how many users of a resource are named
USERS_MAX = 5


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 node`, `2 nodes`. `plural`: if it is not the noun with an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def listed(words: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(words) < 2:
        return "".join(words)
    return ", ".join(words[:-1]) + f" {last} {words[-1]}"


def largest(sums: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """(name, amount) of the `USERS_MAX` that use most, largest first; equal amounts by name."""
    return tuple(sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:USERS_MAX])


def memory(mib: int) -> str:
    """`512 MB`, `64 GB`, in Slurm's units of 1024."""
    for unit, size in (("TB", 1 << 20), ("GB", 1 << 10)):
        if mib >= size:
            return f"{mib / size:.1f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{mib} MB"


def gres_noun(name: str, kind: str, number: int) -> str:
    """`4 GPUs`, `1 h100 GPU`, `2 shard`."""
    noun = ("GPU" if number == 1 else "GPUs") if name == "gpu" else name
    return f"{number} {kind} {noun}" if kind else f"{number} {noun}"


def resource(what: str) -> str:
    """A resource as a subject: `GPUs`, `h100 GPUs`, `CPUs`, `memory`."""
    if what == "cpus":
        return "CPUs"
    if what.startswith("gres/"):
        name, _, kind = what[5:].partition(":")
        noun = "GPUs" if name == "gpu" else name
        return f"{kind} {noun}" if kind else noun
    return what


def amount(what: str, number: int) -> str:
    """A quantity as text: memory and disk with their unit, others as they are."""
    return memory(number) if what in ("memory", "disk") else str(number)


def label(job_id: int, array_job_id: int, task_id: int | None, tasks: int | None = None) -> str:
    """The id as squeue prints it: `7`, `7_3`, `7_[4-9]`."""
    if task_id is not None and array_job_id:
        return f"{array_job_id}_{task_id}"
    if tasks:
        return f"{job_id}_[{format_array(tasks)}]"
    return str(job_id)


def record_label(record: JobRecord) -> str:
    """The id of a scheduler record, as `label`."""
    if record.het_job_id:
        return f"{record.het_job_id}+{record.id - record.het_job_id}"
    return label(record.id, record.array_job_id, record.array_task_id, record.tasks)


def job_label(job: Job) -> str:
    """The id of a core record, as `label`."""
    if job.het_job_id:
        return f"{job.het_job_id}+{job.het_offset}"
    return label(job.id, job.array_job_id, job.array_task_id, int(job.array.pending, 16) if job.array else None)


def limit_text(minutes: int) -> str:
    """A time limit as Slurm writes it."""
    return "no time limit" if minutes >= INFINITE else format_duration(minutes * 60)


def asks(request: Request) -> tuple[str, ...]:
    """The request in phrases."""
    return tuple(phrase for part in (_size(request), _devices(request), _where(request)) for phrase in part)


def _size(request: Request) -> Iterable[str]:
    most = request.nodes_max
    if most is None:
        nodes = f"{request.nodes_min} or more nodes"
    elif most == request.nodes_min:
        nodes = count(most, "node")
    else:
        nodes = f"{request.nodes_min} to {most} nodes"
    yield nodes + (", whole" if request.whole else "")
    cpus = count(request.cpus_per_task, "CPU")
    if request.tasks is not None:
        yield f"{count(request.tasks, 'task')} of {cpus}"
    else:
        yield f"{count(request.tasks_per_node_fixed, 'task')} a node of {cpus}"
    if request.memory_per_node is not None:
        yield "all memory of each node" if not request.memory_per_node else f"{memory(request.memory_per_node)} a node"
    elif request.memory_per_cpu:
        yield f"{memory(request.memory_per_cpu)} a CPU"
    elif request.memory_per_gpu:
        yield f"{memory(request.memory_per_gpu)} a GPU"
    if request.tmp_mib:
        yield f"{memory(request.tmp_mib)} of local disk"


def _devices(request: Request) -> Iterable[str]:
    for need in request.gres_node:
        yield f"{gres_noun(need.name, need.type, need.count)} a node"
    for need in request.gres_task:
        yield f"{gres_noun(need.name, need.type, need.count)} a task"
    if request.gpu_types:
        yield listed([gres_noun(need.name, need.type, need.count) for need in request.gpu_types]) + " in all"
    elif request.gres_total is not None:
        need = request.gres_total
        yield f"{gres_noun(need.name, need.type, need.count)} in all"
    if request.licenses:
        yield f"licenses {request.licenses}"


def _where(request: Request) -> Iterable[str]:
    if request.features:
        yield f"features {request.features}"
    if request.switches:
        yield f"at most {count(request.switches, 'leaf switch', 'leaf switches')}"
    if request.contiguous:
        yield "neighbouring nodes"
    yield f"for {limit_text(request.time_limit_minutes)}"
