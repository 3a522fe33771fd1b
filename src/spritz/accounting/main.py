"""The `slurmdbd` command: reads options and configuration, starts the daemon, returns the exit status.

Source: slurmdbd(8); slurmdbd.conf(5) SlurmUser, PidFile, LogFile, DebugLevel.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from spritz.accounting.configuration import check_permissions, database_url, find_slurmdbd_conf
from spritz.accounting.options import USAGE, Options, parse
from spritz.client.trust.membership import find_membership
from spritz.client.trust.same_machine import is_here
from spritz.config.load import load_slurmdbd
from spritz.model.errors import SpritzError
from spritz.runtime import log
from spritz.runtime.daemon.daemon_command import require, run_daemon
from spritz.runtime.daemon.service import held_pid_file, make_directory, open_log, serve_detached, set_nice
from spritz.runtime.limits import allow_many_files
from spritz.runtime.privilege import UnknownUser, become, is_root, lookup_user
from spritz.runtime.tasks import run

if TYPE_CHECKING:
    from spritz.client.trust.membership import Membership
    from spritz.config.loaded import DbdSettings
    from spritz.runtime.daemon.daemonize import Startup
    from spritz.runtime.privilege import User


#: Same as `daemon.STAND_BY`, whose module takes long to import.
_STAND_BY = 75


def entry() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    """Run the daemon in the foreground (-D), or start it and return once it serves."""
    return run_daemon("slurmdbd", argv, parse, USAGE, _start)


def _start(options: Options) -> int:
    require("slurmdbd", "accounting")
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
    membership = find_membership(path)
    if membership is not None and not membership.holds_cluster_key:
        membership = None
    status = serve_detached("slurmdbd", options, lambda startup: _run(options, settings, membership, startup, user))
    if status == _STAND_BY:
        _stand_by(options, path)
    return status


def _stand_by(options: Options, path: str) -> None:
    """Replace this process with a new standby, without threads that wait for the database. Does not return."""
    arguments = sys.argv[1:]
    words = ["--systemd"] if options.systemd else ["-D"]
    words += ["-f", path, *(["-v"] * options.verbose)]
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(arguments)], *words])


def _run(options: Options, settings: DbdSettings, membership: Membership | None, startup: Startup, user: User) -> int:
    """Runs in the process that serves."""
    set_nice(options.nice)
    pid_path, log_path = settings.text("PidFile"), settings.text("LogFile")
    for path in filter(None, (pid_path, log_path)):
        make_directory(os.path.dirname(path), owner=user)
    with held_pid_file("slurmdbd", "PidFile", pid_path, user) as pid_file:
        url = database_url(settings)
        # Imported before root is given up: SlurmUser may not be able to read the installation.
        from spritz.accounting.daemon import serve
        from spritz.accounting.engine import open_engine
        from spritz.accounting.store import Store

        if url.get_backend_name() == "sqlite" and url.database and not url.database.startswith("file:"):
            make_directory(os.path.dirname(url.database), owner=user)
        engine = open_engine(url, settings.text("StorageBackupHost"))
        if membership is not None:
            _ = membership.authorities
        become(user)
        open_log(
            "slurmdbd",
            options,
            key="LogFile",
            path=log_path,
            level=settings.text("DebugLevel"),
            syslog_level=settings.text("DebugLevelSyslog"),
            time_format=settings.text("LogTimeFormat"),
        )
        if options.change_directory:
            os.chdir(os.path.dirname(log_path) or "/var/tmp")
        allow_many_files()
        logger = log.get_logger("slurmdbd")
        for item in settings.warnings:
            logger.warning("config.questionable", detail=item.text)
        hosts = [host for host in (settings.text("DbdHost"), settings.text("DbdBackupHost")) if host]
        if not is_here(hosts):
            logger.warning("config.questionable", detail=f"DbdHost is another machine ({', '.join(hosts)})")
        with log.in_background():
            return run(serve(Store(engine), settings, membership, startup, logger, user.uid, pid_file))


if __name__ == "__main__":
    entry()
