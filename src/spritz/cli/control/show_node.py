"""`show node`, `show aliases`, `getaddrs`. Source: scontrol(1) show node; order of 22.05 with the changes of 25.05."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.presentation.node_text import allocated_tres, configured_tres, gres_text, gres_used_text
from spritz.presentation.record import join, moment, or_null

if TYPE_CHECKING:
    from spritz.cli.control.session import Session
    from spritz.model.queries import NodeView


def run(session: Session, words: list[str]) -> int:
    """show node [NAMES]"""
    from spritz.model.queries import ListNodes, Nodes
    from spritz.notation.hostlist import HostlistError, expand

    answer = session.joined(ListNodes(all=True, pieces=True), Nodes, "nodes")
    views = {view.node.name: view for view in answer.nodes}
    status = 0
    if words and words[0].upper() != "ALL":
        try:
            names = expand(words[0])
        except HostlistError as error:
            session.say(str(error))
            return 1
        chosen = []
        for name in names:
            if name in views:
                chosen.append(views[name])
            else:
                session.out(f"Node {name} not found\n")
                status = 1
    else:
        chosen = [view for view in answer.nodes if session.future or "FUTURE" not in view.state_names]
        if not chosen:
            session.out("No nodes in the system\n")
    if session.json is not None:
        from spritz.presentation.json.nodes import show_records

        show_records(session.context, session.json, answer.now, chosen)
        return status
    session.tell_age(answer.now, len(answer.nodes))
    session.out("".join([record_text(view, session.oneliner, session.details) for view in chosen]))
    return status


def record_text(view: NodeView, oneliner: bool = False, details: int = 0) -> str:
    """One node."""
    from spritz.notation.tres import format

    node, config, capacity = view.node, view.node.config, view.node.config.capacity
    architecture = f"Arch={node.architecture} " if node.architecture else ""
    bind = f"CpuBind={config.cpu_bind} " if config.cpu_bind else ""
    load = f"{view.sample.cpu_load / 100:.2f}" if view.sample is not None else "N/A"
    free = str(view.sample.free_memory_mib) if view.sample is not None else "N/A"
    version = f" Version={node.version}" if node.version else ""
    gres = or_null(gres_text(view))
    lines = [
        f"NodeName={config.name} {architecture}{bind}CoresPerSocket={capacity.cores_per_socket} ",
        f"CPUAlloc={view.cpus_allocated} CPUEfctv={capacity.cpus - int(capacity.cpus_reserved, 16).bit_count()} "
        f"CPUTot={capacity.cpus} CPULoad={load}",
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
        f"State={'+'.join(view.state_names)} ThreadsPerCore={capacity.threads_per_core} TmpDisk={capacity.tmp_mib} "
        f"Weight={config.weight} Owner={view.owner or 'N/A'} MCS_label={view.mcs_label or 'N/A'}",
    ]
    if capacity.memory_reserved_mib:
        lines.append(f"MemSpecLimit={capacity.memory_reserved_mib}")
    if capacity.cores_per_gpu:
        from spritz.model.gpu_cores import cores_for_gpus
        from spritz.notation.ranges import format_ids

        lines.append(f"RestrictedCoresPerGPU={capacity.cores_per_gpu}({format_ids(cores_for_gpus(capacity))})")
    if view.partitions:
        lines.append(f"Partitions={','.join(view.partitions)} ")
    if node.place:
        lines.append(f"Topology={node.place}")
    lines += [
        f"BootTime={moment(node.booted_at, 'None')} SlurmdStartTime={moment(node.daemon_started_at, 'None')}",
        f"LastBusyTime={moment(node.last_busy_at)} ResumeAfterTime={moment(node.resume_at, 'None')}",
        f"CfgTRES={format(configured_tres(view))}",
        f"AllocTRES={format(allocated_tres(view))}",
        "CurrentWatts=0 AveWatts=0",
    ]
    if node.comment:
        lines.append(f"Comment={node.comment}")
    if node.extra:
        lines.append(f"Extra={node.extra}")
    if node.reason:
        from spritz.presentation.people import name_of

        lines.append(f"Reason={node.reason} [{name_of(node.reason_uid)}@{moment(node.reason_at)}]")
    return join(lines, oneliner)


def aliases(session: Session, words: list[str]) -> int:
    """show aliases HOSTNAME: nodes on that host."""
    from spritz.model.queries import ListNodes, Nodes

    answer = session.joined(ListNodes(all=True, pieces=True), Nodes, "nodes")
    host = words[0] if words else _this_host()
    names = [v.node.name for v in answer.nodes if host in (v.node.hostname, v.node.address)]
    if names:
        session.out(" ".join(names) + "\n")
    return 0


def _this_host() -> str:
    import os

    return os.uname().nodename.partition(".")[0]


def addresses(session: Session, words: list[str]) -> int:
    """getaddrs HOSTS: `name: address:port` each."""
    from spritz.model.queries import ListNodes, Nodes
    from spritz.notation.hostlist import expand

    answer = session.call(ListNodes(names=tuple(expand(words[0])), all=True), Nodes)
    for view in answer.nodes:
        session.out(f"{view.node.name}: {view.node.address}:{view.node.config.port}\n")
    return 0
