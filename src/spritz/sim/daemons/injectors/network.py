"""Faults of the network: links that are cut or slow, connections that break, readers that do not read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from spritz.sim.daemons.faults import drawn, host_of, performs

if TYPE_CHECKING:
    from spritz.sim.daemons.plan import Action
    from spritz.sim.daemons.site import Site
    from spritz.sim.daemons.world import Host


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
