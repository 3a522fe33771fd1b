"""Join this machine to a cluster on another machine, as a node or login host, or start its daemon again.

`spritz up --listen` and `spritz token create` print the token. A machine that has joined needs no token to come back:
`spritz join` without an address starts its daemon again, and `--systemd` does so at boot.

In a container (`--foreground`) the process becomes the daemon. It waits until the token file exists and the controller
answers. A container that starts again with the same directory needs no token.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from msgspec import structs

from spritz import installed
from spritz.cli.call.context import Context
from spritz.cli.local import daemons, units
from spritz.cli.local.paths import ClusterPaths
from spritz.cli.local.units import Unit
from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError
from spritz.client.joining.configless import publish, refresh, state_directory
from spritz.client.joining.joining import join, parse_address
from spritz.client.locate import find_slurm_conf, locate_controller
from spritz.client.trust.membership import find_membership, write_joined
from spritz.config.load import load
from spritz.model.errors import SpritzError
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.runtime.clock import SystemClock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from spritz.client.trust.membership import Joined, Membership

#: Seconds for the node to become usable; then `join` reports that it is not.
REGISTRATION_SECONDS = 30.0

#: A container tries to join for this many seconds, and waits this many between two attempts.
FOREGROUND_SECONDS, _RETRY_SECONDS = 300.0, 1.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "address", nargs="?", metavar="HOST[:PORT]", help="the controller; without it: start the daemon again"
    )
    parser.add_argument("--token", metavar="T", help="the token that `spritz token create` printed")
    parser.add_argument(
        "--dir", metavar="DIR", help="directory of this machine's files (root: /var/lib/spritz/default)"
    )
    parser.add_argument(
        "--conf", metavar="KEYS", help="keys of a new node, such as 'Features=a RealMemory=9000'; kept for later starts"
    )
    parser.add_argument("--token-file", metavar="FILE", help="a file with the token")
    parser.add_argument("--host", metavar="NAME", default="", help="name to join under (default: the host name)")
    parser.add_argument("--foreground", action="store_true", help="run the daemon in the foreground, as in containers")
    units.add_arguments(parser, "the daemon")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only errors")


def run(arguments: Namespace, context: Context) -> int:
    """0 when the node is up, or the login host's daemon serves."""
    paths = member_paths(arguments.dir, context)
    if arguments.token and arguments.token_file:
        raise SpritzError("--token and --token-file exclude each other")
    if arguments.foreground and arguments.systemd:
        raise SpritzError("--foreground and --systemd exclude each other")
    if arguments.systemd:
        units.check_user()
    if arguments.foreground:
        _become(arguments, paths, context)
    if arguments.address is not None:
        _join(arguments, paths, _token(arguments))
    elif arguments.token or arguments.token_file:
        raise SpritzError("--token needs the controller's address", hint="spritz join HOST:PORT --token T")
    membership = find_membership(paths.slurm_conf)
    if membership is None or membership.joined is None:
        raise SpritzError(
            f"no cluster was joined in {paths.root}",
            hint="spritz join HOST:PORT --token T, as `spritz up --listen` prints",
        )
    joined = membership.joined
    if arguments.conf is not None:
        joined = _kept(arguments, paths, membership, joined)
    command = _command(paths, joined)
    unit = Unit(paths, arguments.unit_directory, daemons.of_role(joined.role))
    if arguments.systemd:
        _install_unit(unit, paths, joined, command, is_default=arguments.dir is None)
    elif daemons.member(paths, joined.role) is not None:
        _publish(arguments, paths)
        if not arguments.quiet:
            context.out(f"Already up: {paths.root}\n")
        return 0
    elif unit.is_installed:
        units.start([unit])
    else:
        _start(command, joined, context)
    _publish(arguments, paths)
    if joined.role == "node":
        _wait_for_node(paths, joined)
    if not arguments.quiet:
        context.out(f"Joined cluster {joined.cluster} as {joined.role} {joined.host}: {paths.root}\n")
        context.out(_way_of_commands(paths))
    return 0


