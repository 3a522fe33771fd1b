"""From a daemon's command to a serving process: directories, pid file, log, and daemonizing.

Source: slurmctld(8), slurmd(8), slurmdbd(8); slurm.conf(5) SlurmctldPidFile, SlurmdPidFile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError
from spritz.runtime import log
from spritz.runtime.daemon.daemon_command import error_lines
from spritz.runtime.daemon.daemonize import daemonize, foreground
from spritz.runtime.daemon.pidfile import AlreadyRunning, PidFile

if TYPE_CHECKING:
    from spritz.runtime.daemon.daemon_options import Common
    from spritz.runtime.daemon.daemonize import Startup
    from spritz.runtime.privilege import User


def serve_detached(program: str, options: Common, serve: Callable[[Startup], int]) -> int:
    """The exit status of `serve`, called here with -D, else in a detached process.

    An error that ends the daemon is written to its log too, if that is open: the terminal may be gone.
    """
    startup = foreground(systemd=options.systemd) if options.foreground else daemonize()
    try:
        status = serve(startup)
    except SpritzError as error:
        log.set_levels(stderr_level="quiet")  # the command prints the error
        log.get_logger(program).fatal("daemon.failed", error=error.message, hint=error.hint)
        if options.foreground:
            raise
        startup.failed("\n".join(error_lines(program, error)))
        os._exit(error.exit_code)
    if options.foreground:
        return status
    startup.failed("")
    return status


def make_directory(path: str, mode: int = 0o755, owner: User | None = None) -> None:
    """Create a missing directory, and give it to `owner` if this is root. Raises SpritzError."""
    if not path or os.path.isdir(path):
        return
    try:
        os.makedirs(path, mode=mode, exist_ok=True)
        if owner is not None and os.geteuid() == 0 and owner.uid != 0:
            os.chown(path, owner.uid, owner.gid)
    except OSError as error:
        raise SpritzError(f"cannot make directory {path}: {error.strerror}") from error


@contextmanager
def held_pid_file(program: str, key: str, path: str, owner: User | None = None) -> Iterator[PidFile]:
    """Hold the pid file during the block. Raises SpritzError if another daemon holds it. `key`: its
    configuration key.
    """
    pid_file = PidFile(path)
    try:
        pid_file.acquire()
        if owner is not None and os.geteuid() == 0:
            os.chown(path, owner.uid, owner.gid)
    except AlreadyRunning as error:
        raise SpritzError(f"{program} is running already (pid {error.pid}, {error.filename})") from error
    except OSError as error:
        pid_file.release()
        raise SpritzError(f"cannot write {key} {path}: {error.strerror}") from error
    try:
        yield pid_file
    finally:
        pid_file.release()


def open_log(
    program: str, options: Common, *, key: str, path: str, level: str, syslog_level: str, time_format: str
) -> None:
    """Log to `path` ("": only to the terminal) at the level, one higher for each -v. Raises SpritzError."""
    number = log.level_raised(level, options.verbose)
    try:
        log.configure(
            program,
            path=path or None,
            file_level=number,
            stderr_level=number if options.foreground else "error",
            syslog_level=syslog_level or "quiet",
        )
        log.set_time_format(time_format)
    except OSError as error:
        raise SpritzError(f"cannot open {key} {path}: {error.strerror}") from error


def set_nice(value: int | None) -> None:
    """Apply option -n, if given. Raises SpritzError."""
    if value is None:
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, value)
    except OSError as error:
        raise SpritzError(f"cannot set nice value {value}: {error.strerror}") from error
