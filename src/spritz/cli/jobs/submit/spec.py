"""Build the request from options: parse each option (`setters`), then derive and check fields that depend on several.

Source: sbatch(1), salloc(1), srun(1); texts of Slurm 22.05.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from spritz.cli.jobs.submit.gpu_counts import contradiction
from spritz.cli.jobs.submit.refusals import Fields, Refusal, Source
from spritz.cli.jobs.submit.rows import NO_EFFECT
from spritz.cli.jobs.submit.setters import SETTERS, read_hosts
from spritz.model.errors import SpritzError
from spritz.model.job.record import JobSpec
from spritz.notation import nodecount
from spritz.notation.errors import NotationError

if TYPE_CHECKING:
    from spritz.cli.call.context import Context
    from spritz.cli.jobs.submit.values import Values


def source_of(context: Context) -> Source:
    """The context in which this command's option values are parsed."""
    return Source(None, context.cwd, context.environ, context.err, context.warn)


def build(values: Values, source: Source, *, defaults: Fields | None = None) -> JobSpec:
    """The request that the options describe. Raises SpritzError for a bad value or combination."""
    return job_spec(fields_of(values, source, defaults=defaults))


def fields_of(values: Values, source: Source, *, defaults: Fields | None = None) -> Fields:
    """The fields of JobSpec that options set, before those that follow from several. Raises SpritzError."""
    fields: Fields = dict(defaults or {})
    for key, value in values.items():
        setter = SETTERS.get(key)
        if setter is not None:
            try:
                setter(fields, value, source)
            except NotationError as error:
                raise SpritzError(str(error)) from error
        if key in NO_EFFECT:
            source.warn(f"--{key} has no effect: {NO_EFFECT[key]}")
    _arbitrary(fields, source)
    _tasks_of_shape(fields, extra="extra-node-info" in values)
    _tasks_of_gpus(fields)
    return fields


def job_spec(fields: Fields) -> JobSpec:
    """The request, with fields that follow from several options. Does not change `fields`. Raises SpritzError."""
    fields = dict(fields)
    _derive(fields)
    if "licenses_per_task" in fields:
        from spritz.cli.jobs.submit.per_task import add_licenses

        add_licenses(fields)
    _check(fields)
    return JobSpec(**fields)  # type: ignore[arg-type]  # the setters put what JobSpec takes


def immediate_seconds(value: str) -> int:
    """Parse --immediate: seconds to wait; 0 means at once. Raises NotationError."""
    return nodecount.parse_count(value, "immediate", minimum=0) if value else 0


def fewer_nodes(fields: Fields) -> str:
    """Reduce the nodes to the number of tasks if there are fewer tasks. Returns Slurm's warning then, else ""."""
    nodes, tasks = _number(fields, "nodes_min"), _number(fields, "tasks")
    if not (fields.get("nodes_given") and fields.get("tasks_given")):
        return ""
    if tasks < _number(fields, "nodes_max", 0):
        fields["nodes_max"] = tasks
    if tasks >= nodes:
        return ""
    fields["nodes_min"] = fields["nodes_max"] = tasks
    hosts = fields.get("node_list")
    if isinstance(hosts, tuple):
        fields["node_list"] = hosts[:tasks]
    return f"Warning: can't run {tasks} processes on {nodes} nodes, setting nnodes to {tasks}"


def fit_tasks_per_node(fields: Fields) -> str:
    """Drop --ntasks-per-node if the tasks and nodes contradict it, as srun does in jobs of several tasks a node.

    Returns Slurm's warning if fewer tasks were asked for on a node than there are, else "". Source: Slurm 22.05 srun.
    """
    per_node = _number(fields, "tasks_per_node", 0)
    nodes, tasks = _number(fields, "nodes_min"), _number(fields, "tasks")
    if not (per_node and nodes and fields.get("nodes_given") and fields.get("tasks_given")):
        return ""
    if tasks // nodes == per_node:
        return ""
    del fields["tasks_per_node"]
    if tasks <= per_node:
        return ""
    return (
        f"Warning: can't honor --ntasks-per-node set to {per_node} which doesn't match the requested tasks {tasks} with"
        f" the number of requested nodes {nodes}. Ignoring --ntasks-per-node."
    )


def _arbitrary(fields: Fields, source: Source) -> None:
    """--distribution=arbitrary: each line of SLURM_HOSTFILE (or name of -w) is the node of a task, in order."""
    if fields.get("distribution") != "arbitrary":
        return
    path = source.environ.get("SLURM_HOSTFILE", "")
    if path and not fields.get("node_list"):
        fields["node_list"] = read_hosts(path, source, "nodelist")
    hosts = fields.get("node_list")
    if not isinstance(hosts, tuple):
        return
    if not fields.get("tasks_given"):
        fields["tasks"], fields["tasks_given"] = len(hosts), True
    fields["node_list"] = hosts = hosts[: _number(fields, "tasks")]
    fields["nodes_min"] = fields["nodes_max"] = len(set(hosts))
    fields["nodes_given"] = True
    # Each node must be able to hold as many tasks as the node with the most.
    cpus_per_task = _number(fields, "cpus_per_task")
    fields["cpus_per_node_min"] = cpus_per_task * max((hosts.count(name) for name in set(hosts)), default=1)


