"""Faults of machines: power, disks, and what else breaks on a node."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spritz_testing.daemons import coverage
from spritz_testing.daemons.faults import Kind, add, drawn, host_of, performs, unit_of, units_on
from spritz_testing.daemons.history import Injected
from spritz_testing.daemons.injectors import operators, processes
from spritz_testing.daemons.node.supervisors import POINTS
from spritz_testing.daemons.system import restoring

if TYPE_CHECKING:
    from spritz_testing.daemons.node.supervisors import SimulatedSupervisor
    from spritz_testing.daemons.plan import Action
    from spritz_testing.daemons.site import Site
    from spritz_testing.daemons.system.world import Host

# Power


@performs("power loss")
@performs("long outage")
def _power_loss(site: Site, action: Action, seconds: float) -> str | None:
    host = host_of(site, action.target)
    if host is None or not host.is_up:
        return None
    turn_off(site, host, seconds)
    return host.name


def turn_off(site: Site, host: Host, seconds: float) -> None:
    """Let it be without power for so long; its service manager starts its daemons with it."""
    for process in host.processes:
        coverage.note_awaits(process)
    host.lose_power()
    site.world.after(seconds, lambda: None if host.is_up else host.boot())


@performs("reboot")
def _reboot(site: Site, action: Action, seconds: float) -> str | None:
    """An orderly one: daemons are told to stop before the machine goes down."""
    host = host_of(site, action.target)
    if host is None or not host.is_up:
        return None
    units = [unit for unit in units_on(site, host) if unit.is_wanted]
    for unit in units:
        unit.stop()

    def go_down() -> None:
        for unit in units:
            unit.is_wanted = True
        if host.is_up:
            turn_off(site, host, 0.9 * seconds)

    site.world.after(0.1 * seconds, go_down)
    return host.name


@performs("hang")
def _hang(site: Site, action: Action, seconds: float) -> str | None:
    """Everything on the machine stands still."""
    host = host_of(site, action.target)
    if host is None or not host.is_up or not host.processes:
        return None
    if host.machine is not None:
        host.machine.hang(seconds)
        return host.name
    for process in list(host.processes):
        process.stop()
        site.world.after(seconds, process.go_on)
    return host.name


# Disks of controllers


def _fail_disk(kind: str, site: Site, action: Action, seconds: float) -> str | None:
    host = host_of(site, action.target)
    if host is None or host.disk is None:
        return None
    host.disk.fail(kind, seconds)
    return host.name


@performs("disk slow")
def _disk_slow(site: Site, action: Action, seconds: float) -> str | None:
    return _fail_disk("slow", site, action, seconds)


@performs("disk full")
def _disk_full(site: Site, action: Action, seconds: float) -> str | None:
    return _fail_disk("full", site, action, seconds)


@performs("disk read-only")
def _disk_read_only(site: Site, action: Action, seconds: float) -> str | None:
    return _fail_disk("read-only", site, action, seconds)


@performs("disk fsync")
def _disk_fsync(site: Site, action: Action, seconds: float) -> str | None:
    return _fail_disk("fsync", site, action, seconds)


def _crash_in_write(kind: str, site: Site, action: Action) -> str | None:
    """Let one of the next operations on the disk be the last: its write is torn."""
    host = host_of(site, action.target)
    if host is None or host.disk is None:
        return None
    operations = int(2 ** drawn(action, 0.0, 6.0))
    world, name = site.world, host.name

    def strike(seconds: float) -> None:
        """Perhaps long after the fault was injected: the checks must know from when on something may be late."""
        site.history.add(Injected(at=world.now, until=world.now + seconds, kind=action.kind, target=name))

    host.disk.on_crash = strike
    host.disk.crash(kind, operations)
    return f"{host.name} after {operations} operations"


@performs("kill inside a write")
def _kill_in_write(site: Site, action: Action, seconds: float) -> str | None:
    return _crash_in_write("kill", site, action)


@performs("power inside a write")
def _power_in_write(site: Site, action: Action, seconds: float) -> str | None:
    return _crash_in_write("power", site, action)


# Nodes


def _for_a_while(name: str, value: Any, site: Site, action: Action, seconds: float) -> str | None:
    host = host_of(site, action.target)
    if host is None or host.machine is None:
        return None
    host.machine.for_a_while(name, value, seconds)
    return host.name


@performs("memory full")
def _memory_full(site: Site, action: Action, seconds: float) -> str | None:
    """No process can be forked, or only some."""
    host = host_of(site, action.target)
    if host is not None and host.machine is not None:
        host.machine.fork_chance = 1.0 if int(action.data["draw"]) & 1 else drawn(action, 0.3, 0.9)
    return _for_a_while("fork_error", errno.ENOMEM, site, action, seconds)


@performs("spool full")
@performs("spool broken")
def _spool_fails(site: Site, action: Action, seconds: float) -> str | None:
    """A slurmd that notices it has its nodes drained; an administrator lets them serve again when the fault is over."""
    error = errno.ENOSPC if action.kind == "spool full" else errno.EIO
    name = _for_a_while("disk.error", error, site, action, seconds)
    if name is not None:
        nodes = list(site.machines[name].nodes)
        site.world.after(seconds + 1.0, lambda: operators.ask(site, "set_node", {"nodes": nodes, "state": "RESUME"}))
    return name


@performs("spool slow")
def _spool_slow(site: Site, action: Action, seconds: float) -> str | None:
    return _for_a_while("disk.slow_seconds", 10 ** drawn(action, -2.0, 1.0), site, action, seconds)


@performs("slow starts")
def _slow_starts(site: Site, action: Action, seconds: float) -> str | None:
    """Steps begin late: as where a file system of the network hangs."""
    return _for_a_while("start_seconds", (0.5, drawn(action, 1.0, 60.0)), site, action, seconds)


@performs("undying processes")
def _undying(site: Site, action: Action, seconds: float) -> str | None:
    """Processes wait in the kernel: not even SIGKILL ends them."""
    host = host_of(site, action.target)
    if host is None or host.machine is None:
        return None
    host.machine.let_none_die(seconds)
    return host.name


@performs("kill supervisor")
def _kill_supervisor(site: Site, action: Action, seconds: float) -> str | None:
    host = host_of(site, action.target)
    if host is None or host.machine is None or not host.machine.kill_supervisor():
        return None
    return host.name


#: Seconds from a point of a supervisor to the end of its daemon: before and after the controller has heard of it.
_LATER_SECONDS = 0.0001, 0.05
_CUT_SECONDS = 3.0


def _supervisor_lost(site: Site, action: Action, seconds: float) -> str | None:
    """The next supervisor anywhere that comes to a point dies there."""

    def happen(supervisor: SimulatedSupervisor) -> str:
        supervisor.process.end()
        return str(supervisor.process)

    return _at_a_point(site, action, seconds, happen)


def _slurmd_lost(site: Site, action: Action, seconds: float) -> str | None:
    """The daemon of the next supervisor that comes to a point is killed just then. Every other time its reports do not
    leave the machine any more.
    """
    low, high = _LATER_SECONDS
    later = action.data.get("later", low * (high / low) ** drawn(action, 0.0, 1.0))
    is_cut = action.data.get("cut", int(action.data["draw"]) // len(POINTS) & 1)

    def happen(supervisor: SimulatedSupervisor) -> str:
        host = supervisor.machine.host
        if is_cut:
            for other in site.world.hosts:
                if other != host.name:
                    site.world.network.cut(host.name, other, _CUT_SECONDS)
        site.world.after(later, lambda: processes.kill(site.units[f"{host.name}/slurmd"]))
        return f"slurmd of {host.name}, {later:.4f} s"

    return _at_a_point(site, action, seconds, happen)


def _at_a_point(site: Site, action: Action, seconds: float, happen: Callable[[SimulatedSupervisor], str]) -> str | None:
    """Let it happen when the next supervisor comes to a drawn one of `POINTS`."""
    world, point = site.world, action.data.get("point") or POINTS[int(action.data["draw"]) % len(POINTS)]

    def come(supervisor: SimulatedSupervisor, at: str) -> None:
        if at == point and supervisor.process.is_alive:
            over()
            world.tell(f"fault: {action.kind}, {happen(supervisor)}, {point}")
            world.count(f"fault {action.kind}")
            name = supervisor.machine.host.name
            site.history.add(Injected(at=world.now, until=world.now + _CUT_SECONDS, kind=action.kind, target=name))

    def over() -> None:
        for machine in site.machines.values():
            machine.on_point = [other for other in machine.on_point if other is not come]

    for machine in site.machines.values():
        machine.on_point = [*machine.on_point, come]
    world.after(seconds, over)
    return f"when one has {point}"


add(Kind(name="supervisor lost at a point", targets=("cluster",), seconds=(60, 600), weight=2), _supervisor_lost)
add(Kind(name="slurmd lost at a point", targets=("cluster",), seconds=(60, 600), weight=4), _slurmd_lost)


@performs("jobs fail")
def _jobs_fail(site: Site, action: Action, seconds: float) -> str | None:
    """Every job fails at once, as where a file system is not mounted: such a node would swallow the queue."""
    return _for_a_while("fails_jobs", True, site, action, seconds)


@performs("gpu lost")
def _gpu_lost(site: Site, action: Action, seconds: float) -> str | None:
    """The driver finds fewer GPUs than before."""
    host = host_of(site, action.target)
    if host is None or host.machine is None:
        return None
    host.machine.gpus = int(drawn(action, 0, 4))

    def come_back() -> None:
        host.machine.gpus = None

    site.world.after(seconds, come_back)
    return f"{host.name} has {host.machine.gpus}"


@performs("health change")
def _health_change(site: Site, action: Action, seconds: float) -> str | None:
    """HealthCheckProgram drains the node; an administrator lets it serve again when the fault is over."""
    host = host_of(site, action.target)
    if host is None or host.machine is None or not host.machine.health_program:
        return None
    host.machine.illness = "sim: unwell"

    def recover() -> None:
        host.machine.illness = ""
        operators.ask(site, "set_node", {"nodes": list(host.machine.nodes), "state": "RESUME"})

    site.world.after(seconds, recover)
    return host.name


@performs("program fails")
def _program_fails(site: Site, action: Action, seconds: float) -> str | None:
    """The node's prolog or epilog fails, or takes long."""
    host = host_of(site, action.target)
    if host is None or host.machine is None:
        return None
    path = "/site/prolog" if int(action.data["draw"]) & 1 else "/site/epilog"
    takes, problem = (drawn(action, 1.0, 60.0), "") if int(action.data["draw"]) & 2 else (0.1, "exit status 1")
    host.machine.programs[path] = (takes, problem)

    def recover() -> None:
        host.machine.programs.pop(path, None)
        operators.ask(site, "set_node", {"nodes": list(host.machine.nodes), "state": "RESUME"})

    site.world.after(seconds, recover)
    return f"{host.name} {path}: {problem or f'{takes:.1f} s'}"


@performs("bit flip")
def _bit_flip(site: Site, action: Action, seconds: float) -> str | None:
    """A bit of the state rots, and slurmctld is started again on it. What it says is the operator's to answer."""
    host = host_of(site, action.target)
    unit = unit_of(site, action.target.removeprefix("host of "))
    if host is None or unit is None or unit.process is None or site.standbys is not None:
        return None  # of several controllers the journal is in PostgreSQL
    what = restoring.KINDS[int(drawn(action, 0.0, len(restoring.KINDS)))]
    site.operators[host.name].flip(what)
    processes.kill(unit)
    return f"{host.name}: {what}"
