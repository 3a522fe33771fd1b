"""Faults of the network: links that are cut or slow, connections that break, readers that do not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from spritz_testing.daemons.faults import Kind, add, drawn, host_of, performs
from spritz_testing.daemons.history import Injected
from spritz_testing.daemons.injectors import processes, standby

if TYPE_CHECKING:
    from spritz_testing.daemons.plan import Action
    from spritz_testing.daemons.site import Site
    from spritz_testing.daemons.system.world import Host, Process


def _others(site: Site, host: Host) -> Iterator[str]:
    return (name for name in site.world.hosts if name != host.name)


@performs("cut both ways")
def _cut_both_ways(site: Site, action: Action, seconds: float) -> str | None:
    host = host_of(site, action.target)
    if host is None:
        return None
    for other in _others(site, host):
        site.world.network.cut(host.name, other, seconds)
        site.world.network.cut(other, host.name, seconds)
    return host.name


@performs("cut one way")
def _cut_one_way(site: Site, action: Action, seconds: float) -> str | None:
    host = host_of(site, action.target)
    if host is None:
        return None
    outwards = drawn(action, 0, 2) < 1
    for other in _others(site, host):
        source, target = (host.name, other) if outwards else (other, host.name)
        site.world.network.cut(source, target, seconds)
    return f"{'from' if outwards else 'to'} {host.name}"


@performs("users cut off")
def _users_cut_off(site: Site, action: Action, seconds: float) -> str | None:
    """Requests of users do not arrive, or their answers do not, or connections break."""
    host, chosen = site.login.name, int(drawn(action, 0, 4))
    if chosen == 3:
        return f"{host}, {site.world.network.reset(host)} connections"
    for other in _others(site, site.login):
        if chosen != 1:
            site.world.network.cut(other, host, seconds)
        if chosen != 2:
            site.world.network.cut(host, other, seconds)
    return f"{('both ways', 'from', 'to')[chosen]} {host}"


@performs("partition")
def _partition(site: Site, action: Action, seconds: float) -> str | None:
    """Two groups of hosts that do not reach each other."""
    names = list(site.world.hosts)
    bits = int(action.data["draw"])
    here = [name for number, name in enumerate(names) if bits >> number % 30 & 1]
    there = [name for name in names if name not in here]
    if not here or not there:
        return None
    for name in here:
        for other in there:
            site.world.network.cut(name, other, seconds)
            site.world.network.cut(other, name, seconds)
    return " ".join(here)


@performs("slow link")
def _slow_link(site: Site, action: Action, seconds: float) -> str | None:
    host = host_of(site, action.target)
    if host is None:
        return None
    by_seconds = 10 ** drawn(action, -3.0, 1.0)
    for other in _others(site, host):
        site.world.network.slow(host.name, other, by_seconds, seconds)
        site.world.network.slow(other, host.name, by_seconds, seconds)
    return f"{host.name} by {by_seconds:.3f} s"


@performs("slow network")
def _slow_network(site: Site, action: Action, seconds: float) -> str | None:
    by_seconds = 10 ** drawn(action, -3.0, 0.5)
    names = list(site.world.hosts)
    for name in names:
        for other in names:
            if name != other:
                site.world.network.slow(name, other, by_seconds, seconds)
    return f"by {by_seconds:.3f} s"


@performs("reset")
def _reset(site: Site, action: Action, seconds: float) -> str | None:
    host = host_of(site, action.target)
    if host is None:
        return None
    return f"{host.name}, {site.world.network.reset(host.name)} connections"


@performs("reconnect storm")
def _reconnect_storm(site: Site, action: Action, seconds: float) -> str | None:
    """All connections break at once, and all come again."""
    count = sum(site.world.network.reset(name) for name in list(site.world.hosts))
    return f"{count} connections"


@performs("half open")
def _half_open(site: Site, action: Action, seconds: float) -> str | None:
    host = host_of(site, action.target)
    if host is None:
        return None
    return f"{host.name}, {site.world.network.forget(host.name)} connections"


@performs("slow reader")
def _slow_reader(site: Site, action: Action, seconds: float) -> str | None:
    host = host_of(site, action.target)
    if host is None:
        return None
    site.world.network.stall(host.name, seconds)
    return host.name


# Answers

#: Requests that must have their effect once, though their answer may be lost: (sender, kind). To nodes, of nodes, to
#: slurmdbd; and of commands.
_ASKED = (
    *(("slurmctld", name) for name in ("LaunchBatch", "LaunchStep", "LaunchStep", "TerminateJob", "ForwardOrder")),
    *(("slurmd", name) for name in ("ForwardOrder", "StepFinished", "JobGone", "RegisterNode")),
    *(("slurmctld", "SuspendTasks"), ("slurmctld", "StoreEvents")),
)
_OF_COMMANDS = tuple(("", name) for name in ("SubmitJob", "AwaitAllocation", *3 * ("CreateStep",), "FinishAllocation"))

#: How it is lost. Seconds that a link is cut for an answer, or its receiver stands still: more and less than senders
#: wait for one. Seconds until a connection or its server is lost: before and after it has answered.
_WAYS = "link", "link", "server", "connection", "client"
_CUT_SECONDS = 5.0, 40.0
_STANDS_SECONDS = 29.0, 45.0

#: Daemons that ask again when they have waited too long. Commands do when their connection breaks.
_REPEATS = frozenset({"slurmctld", "slurmd", "slurmdbd"})
_LOST_SECONDS = 0.0002, 0.05


def _at_next(
    site: Site, action: Action, sender: str, name: str, seconds: float, strike: Callable[[Process, Process], None]
) -> str | None:
    """Strike at the next message of this kind that goes from one host to another within so many seconds: `sender` names
    the process ("": any), and the action may name a job to whose host or from which it must go.
    """
    network, wanted = site.world.network, name.encode()
    near = host_of(site, f"host of job:{action.data['job']}") if "job" in action.data else None
    if "job" in action.data and near is None:
        return None

    def told(client: Process, server: Process, data: bytes) -> None:
        if wanted not in data or (sender and client.name != sender) or told not in network.on_bytes:
            return
        if client.host is server.host or (near is not None and near not in (client.host, server.host)):
            return
        over()
        strike(client, server)

    def over() -> None:
        network.on_bytes = [other for other in network.on_bytes if other is not told]

    network.on_bytes = [*network.on_bytes, told]
    site.world.after(seconds, over)
    return name


def _answer_lost(asked: tuple[tuple[str, str], ...], site: Site, action: Action, seconds: float) -> str | None:
    """The next request of a kind is received, and its answer is lost: with the link, the connection or the server; or
    who asked stands still for longer than it would have waited, and asks again.
    """
    world, network, bits = site.world, site.world.network, int(action.data["draw"])
    (sender, name), way = asked[bits % len(asked)], _WAYS[bits // len(asked) % len(_WAYS)]
    if "message" in action.data:
        sender, name, way = action.data.get("sender", ""), action.data["message"], action.data.get("way", way)
    elif not sender and way == "link" and bits & 1:
        way = "connection"  # a command waits for an answer that is late, and asks again if its connection breaks
    until = world.now + seconds

    def strike(client: Process, server: Process) -> None:
        if way == "link":
            lasts = min(drawn(action, *_CUT_SECONDS), until - world.now)
            network.cut(server.host.name, client.host.name, lasts)
        elif way == "client":
            lasts = min(drawn(action, *_STANDS_SECONDS), until - world.now)
            client.stop()
            world.after(lasts, client.go_on)
            if client.name not in _REPEATS:
                world.after(_LOST_SECONDS[1], lambda: _break(site, client, server, kill=False))
        else:
            low, high = _LOST_SECONDS
            lasts = low * (high / low) ** drawn(action, 0.0, 1.0)
            world.after(lasts, lambda: _break(site, client, server, kill=way == "server"))
        hit = f"{way} of {server.host.name} to {client.host.name}"
        concerns = {"server": server.host.name, "client": client.host.name}.get(way) or _apart(site, client, server)
        world.tell(f"fault: answer lost to {name}, {hit}, {lasts:.4f} s")
        world.count(f"fault {action.kind}")
        site.history.add(Injected(at=world.now, until=world.now + lasts, kind=action.kind, target=concerns))

    found = _at_next(site, action, sender, name, seconds, strike)
    return None if found is None else f"of {name}"


#: Orders and reports that must be derived or repeated when they do not arrive: (sender, kind).
_SENT = (
    *(("slurmctld", name) for name in ("LaunchBatch", "LaunchStep", "SuspendTasks", "TerminateStep", "TerminateJob")),
    *(("slurmctld", name) for name in ("LaunchBatch", "SuspendTasks", "TerminateStep", "ForwardOrder")),
    *(("slurmd", name) for name in ("StepFinished", "JobGone", "ForwardOrder", "StepStarted", "RegisterNode")),
    *(("", name) for name in ("CreateStep", "SignalStep")),
)


def _request_lost(site: Site, action: Action, seconds: float) -> str | None:
    """The next message of a kind does not arrive: its connection breaks, or its receiver dies, just before."""
    world, bits = site.world, int(action.data["draw"])
    sender, name = _SENT[bits % len(_SENT)]
    if "message" in action.data:
        sender, name = action.data.get("sender", ""), action.data["message"]
    dies = bits // len(_SENT) % 4 == 0

    def strike(client: Process, server: Process) -> None:
        hit = f"from {client.host.name} to {server.host.name}"
        world.tell(f"fault: request lost, {name} {hit}")
        world.count("fault request lost")
        concerns = server.host.name if dies else _apart(site, client, server)
        site.history.add(Injected(at=world.now, until=world.now, kind="request lost", target=concerns))
        _break(site, client, server, kill=False)
        if dies:
            world.after(0.0, lambda: _break(site, client, server, kill=True))

    return _at_next(site, action, sender, name, seconds, strike)


add(Kind(name="request lost", targets=("cluster",), seconds=(60, 900), weight=6), _request_lost)


@performs("cut between nodes")
def _cut_between_nodes(site: Site, action: Action, seconds: float) -> str | None:
    """A node reaches no other node, and the controller reaches all: the tree fails, not the links."""
    host = host_of(site, action.target)
    if host is None:
        return None
    for other in site.nodes:
        if other is not host:
            site.world.network.cut(host.name, other.name, seconds)
            site.world.network.cut(other.name, host.name, seconds)
    return "nodes"  # any of which may pass orders on for others


#: Seconds for which an order that is passed on stays where it is.
_HELD_SECONDS = 0.5, 60.0


def _order_held_up(site: Site, action: Action, seconds: float) -> str | None:
    """The next node that is to pass an order on, or another one, reaches no node just then. The controller reaches
    all.
    """
    world, network = site.world, site.world.network
    until = world.now + seconds
    low, high = _HELD_SECONDS
    lasts = action.data.get("lasts", low * (high / low) ** drawn(action, 0.0, 1.0))
    from_node = action.data.get("from_node", int(action.data["draw"]) % 3 == 0)

    def told(client: Process, server: Process, data: bytes) -> None:
        is_order = client.name == ("slurmd" if from_node else "slurmctld") and server.name == "slurmd"
        if not is_order or b"ForwardOrder" not in data or told not in network.on_bytes:
            return
        over()
        for host in site.nodes:
            if host is not server.host:
                network.cut(server.host.name, host.name, min(lasts, until - world.now))
                if from_node:
                    network.cut(host.name, server.host.name, min(lasts, until - world.now))
        world.tell(f"fault: order held up, {server.host.name} cut off from nodes, {lasts:.1f} s")
        world.count("fault order held up")
        site.history.add(Injected(at=world.now, until=world.now + lasts, kind="order held up", target="nodes"))

    def over() -> None:
        network.on_bytes = [other for other in network.on_bytes if other is not told]

    network.on_bytes = [*network.on_bytes, told]
    world.after(seconds, over)
    return "of a tree"


add(Kind(name="order held up", targets=("cluster",), seconds=(60, 900), weight=2), _order_held_up)


def _apart(site: Site, *processes: Process) -> str:
    """Whom a broken link between two processes concerns: of a controller and a node the node."""
    names = list(dict.fromkeys(process.host.name for process in processes))
    nodes = [name for name in names if name in site.machines]
    return " ".join(nodes or names)


def _break(site: Site, client: Process, server: Process, *, kill: bool) -> None:
    """Kill the daemon that has received a request, or reset its connections with the sender."""
    unit = next((unit for unit in site.units.values() if unit.process is server), None)
    if kill and unit is not None:
        processes.kill(unit)
        return
    for connection in list(site.world.network.connections):
        if [end.process for end in connection.ends] in ([client, server], [server, client]):
            connection.ends[0].reset()


add(Kind(name="answer lost", targets=("cluster",), seconds=(60, 900), weight=6), partial(_answer_lost, _ASKED))
add(
    Kind(name="command's answer lost", targets=("cluster",), seconds=(60, 900), weight=6),
    partial(_answer_lost, _OF_COMMANDS),
)


#: Seconds for which an order is on its way, from the end of its controller on. In these the next one begins; the node
#: that it is sent to waits ten for the rest of a message.
_DELAYED_SECONDS = 2.0, 6.5
#: Seconds from the order to the end of its controller, three times of four: who passes it on has given up by then, so
#: it has reached the node another way.
_REPLACED_SECONDS = 2.05, 3.0


def _order_delayed(site: Site, action: Action, seconds: float) -> str | None:
    """An order that one node passes on to another stays on its way while their controller is replaced."""
    world, network = site.world, site.world.network
    waits = drawn(action, *_REPLACED_SECONDS) if int(action.data["draw"]) & 3 else 0.0
    lasts = waits + drawn(action, *_DELAYED_SECONDS)

    def told(sender: Process, target: Process, data: bytes) -> None:
        is_order = sender.name == target.name == "slurmd" and b"ForwardOrder" in data
        if not is_order or sender.host is target.host or told not in network.on_send:
            return
        over()
        network.cut(sender.host.name, target.host.name, lasts)
        world.after(waits, replace)
        hit = f"{sender.host.name} to {target.host.name}, {lasts:.1f} s"
        world.tell(f"fault: order delayed, {hit}, the controller is killed after {waits:.1f} s")
        world.count("fault order delayed")
        site.history.add(Injected(at=world.now, until=world.now + lasts, kind="order delayed", target="all"))

    def replace() -> None:
        unit = standby.leader(site)
        if unit is not None:
            processes.kill(unit)

    def over() -> None:
        network.on_send = [other for other in network.on_send if other is not told]

    network.on_send = [*network.on_send, told]
    world.after(max(0.0, seconds - _REPLACED_SECONDS[1] - _DELAYED_SECONDS[1]), over)
    return "from node to node"


add(Kind(name="order delayed", targets=("cluster",), seconds=(300, 900), weight=6), _order_delayed)
