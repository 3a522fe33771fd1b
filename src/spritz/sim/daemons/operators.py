"""Requests of administrators: scontrol about nodes, reservations, the configuration and the controllers themselves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from spritz.cli.control.daemons import take_over
from spritz.client.errors import ClientError
from spritz.client.sync import connect_controller
from spritz.model.commands.cluster import CreateNodes, DeleteNodes, UpdateNode, UpdatePartition
from spritz.model.commands.job import Done
from spritz.model.commands.reservation import (
    CreateReservation,
    DeleteReservation,
    ReservationMade,
    ReservationRequest,
)
from spritz.model.queries.daemons import Reconfigure, Shutdown
from spritz.sim.daemons.faults import performs
from spritz.sim.daemons.launches import Quiet
from spritz.sim.daemons.machine import USERS
from spritz.sim.daemons.wanted import Reserved

if TYPE_CHECKING:
    from spritz.sim.daemons.command import Command, Data
    from spritz.sim.daemons.plan import Action
    from spritz.sim.daemons.site import Site

#: A file with mistakes lies there for so long, seconds.
_MISTAKEN_SECONDS = 5.0


def set_node(command: Command, data: Data) -> None:
    """scontrol update NodeName= State=: drain, undrain (RESUME), DOWN. `data["nodes"]`, `data["state"]`."""
    state = data["state"]
    request = UpdateNode(names=tuple(data["nodes"]), state=state, reason=data.get("reason", "sim"))
    kind = {"DRAIN": "drain", "RESUME": "undrain", "UNDRAIN": "undrain"}.get(state, "set_node")
    command.ask(kind, request, Done, wanted=data)


def set_partition(command: Command, data: Data) -> None:
    """scontrol update PartitionName=."""
    request = UpdatePartition(name=data["partition"], changes=data["changes"])
    command.ask("set_partition", request, Done, wanted=data)


def node_add(command: Command, data: Data) -> None:
    """scontrol create NodeName=."""
    name = data["node"]
    site = command.users.site
    host = site.spare(name)
    line = f"NodeName={name} NodeAddr={host.address} CPUs=8 RealMemory=16000 State=UNKNOWN"
    command.ask("node_add", CreateNodes(line=line), Done, wanted=data)


def node_delete(command: Command, data: Data) -> None:
    """scontrol delete NodeName=."""
    name = data["node"]
    command.ask("node_delete", DeleteNodes(names=(name,)), Done, wanted=data)


def reserve(command: Command, data: Data) -> None:
    """scontrol create reservation: `data` as ReservationRequest."""
    fields: dict[str, Any] = {key: value for key, value in data.items() if key in ReservationRequest.__struct_fields__}
    for key in ("nodes", "users", "flags"):
        if key in fields:
            fields[key] = tuple(fields[key])
    if "licenses" in fields:
        fields["licenses"] = tuple(tuple(pair) for pair in fields["licenses"])
    request = ReservationRequest(**fields)
    reserved = Reserved(
        name=data["name"],
        start_at=data["start_at"],
        end_at=data["start_at"] + data["duration_seconds"],
        nodes=frozenset(data["nodes"]),
        uids=frozenset(USERS[name] for name in data["users"]),
    )
    command.ask("reserve", CreateReservation(request=request), ReservationMade, wanted=reserved)


def unreserve(command: Command, data: Data) -> None:
    command.ask("unreserve", DeleteReservation(name=data["name"]), Done, wanted=data["name"])


def reconfigure(command: Command, data: Data) -> None:
    """An administrator writes slurm.conf and calls scontrol reconfigure.

    `data["settings"]`: keys to change. `data["mistake"]`: a line that no daemon accepts; it is taken back soon.
    """
    site = command.users.site
    site.settings |= data.get("settings", {})
    mistake = data.get("mistake", "")
    site.write_conf(mistake)
    if mistake:
        command.world.after(data.get("seconds", _MISTAKEN_SECONDS), site.write_conf)
    command.ask("reconfigure", Reconfigure(), Done, wanted=data)


def shut_down(command: Command, data: Data) -> None:
    """scontrol shutdown slurmctld: the service manager starts it again."""
    command.ask("shutdown", Shutdown(controller_only=True), Done, wanted=data)


def takeover(command: Command, data: Data) -> None:
    """scontrol takeover INDEX."""
    operation = command.called("take_over", wanted=data)

    def call(request: Any, reply_type: Any, **options: Any) -> Any:
        with connect_controller(**options) as controller:
            return controller.call(request, reply_type)

    context = Quiet(command)
    session: Any = SimpleNamespace(say=context.info, context=context, call=call, close=lambda: None)
    try:
        status = take_over(session, [str(data.get("index", 1))])
    except ClientError as error:
        command.failed(operation, error)
        return
    if status:
        operation.answer = "not seen to lead"
    else:
        command.done(operation)


OPERATIONS = {
    "set_node": set_node,
    "set_partition": set_partition,
    "node_add": node_add,
    "node_delete": node_delete,
    "reserve": reserve,
    "unreserve": unreserve,
    "reread": reconfigure,
    "shutdown": shut_down,
    "take_over": takeover,
}


# The same as faults of a campaign, which come at worse moments than administrators choose.


def _operator(site: Site, kind: str, data: Data) -> None:
    assert site.users is not None, "a run has users"
    site.users.start("root", kind, OPERATIONS[kind], data, site.login)


@performs("reconfigure")
def _reconfigured(site: Site, action: Action, seconds: float) -> str | None:
    _operator(site, "reread", {"settings": {"BatchStartTimeout": str(5 + action.data["draw"] % 16)}})
    return "slurm.conf"


@performs("reconfigure with a bad file")
def _mistaken(site: Site, action: Action, seconds: float) -> str | None:
    _operator(site, "reread", {"mistake": "NodeName=n1 CPUs=many", "seconds": seconds})
    return "slurm.conf"


@performs("takeover")
def _taken_over(site: Site, action: Action, seconds: float) -> str | None:
    if len(site.controllers) < 2:
        return None
    index = action.data["draw"] % len(site.controllers)
    _operator(site, "take_over", {"index": index})
    return str(site.controllers[index].name)


@performs("drain")
def _drained(site: Site, action: Action, seconds: float) -> str | None:
    node: str = site.nodes[action.data["draw"] % len(site.nodes)].name
    _operator(site, "set_node", {"nodes": [node], "state": "DRAIN"})
    site.world.after(seconds, lambda: _operator(site, "set_node", {"nodes": [node], "state": "RESUME"}))
    return node


@performs("node added and deleted")
def _added(site: Site, action: Action, seconds: float) -> str | None:
    name = f"d{1 + action.data['draw'] % 3}"
    _operator(site, "node_add", {"node": name})
    site.world.after(seconds, lambda: _operator(site, "node_delete", {"node": name}))
    return name
