"""Faults of processes: killed, stopped, ended by an administrator, without children."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz_testing.daemons import coverage
from spritz_testing.daemons.faults import drawn, performs, unit_of
from spritz_testing.daemons.history import Injected

if TYPE_CHECKING:
    from spritz_testing.daemons.plan import Action
    from spritz_testing.daemons.site import Site
    from spritz_testing.daemons.units import Unit

#: Places at which tasks wait that "kill at an await" may let pass.
_PLACES_MAX = 12.0


@performs("kill")
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
        _struck(site, action, unit)

    process.loop.when_called(calls, happen)
    site.world.after(seconds, lambda: process.loop.when_called(0, happen))
    return hit


def _struck(site: Site, action: Action, unit: Unit) -> None:
    """A kill that has waited for its moment: only now it is one."""
    now = site.world.now
    site.world.count(f"fault {action.kind}")
    site.history.add(Injected(at=now, until=now, kind=action.kind, target=str(unit.process)))
    kill(unit)


@performs("kill at an await")
def _kill_at_await(site: Site, action: Action, seconds: float) -> str | None:
    """Kill it when its tasks wait at a place where they do not wait now: at the next such place, or at one of the few
    after it. Places where it seldom waits are as likely as others.
    """
    unit = unit_of(site, action.target)
    if unit is None or unit.process is None or not unit.process.is_alive:
        return None
    process, loop = unit.process, unit.process.loop
    seen = set(coverage.awaits(process))
    left = int(drawn(action, 1.0, _PLACES_MAX))
    hit = f"{process} at new place {left}"

    def look() -> None:
        nonlocal left
        for place in coverage.awaits(process):
            if place not in seen:
                seen.add(place)
                left -= 1
                if not left:
                    site.world.tell(f"fault: kill, {process} at {place}")
                    _struck(site, action, unit)
                    return
        loop.when_called(1, look)

    loop.when_called(1, look)
    site.world.after(seconds, lambda: loop.when_called(0, look))
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
