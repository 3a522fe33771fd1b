"""Faults: the table of their kinds, how those of a plan are drawn, and how each is injected.

A kind says whom it hits, for how long, how often compared with others, and which part of the cluster it needs. What
injects it is registered by name (`performs`): kinds of processes, hosts, the network, clocks and children are
here; disks, databases, nodes and operators register theirs where they are simulated.

Targets are roles with a number, such as "slurmctld:1": what a role means is settled when the fault happens, since a
plan is drawn before its cluster exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.sim.daemons import coverage
from spritz.sim.daemons.history import Booted, Injected
from spritz.sim.daemons.plan import Action

if TYPE_CHECKING:
    from random import Random

    from spritz.sim.daemons.plan import Scale
    from spritz.sim.daemons.site import Site
    from spritz.sim.daemons.units import Unit
    from spritz.sim.daemons.world import Host


class Kind(Struct, frozen=True, kw_only=True):
    """One kind of fault."""

    name: str
    #: roles that it can hit, one of which is drawn: names of units, "host of" these, or "cluster"
    targets: tuple[str, ...]
    #: seconds that it lasts, from and to; drawn so that short ones are as likely as long ones
    seconds: tuple[float, float] = (0.0, 0.0)
    #: how often compared with others
    weight: float = 1.0
    #: part of the cluster that it needs ("standby", "accounting"); "": none
    part: str = ""


_DAEMONS = ("slurmctld", "slurmctld", "slurmd")
_HOSTS = ("host of slurmctld", "host of slurmd")
_CLUSTER = ("cluster",)

#: All kinds. A kind whose injector is not registered is not drawn.
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        # Processes
        Kind(name="kill", targets=_DAEMONS, weight=3),
        Kind(name="kill at a callback", targets=_DAEMONS, seconds=(60, 600), weight=6),
        Kind(name="kill slurmdbd", targets=("slurmdbd",), weight=2, part="accounting"),
        Kind(name="kill slurmdbd at a callback", targets=("slurmdbd",), seconds=(60, 600), weight=2, part="accounting"),
        Kind(name="kill supervisor", targets=("host of slurmd",), weight=2),
        Kind(name="stop", targets=(*_DAEMONS, "slurmdbd"), seconds=(0.1, 300), weight=2),
        Kind(name="restart", targets=(*_DAEMONS, "slurmdbd"), seconds=(1, 120)),
        Kind(name="fork refused", targets=_CLUSTER, seconds=(10, 600)),
        Kind(name="child killed", targets=_CLUSTER, seconds=(10, 600)),
        # Machines
        Kind(name="power loss", targets=_HOSTS, seconds=(5, 400), weight=2),
        Kind(name="reboot", targets=("host of slurmd",), seconds=(30, 300)),
        Kind(name="hang", targets=("host of slurmd",), seconds=(10, 300)),
        # The network
        Kind(name="cut both ways", targets=_HOSTS, seconds=(1, 400), weight=2),
        Kind(name="cut one way", targets=_HOSTS, seconds=(1, 400), weight=2),
        Kind(name="partition", targets=_CLUSTER, seconds=(5, 400), weight=2),
        Kind(name="slow link", targets=_HOSTS, seconds=(5, 600)),
        Kind(name="slow network", targets=_CLUSTER, seconds=(5, 600)),
        Kind(name="reset", targets=_HOSTS),
        Kind(name="reconnect storm", targets=_CLUSTER),
        Kind(name="half open", targets=_HOSTS),
        Kind(name="slow reader", targets=_HOSTS, seconds=(1, 120)),
        # Clocks
        Kind(name="clock skew", targets=_HOSTS, seconds=(60, 1800)),
        Kind(name="clock forward", targets=_HOSTS, seconds=(60, 1800)),
        Kind(name="clock back", targets=_HOSTS, seconds=(60, 1800)),
        Kind(name="daylight saving", targets=_CLUSTER, seconds=(600, 1800), weight=0.5),
        # Disks
        Kind(name="disk slow", targets=_HOSTS, seconds=(1, 300)),
        Kind(name="disk full", targets=_HOSTS, seconds=(10, 300)),
        Kind(name="disk error", targets=_HOSTS, seconds=(1, 60)),
        Kind(name="fsync fails", targets=_HOSTS, seconds=(1, 60)),
        Kind(name="bit flip", targets=("host of slurmctld",), weight=0.5),
        # The database of controllers and slurmdbd
        Kind(name="database connection lost", targets=_CLUSTER, part="standby"),
        Kind(name="database answer lost", targets=_CLUSTER, seconds=(1, 60), part="standby"),
        Kind(name="database slow", targets=_CLUSTER, seconds=(1, 60), part="standby"),
        Kind(name="database read-only", targets=_CLUSTER, seconds=(5, 120), part="standby"),
        Kind(name="database down", targets=_CLUSTER, seconds=(5, 120), part="standby"),
        Kind(name="database failover", targets=_CLUSTER, part="standby"),
        # Nodes
        Kind(name="memory full", targets=("host of slurmd",), seconds=(10, 300)),
        Kind(name="spool full", targets=("host of slurmd",), seconds=(10, 300)),
        Kind(name="health change", targets=("host of slurmd",), seconds=(30, 600)),
        Kind(name="gpu lost", targets=("host of slurmd",), seconds=(60, 900)),
        Kind(name="jobs fail", targets=("host of slurmd",), seconds=(60, 900)),
        # Operators
        Kind(name="reconfigure", targets=_CLUSTER),
        Kind(name="reconfigure with a bad file", targets=_CLUSTER, seconds=(1, 60)),
        Kind(name="takeover", targets=_CLUSTER, part="standby"),
        Kind(name="upgrade and back", targets=("slurmctld",), seconds=(30, 600)),
        Kind(name="key change", targets=_CLUSTER),
        Kind(name="drain", targets=("host of slurmd",), seconds=(60, 900)),
        Kind(name="node added and deleted", targets=_CLUSTER, seconds=(60, 900)),
    )
}

Perform = Callable[["Site", Action, float], "str | None"]

#: what injects each kind
_PERFORMERS: dict[str, Perform] = {}


def performs(name: str) -> Callable[[Perform], Perform]:
    """Register what injects a kind: called with the site, the action, and the seconds that it lasts.

    It returns whom it hit, or None if there was nothing to hit.
    """
    assert name in KINDS, name

    def register(perform: Perform) -> Perform:
        _PERFORMERS[name] = perform
        return perform

    return register


def injectable(parts: frozenset[str]) -> list[Kind]:
    """Kinds that a cluster of these parts can have, in the order of the table."""
    return [kind for kind in KINDS.values() if kind.name in _PERFORMERS and (not kind.part or kind.part in parts)]


# Drawing

#: Chance that a fault comes while the cluster still recovers from the one before, and seconds between the two.
_CLOSE_CHANCE = 0.5
_CLOSE_SECONDS = 0.01, 30.0

#: Chance of each kind to be one of a run's: runs with few kinds reach states that all kinds together never let arise.
_KIND_CHANCE = 0.4


def draw(random: Random, scale: Scale) -> list[Action]:
    """Faults of one run, ordered by their times. All are over when `scale.busy_seconds` are."""
    kinds = injectable(scale.parts)
    chosen = [kind for kind in kinds if random.random() < _KIND_CHANCE] or kinds
    weights = [kind.weight for kind in chosen]
    actions = []
    for at in _times(random, scale):
        kind = random.choices(chosen, weights)[0]
        seconds = min(_spread(random, *kind.seconds), scale.busy_seconds - at)
        target = f"{random.choice(kind.targets)}:{random.randrange(1, 1 + max(1, scale.nodes))}"
        data = {"seconds": round(seconds, 6), "draw": random.randrange(1 << 30)}
        actions.append(Action(at=round(at, 6), kind=kind.name, target=target, data=data))
    return actions


def _times(random: Random, scale: Scale) -> list[float]:
    """When faults happen: some anywhere, some close after another."""
    count = random.randint(scale.faults // 2, scale.faults + scale.faults // 2)
    times: list[float] = []
    while len(times) < count:
        if times and random.random() < _CLOSE_CHANCE:
            at = times[-1] + _spread(random, *_CLOSE_SECONDS)
        else:
            at = random.uniform(0.0, scale.busy_seconds)
        if at < scale.busy_seconds:
            times.append(at)
    return sorted(times)


def _spread(random: Random, low: float, high: float) -> float:
    """A number between, by its logarithm."""
    return float(low * (high / low) ** random.random()) if low else high


# Performing


def perform(site: Site, action: Action) -> None:
    """Inject a fault of the plan, and note it in the history."""
    world = site.world
    seconds = float(action.data.get("seconds", 0.0))
    hit = _PERFORMERS[action.kind](site, action, seconds)
    if hit is None:
        world.count(f"missed {action.kind}")
        return
    world.tell(f"fault: {action.kind}, {hit}" + (f", {seconds:g} s" if seconds else ""))
    site.history.add(Injected(at=world.now, until=world.now + seconds, kind=action.kind, target=hit))
    if action.kind not in _AT_CALLS:
        world.count(f"fault {action.kind}")


#: small faults that happen at calls while the fault lasts: `World.faults` counts those
_AT_CALLS = frozenset({"fork refused", "child killed"})


def unit_of(site: Site, target: str) -> Unit | None:
    """The unit of a target such as "slurmd:3"."""
    role, _, number = target.removeprefix("host of ").partition(":")
    units = [unit for unit in site.units.values() if unit.name == role]
    return units[(int(number) - 1) % len(units)] if units else None


def host_of(site: Site, target: str) -> Host | None:
    """The host of a target such as "host of slurmd:3". Without node daemons in the simulation: the node's."""
    unit = unit_of(site, target)
    if unit is not None:
        return unit.host
    number = int(target.rpartition(":")[2])
    return site.nodes[(number - 1) % len(site.nodes)] if "slurmd:" in target and site.nodes else None


