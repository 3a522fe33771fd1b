"""`slurmrestd`: from the command line to a serving process. Source: slurmrestd(8).

Like Slurm's, it refuses to run as root or SlurmUser: any user with access to its Unix socket would get their
privileges. SLURMRESTD_SECURITY=disable_user_check permits it, for a cluster that belongs to that user.
"""

from __future__ import annotations

import grp
import os
import pwd
import sys
from typing import TYPE_CHECKING

from spritz.client.locate import find_slurm_conf, locate_controller
from spritz.client.trust.membership import find_membership
from spritz.extras import pip_install
from spritz.model.errors import SpritzError
from spritz.rest.options import USAGE, Options, parse
from spritz.runtime import log
from spritz.runtime.daemon.daemon_command import run_daemon
from spritz.runtime.daemon.service import open_log
from spritz.runtime.limits import allow_many_files
from spritz.runtime.tasks import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.client.trust.membership import Membership


def entry() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    """Serve until a signal stops the process. Returns the exit code."""
    return run_daemon("slurmrestd", argv, parse, USAGE, _start)


def _start(options: Options) -> int:
    if options.listed:
        sys.stdout.write("Possible plugins:\n" + "".join(f"{name}\n" for name in options.listed))
        return 0
    if not options.addresses:
        raise SpritzError("no address to listen on: there is no inetd mode", hint=USAGE)

    path = os.path.abspath(options.config_file or find_slurm_conf())
    slurm_user = locate_controller(path).slurm_user
    try:
        from spritz.rest.serve import bind, check_tls, serve
    except ImportError as error:
        raise SpritzError(f"slurmrestd needs {error.name}, which is not installed", hint=pip_install("rest")) from error
    sockets = bind(options.addresses)
    membership, why_not = _membership(path)  # as root, if slurmrestd is started as root: the key is the daemons'
    _become(options)
    _check_user(slurm_user)
    _check_readable()
    check_tls(options.tls_cert, options.tls_key)  # as the user who reads them

    open_log("slurmrestd", options, key="", path="", level="info", syslog_level="quiet", time_format="")
    allow_many_files()
    logger = log.get_logger("slurmrestd")
    if why_not:
        logger.verbose("key.unused", reason=why_not)
    return run(serve(options, path, sockets, logger, membership))


def _membership(path: str) -> tuple[Membership | None, str]:
    """The cluster's key, with which daemons on other machines are reached; else why it is not used.

    slurmrestd may be a user who cannot read the key. Then this machine's daemons relay, as for every user.
    """
    try:
        membership = find_membership(path)
    except SpritzError as error:
        return None, error.message
    if membership is None or not membership.holds_cluster_key:
        return None, ""
    try:
        if membership.site is None:
            _ = membership.authorities
    except SpritzError as error:  # without the extra `machines`
        return None, error.message
    return membership, ""


def _become(options: Options) -> None:
    """Change to the user and group of -u and -g. Raises SpritzError."""
    if not options.user and not options.group:
        return
    gid = _number(options.group, lambda name: grp.getgrnam(name).gr_gid, "group") if options.group else None
    uid = _number(options.user, lambda name: pwd.getpwnam(name).pw_uid, "user") if options.user else None
    if gid is None and uid is not None:
        try:
            gid = pwd.getpwuid(uid).pw_gid
        except KeyError:
            gid = None
    if uid in (None, os.geteuid()) and gid in (None, os.getegid()):
        return
    try:
        if gid is not None:
            os.setgroups([])
            os.setgid(gid)
        if uid is not None:
            os.setuid(uid)
    except OSError as error:
        raise SpritzError(
            f"cannot become user {options.user or '-'}, group {options.group or '-'}: {error.strerror}"
        ) from error


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _check_readable() -> None:
    """Raises SpritzError if the process, as the user that it became, cannot read Python's files or Spritz's."""
    for directory in (os.path.dirname(os.__file__), os.path.dirname(__file__)):
        if not os.access(directory, os.R_OK | os.X_OK):
            raise SpritzError(
                f"slurmrestd cannot read {directory} as user {_name(os.geteuid())}",
                hint="install Python and Spritz where every user can read them, such as below /opt",
            )


def _number(word: str, find: Callable[[str], int], kind: str) -> int:
    try:
        return int(word) if word.isascii() and word.isdigit() else find(word)
    except KeyError as error:
        raise SpritzError(f"unable to resolve {kind} {word}") from error


def _check_user(slurm_user: str) -> None:
    """Raises SpritzError if the process runs as root or SlurmUser."""
    if "disable_user_check" in os.environ.get("SLURMRESTD_SECURITY", "") or "DISABLE_USER_CHECK" in os.environ:
        return
    hint = "run it as a dedicated unprivileged user (-u USER), as Slurm's slurmrestd requires too"
    if os.geteuid() == 0:
        raise SpritzError("slurmrestd should not be run as the root user.", hint=hint)
    if os.getegid() == 0:
        raise SpritzError("slurmrestd should not be run with the root group.", hint=hint)
    try:
        uid = int(slurm_user) if slurm_user.isdecimal() else pwd.getpwnam(slurm_user).pw_uid
    except KeyError:
        return
    if uid == os.geteuid():
        raise SpritzError("slurmrestd should not be run as SlurmUser", hint=hint)


if __name__ == "__main__":
    entry()
