"""The `slurmd` command: from the command line to a serving daemon and its exit status.

Owns options, configuration search, pid file, log and detaching; `node.daemon` does the serving.

Source: slurmd(8); slurm.conf(5) SlurmdUser, SlurmdPidFile, SlurmdLogFile, SlurmdSpoolDir.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from spritz.client.joining.configless import configuration, refresh
from spritz.client.joining.configless import keep as keep_files
from spritz.client.joining.joining import parse_address
from spritz.client.locate import locate_controller, read_keys
from spritz.client.trust.membership import known_as
from spritz.client.trust.munged import munged_of
from spritz.client.trust.same_machine import is_here, refuse_remote
from spritz.config.load import load
from spritz.model.errors import SpritzError
from spritz.model.scarcity import UNWRITABLE
from spritz.node import cgroup
from spritz.node.daemon import Daemon, node_socket
from spritz.node.dynamic_node import introduce
from spritz.node.hardware.detection import describe, detect
from spritz.node.options import USAGE, Options, parse
from spritz.node.settings import CgroupDirectories, controllers_taken, daemon_settings, holds, own_nodes, spool_of
from spritz.node.spool import try_socket
from spritz.node.supervisors.leftovers import forget_all
from spritz.runtime import log
from spritz.runtime.clock import SystemClock
from spritz.runtime.daemon.daemon_command import run_daemon
from spritz.runtime.daemon.service import held_pid_file, make_directory, open_log, serve_detached, set_nice
from spritz.runtime.privilege import UnknownUser, current_user, lookup_user, uid_of_setting
from spritz.runtime.tasks import run
from spritz.stepd.tasks.namespaces import may_cover

if TYPE_CHECKING:
    from spritz.client.trust.membership import Membership
    from spritz.model.node.record import NodeConfig
    from spritz.node.container import Container
    from spritz.node.hardware.detection import Hardware
    from spritz.node.settings import DaemonSettings
    from spritz.runtime.daemon.daemonize import Startup


def entry() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    """Run the daemon in the foreground (-D), or start it and return once it serves."""
    return run_daemon("slurmd", argv, parse, USAGE, _start)


def _print_hardware() -> int:
    hostname = socket.gethostname().partition(".")[0]
    sys.stdout.write(describe(detect(SystemClock().now()), hostname))
    return 0


def _start(options: Options) -> int:
    if options.print_hardware:
        return _print_hardware()

    path, membership, fetched = _configuration(options)
    if _is_unnamed(path, options, membership):
        options = replace(options, dynamic=True)
    hardware = _hardware(gpus=options.dynamic)
    dynamic_node = None
    if options.dynamic or options.future:
        _need_place(path, options)
        dynamic_node = introduce(path, options, hardware, membership)
    ours = _Ours(dynamic_node, membership, fetched)
    settings = _read(path, options, hardware, ours)
    if membership is None:
        refuse_remote((settings.controllers_key, address) for address in settings.controllers)
    _need_user(settings.slurmd_user)
    return serve_detached("slurmd", options, lambda startup: _run(options, settings, hardware, startup, ours))


def _is_unnamed(path: str, options: Options, membership: Membership | None) -> bool:
    """Whether slurm.conf does not have this machine, which has joined as a node: it brings a node of its own.

    What `spritz join` found when it wrote a unit need not hold at a later boot.
    """
    if options.nodes or options.future or membership is None or membership.joined is None:
        return False
    try:
        own_nodes(load(path), "", known_as(membership))
    except SpritzError:
        return True
    return False


@dataclass(frozen=True)
class _Ours:
    """This machine's identity: the node named by the controller, its keys, and whether the controller sends
    the files.
    """

    node: NodeConfig | None
    membership: Membership | None
    fetched: bool


def _configuration(options: Options) -> tuple[str, Membership | None, bool]:
    """Path of slurm.conf, our keys, and whether the controller sends the files. Raises SpritzError."""
    now = SystemClock().now()
    loaded, membership, fetched = configuration(options.config_file, options.conf_server, "node", now)
    if fetched and membership is not None and not options.conf_server:
        controllers = locate_controller(loaded)
        if not is_here(controllers.hosts) and membership.joined is not None:
            known = [parse_address(text) for text in membership.joined.controllers]
            refresh(
                loaded, membership, "node", [*((host, controllers.port) for host in controllers.hosts), *known], now
            )
    return loaded, membership, fetched


def _need_user(name: str) -> None:
    """Raises SpritzError unless this process runs as SlurmdUser: else jobs could not start, or not as their users."""
    try:
        user = lookup_user(name)
    except UnknownUser as error:
        raise SpritzError(f"SlurmdUser: {error}") from error
    if user.uid != os.geteuid():
        ours = current_user().name
        raise SpritzError(
            f"You are running slurmd as something other than user {user.name}({user.uid}). If you want to run as "
            f"this user add SlurmdUser={ours} to the slurm.conf file."
        )


def _need_place(path: str, options: Options) -> None:
    """Raises SpritzError if slurmd cannot serve here, before the controller adds a node that would never register."""
    settings = load(path).settings
    _need_user(settings.text("SlurmdUser"))
    if options.dynamic:
        keys = {key.lower(): value for key, _, value in (word.partition("=") for word in options.conf.split())}
        port = keys.get("port", "")
        number = int(port) if port.isascii() and port.isdigit() else settings.integer("SlurmdPort")
        node_socket(keys.get("nodeaddr", ""), number).close()


def _hardware(*, gpus: bool) -> Hardware:
    return detect(SystemClock().now(), gpus=gpus)


def _read(path: str, options: Options, hardware: Hardware, ours: _Ours, *, again: bool = False) -> DaemonSettings:
    """The configuration for our nodes; `again`: for those that are still in it, if any is.

    Raises SpritzError with every fault in the files.
    """
    config = load(path)
    dynamic_node, name = ours.node, known_as(ours.membership)
    nodes = [dynamic_node] if dynamic_node is not None else own_nodes(config, options.nodes, name, some=again)
    plugin = str(config.cgroup["CgroupPlugin"])
    if reason := cgroup.missing(plugin, controllers_taken(config)):
        mounted = cgroup.version()
        raise SpritzError(
            f"cgroup.conf: CgroupPlugin={plugin}: {reason}" + (f" (it has {mounted})" if mounted else ""),
            hint="CgroupPlugin=cgroup/v1 does without these"
            if plugin == "autodetect"
            else "CgroupPlugin=autodetect uses what there is, and slurmd's log says what that cannot hold",
        )
    kinds = cgroup.KINDS[plugin]
    name = cgroup.directory_name(spool_of(config, nodes[0].name, several=len(nodes) > 1))
    groups = CgroupDirectories(
        memory=cgroup.prepare_memory(name, kinds),
        devices=cgroup.prepare_devices(name, kinds) if holds(config, "ConstrainDevices") else "",
        cores=cgroup.prepare_cores(name, kinds) if holds(config, "ConstrainCores") else "",
        tree=cgroup.prepare_tree(name, kinds),
    )
    for group in (groups.memory, groups.devices, groups.cores, groups.tree):
        cgroup.sweep(group)
    version = cgroup.version(kinds)
    return daemon_settings(config, nodes, hardware.topology, groups, name, version)


def _run(options: Options, settings: DaemonSettings, hardware: Hardware, startup: Startup, ours: _Ours) -> int:
    """Runs in the process that serves."""
    log_file = options.log_file or settings.log_file
    _prepare_directories(settings, log_file)
    set_nice(options.nice)
    with held_pid_file("slurmd", "SlurmdPidFile", settings.pid_file):
        return _serve(options, settings, hardware, startup, log_file, ours)


def _serve(
    options: Options,
    settings: DaemonSettings,
    hardware: Hardware,
    startup: Startup,
    log_file: str,
    ours: _Ours,
) -> int:
    if not log_file and not options.foreground:
        log_file = os.path.join(next(iter(settings.nodes.values())).spool, "slurmd.log")
    open_log(
        "slurmd",
        options,
        key="SlurmdLogFile",
        path=log_file,
        level=settings.log_level,
        syslog_level=settings.syslog_level,
        time_format=settings.log_time_format,
    )
    if options.clear:
        forget_all(node.spool for node in settings.nodes.values())

    member, keep = None, None
    if ours.membership is not None:
        from spritz.client.joining.member import member_of

        member = member_of(
            ours.membership,
            settings.cluster_name,
            "node",
            settings.controllers,
            settings.controller_port,
            SystemClock(),
        )
        if member is not None:
            keys = read_keys(frozenset(("authtype", "authinfo")), settings.path)
            member.munge = munged_of(keys.get("authtype", ""), keys.get("authinfo", ""))
        if member is not None and ours.fetched:
            keep = partial(keep_files, settings.path, ours.membership)

    async def serve() -> int:
        daemon = Daemon(
            options,
            settings,
            hardware,
            log.get_logger("slurmd"),
            lambda: _read(settings.path, options, hardware, ours, again=True),
            _owners(settings.slurm_user),
            member,
            keep,
        )
        return await daemon.run(startup)

    try:
        with log.in_background():
            return run(serve())
    except* SpritzError as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[SpritzError]) -> SpritzError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, SpritzError)
    return error


def _owners(slurm_user: str) -> frozenset[int]:
    """Users that may run the controller: root, SlurmUser, and this process's user."""
    try:
        return frozenset((0, os.geteuid(), uid_of_setting(slurm_user)))
    except UnknownUser as error:
        raise SpritzError(f"SlurmUser: {error}") from error


