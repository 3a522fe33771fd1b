"""`slurmdbd`: from the command line to a serving daemon, and to its exit status.

Source: slurmdbd(8); slurmdbd.conf(5) SlurmUser, PidFile, LogFile, DebugLevel.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from spritz.accounting.options import USAGE, Options, parse
from spritz.model.errors import SpritzError
from spritz.runtime.command import run_daemon

if TYPE_CHECKING:
    from spritz.config.loaded import DbdSettings
    from spritz.runtime.daemonize import Startup
    from spritz.runtime.privilege import User


def entry() -> None:
    """The installed command."""
    sys.exit(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    """Run the daemon, or (without -D) start it and return when it serves."""
    return run_daemon("slurmdbd", argv, parse, USAGE, _start)


def _start(options: Options) -> int:
    from spritz.accounting.configuration import check_permissions, find_slurmdbd_conf
    from spritz.config.load import load_slurmdbd
    from spritz.runtime.daemonize import daemonize, foreground
    from spritz.runtime.privilege import UnknownUser, is_root, lookup_user

    path = os.path.abspath(options.config_file or find_slurmdbd_conf())
    settings = load_slurmdbd(path)
    try:
        user = lookup_user(settings.text("SlurmUser"))
    except UnknownUser as error:
        raise SpritzError(f"SlurmUser: {error}") from error
    check_permissions(path, user.uid)
    if not is_root() and user.uid != os.geteuid():
        raise SpritzError(
            f"slurmdbd must be started as root or as SlurmUser {user.name}({user.uid})",
            hint="SlurmUser of slurmdbd.conf sets another user",
        )
    startup = foreground(systemd=options.systemd) if options.foreground else daemonize()
    if options.foreground:
        return _run(options, settings, startup, user)
    try:
        status = _run(options, settings, startup, user)
    except SpritzError as error:
        startup.failed("\n".join(f"slurmdbd: fatal: {line}" for line in error.message.splitlines()))
        os._exit(error.exit_code)
    startup.failed("")
    return status


def _run(options: Options, settings: DbdSettings, startup: Startup, user: User) -> int:
    """In the process that will serve."""
    from spritz.accounting.configuration import database_url
    from spritz.runtime import log
    from spritz.runtime.limits import allow_many_files
    from spritz.runtime.pidfile import AlreadyRunning, PidFile
    from spritz.runtime.privilege import become

    if options.nice is not None:
        os.setpriority(os.PRIO_PROCESS, 0, options.nice)
    pid_path, log_path = settings.text("PidFile"), settings.text("LogFile")
    _prepare_directories((pid_path, log_path), user)
    pid_file = PidFile(pid_path)
    try:
        pid_file.acquire()
        if os.geteuid() == 0:
            os.chown(pid_path, user.uid, user.gid)
    except AlreadyRunning as error:
        raise SpritzError(f"slurmdbd is running already (pid {error.pid}, {error.filename})") from error
    except OSError as error:
        raise SpritzError(f"cannot write PidFile {pid_path}: {error.strerror}") from error
    try:
        url = database_url(settings)
        # Imported before root is given up: SlurmUser may not be able to read where we are installed.
        from spritz.accounting.daemon import serve
        from spritz.accounting.engine import open_engine
        from spritz.accounting.store import Store
        from spritz.runtime.tasks import run

        if url.get_backend_name() == "sqlite" and url.database and not url.database.startswith("file:"):
            _prepare_directories((url.database,), user)
        engine = open_engine(url, settings.text("StorageBackupHost"))
        become(user)
        _open_log(options, settings, log_path)
        if options.change_directory:
            os.chdir(os.path.dirname(log_path) or "/var/tmp")
        allow_many_files()
        logger = log.get_logger("slurmdbd")
        for item in settings.warnings:
            logger.warning("config.questionable", detail=item.text)
        with log.in_background():
            return run(serve(Store(engine), settings, startup, logger, user.uid, pid_file))
    finally:
        pid_file.release()


def _prepare_directories(paths: tuple[str, ...], user: User) -> None:
    for path in filter(None, paths):
        directory = os.path.dirname(path)
        if directory and not os.path.isdir(directory):
            try:
                os.makedirs(directory, mode=0o755, exist_ok=True)
                if os.geteuid() == 0 and user.uid != 0:
                    os.chown(directory, user.uid, user.gid)
            except OSError as error:
                raise SpritzError(f"cannot make directory {directory}: {error.strerror}") from error


def _open_log(options: Options, settings: DbdSettings, path: str) -> None:
    from spritz.runtime import log

    level = log.level_raised(settings.text("DebugLevel"), options.verbose)
    try:
        log.configure(
            "slurmdbd",
            path=path or None,
            file_level=level,
            stderr_level=level if options.foreground else "error",
            syslog_level=settings.text("DebugLevelSyslog") or "quiet",
        )
        log.set_time_format(settings.text("LogTimeFormat"))
    except OSError as error:
        raise SpritzError(f"cannot open LogFile {path}: {error.strerror}") from error


if __name__ == "__main__":
    entry()
