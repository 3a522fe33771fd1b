"""A node's record as `scontrol show node` writes it.

Source: scontrol(1) show node; order of 22.05 with the changes of 25.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.ranges import format_ids
from spritz.notation.tres import format as format_tres
from spritz.presentation.node.node_text import allocated_tres, configured_tres, cpus_for_jobs, gres_text, gres_used_text
from spritz.presentation.record import join, moment, or_null
from spritz.presentation.users import name_of

if TYPE_CHECKING:
    from spritz.model.queries.nodes import NodeView
    from spritz.model.resources import NodeCapacity


def record_text(view: NodeView, oneliner: bool = False, details: int = 0) -> str:
    """The record of one node. `details`: with GRES in use (-d)."""
    node, config, capacity = view.node, view.node.config, view.node.config.capacity
    architecture = f"Arch={node.architecture} " if node.architecture else ""
    bind = f"CpuBind={config.cpu_bind} " if config.cpu_bind else ""
    load = f"{view.sample.cpu_load / 100:.2f}" if view.sample is not None else "N/A"
    free = str(view.sample.free_memory_mib) if view.sample is not None else "N/A"
    version = f" Version={node.version}" if node.version else ""
    gres = or_null(gres_text(view))
    lines = [
        f"NodeName={config.name} {architecture}{bind}CoresPerSocket={capacity.cores_per_socket} ",
        f"CPUAlloc={view.cpus_allocated} CPUEfctv={cpus_for_jobs(capacity)} CPUTot={capacity.cpus} CPULoad={load}",
        f"AvailableFeatures={or_null(','.join(node.available))}",
        f"ActiveFeatures={or_null(','.join(node.active))}",
        f"Gres={gres}",
    ]
    if details:
        lines += ["GresDrain=N/A", f"GresUsed={or_null(gres_used_text(view, indexes=True))}"]
    lines.append(f"NodeAddr={node.address} NodeHostName={node.hostname} Port={config.port}{version}")
    if node.operating_system:
        lines.append(f"OS={node.operating_system} ")
    lines += [
        f"RealMemory={capacity.memory_mib} AllocMem={view.memory_allocated_mib} FreeMem={free} "
        f"Sockets={capacity.sockets} Boards={capacity.boards}",
    ]
    if special := _specialized(capacity):
        lines.append(special)
    lines.append(
        f"State={'+'.join(view.state_names)} ThreadsPerCore={capacity.threads_per_core} TmpDisk={capacity.tmp_mib} "
        f"Weight={config.weight} Owner={view.owner or 'N/A'} MCS_label={view.mcs_label or 'N/A'}"
    )
    if capacity.cores_per_gpu:
        from spritz.model.rules.gpu_cores import cores_for_gpus

        lines.append(f"RestrictedCoresPerGPU={capacity.cores_per_gpu}({format_ids(cores_for_gpus(capacity))})")
    if view.partitions:
        lines.append(f"Partitions={','.join(view.partitions)} ")
    if node.place:
        lines.append(f"Topology={node.place}")
    lines += [
        f"BootTime={moment(node.booted_at, 'None')} SlurmdStartTime={moment(node.daemon_started_at, 'None')}",
        f"LastBusyTime={moment(node.last_busy_at)} ResumeAfterTime={moment(node.resume_at, 'None')}",
        f"CfgTRES={format_tres(configured_tres(view))}",
        f"AllocTRES={format_tres(allocated_tres(view))}",
        "CurrentWatts=0 AveWatts=0",
    ]
    if node.comment:
        lines.append(f"Comment={node.comment}")
    if node.extra:
        lines.append(f"Extra={node.extra}")
    if node.reason:
        lines.append(f"Reason={node.reason} [{name_of(node.reason_uid)}@{moment(node.reason_at)}]")
    return join(lines, oneliner)


def _specialized(capacity: NodeCapacity) -> str:
    """Cores and memory reserved for the system; "" if there are none."""
    words = []
    reserved = int(capacity.cpus_reserved, 16)
    if reserved:
        cores = -(-reserved.bit_count() // capacity.threads_per_core)
        words += [f"CoreSpecCount={cores}", f"CPUSpecList={format_ids(reserved)}"]
    if capacity.memory_reserved_mib:
        words.append(f"MemSpecLimit={capacity.memory_reserved_mib}")
    return " ".join((*words, "")) if words else ""