def units_on(site: Site, host: Host) -> list[Unit]:
    return [unit for unit in site.units.values() if unit.host is host]


def drawn(action: Action, low: float, high: float) -> float:
    """A number that the plan has drawn for the action's own use."""
    return low + (high - low) * float(action.data["draw"]) / (1 << 30)


# Processes


@performs("kill")
@performs("kill slurmdbd")
def _kill(site: Site, action: Action, seconds: float) -> str | None:
    unit = unit_of(site, action.target)
    if unit is None or unit.process is None or not unit.process.is_alive:
        return None
    hit = str(unit.process)
    kill(unit)
    return hit


def kill(unit: Unit) -> None:
    """SIGKILL, with a note of where its code waited."""
    if unit.process is not None and unit.process.is_alive:
        coverage.note_awaits(unit.process)
        unit.kill()


@performs("kill at a callback")
@performs("kill slurmdbd at a callback")
def _kill_at_callback(site: Site, action: Action, seconds: float) -> str | None:
    """Kill it in the middle of its work. At any other time it waits, nearly always at the same places."""
    unit = unit_of(site, action.target)
    if unit is None or unit.process is None or not unit.process.is_alive:
        return None
    process = unit.process
    calls = int(2 ** drawn(action, 0.0, 9.0))
    hit = f"{process} after {calls} callbacks"

    def happen() -> None:
        site.world.tell(f"fault: kill, {process}")
        kill(unit)

    process.loop.when_called(calls, happen)
    site.world.after(seconds, lambda: process.loop.when_called(0, happen))
    return hit


