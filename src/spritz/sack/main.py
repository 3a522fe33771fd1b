"""The `sackd` command: from the command line to a serving daemon and its exit status.

Source: sackd(8).
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from spritz.client.joining.configless import configuration, keep
from spritz.client.locate import locate_controller, locate_database, read_keys
from spritz.client.trust.munged import munged_of
from spritz.model.errors import SpritzError
from spritz.runtime import log
from spritz.runtime.clock import SystemClock
from spritz.runtime.daemon.daemon_command import run_daemon
from spritz.runtime.daemon.service import held_pid_file, make_directory, open_log, serve_detached
from spritz.runtime.limits import allow_many_files
from spritz.runtime.tasks import run
from spritz.sack.daemon import serve
from spritz.sack.options import USAGE, Options, parse

if TYPE_CHECKING:
    from spritz.client.trust.membership import Membership
    from spritz.runtime.daemon.daemonize import Startup


def entry() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    """Run the daemon in the foreground (-D), or start it and return once it serves."""
    return run_daemon("sackd", argv, parse, USAGE, _start)


def _start(options: Options) -> int:
    path, membership, fetched = configuration(options.config_file, options.conf_server, "login", SystemClock().now())
    if membership is None:
        raise SpritzError(
            f"{path}: there is no key of the cluster next to it",
            hint="put its slurm.key there, or have the machine join: spritz join HOST --token T",
        )
    return serve_detached("sackd", options, lambda startup: _run(options, path, membership, fetched, startup))


def _run(options: Options, path: str, membership: Membership, fetched: bool, startup: Startup) -> int:
    """Runs in the process that serves."""
    from spritz.client.joining.member import member_of

    controller, database = locate_controller(path), locate_database(path)
    role = membership.joined.role if membership.joined is not None else "login"
    member = member_of(membership, controller.cluster_name, role, controller.hosts, controller.port, SystemClock())
    if member is None:
        raise SpritzError(f"the controller is on this machine ({path}): commands reach it without sackd")
    membership.keys(member.cluster, role, SystemClock().now())  # refuses certificates that controllers would refuse
    keys = read_keys(frozenset(("authtype", "authinfo")), path)
    member.munge = munged_of(keys.get("authtype", ""), keys.get("authinfo", ""))
    pid_file = options.pid_file or (
        "/run/sackd.pid" if os.geteuid() == 0 else os.path.join(os.path.dirname(path), "sackd.pid")
    )
    make_directory(os.path.dirname(pid_file))
    with held_pid_file("sackd", "pid file", pid_file):
        open_log(
            "sackd",
            options,
            key="-L",
            path=options.log_file,
            level="info",
            syslog_level="quiet" if options.log_file or options.foreground else "info",
            time_format="",
        )
        allow_many_files()
        where = database.ports if database.kind == "slurmdbd" else ()
        logger = log.get_logger("sackd")
        kept = partial(keep, path, membership) if fetched else None
        with log.in_background():
            return run(serve(member, where, kept, startup, logger))


if __name__ == "__main__":
    entry()
