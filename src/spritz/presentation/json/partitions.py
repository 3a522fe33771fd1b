"""Partitions in full: `scontrol --json show partition`, and REST. Source: OpenAPI `partition_info` v0.0.43, v0.0.45."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.hostlist import compress
from spritz.notation.tres import format as format_tres
from spritz.presentation.json.envelope import show
from spritz.presentation.json.values import moment, number
from spritz.presentation.node.partition_text import job_defaults, total_cpus, totals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from spritz.model.node.partition import Partition
    from spritz.model.queries.nodes import NodeView
    from spritz.presentation.json.envelope import Output

    Json = dict[str, Any]


#: Flag of v0.0.45 -> field of a partition.
FLAGS = {
    "DEFAULT": "default",
    "HIDDEN": "hidden",
    "NO_ROOT": "disable_root_jobs",
    "ROOT_ONLY": "root_only",
    "REQ_RESV": "require_reservation",
    "LLN": "lln",
    "EXCLUSIVE_USER": "exclusive_user",
    "EXCLUSIVE_TOPO": "exclusive_topo",
    "PDOI": "power_down_on_idle",
}


def show_records(
    output: Output, version_word: str, now: float, partitions: Sequence[Partition], views: Mapping[str, NodeView]
) -> None:
    body = {"partitions": [partition_json(partition, views) for partition in partitions], "last_update": moment(now)}
    show(output, version_word, body, "GET /slurm/partitions")


def partition_json(p: Partition, views: Mapping[str, NodeView]) -> Json:
    """One record, with totals over the nodes `views`."""
    sums = totals(p, views)
    share, _, jobs = p.oversubscribe.partition(":")
    return {
        "nodes": {
            "allowed_allocation": ",".join(p.allow_alloc_nodes),
            "configured": p.nodes_text or compress(p.nodes),
            "total": dict(sums).get("node", 0),
        },
        "accounts": {"allowed": ",".join(p.allow_accounts), "deny": ",".join(p.deny_accounts)},
        "groups": {"allowed": ",".join(p.allow_groups), "deny": ",".join(p.deny_groups)},
        "qos": {"allowed": ",".join(p.allow_qos), "deny": ",".join(p.deny_qos), "assigned": p.qos},
        "alternate": p.alternate,
        "tres": {"billing_weights": p.billing_weights_text, "configured": format_tres(sums)},
        "cluster": "",
        "select_type": [],
        "cpus": {"task_binding": 0, "total": total_cpus(p, views)},
        "defaults": {
            "memory_per_cpu": p.default_memory_mib_per_cpu,
            "partition_memory_per_cpu": number(p.default_memory_mib_per_cpu or None),
            "partition_memory_per_node": number(p.default_memory_mib_per_node or None),
            "time": number(p.default_time_minutes),
            "job": "" if job_defaults(p) == "(null)" else job_defaults(p),
        },
        "grace_time": p.grace_seconds,
        "maximums": {
            "cpus_per_node": number(p.max_cpus_per_node),
            "cpus_per_socket": number(p.max_cpus_per_socket),
            "memory_per_cpu": p.max_memory_mib_per_cpu,
            "partition_memory_per_cpu": number(p.max_memory_mib_per_cpu or None),
            "partition_memory_per_node": number(p.max_memory_mib_per_node or None),
            "nodes": number(p.max_nodes),
            "shares": int(jobs) if jobs.isdecimal() else 1,
            "oversubscribe": {
                "jobs": int(jobs) if jobs.isdecimal() else 1,
                "flags": ["force"] if share == "FORCE" else [],
            },
            "time": number(p.max_time_minutes),
            "over_time_limit": number(p.over_time_minutes),
        },
        "minimums": {"nodes": p.min_nodes},
        "name": p.name,
        "node_sets": "",
        "priority": {"job_factor": p.priority_job_factor, "tier": p.priority_tier},
        "timeouts": {"resume": number(None), "suspend": number(None)},
        "topology": "",
        "partition": {"state": [p.state.value]},
        "suspend_time": number(None),
    }


def newest_partition_json(p: Partition, views: Mapping[str, NodeView], cluster: str) -> Json:
    """One record with the fields that v0.0.45 added; slurmrestd leaves them out of answers in older forms."""
    record = partition_json(p, views)
    exclusive = "USER" if p.exclusive_user else "TOPO" if p.exclusive_topo else ""
    return {
        **record,
        "cluster": cluster,
        "flags": [flag for flag, field in FLAGS.items() if getattr(p, field)],
        "preempt_mode": [word for word in p.preempt_mode.upper().split(",") if word],
        "partition": {**record["partition"], "oversubscribe": p.oversubscribe, "exclusive": exclusive},
    }
