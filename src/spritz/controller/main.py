"""The `slurmctld` command: from the command line to a serving daemon and its exit status.

Owns options, the search for the configuration, users, pid file, log and detaching; `controller.daemon` does the
serving.

Source: slurmctld(8); slurm.conf(5) SlurmUser, SlurmctldPidFile, SlurmctldLogFile.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from spritz.client.locate import find_slurm_conf
from spritz.client.trust.membership import find_membership
from spritz.client.trust.same_machine import refuse_remote
from spritz.controller.configuration import read_configuration
from spritz.controller.options import USAGE, Options, parse
from spritz.model.errors import SpritzError
from spritz.runtime import log
from spritz.runtime.daemon.daemon_command import require, run_daemon
from spritz.runtime.daemon.service import held_pid_file, make_directory, open_log, serve_detached, set_nice
from spritz.runtime.limits import allow_many_files
from spritz.runtime.privilege import UnknownUser, become, is_root, lookup_user
from spritz.runtime.tasks import run

#: Same as `daemon.STAND_BY`, whose module takes long to import.
_STAND_BY = 75

if TYPE_CHECKING:
    from spritz.client.trust.membership import Membership
    from spritz.controller.configuration import Configuration
    from spritz.runtime.daemon.daemonize import Startup
    from spritz.runtime.privilege import User


def entry() -> None:
    """Entry point of the installed command.

    Exits without the interpreter's clean-up: a client that saw its connection close expects the process to be gone, and
    freeing a large state takes a while.

    Imported modules and recovered records live as long as the process, so garbage collection is off until `recovery`
    turns it on.
    """
    gc.disable()
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main(argv: list[str]) -> int:
    """Run the daemon in the foreground (-D), or start it and return once it serves."""
    return run_daemon("slurmctld", argv, parse, USAGE, _start)


def _start(options: Options) -> int:
    require("slurmctld", "controller")
    configuration = read_configuration(os.path.abspath(options.config_file or find_slurm_conf()))
    membership = find_membership(configuration.path)
    if membership is None or not membership.holds_cluster_key:
        membership = None
    if membership is None:
        refuse_remote(configuration.hosts)
    _check_hosts(options, configuration)
    _confirm_clear(options, configuration)
    status = serve_detached("slurmctld", options, lambda startup: _run(options, configuration, membership, startup))
    if status == _STAND_BY:
        _stand_by(options, configuration)
    return status


def _check_hosts(options: Options, configuration: Configuration) -> None:
    """Refuse several controllers without a journal that fences."""
    url, hosts = configuration.journal_url, configuration.addresses
    if not url:
        if len(hosts) > 1:
            raise SpritzError(
                f"{configuration.path}: {len(hosts)} SlurmctldHost lines need SlurmctldParameters=journal=postgresql://…",
                hint="a StateSaveLocation that controllers share over the network cannot keep a deposed one from "
                "writing, PostgreSQL can: see docs/how-to/standby-controller.md; or leave one SlurmctldHost",
            )
        return
    if not url.startswith(("postgresql://", "postgres://", "postgresql+psycopg://")):
        raise SpritzError(
            f"{configuration.path}: SlurmctldParameters=journal={url}: expected postgresql://USER@HOST/DATABASE"
        )
    if options.ignore_errors:
        raise SpritzError(
            "-i saves what can be read of a damaged journal in SQLite; this one is in PostgreSQL",
            hint="restore the database from its backup, or start with -c, which sets the journal aside",
        )
    configuration.own_host(options.host)


def _stand_by(options: Options, configuration: Configuration) -> None:
    """Replace this process with a new standby: its memory and connections are dropped. Does not return."""
    arguments = sys.argv[1:]
    words = ["--systemd"] if options.systemd else ["-D"]
    words += ["-f", configuration.path, *(["-v"] * options.verbose)]
    for letter, value in (("-N", options.host), ("-L", options.log_file)):
        words += [letter, value] if value else []
    words += ["-R"] if options.recover_partitions else []
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(arguments)], *words])


def _confirm_clear(options: Options, configuration: Configuration) -> None:
    """-c deletes all jobs: ask for confirmation on a terminal."""
    if not options.clear or options.ignore_errors or not sys.stdin.isatty():
        return
    kept = str(configuration.state_directory)
    if configuration.journal_url:
        from spritz.controller.journal.postgresql import shown

        kept = shown(configuration.journal_url)
    lost = (
        ", and the records of jobs that slurmdbd still lacks (sdiag: DBD Agent queue size)"
        if configuration.loaded.settings.text("AccountingStorageType") == "accounting_storage/slurmdbd"
        else ""
    )
    sys.stderr.write(f"slurmctld: -c forgets all jobs and node states in {kept}{lost}. Are you sure? (y/N) ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise SpritzError("nothing was changed")


def _run(options: Options, configuration: Configuration, membership: Membership | None, startup: Startup) -> int:
    """Runs in the process that serves."""
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
    _prepare_directories(configuration, log_file, user)
    set_nice(options.nice)
    with held_pid_file("slurmctld", "SlurmctldPidFile", configuration.pid_file, user) as pid_file:
        # numpy's linear algebra, unused here, would start threads; at a fork only the journal's thread may exist
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        # Imported before root is given up: SlurmUser may not be able to read the installation.
        from spritz.controller.daemon import serve

        _import_loop()
        if membership is not None:
            _ = membership.authorities, membership.signer()
        become(user)
        if not log_file and not options.foreground:
            log_file = str(configuration.state_directory / "slurmctld.log")
        settings = configuration.loaded.settings
        open_log(
            "slurmctld",
            options,
            key="SlurmctldLogFile",
            path=log_file,
            level=configuration.log_level,
            syslog_level=settings.text("SlurmctldSyslogDebug"),
            time_format=settings.text("LogTimeFormat"),
        )
        _change_directory(options, configuration, log_file)
        allow_many_files()
        logger = log.get_logger("slurmctld")
        with log.in_background():
            return run(serve(options, configuration, membership, startup, logger, user.uid, pid_file))


def _import_loop() -> None:
    """Import the event loop that `run` will choose."""
    try:
        import uvloop  # noqa: F401  # imported early so that `run` finds it in sys.modules
    except ImportError:
        pass


def _prepare_directories(configuration: Configuration, log_file: str, user: User) -> None:
    """Create missing directories and the log file, and give them to SlurmUser."""
    make_directory(str(configuration.state_directory), 0o700, user)
    make_directory(os.path.dirname(configuration.pid_file), owner=user)
    if log_file:
        make_directory(os.path.dirname(os.path.abspath(log_file)), owner=user)
    if log_file and os.geteuid() == 0 and user.uid != 0:
        # Root may write to directories that SlurmUser may not: hand over the file, as Slurm does.
        try:
            os.close(os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640))
            os.chown(log_file, user.uid, user.gid)
        except OSError as error:
            raise SpritzError(f"cannot open SlurmctldLogFile {log_file}: {error.strerror}") from error


def _change_directory(options: Options, configuration: Configuration, log_file: str) -> None:
    """-s: change to the log's directory, else the state's, else /var/tmp."""
    if not options.change_directory:
        return
    for path in (os.path.dirname(log_file), str(configuration.state_directory), "/var/tmp"):
        if path and os.access(path, os.W_OK | os.X_OK):
            os.chdir(path)
            return


if __name__ == "__main__":
    entry()
