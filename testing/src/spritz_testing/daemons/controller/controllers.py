"""The real slurmctld as a simulated process, on the state directory of its host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.controller.api import deferred
from spritz.controller.configuration import read_configuration
from spritz.controller.daemon import STAND_BY, serve
from spritz.controller.options import Options
from spritz.runtime.daemon.daemonize import Startup
from spritz_testing.daemons import seam
from spritz_testing.daemons.system import threads
from spritz_testing.daemons.system.machine import USERS, PidFile, StoryLogger
from spritz_testing.daemons.units import Unit

if TYPE_CHECKING:
    from types import ModuleType

    from spritz_testing.daemons.controller.standby import Standbys
    from spritz_testing.daemons.system.world import Host, Process


def controller_unit(host: Host, path: str, standbys: Standbys | None = None) -> Unit:
    """slurmctld on a host. `standbys`: what it has in common with the other controllers, if there are any."""

    async def main(process: Process) -> int:
        if standbys is not None:
            standbys.began(process)
        return await slurmctld(process, path)

    return Unit(host, "slurmctld", main, replaced_for=STAND_BY)


async def slurmctld(process: Process, path: str) -> int:
    """Serve with this slurm.conf, as the SlurmctldHost that has the name of the process's host, until told to stop."""
    disk = process.host.disk
    if disk is not None:
        process.on_end.append(lambda silently: disk.process_ended(process))
    ignores = disk is not None and disk.operator is not None and disk.operator.takes_options()
    options = Options(foreground=True, config_file=path, host=process.host.name, ignore_errors=ignores)
    log = StoryLogger("slurmctld", process)
    pid_file = PidFile()
    configuration = read_configuration(path)
    return await serve(options, configuration, None, Startup(None), log, USERS["slurm"], pid_file)  # type: ignore[arg-type]


def _process_began(pid: int) -> str:
    """As slurmctld reads it from /proc, which has the processes of its own host alone; "" if it is not there."""
    alive = any(process.pid == pid for process in threads.world().running.host.processes)
    return "began" if pid and alive else ""


def _names() -> list[tuple[ModuleType, str, object]]:
    return [(deferred, "_process_began", _process_began)]


seam.NAMES.append(_names)