def _kept(arguments: Namespace, paths: ClusterPaths, membership: Membership, joined: Joined) -> Joined:
    """The membership with the keys of --conf, for later starts too. Raises SpritzError where they would do nothing."""
    if joined.role != "node":
        raise SpritzError("--conf is for nodes; this machine has joined as a login host")
    # A container has the same command whether its node is in slurm.conf or not.
    if not arguments.foreground and (names := _own_names(paths, joined.host)):
        raise SpritzError(
            f"--conf: slurm.conf has node {min(names)}", hint="change its NodeName line, then `scontrol reconfigure`"
        )
    is_same = joined.node_keys == arguments.conf
    if not is_same and not arguments.systemd and daemons.member(paths, joined.role) is not None:
        raise SpritzError("--conf: the node's daemon runs already", hint="`spritz down`, then `spritz join --conf …`")
    joined = structs.replace(joined, node_keys=arguments.conf)
    membership.replace(joined)
    return joined


def _publish(arguments: Namespace, paths: ClusterPaths) -> None:
    """Point all users' commands to the cluster; with --dir, which a second cluster needs, they set SLURM_CONF."""
    if arguments.dir is None:
        publish(paths.etc)


def _way_of_commands(paths: ClusterPaths) -> str:
    """How this user's commands find the joined cluster; "" for root, whose commands find it by themselves."""
    export = f"  export SLURM_CONF={paths.slurm_conf}    # points this shell at it\n"
    try:
        used = find_slurm_conf()
    except ClientError:
        return export
    if os.path.realpath(used) != os.path.realpath(paths.slurm_conf):
        return f"Commands of this user still use another cluster, that of {used}:\n{export}"
    return export if os.geteuid() != 0 else ""


def member_paths(directory: str | None, context: Context) -> ClusterPaths:
    """The directory of this machine's membership: DIR, else the default for root or for the user."""
    if directory is None and os.geteuid() == 0:
        directory = os.path.join(state_directory(), "default")
    return ClusterPaths.of(directory)


def _become(arguments: Namespace, paths: ClusterPaths, context: Context) -> NoReturn:
    """Join unless the machine has joined before, then replace this process by the daemon. Raises SpritzError."""
    deadline = time.monotonic() + FOREGROUND_SECONDS
    reported = ""
    while (membership := find_membership(paths.slurm_conf)) is None or not os.path.exists(paths.slurm_conf):
        if arguments.address is None:
            raise SpritzError(f"no cluster was joined in {paths.root}", hint="give HOST:PORT and --token-file")
        try:
            if membership is None or membership.joined is None:
                _join(arguments, paths, _token(arguments))
            else:
                _fetch(paths, arguments.address)
        except SpritzError as error:
            if time.monotonic() > deadline:
                raise
            if error.message != reported:
                sys.stderr.write(f"spritz: {error.message}; trying again\n")
                reported = error.message
            time.sleep(_RETRY_SECONDS)
    joined = membership.joined
    if joined is None:
        raise SpritzError(f"{paths.root} has the cluster's own key", hint="start slurmd or sackd there instead")
    _publish(arguments, paths)
    if arguments.conf is not None:
        joined = _kept(arguments, paths, membership, joined)
    words = [*_command(paths, joined), "-D"]
    environ = {name: value for name, value in context.environ.items() if not name.startswith(("SLURM_", "SLURMD_"))}
    os.execve(words[0], words, environ)


def _token(arguments: Namespace) -> str:
    """The token of the options. Raises SpritzError if there is none."""
    if arguments.token_file:
        try:
            with open(arguments.token_file, encoding="ascii") as file:
                return file.read(1000).strip()
        except (OSError, UnicodeError) as error:
            raise SpritzError(f"--token-file {arguments.token_file}: {error}") from error
    if not arguments.token:
        raise SpritzError("a machine joins with --token", hint="`spritz token create` on the controller prints one")
    return str(arguments.token)