def _prepare_directories(settings: DaemonSettings, log_file: str) -> None:
    """Create missing directories that the daemon writes to."""
    directories = [node.spool for node in settings.nodes.values()]
    directories += [os.path.dirname(os.path.abspath(path)) for path in (settings.pid_file, log_file) if path]
    for path in directories:
        make_directory(path)
    for node in settings.nodes.values():
        _need_sockets(node.spool)
        _need_container(node.setup.container)


def _need_container(container: Container | None) -> None:
    """Raises SpritzError if jobs could not have private directories."""
    if container is None:
        return
    for place in container.dirs:
        if not os.path.isdir(place):
            raise SpritzError(f"job_container.conf: Dirs: {place}: no such directory", hint="no job could start here")
    try:
        container.prepare()
    except OSError as error:
        raise SpritzError(
            f"job_container.conf: BasePath: {error.filename}: {error.strerror}",
            hint="AutoBasePath=true creates it; slurmd must own it",
        ) from error
    if problem := may_cover():
        raise SpritzError(
            f"JobContainerType=job_container/tmpfs: this slurmd cannot make mount namespaces: {problem}",
            hint="run slurmd as root, allow user namespaces (user_namespaces(7)), or set job_container/none",
        )


def _need_sockets(spool: str) -> None:
    """Raises SpritzError if the file system has no sockets, as some network file systems: steps could not listen."""
    try:
        try_socket(spool)
    except OSError as error:
        if error.errno in UNWRITABLE:
            return  # the jobs that run here need this daemon all the same; the next step has the node drained
        raise SpritzError(
            f"SlurmdSpoolDir {spool} cannot hold sockets: {error.strerror}. Set it to a directory of a local disk."
        ) from error


if __name__ == "__main__":
    entry()
