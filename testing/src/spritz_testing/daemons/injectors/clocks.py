"""Faults of clocks: machines that differ, and steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz_testing.daemons.faults import drawn, host_of, performs

if TYPE_CHECKING:
    from spritz_testing.daemons.plan import Action
    from spritz_testing.daemons.site import Site
    from spritz_testing.daemons.system.world import Host


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
