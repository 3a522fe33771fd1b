"""Faults: the table of their kinds, how those of a plan are drawn, and how each is injected.

A kind says whom it hits, for how long, how often compared with others, and which part of the cluster it needs. What
injects it is registered by name (`performs`), in `injectors`.

Targets are roles with a number, such as "slurmctld:1": what a role means is settled when the fault happens, since a
plan is drawn before its cluster exists.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from spritz_testing.daemons.history import Injected
from spritz_testing.daemons.plan import Action

if TYPE_CHECKING:
    from spritz_testing.daemons.plan import Scale
    from spritz_testing.daemons.site import Site
    from spritz_testing.daemons.system.world import Host
    from spritz_testing.daemons.units import Unit


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
    #: acknowledged work may be gone afterwards, so that few rules are judged: in no run of every kind
    loses: bool = False
    #: draws what else it needs to know, for `Action.data`
    details: Callable[[Random], dict[str, Any]] | None = None


_DAEMONS = ("slurmctld", "slurmctld", "slurmd")
_HOSTS = ("host of slurmctld", "host of slurmd")
_NODES = ("host of slurmd",)
_CLUSTER = ("cluster",)

#: All kinds. A kind whose injector is not registered is not drawn.
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        # Processes
        Kind(name="kill", targets=_DAEMONS, weight=3),
        Kind(name="kill at a callback", targets=_DAEMONS, seconds=(60, 600), weight=6),
        Kind(name="kill at an await", targets=_DAEMONS, seconds=(60, 600), weight=6),
        Kind(name="kill inside a write", targets=("host of slurmctld",), weight=3),
        Kind(name="kill supervisor", targets=_NODES, weight=2),
        Kind(name="stop", targets=_DAEMONS, seconds=(0.1, 300), weight=2),
        Kind(name="restart", targets=_DAEMONS, seconds=(1, 120)),
        Kind(name="fork refused", targets=_CLUSTER, seconds=(120, 600)),
        Kind(name="child killed", targets=_CLUSTER, seconds=(10, 600)),
        # Machines
        Kind(name="power loss", targets=_HOSTS, seconds=(5, 400), weight=2),
        Kind(name="long outage", targets=_NODES, seconds=(300, 1200)),
        Kind(name="power inside a write", targets=("host of slurmctld",), weight=2),
        Kind(name="reboot", targets=_NODES, seconds=(30, 300)),
        Kind(name="hang", targets=_HOSTS, seconds=(1, 300)),
        # The network
        Kind(name="cut both ways", targets=_HOSTS, seconds=(1, 400), weight=2),
        Kind(name="cut one way", targets=_HOSTS, seconds=(1, 400), weight=2),
        Kind(name="partition", targets=_CLUSTER, seconds=(5, 400), weight=2),
        Kind(name="cut between nodes", targets=_NODES, seconds=(1, 200), weight=2),
        Kind(name="slow link", targets=_HOSTS, seconds=(5, 600)),
        Kind(name="slow network", targets=_CLUSTER, seconds=(5, 600)),
        Kind(name="reset", targets=_HOSTS),
        Kind(name="reconnect storm", targets=_CLUSTER),
        Kind(name="half open", targets=_HOSTS),
        Kind(name="slow reader", targets=_HOSTS, seconds=(1, 120)),
        Kind(name="users cut off", targets=("host of users",), seconds=(0.5, 60), weight=2),
        # Clocks
        Kind(name="clock skew", targets=_HOSTS, seconds=(60, 1800)),
        Kind(name="clock forward", targets=_HOSTS, seconds=(60, 1800)),
        Kind(name="clock back", targets=_HOSTS, seconds=(60, 1800)),
        Kind(name="daylight saving", targets=_CLUSTER, seconds=(600, 1800), weight=0.5),
        # Disks of controllers
        Kind(name="disk slow", targets=("host of slurmctld",), seconds=(1, 120)),
        Kind(name="disk full", targets=("host of slurmctld",), seconds=(10, 120)),
        Kind(name="disk read-only", targets=("host of slurmctld",), seconds=(1, 60)),
        Kind(name="disk fsync", targets=("host of slurmctld",), seconds=(1, 60)),
        Kind(name="bit flip", targets=("host of slurmctld",), weight=0.3, loses=True),
        # Nodes
        Kind(name="memory full", targets=_NODES, seconds=(10, 300)),
        Kind(name="spool full", targets=_NODES, seconds=(10, 300)),
        Kind(name="spool broken", targets=_NODES, seconds=(1, 60)),
        Kind(name="spool slow", targets=_NODES, seconds=(10, 300)),
        Kind(name="slow starts", targets=_NODES, seconds=(10, 300)),
        Kind(name="undying processes", targets=_NODES, seconds=(10, 300)),
        Kind(name="jobs fail", targets=_NODES, seconds=(10, 300), weight=0.5),
        Kind(name="gpu lost", targets=_NODES, seconds=(60, 900)),
        Kind(name="health change", targets=_NODES, seconds=(60, 900)),
        Kind(name="program fails", targets=_NODES, seconds=(10, 300)),
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


def add(kind: Kind, perform: Perform) -> None:
    """Add a kind to the table, with what injects it."""
    assert kind.name not in KINDS, f"two kinds of faults are called {kind.name!r}"
    KINDS[kind.name] = kind
    performs(kind.name)(perform)


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
    actions = []
    for at, kind in _every(random, scale) if scale.every_kind else _some(random, scale):
        target = f"{random.choice(kind.targets)}:{random.randrange(1, 1 + max(1, scale.nodes))}"
        data: dict[str, Any] = {"seconds": _spread(random, *kind.seconds), "draw": random.randrange(1 << 30)}
        if kind.details is not None:
            data |= kind.details(random)
        data["seconds"] = round(min(data["seconds"], scale.busy_seconds - at), 6)
        actions.append(Action(at=round(at, 6), kind=kind.name, target=target, data=data))
    return actions


def _some(random: Random, scale: Scale) -> list[tuple[float, Kind]]:
    kinds = injectable(scale.parts)
    if scale.kinds:
        kinds = [kind for kind in kinds if kind.name in scale.kinds]
        weights = [kind.weight for kind in kinds]
        return [(at, random.choices(kinds, weights)[0]) for at in _times(random, scale)]
    chosen = [kind for kind in kinds if random.random() < _KIND_CHANCE] or kinds
    weights = [kind.weight for kind in chosen]
    return [(at, random.choices(chosen, weights)[0]) for at in _times(random, scale)]


def _every(random: Random, scale: Scale) -> list[tuple[float, Kind]]:
    kinds = [kind for kind in injectable(scale.parts) if not kind.loses] * 2
    return sorted(
        ((random.uniform(60.0, 0.9 * scale.busy_seconds), kind) for kind in kinds), key=lambda drawn: drawn[0]
    )


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

#: Kinds that are counted where they strike: at calls while the fault lasts, in a later write.
_COUNTED = frozenset(
    {
        *("fork refused", "child killed", "kill inside a write", "power inside a write"),
        "controller lost in a commit",
        *("disk slow", "disk full", "disk read-only", "disk fsync"),
    }
)

#: Kinds that lie in wait, and enter the history when they strike.
_LATER = frozenset(
    {
        *("kill at a callback", "kill at an await", "answer lost", "command's answer lost", "request lost"),
        *("order delayed", "order held up"),
        *("supervisor lost at a point", "slurmd lost at a point"),
    }
)


def perform(site: Site, action: Action) -> None:
    """Inject a fault of the plan, and note it in the history."""
    world = site.world
    seconds = float(action.data.get("seconds", 0.0))
    hit = _PERFORMERS[action.kind](site, action, seconds)
    if hit is None:
        world.count(f"missed {action.kind}")
        return
    world.tell(f"fault: {action.kind}, {hit}" + (f", {seconds:g} s" if seconds else ""))
    if action.kind in _LATER:
        return
    site.history.add(Injected(at=world.now, until=world.now + seconds, kind=action.kind, target=hit))
    if action.kind not in _COUNTED:
        world.count(f"fault {action.kind}")


def unit_of(site: Site, target: str) -> Unit | None:
    """The unit of a target such as "slurmd:3", or "slurmd of job:TAG"."""
    if " of job:" in target:
        host = _host_of_job(site, target)
        return site.units.get(f"{host.name}/{target.partition(' ')[0]}") if host is not None else None
    role, _, number = target.removeprefix("host of ").partition(":")
    units = [unit for unit in site.units.values() if unit.name == role]
    return units[(int(number) - 1) % len(units)] if units else None


def host_of(site: Site, target: str) -> Host | None:
    """The host of a target such as "host of slurmd:3", or "host of job:TAG". Without node daemons in the simulation:
    the node's.
    """
    if " of job:" in target:
        return _host_of_job(site, target)
    if "users:" in target:
        return site.login
    unit = unit_of(site, target)
    if unit is not None:
        return unit.host
    number = int(target.rpartition(":")[2])
    return site.nodes[(number - 1) % len(site.nodes)] if "slurmd:" in target and site.nodes else None


def _host_of_job(site: Site, target: str) -> Host | None:
    """A machine on which the job with a tag has processes: of several the first, or the last for "job:TAG:last"."""
    tag, _, which = target.partition(" of job:")[2].partition(":")
    number = site.users.jobs.get(tag, 0) if site.users is not None else 0
    hosts = [
        machine.host for machine in site.machines.values() if any(step.spec.job_id == number for step in machine.steps)
    ]
    return (hosts[-1] if which else hosts[0]) if hosts else None


def units_on(site: Site, host: Host) -> list[Unit]:
    return [unit for unit in site.units.values() if unit.host is host]


def drawn(action: Action, low: float, high: float) -> float:
    """A number that the plan has drawn for the action's own use."""
    return low + (high - low) * float(action.data["draw"]) / (1 << 30)