@performs("stop")
def _stop(site: Site, action: Action, seconds: float) -> str | None:
    unit = unit_of(site, action.target)
    if unit is None or unit.process is None or not unit.process.is_alive:
        return None
    process = unit.process
    process.stop()
    site.world.after(seconds, process.go_on)
    return str(process)


@performs("restart")
def _restart(site: Site, action: Action, seconds: float) -> str | None:
    """An administrator stops it, and starts it some time later."""
    unit = unit_of(site, action.target)
    if unit is None or not unit.is_wanted:
        return None
    unit.stop()
    site.world.after(seconds, unit.start)
    return f"{unit.host.name}/{unit.name}"


@performs("fork refused")
@performs("child killed")
def _at_calls(site: Site, action: Action, seconds: float) -> str | None:
    chances = site.world.chances
    chances[action.kind] = drawn(action, 0.1, 1.0)

    def end() -> None:
        chances.pop(action.kind, None)

    site.world.after(seconds, end)
    return "cluster"


# Machines


@performs("power loss")
def _power_loss(site: Site, action: Action, seconds: float) -> str | None:
    host = host_of(site, action.target)
    if host is None or not host.is_up:
        return None
    for process in host.processes:
        coverage.note_awaits(process)
    host.lose_power()
    site.history.add(Booted(at=site.world.now, node=host.name))

    def boot() -> None:
        host.boot()
        for unit in units_on(site, host):
            if unit.is_wanted:
                unit.start()

    site.world.after(seconds, boot)
    return host.name


@performs("hang")
def _hang(site: Site, action: Action, seconds: float) -> str | None:
    """Every process of the machine stands still."""
    host = host_of(site, action.target)
    if host is None or not host.is_up or not host.processes:
        return None
    for process in list(host.processes):
        process.stop()
        site.world.after(seconds, process.go_on)
    return host.name


# The network


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


# Clocks


def _set_clock(site: Site, host: Host, by_seconds: float, seconds: float) -> None:
    """Step it, and step it back when the fault is over: as an administrator's mistake that NTP corrects."""
    host.set_clock(host.clock_ahead + by_seconds)
    site.world.after(seconds, lambda: host.set_clock(host.clock_ahead - by_seconds))


def _clock(site: Site, action: Action, by_seconds: float, seconds: float) -> str | None:
    host = host_of(site, action.target)
    if host is None:
        return None
    _set_clock(site, host, by_seconds, seconds)
    return f"{host.name} by {by_seconds:+.3f} s"


@performs("clock skew")
def _clock_skew(site: Site, action: Action, seconds: float) -> str | None:
    """A few milliseconds or seconds, as between machines without NTP."""
    sign = 1 if int(action.data["draw"]) & 1 else -1
    return _clock(site, action, sign * 10 ** drawn(action, -3.0, 1.0), seconds)


@performs("clock forward")
def _clock_forward(site: Site, action: Action, seconds: float) -> str | None:
    return _clock(site, action, 10 ** drawn(action, 0.0, 4.0), seconds)


@performs("clock back")
def _clock_back(site: Site, action: Action, seconds: float) -> str | None:
    return _clock(site, action, -(10 ** drawn(action, 0.0, 4.0)), seconds)


@performs("daylight saving")
def _daylight_saving(site: Site, action: Action, seconds: float) -> str | None:
    """All machines step by an hour: what a site sees whose clocks are set by hand to local time. A zone's own change of
    offset changes nothing in UTC, which is what the daemons keep.
    """
    by_seconds = 3600.0 if int(action.data["draw"]) & 1 else -3600.0
    for host in site.world.hosts.values():
        _set_clock(site, host, by_seconds, seconds)
    return f"all hosts by {by_seconds:+g} s"