def _join(arguments: Namespace, paths: ClusterPaths, token: str) -> None:
    membership = find_membership(paths.slurm_conf)
    if os.path.exists(paths.slurm_conf) and (membership is None or membership.joined is None):
        raise SpritzError(
            f"{paths.root} has a cluster of its own", hint="choose another directory with --dir, or remove that cluster"
        )
    controller = parse_address(arguments.address)
    paths.create()
    joined = join(controller, token, "", paths.etc, arguments.host.lower())
    local_settings = {
        "SlurmdSpoolDir": f"{paths.spool}/%n",
        "SlurmdPidFile": paths.node_pid,
        "SlurmdLogFile": paths.node_log,
    }
    write_joined(paths.etc, structs.replace(joined, own=local_settings))
    for role in ("node", "login"):
        pid = daemons.member(paths, role)
        if pid is not None and not daemons.stop(pid):
            raise SpritzError(f"pid {pid} does not stop", hint=f"its log is in {paths.log}")
    _fetch(paths, arguments.address)


def _fetch(paths: ClusterPaths, address: str) -> None:
    """Fetch the cluster's configuration for a machine that has joined. Raises SpritzError."""
    membership = find_membership(paths.slurm_conf)
    assert membership is not None, "checked by the caller"
    assert membership.joined is not None, "checked by the caller"
    role = membership.joined.role
    if not refresh(paths.slurm_conf, membership, role, [parse_address(address)], SystemClock().now()):
        raise SpritzError("joined, but the configuration could not be fetched", hint="try again: spritz join")


def _command(paths: ClusterPaths, joined: Joined) -> list[str]:
    """The command line of this machine's daemon."""
    if joined.role != "node":
        return installed.python(
            daemons.LOGIN, "-f", paths.slurm_conf, "-L", paths.login_log, "--pid-file", paths.login_pid
        )

    words = ["-f", paths.slurm_conf]
    if not _own_names(paths, joined.host):
        words += ["-Z", *(("--conf", joined.node_keys) if joined.node_keys else ())]
    return installed.python(daemons.NODE, *words)


def _own_names(paths: ClusterPaths, host: str) -> set[str]:
    """Names of the nodes that slurm.conf places on this machine."""
    nodes = load(paths.slurm_conf).nodes
    return {node.name for node in nodes if (node.hostname or node.name).partition(".")[0].lower() == host}


def _start(command: list[str], joined: Joined, context: Context) -> None:
    environ = {name: value for name, value in context.environ.items() if not name.startswith(("SLURM_", "SLURMD_"))}
    try:
        daemons.start([command], environ, timeout_seconds=REGISTRATION_SECONDS)
    except SpritzError as error:
        # The token is used up; the membership stays.
        error.hint = error.hint or "this machine has joined: once that is mended, `spritz join` starts its daemon"
        raise


def _install_unit(unit: Unit, paths: ClusterPaths, joined: Joined, command: list[str], *, is_default: bool) -> None:
    """Write the systemd unit and start it. Raises SpritzError."""
    unit.write("join", command, paths.etc if is_default else "")
    units.reload([unit])
    # A daemon that runs already holds the port: systemd would fail to start its own, repeatedly. Jobs continue.
    pid = daemons.member(paths, joined.role)
    if pid is not None and not daemons.stop(pid):
        raise SpritzError(f"pid {pid} does not stop", hint=f"its log is in {paths.log}")
    units.enable([unit])


def _wait_for_node(paths: ClusterPaths, joined: Joined) -> None:
    """Wait until the controller has accepted the registration. Raises SpritzError with the reason of a refusal."""
    names = _own_names(paths, joined.host) or {joined.host}
    deadline = time.monotonic() + REGISTRATION_SECONDS
    with connect_controller(locate_controller(paths.slurm_conf)) as controller:
        while True:
            views = [view.node for view in controller.call(ListNodes(), Nodes).nodes if view.node.name in names]
            if any(node.registered_at for node in views):
                wrong = [node.reason for node in views if node.reason]
                for reason in wrong:
                    sys.stderr.write(f"spritz: error: node {joined.host} is not usable: {reason}\n")
                return
            if time.monotonic() > deadline:
                raise SpritzError(
                    f"node {joined.host} has not registered in {REGISTRATION_SECONDS:.0f} s",
                    hint=f"the reason is in {paths.node_log} here, or in the controller's log",
                )
            time.sleep(0.05)
