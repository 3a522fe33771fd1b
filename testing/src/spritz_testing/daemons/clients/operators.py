"""Requests of administrators: scontrol about nodes, reservations, the configuration and the controllers themselves."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from spritz.cli.administration.control.daemons import take_over
from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError, RemoteError
from spritz.model.commands.cluster import DeleteNodes, RebootNodes, UpdateNode, UpdatePartition
from spritz.model.commands.job import Done
from spritz.model.commands.reservation import (
    CreateReservation,
    DeleteReservation,
    ReservationMade,
    ReservationRequest,
)
from spritz.model.queries.daemons import Reconfigure, Shutdown
from spritz_testing.daemons.clients.launches import Quiet
from spritz_testing.daemons.system import threads
from spritz_testing.daemons.system.machine import USERS
from spritz_testing.daemons.wanted import Reserved

if TYPE_CHECKING:
    from spritz_testing.daemons.clients.command import Command, Data

#: A node that was drained for a while is not forgotten while no controller answers: attempts, and seconds between two.
_UNDRAIN_TRIES, _UNDRAIN_SECONDS = 20, 15.0

#: A file with mistakes lies there for so long, seconds.
_MISTAKEN_SECONDS = 5.0


def set_node(command: Command, data: Data) -> None:
    """scontrol update NodeName= State=: drain, undrain (RESUME), DOWN. `data["nodes"]`, `data["state"]`."""
    state = data["state"]
    reason = data.get("reason", "" if state == "CANCEL_REBOOT" else "sim")
    request = UpdateNode(names=tuple(data["nodes"]), state=state, reason=reason)
    kind = {"DRAIN": "drain", "RESUME": "undrain", "UNDRAIN": "undrain"}.get(state, "set_node")
    _insist(command, kind, request, data, _UNDRAIN_TRIES if kind == "undrain" else 1)


def _insist(command: Command, kind: str, request: UpdateNode | UpdatePartition, data: Data, tries: int) -> None:
    """Ask again while no controller answers."""
    while True:
        tries -= 1
        try:
            command.ask(kind, request, Done, wanted=data)
            return
        except ClientError as error:
            if not tries or (isinstance(error, RemoteError) and error.code != "ESLURM_IN_STANDBY_MODE"):
                raise
        threads.sleep(_UNDRAIN_SECONDS)


def resume_nodes(command: Command, data: Data) -> None:
    """Let nodes that faults have drained serve again. The others are refused, since nothing is to be resumed."""
    for name in data["nodes"]:
        with contextlib.suppress(RemoteError):
            set_node(command, {"nodes": [name], "state": "RESUME"})


def reboot(command: Command, data: Data) -> None:
    """scontrol reboot."""
    request = RebootNodes(names=tuple(data["nodes"]), asap=data.get("asap", False))
    command.ask("reboot", request, Done, wanted=data)


def set_partition(command: Command, data: Data) -> None:
    """scontrol update PartitionName=."""
    request = UpdatePartition(name=data["partition"], changes=data["changes"])
    _insist(command, "set_partition", request, data, _UNDRAIN_TRIES if data["changes"].get("state") == "UP" else 1)


def node_add(command: Command, data: Data) -> None:
    """A machine that slurm.conf does not have boots, and its slurmd makes it a node (`slurmd -Z`)."""
    operation = command.called("node_add", wanted=data["node"])
    command.users.site.start_dynamic_node(data["node"])
    command.done(operation)


def node_delete(command: Command, data: Data) -> None:
    """The daemon is stopped, then scontrol delete NodeName=; a node with jobs is refused, and its daemon goes on."""
    name, site = data["node"], command.users.site
    site.stop_dynamic_node(name)
    try:
        command.ask("node_delete", DeleteNodes(names=(name,)), Done, wanted=name)
    except ClientError:
        site.start_dynamic_node(name)
        raise


def reserve(command: Command, data: Data) -> None:
    """scontrol create reservation: `data` as ReservationRequest."""
    fields: dict[str, Any] = {key: value for key, value in data.items() if key in ReservationRequest.__struct_fields__}
    for key in ("nodes", "users", "flags"):
        if key in fields:
            fields[key] = tuple(fields[key])
    if "licenses" in fields:
        fields["licenses"] = tuple(tuple(pair) for pair in fields["licenses"])
    request = ReservationRequest(**fields)
    if "nodes" not in data:  # which nodes it has, the controller decides, again and again
        command.ask("reserve", CreateReservation(request=request), ReservationMade, wanted=data["name"])
        return
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
    "resume_nodes": resume_nodes,
    "reboot_nodes": reboot,
    "set_partition": set_partition,
    "node_add": node_add,
    "node_delete": node_delete,
    "reserve": reserve,
    "unreserve": unreserve,
    "reread": reconfigure,
    "shutdown": shut_down,
    "take_over": takeover,
}
