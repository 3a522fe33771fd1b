"""Nodes in full: `scontrol --json show node`. Source: OpenAPI `node` v0.0.43."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.rules.gpu_cores import cores_for_gpus
from spritz.notation.ranges import format_ids
from spritz.notation.tres import format as format_tres
from spritz.presentation.json.envelope import show
from spritz.presentation.json.values import moment, number
from spritz.presentation.node.node_text import allocated_tres, configured_tres, gres_text, gres_used_text
from spritz.presentation.users import name_of

if TYPE_CHECKING:
    from typing import Any

    from spritz.model.queries.nodes import NodeView
    from spritz.presentation.json.envelope import Output

    Json = dict[str, Any]


def show_records(output: Output, version_word: str, now: float, views: list[NodeView]) -> None:
    show(
        output,
        version_word,
        {"nodes": [node_json(view) for view in views], "last_update": moment(now)},
        "GET /slurm/nodes",
    )


def node_json(view: NodeView) -> Json:
    """One record, keys in alphabetical order."""
    node, config, capacity = view.node, view.node.config, view.node.config.capacity
    reserved = int(capacity.cpus_reserved, 16)
    body = {
        "active_features": list(node.active),
        "address": node.address,
        "alloc_cpus": view.cpus_allocated,
        "alloc_idle_cpus": max(0, capacity.cpus - view.cpus_allocated),
        "alloc_memory": view.memory_allocated_mib,
        "architecture": node.architecture,
        "boards": capacity.boards,
        "boot_time": moment(node.booted_at),
        "burstbuffer_network_address": "",
        "cert_flags": [],
        "cluster_name": "",
        "comment": node.comment,
        "cores": capacity.cores_per_socket,
        "cpu_binding": 0,
        "cpu_load": view.sample.cpu_load if view.sample is not None else 0,
        "cpus": capacity.cpus,
        "effective_cpus": capacity.cpus - reserved.bit_count(),
        "energy": _NO_ENERGY,
        "external_sensors": {},
        "extra": node.extra,
        "features": list(node.available),
        "free_mem": number(view.sample.free_memory_mib if view.sample is not None else None),
        "gpu_spec": format_ids(cores_for_gpus(capacity)),
        "gres": gres_text(view),
        "gres_drained": "N/A",
        "gres_used": gres_used_text(view, indexes=True),
        "hostname": node.hostname,
        "instance_id": "",
        "instance_type": "",
        "last_busy": moment(node.last_busy_at),
        "mcs_label": view.mcs_label,
        "name": config.name,
        "next_state_after_reboot": (node.next_state or "INVALID").split("+"),
        "operating_system": node.operating_system,
        "owner": "",
        "partitions": list(view.partitions),
        "port": config.port,
        "power": {},
        "real_memory": capacity.memory_mib,
        "res_cores_per_gpu": capacity.cores_per_gpu,
        "reason": node.reason,
        "reason_changed_at": moment(node.reason_at),
        "reason_set_by_user": name_of(node.reason_uid) if node.reason else "",
        "reservation": view.reservation,
        "resume_after": number(int(node.resume_at) or None),
        "slurmd_start_time": moment(node.daemon_started_at),
        "sockets": capacity.sockets,
        "specialized_cores": 0,
        "specialized_cpus": "",
        "specialized_memory": capacity.memory_reserved_mib,
        "state": list(view.state_names),
        "temporary_disk": capacity.tmp_mib,
        "threads": capacity.threads_per_core,
        "tls_cert_last_renewal": moment(0),
        "tres": format_tres(configured_tres(view)),
        "tres_used": format_tres(allocated_tres(view)),
        "tres_weighted": float(view.cpus_allocated),
        "version": node.version,
        "weight": config.weight,
    }
    return dict(sorted(body.items()))


#: Slurm's values without an energy plugin
_NO_ENERGY: Json = {
    "average_watts": 0,
    "base_consumed_energy": 0,
    "consumed_energy": 0,
    "current_watts": number(None),
    "last_collected": 0,
    "previous_consumed_energy": 0,
}
