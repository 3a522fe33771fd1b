"""Find GPU counts that contradict each other, which the commands refuse without asking the controller. Pure.

Source: sbatch(1) --gpus, --gpus-per-node, --gpus-per-socket, --gpus-per-task; the messages, which programs read, are
those that 22.05 printed.
"""

from __future__ import annotations

from collections.abc import Mapping

_BAD = "Failed to validate job spec"
_NODE = "--gres=gpu/--gpus-per-node"


def contradiction(fields: Mapping[str, object]) -> str:
    """A message about the first type of GPU whose counts contradict each other; "" if none do."""
    requests = [
        _counts(fields, "gpus"),
        {**_counts(fields, "gpus_per_node"), **_counts(fields, "gres_per_node")},  # --gres counts before the other
        _counts(fields, "gpus_per_socket"),
        _counts(fields, "gpus_per_task", "gres_per_task"),
    ]
    kinds = sorted({kind for counts in requests for kind in counts})
    messages = (_of_type(fields, *(counts.get(kind, 0) for counts in requests)) for kind in kinds)
    return next((message for message in messages if message), "")


def _of_type(fields: Mapping[str, object], total: int, node: int, socket: int, task: int) -> str:
    sockets = _number(fields, "sockets_per_node")
    if total and max(node, socket, task) > total:
        return f"Failed to ensure --gpus >= {_NODE} >= --gpus-per-socket"
    if node and max(socket, task) > node:
        return "Failed to ensure --gpus >= --gpus-per-task"
    if socket and not sockets:
        return "--gpus-per-socket option requires --sockets-per-node specification"
    if fields.get("cpus_per_gpu") and fields.get("cpus_per_task"):
        return "--cpus-per-gpu is mutually exclusive with --cpus-per-task"
    if total and node:
        if total % node:
            return f"{_BAD}, --gpus is not multiple of {_NODE}"
        least, most = _number(fields, "nodes_min"), _number(fields, "nodes_max")
        if fields.get("nodes_given") and not least <= total // node <= (most or total):
            return (
                f"{_BAD}. Based on --gpu and {_NODE} required nodes ({total // node}) doesn't fall between "
                f"min_nodes ({least}) and max_nodes ({most}) boundaries."
            )
    if node and socket:
        if node % socket:
            return f"{_BAD}, {_NODE} not multiple of --gpus-per-socket."
        if sockets != node // socket:
            return (
                f"{_BAD}. Based on {_NODE} and --gpus-per-socket required number of sockets differ from "
                "--sockets-per-node."
            )
    if total and task:
        if total % task:
            return f"{_BAD}, --gpus not multiple of --gpus-per-task"
        if fields.get("tasks_given") and _number(fields, "tasks") != total // task:
            return f"{_BAD}. Based on --gpus and --gpus-per-task number of requested tasks differ from -n/--ntasks."
    if node and task:
        if node % task:
            return f"{_BAD}, {_NODE} not multiple of --gpus-per-task."
        if _number(fields, "tasks_per_node") not in (0, node // task):
            return (
                f"{_BAD}. Based on {_NODE} and --gpus-per-task requested number of tasks per node differ from "
                "--ntasks-per-node."
            )
    if total and fields.get("nodes_given") and total < _number(fields, "nodes_min"):
        return f"{_BAD}, --gpus < -N"
    return ""


def _counts(fields: Mapping[str, object], *names: str) -> dict[str, int]:
    """Number of GPUs by type, "" for GPUs of any type, from the fields `names`."""
    counts: dict[str, int] = {}
    for name in names:
        requests = fields.get(name)
        for request in requests if isinstance(requests, tuple) else ():
            if request.name == "gpu":
                counts[request.type] = counts.get(request.type, 0) + request.count
    return counts


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) else 0
