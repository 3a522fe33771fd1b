"""`slurmctld`: from the command line to a serving daemon, and to its exit status.

Owns options, configuration search, users, pid file, log and detaching; what it serves is `controller.daemon`.

Source: slurmctld(8); slurm.conf(5) SlurmUser, SlurmctldPidFile, SlurmctldLogFile.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from spritz.controller.options import USAGE, Options, parse
from spritz.model.errors import SpritzError
from spritz.runtime.command import run_daemon

if TYPE_CHECKING:
    from spritz.controller.configuration import Configuration
    from spritz.runtime.daemonize import Startup


def entry() -> None:
    """The installed command.

    Leaves without taking the interpreter apart: who saw the last connection close expects the process gone, and freeing
    a large state takes a while.

    What is imported and recovered stays: it is not searched for garbage meanwhile (`recovery` begins that).
    """
    gc.disable()
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main(argv: list[str]) -> int:
    """Run the daemon, or (without -D) start it and return when it serves."""
    return run_daemon("slurmctld", argv, parse, USAGE, _start)


def _start(options: Options) -> int:
    from spritz.client.locate import find_slurm_conf
    from spritz.client.same_machine import refuse_remote
    from spritz.controller.configuration import read_configuration

    configuration = read_configuration(os.path.abspath(options.config_file or find_slurm_conf()))
    refuse_remote(configuration.hosts)
    _confirm_clear(options, configuration)
    from spritz.runtime.daemonize import daemonize, foreground

    startup = foreground(systemd=options.systemd) if options.foreground else daemonize()
    if options.foreground:
        return _run(options, configuration, startup)
    try:
        status = _run(options, configuration, startup)
    except SpritzError as error:
        startup.failed("\n".join(f"slurmctld: fatal: {line}" for line in error.message.splitlines()))
        os._exit(error.exit_code)
    startup.failed("")
    return status


def _confirm_clear(options: Options, configuration: Configuration) -> None:
    """-c forgets every job: ask whoever sits at a terminal."""
    if not options.clear or options.ignore_errors or not sys.stdin.isatty():
        return
    sys.stderr.write(
        f"slurmctld: -c forgets all jobs and node states in {configuration.state_directory}. Are you sure? (y/N) "
    )
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise SpritzError("nothing was changed")


def _run(options: Options, configuration: Configuration, startup: Startup) -> int:
    """In the process that will serve."""
    from spritz.runtime import log
    from spritz.runtime.limits import allow_many_files
    from spritz.runtime.pidfile import AlreadyRunning, PidFile
    from spritz.runtime.privilege import UnknownUser, is_root, lookup_user

    try:
        user = lookup_user(configuration.settings.slurm_user)
    except UnknownUser as error:
        raise SpritzError(str(error)) from error
    if not is_root() and user.uid != os.geteuid():
        raise SpritzError(
            f"Can not set uid to {user.name}({user.uid}): Operation not permitted",
            hint=f"start slurmctld as root or as {user.name}, or set SlurmUser to the user who starts it",
        )
    log_file = options.log_file or configuration.log_file
    _prepare_directories(configuration, log_file, user.uid, user.gid)
    if options.nice is not None:
        _set_nice(options.nice)
    pid_file = PidFile(configuration.pid_file)
    try:
        pid_file.acquire()
        if is_root():
            os.chown(configuration.pid_file, user.uid, user.gid)
    except AlreadyRunning as error:
        raise SpritzError(f"slurmctld is running already (pid {error.pid}, {error.filename})") from error
    except OSError as error:
        raise SpritzError(f"cannot write SlurmctldPidFile {configuration.pid_file}: {error.strerror}") from error
    try:
        # numpy's linear algebra, which nothing here uses, starts threads; forked children must find but the journal's.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        # Everything is imported before root is given up: SlurmUser may not be able to read where we are installed.
        from spritz.controller.daemon import serve
        from spritz.runtime.privilege import become
        from spritz.runtime.tasks import run

        _import_loop()
        become(user)
        if not log_file and not options.foreground:
            log_file = str(configuration.state_directory / "slurmctld.log")
        _open_log(options, configuration, log_file)
        _change_directory(options, configuration, log_file)
        allow_many_files()
        logger = log.get_logger("slurmctld")
        with log.in_background():
            return run(serve(options, configuration, startup, logger, user.uid, pid_file))
    finally:
        pid_file.release()


def _import_loop() -> None:
    """The loop that `run` will choose, which it imports later."""
    try:
        import uvloop  # noqa: F401  # for its place in sys.modules
    except ImportError:
        pass


def _prepare_directories(configuration: Configuration, log_file: str, uid: int, gid: int) -> None:
    """Make what is missing of the directories and the log that the daemon writes to, and give them to SlurmUser."""
    wanted = [(str(configuration.state_directory), 0o700), (os.path.dirname(configuration.pid_file), 0o755)]
    if log_file:
        wanted.append((os.path.dirname(os.path.abspath(log_file)), 0o755))
    for path, mode in wanted:
        if not path or os.path.isdir(path):
            continue
        try:
            os.makedirs(path, mode=mode, exist_ok=True)
            if os.geteuid() == 0 and uid != 0:
                os.chown(path, uid, gid)
        except OSError as error:
            raise SpritzError(f"cannot make directory {path}: {error.strerror}") from error
    if log_file and os.geteuid() == 0 and uid != 0:
        # Root may write to directories that SlurmUser may not: give it the file, as Slurm does.
        try:
            os.close(os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640))
            os.chown(log_file, uid, gid)
        except OSError as error:
            raise SpritzError(f"cannot open SlurmctldLogFile {log_file}: {error.strerror}") from error


def _set_nice(value: int) -> None:
    try:
        os.setpriority(os.PRIO_PROCESS, 0, value)
    except OSError as error:
        raise SpritzError(f"cannot set nice value {value}: {error.strerror}") from error


def _open_log(options: Options, configuration: Configuration, log_file: str) -> None:
    from spritz.runtime import log

    level = log.level_raised(configuration.log_level, options.verbose)
    try:
        log.configure(
            "slurmctld",
            path=log_file or None,
            file_level=level,
            stderr_level=level if options.foreground else "error",
            syslog_level=configuration.loaded.settings.text("SlurmctldSyslogDebug") or "quiet",
        )
        log.set_time_format(configuration.loaded.settings.text("LogTimeFormat"))
    except OSError as error:
        raise SpritzError(f"cannot open SlurmctldLogFile {log_file}: {error.strerror}") from error


def _change_directory(options: Options, configuration: Configuration, log_file: str) -> None:
    """-s: to the log's directory, else the state's, else /var/tmp."""
    if not options.change_directory:
        return
    for path in (os.path.dirname(log_file), str(configuration.state_directory), "/var/tmp"):
        if path and os.access(path, os.W_OK | os.X_OK):
            os.chdir(path)
            return


if __name__ == "__main__":
    entry()
