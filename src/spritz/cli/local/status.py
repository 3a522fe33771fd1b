"""Show daemons, nodes, CPUs, memory, GPUs and jobs at a glance."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from spritz.cli.call.context import Context
from spritz.cli.local import rest
from spritz.cli.local.paths import ClusterPaths
from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError, NoDaemonHere, RemoteError
from spritz.client.locate import locate_controller
from spritz.client.trust.same_machine import is_here
from spritz.model.errors import SpritzError
from spritz.model.queries.daemons import Ping, Pong
from spritz.model.queries.jobs import JobRows, ListJobs
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.notation.duration import format_duration
from spritz.notation.oneline import one_line

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from spritz.client.command.sync import Connection
    from spritz.model.queries.nodes import NodeView


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="DIR", help="directory of the cluster (default: the one that commands find)")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: Namespace, context: Context) -> int:
    """0: the controller answers and at least one node is up; 1 otherwise."""
    conf = ClusterPaths.of(arguments.dir).slurm_conf if arguments.dir else None
    try:
        config = locate_controller(conf)
        with connect_controller(config) as controller:
            facts = _gather(controller)
        facts["slurm_conf"] = config.path
        facts["rest"] = rest.socket_of(config.path)
    except RemoteError as error:
        # The controller hides nodes from this user (PrivateData=nodes).
        raise SpritzError(f"slurmctld answers, but does not show nodes: {error.message}") from error
    except ClientError as error:
        stands_by = error.code == "ESLURM_IN_STANDBY_MODE"  # daemons run, and the hint says why none leads
        facts = {
            "up": False,
            "error": f"{error.message}: {error.hint}" if stands_by and error.hint else error.message,
            "slurm_conf": conf or "",
            "elsewhere": elsewhere(conf),
            "stands_by": stands_by,
            "unknown": error.hint if isinstance(error, NoDaemonHere) else "",
        }
    if arguments.json:
        context.out(json.dumps(facts, indent=2) + "\n")
    else:
        _print(context, facts)
    return 0 if facts["up"] and facts["nodes"]["usable"] else 1


def elsewhere(conf: str | None) -> str:
    """The controllers of a slurm.conf (None: the one that commands find) that are on other machines; "" if none is."""
    try:
        config = locate_controller(conf)
    except ClientError:
        return ""
    places = [(name, host) for name, host in zip(config.names, config.hosts, strict=False) if not is_here((host,))]
    return ", ".join(name if name == host else f"{name} ({host})" for name, host in places)


def _gather(controller: Connection) -> dict:  # type: ignore[type-arg]  # plain JSON

    pong = controller.call(Ping(), Pong)
    answer = controller.joined(ListNodes(all=True, pieces=True), Nodes, "nodes")
    jobs: dict[str, int] = {}
    for piece in controller.stream(ListJobs(fields=("state",), all=True), JobRows):
        for (state,) in piece.rows:
            jobs[str(state)] = jobs.get(str(state), 0) + 1
    return {
        "up": True,
        "controller": {
            "host": pong.host,
            "pid": pong.pid,
            "version": pong.software,
            "slurm_version": pong.version,
            "uptime_seconds": round(pong.now - pong.started_at, 1),
        },
        "nodes": _node_facts(answer.nodes),
        "jobs": jobs,
    }


def _node_facts(views: list[NodeView]) -> dict[str, object]:
    unusable = {"DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "UNKNOWN", "FUTURE"}
    troubled = [view for view in views if unusable & set(view.state_names)]
    return {
        "total": len(views),
        "usable": len(views) - len(troubled),
        "cpus": sum(view.node.config.capacity.cpus for view in views),
        "cpus_allocated": sum(view.cpus_allocated for view in views),
        "memory_mib": sum(view.node.config.capacity.memory_mib for view in views),
        "memory_allocated_mib": sum(view.memory_allocated_mib for view in views),
        "gpus": sum(gres.count for view in views for gres in view.node.config.capacity.gres if gres.name == "gpu"),
        "gpus_allocated": sum(count for view in views for name, _, count, _ in view.gres_used if name == "gpu"),
        "trouble": {
            view.node.name: {"state": "+".join(view.state_names), "reason": view.node.reason} for view in troubled
        },
    }


def _print(context: Context, facts: dict) -> None:  # type: ignore[type-arg]
    if not facts["up"]:
        if facts["unknown"]:
            context.out(f"Unknown from this machine: {facts['unknown']}.\n")
            return
        context.out(f"Down: {facts['error']}\n")
        place = facts["elsewhere"]
        first = f"Its controller is on {place}; " if place else "Start a cluster with `spritz up`; "
        context.out(f"{'' if facts['stands_by'] else first}`spritz doctor` shows what is wrong.\n")
        return
    controller, nodes, jobs = facts["controller"], facts["nodes"], facts["jobs"]

    uptime = format_duration(int(controller["uptime_seconds"]))
    context.out(f"Controller  up {uptime} on {controller['host']} (pid {controller['pid']}, {controller['version']})\n")
    context.out(f"Nodes       {nodes['usable']} of {nodes['total']} usable\n")
    context.out(f"CPUs        {nodes['cpus_allocated']} of {nodes['cpus']} allocated\n")
    context.out(f"Memory      {nodes['memory_allocated_mib']} of {nodes['memory_mib']} MiB allocated\n")
    if nodes["gpus"]:
        context.out(f"GPUs        {nodes['gpus_allocated']} of {nodes['gpus']} allocated\n")
    counted = ", ".join(f"{count} {state.lower()}" for state, count in sorted(jobs.items())) or "none"
    context.out(f"Jobs        {counted}\n")
    for name, trouble in nodes["trouble"].items():
        context.out(f"  {name}: {trouble['state']} {one_line(trouble['reason'])}\n")
    if facts["rest"]:
        context.out(f"REST        unix:{facts['rest']}\n")
    if facts["slurm_conf"]:
        context.out(f"Configured  {facts['slurm_conf']}\n")
