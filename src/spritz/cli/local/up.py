"""Start a cluster on this machine: no root, no configuration, no services.

Without options the cluster is one node with this machine's CPUs, memory and GPUs. `--nodes` makes virtual nodes, which
share the machine and may declare more than it has. `--systemd` lets systemd start root's cluster at boot; daemons that
have units are always started by systemd.
"""

from __future__ import annotations

import os
import pwd
import signal
import sys
import time
from argparse import BooleanOptionalAction
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import MsgspecError, Struct, json

from spritz import installed
from spritz.cli.call.context import Context
from spritz.cli.local import daemons, dashboard, layout, network, rest, units
from spritz.cli.local.account import give_account
from spritz.cli.local.down import joined_role
from spritz.cli.local.paths import ClusterPaths, default_root
from spritz.cli.local.token import join_line
from spritz.cli.local.units import Unit
from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError
from spritz.client.joining.configless import publish
from spritz.client.locate import locate_controller, system_state_home
from spritz.config.load import load
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.model.node.machines import CreateToken, JoinedMachine, TokenCreated, certified, cut_off
from spritz.model.queries.daemons import Reconfigure
from spritz.model.queries.events import Counters, Statistics
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.notation.hostlist import compress, expand
from spritz.notation.memory import parse_mib
from spritz.runtime.clock import SystemClock
from spritz.runtime.daemon.daemon_command import require

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from spritz.model.queries.nodes import NodeView

