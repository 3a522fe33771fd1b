"""The real slurmctld as a simulated process, on the state directory of its host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.controller.configuration import read_configuration
from spritz.controller.daemon import serve
from spritz.controller.options import Options
from spritz.runtime.daemonize import Startup
from spritz.sim.daemons.machine import USERS, PidFile, StoryLogger

if TYPE_CHECKING:
    from spritz.sim.daemons.world import Process


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
