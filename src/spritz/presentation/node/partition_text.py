"""A partition's record as `scontrol show partition` writes it.

Source: scontrol(1) show partition; order of 22.05 with the changes of 25.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits.usage import billable
from spritz.notation.duration import format_minutes
from spritz.notation.hostlist import compress
from spritz.notation.tres import format as format_tres
from spritz.presentation.node.node_text import configured_tres
from spritz.presentation.record import join, limit, yes_no

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.model.node.partition import Partition
    from spritz.model.queries.nodes import NodeView


def _all(names: tuple[str, ...]) -> str:
    return ",".join(names) if names else "ALL"


def totals(partition: Partition, views: Mapping[str, NodeView]) -> list[tuple[str, int]]:
    """TRES of all its nodes, summed."""
    sums: dict[str, int] = {"cpu": 0, "mem": 0, "node": 0, "billing": 0}
    for name in partition.nodes:
        view = views.get(name)
        if view is None:
            continue
        sums["node"] += 1
        for key, count in configured_tres(view):
            sums[key] = sums.get(key, 0) + count
    if partition.billing_weights:
        sums["billing"] = int(billable(partition.billing_weights, sums.items()))
    return [(key, count) for key, count in sums.items() if count]


def total_cpus(partition: Partition, views: Mapping[str, NodeView]) -> int:
    """CPUs of all its nodes. As in Slurm these include specialized ones, and TRES does not."""
    return sum(views[name].node.config.capacity.cpus for name in partition.nodes if name in views)


def job_defaults(partition: Partition) -> str:
    words = []
    if partition.default_cpus_per_gpu:
        words.append(f"DefCpuPerGPU={partition.default_cpus_per_gpu}")
    if partition.default_memory_mib_per_gpu:
        words.append(f"DefMemPerGPU={partition.default_memory_mib_per_gpu}")
    return ",".join(words) or "(null)"


def memory_limits(partition: Partition) -> str:
    """`DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED`, or the limits per CPU."""
    if partition.default_memory_mib_per_cpu:
        default = f"DefMemPerCPU={partition.default_memory_mib_per_cpu}"
    else:
        default = f"DefMemPerNode={partition.default_memory_mib_per_node or 'UNLIMITED'}"
    if partition.max_memory_mib_per_cpu:
        most = f"MaxMemPerCPU={partition.max_memory_mib_per_cpu}"
    else:
        most = f"MaxMemPerNode={partition.max_memory_mib_per_node or 'UNLIMITED'}"
    return f"{default} {most}"


def record_text(partition: Partition, views: Mapping[str, NodeView], oneliner: bool = False) -> str:
    """The record of `scontrol show partition`; `views`: nodes by name, for its totals."""
    p = partition
    sums = dict(totals(p, views))
    default = "NONE" if p.default_time_minutes is None else format_minutes(p.default_time_minutes)
    accounts = _rule("Accounts", p.allow_accounts, p.deny_accounts)
    qos = _rule("Qos", p.allow_qos, p.deny_qos)
    over = "NONE" if p.over_time_minutes is None else limit(p.over_time_minutes)
    bind = f"CpuBind={p.cpu_bind}  " if p.cpu_bind else ""
    lines = [
        f"PartitionName={p.name}",
        f"{_rule('Groups', p.allow_groups, p.deny_groups)} {accounts} {qos}",
        f"AllocNodes={_all(p.allow_alloc_nodes)} Default={yes_no(p.default)} {bind}QoS={p.qos or 'N/A'}",
    ]
    if p.alternate:
        lines.append(f"Alternate={p.alternate}")
    lines += [
        f"DefaultTime={default} DisableRootJobs={yes_no(p.disable_root_jobs)} ExclusiveUser={yes_no(p.exclusive_user)} "
        f"ExclusiveTopo={yes_no(p.exclusive_topo)} GraceTime={p.grace_seconds} Hidden={yes_no(p.hidden)}",
        f"MaxNodes={limit(p.max_nodes)} MaxTime={format_minutes(p.max_time_minutes)} MinNodes={p.min_nodes} "
        f"LLN={yes_no(p.lln)} MaxCPUsPerNode={limit(p.max_cpus_per_node)} "
        f"MaxCPUsPerSocket={limit(p.max_cpus_per_socket)}",
        f"Nodes={compress(p.nodes) or '(null)'}",
        f"PriorityJobFactor={p.priority_job_factor} PriorityTier={p.priority_tier} RootOnly={yes_no(p.root_only)} "
        f"ReqResv={yes_no(p.require_reservation)} OverSubscribe={p.oversubscribe}",
        f"OverTimeLimit={over} PreemptMode={p.preempt_mode or 'OFF'}",
        f"State={p.state.value} TotalCPUs={total_cpus(p, views)} TotalNodes={sums.get('node', 0)} "
        f"SelectTypeParameters={_select(p)}",
        f"JobDefaults={job_defaults(p)}",
        memory_limits(p),
        f"TRES={format_tres(sums.items()) or '(null)'}",
    ]
    if p.billing_weights_text:
        lines.append(f"TRESBillingWeights={p.billing_weights_text}")
    return join(lines, oneliner)


def _select(partition: Partition) -> str:
    if not partition.consumable:
        return "NONE"
    return f"CR_{partition.consumable.upper()}" + ("_MEMORY" if partition.memory_consumable else "")


def _rule(what: str, allowed: tuple[str, ...], denied: tuple[str, ...]) -> str:
    """With both lists, the denied one is ignored (model.partition)."""
    return f"Deny{what}={','.join(denied)}" if denied and not allowed else f"Allow{what}={_all(allowed)}"