#: Seconds for the nodes to register; then `up` names those that have not.
REGISTRATION_SECONDS = 30.0
#: Seconds to wait until the controller knows the user's account (jobs that are submitted earlier have none): while
#: slurmdbd runs here, and where it does not run, or runs elsewhere.
ACCOUNTING_SECONDS = 15.0
FAR_ACCOUNTING_SECONDS = 3.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dir",
        metavar="DIR",
        help="directory of the cluster (default: ~/.local/state/spritz/default; root: /var/lib/spritz/default)",
    )
    parser.add_argument("--nodes", metavar="N", type=int, help="virtual nodes node1…nodeN instead of this machine")
    parser.add_argument("--cpus", metavar="N", type=int, help="CPUs that each virtual node declares (default 8)")
    parser.add_argument("--memory", metavar="SIZE", help="memory that each virtual node declares (default 4G)")
    parser.add_argument("--gpus", metavar="N", type=int, help="GPUs that each virtual node declares (default 0)")
    parser.add_argument("--gpu-type", metavar="NAME", help="type of these GPUs, as in --gres=gpu:NAME:1")
    parser.add_argument(
        "--listen",
        metavar="ADDR",
        nargs="?",
        const="",
        help="let other machines join at this address, and print the command for them",
    )
    parser.add_argument("--rest", action="store_true", help="also start slurmrestd, on a Unix socket")
    parser.add_argument(
        "--dashboard",
        action=BooleanOptionalAction,
        help="also start the dashboard and print a link (default: if the output is a terminal and it is installed)",
    )
    units.add_arguments(parser, "slurmctld, slurmd and slurmdbd")
    parser.add_argument(
        "--force", action="store_true", help="start although a replaced key cuts off machines that have joined"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print only errors")


def run(arguments: Namespace, context: Context) -> int:
    """Start the daemons that do not run yet. 0 once all nodes are up; else raises SpritzError."""
    started_at = time.monotonic()
    if arguments.dashboard:
        dashboard.check_installed()
    if arguments.systemd:
        units.check_user()
    paths = ClusterPaths.of(arguments.dir)
    if (role := joined_role(paths)) is not None:
        raise SpritzError(
            f"this machine has joined a cluster as {role}: {paths.root}",
            hint="`spritz join` starts its daemon; `spritz up --dir DIR` makes a cluster in another directory",
        )
    require("spritz up", "cluster")
    shape = _requested_shape(arguments)
    alive = daemons.living(paths)
    if arguments.listen is not None and any(alive.values()) and not os.path.exists(paths.cluster_key):
        raise SpritzError(
            f"the cluster in {paths.root} is running for this machine alone",
            hint="stop it with `spritz down`, then `spritz up --listen`",
        )
    if arguments.listen:
        network.need_same(paths, arguments.listen)
    if all(alive.values()) and not arguments.systemd:
        return _extend(paths, shape, alive, arguments, context)
    _create(paths)
    if shape is not None or not os.path.exists(paths.slurm_conf):
        if any(alive.values()):
            raise SpritzError(
                f"{'' if all(alive.values()) else 'part of '}the cluster in {paths.root} is running",
                hint="stop it with `spritz down` first",
            )
        layout.write_files(paths, shape or layout.found_shape(), _user_name())
        alive = daemons.living(paths)
    if arguments.listen is not None:
        network.open_to_machines(paths, arguments.listen)
    environ = _daemon_environment(context)
    if not arguments.force and (alive["slurmctld"] is None or arguments.systemd):
        _need_ready_machines(paths)
    try:
        if arguments.systemd:
            _install_units(paths, list(alive), arguments.unit_directory)
        else:
            _start(paths, [name for name, pid in alive.items() if pid is None], environ, arguments)
    except BaseException:
        # A daemon cannot start, or Ctrl-C: stop the daemons that this command started.
        _stop_again(paths, alive, arguments.unit_directory)
        raise
    try:
        views = wait_for_nodes(paths)
    except KeyboardInterrupt:
        _stop_again(paths, alive, arguments.unit_directory)
        raise
    with_dashboard = _dashboard_wanted(arguments, context)
    child = dashboard.launch(paths, environ) if with_dashboard else None
    if arguments.rest or with_dashboard:
        rest.start(paths, environ)
    if published := _published(paths):
        publish(published)
    _warm_commands(context)
    if not arguments.quiet:
        _greet(context, paths, views, time.monotonic() - started_at, arguments.dir is not None)
    if with_dashboard:
        context.out(f"  {dashboard.link_of(paths, child)}    # the dashboard; `spritz dashboard` prints more links\n")
    return 0 if arguments.listen is None else _tell_join_line(paths, context)


class _Known(Struct):
    """The fields of `machines.json` that are needed here."""

    machines: tuple[JoinedMachine, ...] = ()


def _need_ready_machines(paths: ClusterPaths) -> None:
    """Raises SpritzError if the cluster's keys were changed before all machines that have joined were ready for it."""
    try:
        with open(os.path.join(paths.state, "machines.json"), "rb") as file:
            known = json.decode(file.read(), type=_Known)
    except (OSError, MsgspecError):
        return  # no machine has joined, or slurmctld says what is wrong with the file
    from spritz.client.trust.membership import find_membership  # imports ssl

    membership = find_membership(paths.slurm_conf)
    if membership is None:
        return
    if hosts := cut_off(certified(known.machines, SystemClock().now()), membership.fingerprints):
        raise SpritzError(
            f"{membership.path}: these keys would cut off {compress(hosts)}",
            hint="go back to the keys before, and see `spritz token list` for when the machines are ready; "
            "`spritz up --force` starts all the same, and those machines join again",
        )


def _extend(
    paths: ClusterPaths,
    shape: layout.Shape | None,
    alive: dict[str, int | None],
    arguments: Namespace,
    context: Context,
) -> int:
    """For a cluster that runs already: print the line for joining, or start slurmrestd or the dashboard, and wait until
    all nodes are up. Raises SpritzError if another shape was requested.
    """
    if arguments.listen is not None:
        return _tell_join_line(paths, context)
    if shape is not None:
        raise SpritzError(
            f"the cluster in {paths.root} is running",
            hint="stop it with `spritz down` before giving it another shape",
        )
    if arguments.rest or arguments.dashboard:
        rest.start(paths, _daemon_environment(context))
    if arguments.dashboard:
        context.out(f"Dashboard: {dashboard.start(paths, _daemon_environment(context))}\n")
    return _follow(paths, alive, arguments, context)


def _start(paths: ClusterPaths, names: list[str], environ: dict[str, str], arguments: Namespace) -> None:
    """Start these daemons: by systemd those that have units, with the nodes of now. Raises SpritzError."""
    of_systemd = [name for name in names if Unit(paths, arguments.unit_directory, name).is_installed]
    if of_systemd:
        units.start(_written_units(paths, of_systemd, arguments.unit_directory))
    unmanaged = [name for name in names if name not in of_systemd]
    database = daemons.start_database(paths, environ) if "slurmdbd" in unmanaged else None
    daemons.start([_command(paths, name) for name in ("slurmctld", "slurmd") if name in unmanaged], environ)
    if database is not None:
        daemons.await_database(paths, database)


def _command(paths: ClusterPaths, name: str) -> list[str]:
    """The command line of a daemon."""
    if name == "slurmd":
        return daemons.node_command(paths, _own_nodes(paths))
    return daemons.controller_command(paths) if name == "slurmctld" else daemons.database_command(paths)


def _install_units(paths: ClusterPaths, names: list[str], directory: str) -> None:
    """Write the daemons' systemd units and start them. Raises SpritzError."""
    written = _written_units(paths, names, directory)
    # A daemon that runs already holds the port: systemd would fail to start its own, repeatedly. Jobs continue.
    for name in names:
        pid = daemons.stop_named(paths, name)
        if pid is not None:
            raise SpritzError(f"{name} (pid {pid}) does not stop", hint=f"its log is in {paths.log}")
    units.enable(written)


def _written_units(paths: ClusterPaths, names: list[str], directory: str) -> list[Unit]:
    """The units of these daemons, as systemd has read them. Raises SpritzError."""
    written = [Unit(paths, directory, name) for name in names]
    changes = [
        unit.write("up", _command(paths, name), _published(paths) if name == "slurmctld" else "")
        for unit, name in zip(written, names, strict=True)
    ]
    if any(changes):
        units.reload(written)
    return written


def _published(paths: ClusterPaths) -> str:
    """The directory where all users' commands find slurm.conf, if this is root's cluster on this machine; else ""."""
    is_system = os.geteuid() == 0 and os.path.dirname(paths.root) == system_state_home()
    return paths.etc if is_system and paths.root == default_root() else ""


def _dashboard_wanted(arguments: Namespace, context: Context) -> bool:
    """Whether to start the dashboard: if it was requested, or by default on a terminal where it is installed."""
    if arguments.dashboard is None:
        return context.stdout.isatty() and not arguments.quiet and not dashboard.missing()
    return bool(arguments.dashboard)


def _tell_join_line(paths: ClusterPaths, context: Context) -> int:
    with connect_controller(locate_controller(paths.slurm_conf)) as controller:
        created = controller.call(CreateToken(), TokenCreated)
    context.out("Other machines join within a day by:\n")
    context.out(f"{join_line(created.address, created.token)}\n")
    return 0


def _warm_commands(context: Context) -> None:
    """Start the command server now, so that it does not delay the user's first command.

    Does nothing if the commands are Python (no C compiler at installation), or if the user has turned the server off.
    """
    command = os.path.join(os.path.dirname(sys.argv[0]), "squeue")
    nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    try:
        if "/" in command:
            os.posix_spawn(command, [command, "--version"], dict(context.environ), file_actions=nothing)
    except OSError:
        pass


def _stop_again(paths: ClusterPaths, alive_before: dict[str, int | None], directory: str) -> None:
    """Stop the daemons that did not run before. A second Ctrl-C does not interrupt this.

    Those of systemd stay: it goes on to start them until `spritz down`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in daemons.living(paths):
        if alive_before.get(name) is None and not Unit(paths, directory, name).is_installed:
            daemons.stop_named(paths, name)


def _follow(paths: ClusterPaths, alive: dict[str, int | None], arguments: Namespace, context: Context) -> int:
    """All daemons run: if slurm.conf names other nodes by now, reconfigure and restart slurmd. Jobs continue."""
    nodes = _own_nodes(paths)
    pid = alive["slurmd"]
    if pid is None or nodes == daemons.served_nodes(pid):
        if not arguments.quiet:
            context.out(f"Already up: {paths.root}\n")
        return 0
    with connect_controller(locate_controller(paths.slurm_conf)) as controller:
        controller.call(Reconfigure(), Done)
    if not daemons.stop(pid):
        raise SpritzError(f"slurmd (pid {pid}) does not stop", hint=f"its log is in {paths.log}")
    _start(paths, ["slurmd"], _daemon_environment(context), arguments)
    views = wait_for_nodes(paths)
    if not arguments.quiet:
        context.out(f"Reconfigured: {len(views)} nodes in {paths.root}\n")
    return 0


def _create(paths: ClusterPaths) -> None:
    """Create the directories. Raises SpritzError naming a directory that cannot be created, or whose path slurm.conf
    cannot hold.
    """
    if any(sign in paths.root for sign in '"\n'):
        raise SpritzError(f"--dir: slurm.conf cannot hold a path with a quotation mark or line break: {paths.root!r}")
    try:
        paths.create()
    except OSError as error:
        raise SpritzError(
            f"cannot make {error.filename or paths.root}: {error.strerror}",
            hint="choose a directory of yours with --dir, or set XDG_STATE_HOME",
        ) from error


def _requested_shape(arguments: Namespace) -> layout.Shape | None:
    """The shape that the options request; None without such options: then slurm.conf, or else this machine, decides."""
    options = (arguments.nodes, arguments.cpus, arguments.memory, arguments.gpus, arguments.gpu_type)
    if all(value is None for value in options):
        return None

    count = _within("--nodes", 1 if arguments.nodes is None else arguments.nodes, 1, 10_000)
    cpus = _within("--cpus", 8 if arguments.cpus is None else arguments.cpus, 1, 4096)
    gpus = _within("--gpus", 0 if arguments.gpus is None else arguments.gpus, 0, 64)
    try:
        memory = parse_mib(arguments.memory or "4G")
    except ValueError as error:
        raise SpritzError(f"--memory: {error}", hint="for example --memory 4G or --memory 500M") from error
    if memory < 1:
        raise SpritzError("--memory: must be at least 1M")
    kind = arguments.gpu_type or ""
    if kind and not gpus:
        raise SpritzError("--gpu-type needs --gpus")
    if kind and not all(letter.isalnum() or letter in "_-." for letter in kind):
        raise SpritzError(f"--gpu-type: not a name: {kind!r}")
    return layout.virtual_shape(count, cpus, memory, gpus, kind)


def _within(option: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise SpritzError(f"{option}: must be between {low} and {high}, not {value}")
    return value


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _own_nodes(paths: ClusterPaths) -> str:
    """Hostlist of the nodes in slurm.conf that are on this machine; one slurmd serves all of them."""
    nodes = load(paths.slurm_conf).nodes
    if os.path.exists(paths.cluster_key):
        nodes = tuple(node for node in nodes if network.is_own(node))
    return compress(node.name for node in nodes)


def _daemon_environment(context: Context) -> dict[str, str]:
    """The caller's environment without variables of another cluster or of a job."""
    return {
        name: value for name, value in context.environ.items() if not name.startswith(("SLURM_", "SLURMD_", "SBATCH_"))
    }


def wait_for_nodes(paths: ClusterPaths) -> list[NodeView]:
    """Wait until every node is usable and the controller knows the user's account. Raises SpritzError naming the nodes
    that are not. The wait for a slurmdbd that does not run is short: the cluster works without.
    """
    node_names = frozenset(expand(_own_nodes(paths)))
    began = time.monotonic()
    deadline = began + REGISTRATION_SECONDS
    with connect_controller(locate_controller(paths.slurm_conf)) as controller:
        while True:
            views = controller.call(ListNodes(), Nodes).nodes
            missing = [view.node.name for view in views if view.node.name in node_names and not view.node.registered_at]
            if not missing:
                counters = controller.call(Statistics(), Counters).values
                known = bool(counters.get("outbox.connected", 1.0))
                runs = daemons.daemon_pid(paths.database_pid, daemons.DATABASE, paths.slurmdbd_conf) is not None
                until = began + (ACCOUNTING_SECONDS if runs else FAR_ACCOUNTING_SECONDS)
                if known or time.monotonic() > until:
                    if known:
                        with suppress(ClientError):  # the cluster works without account; the next `up` tries again
                            give_account(paths.slurm_conf, _user_name(), controller, until)
                    return views
            elif time.monotonic() > deadline:
                raise SpritzError(
                    f"nodes have not registered: {compress(missing)}",
                    hint=f"look into {paths.node_log}, or run `spritz doctor`",
                )
            time.sleep(0.02)


def _greet(context: Context, paths: ClusterPaths, views: list[NodeView], seconds: float, named: bool) -> None:
    cpus = sum(view.node.config.capacity.cpus for view in views)
    gpus = sum(gres.count for view in views for gres in view.node.config.capacity.gres if gres.name == "gpu")
    counts = ", ".join(
        f"{count} {noun}" + ("" if count == 1 else "s")
        for noun, count in (("node", len(views)), ("CPU", cpus), ("GPU", gpus))
    )
    context.out(f"Up in {seconds:.1f} s: {counts} in {paths.root}\n")
    if os.geteuid() == 0 and (closed := installed.closed_to_others() or installed.closed_on_the_way(paths.spool)):
        context.out(f"  for root alone: other users cannot enter {closed} (docs/how-to/several-users.md)\n")
    if named:
        context.out(f"  export SLURM_CONF={paths.slurm_conf}    # points this shell at it\n")
    context.out("  sinfo                       # the nodes\n")
    context.out("  sbatch --wrap 'hostname'    # a first job; its output lands in slurm-JOBID.out\n")
    if socket := rest.socket_of(str(paths.slurm_conf)):
        context.out(f"  curl --unix-socket {socket} http://localhost/slurm/v0.0.45/jobs    # REST\n")
    context.out("  spritz status               # everything at a glance; `spritz down` stops it\n")