def _derive(fields: Fields) -> None:
    nodes = fields.get("nodes_min")
    hosts = fields.get("node_list")
    if isinstance(hosts, tuple) and fields.get("distribution") != "arbitrary":  # where each host is the node of a task
        fields["node_list"] = hosts = tuple(dict.fromkeys(hosts))
        # The allocation contains all of these nodes, so it has at least as many.
        sized = fields.get("nodes_given") or fields.get("tasks_given")
        if not sized and len(hosts) > _number(fields, "nodes_min"):
            fields["nodes_min"] = nodes = len(hosts)
    per_node = fields.get("tasks_per_node")
    if not fields.get("tasks_given"):
        if isinstance(per_node, int) and isinstance(nodes, int):
            fields["tasks"] = per_node * nodes
        elif isinstance(nodes, int):
            fields["tasks"] = nodes
    if not fields.get("nodes_given") and isinstance(per_node, int):
        fields["nodes_min"] = -(-_number(fields, "tasks") // per_node)


def _tasks_of_shape(fields: Fields, *, extra: bool) -> None:
    """Without -n, derive the number of tasks from the nodes and the tasks on each. `extra`: -B is given.

    Source: Slurm 22.05; the same in sbatch, salloc and srun.
    """
    nodes, most = _number(fields, "nodes_min"), _number(fields, "nodes_max", 0)
    if fields.get("tasks_given") or not (fields.get("nodes_given") or extra) or most not in (0, nodes):
        return
    shape = [fields.get(name) for name in ("sockets_per_node", "cores_per_socket", "threads_per_core")]
    counts = [count for count in shape if isinstance(count, int)]
    if counts:
        fields["tasks"], fields["tasks_given"] = nodes * math.prod(counts), True


def _tasks_of_gpus(fields: Fields) -> None:
    """Without -n, derive the number of tasks from --ntasks-per-gpu and the GPUs. Source: sbatch(1) --ntasks-per-gpu."""
    tasks_per_gpu = fields.get("tasks_per_gpu")
    if not isinstance(tasks_per_gpu, int) or fields.get("tasks_given"):
        return
    nodes = _number(fields, "nodes_min")
    for name, times in (("gpus", 1), ("gpus_per_node", nodes), ("gres_per_node", nodes)):
        requests = fields.get(name)
        if isinstance(requests, tuple):
            gpus = sum(request.count for request in requests if request.name == "gpu")
            if gpus:
                fields["tasks"] = tasks_per_gpu * gpus * times
                fields["tasks_given"] = True
                return


def _check(fields: Fields) -> None:
    hosts, most = fields.get("node_list"), _number(fields, "nodes_max", 0)
    if isinstance(hosts, tuple) and fields.get("nodes_given") and 0 < most < len(set(hosts)):
        raise SpritzError(f"invalid number of nodes (-N {len(set(hosts))}-{most})")
    begin, deadline = fields.get("begin_at"), fields.get("deadline_at")
    if isinstance(begin, int | float) and isinstance(deadline, int | float) and 0 < deadline < begin:
        raise SpritzError("Incompatible begin and deadline time specification")
    _check_memory_of_gpus(fields)
    why = contradiction(fields)
    if why:
        raise SpritzError(Refusal("ESLURM_INVALID_GRES").message, code="ESLURM_INVALID_GRES", details=(why,))
    sized = fields.get("tasks_given") or fields.get("gpus") or fields.get("gpus_per_node") or fields.get("nodes_given")
    per_task = fields.get("gpus_per_task") or fields.get("gres_per_task")
    if per_task and not (sized or fields.get("tasks_per_node")):
        why = "Failed to validate job spec. --gpus-per-task used without either --gpus or -n/--ntasks is not allowed."
        raise SpritzError(Refusal("ESLURM_INVALID_GRES").message, code="ESLURM_INVALID_GRES", details=(why,))


def _check_memory_of_gpus(fields: Fields) -> None:
    """Raises SpritzError if --mem-per-gpu is given and the job requests no GPU."""
    size = fields.get("memory_mib_per_gpu")
    if not size:
        return
    gpu_fields = [fields.get(name) for name in ("gpus", "gpus_per_node", "gpus_per_task", "gpus_per_socket")]
    generic = fields.get("gres_per_node")
    if not any(gpu_fields) and not (
        isinstance(generic, tuple) and any(request.name in ("gpu", "shard") for request in generic)
    ):
        why = f"Requested mem_per_tres=gres:gpu:{size} but did not request any GPU."
        raise SpritzError(Refusal("ESLURM_INVALID_GRES").message, code="ESLURM_INVALID_GRES", details=(why,))


def _number(fields: Fields, name: str, default: int = 1) -> int:
    value = fields.get(name, default)
    assert isinstance(value, int), f"{name} is parsed"
    return value
