"""Dynamic nodes (`slurmd -F`, `-Z`): a daemon that slurm.conf does not name asks the controller which node it is.

Waits while the controller is away: without its answer there is nothing to serve.

Source: slurmd(8) -F, -Z, --conf; Slurm's guide to dynamic nodes.
"""

from __future__ import annotations

import sys
from time import sleep
from typing import TYPE_CHECKING

from spritz.client.command.blocking_tls import connect, member_context
from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError, RemoteError, RemoteHost
from spritz.client.locate import locate_controller
from spritz.client.trust.membership import known_as
from spritz.config.load import load
from spritz.model.errors import SpritzError
from spritz.model.node_daemon.reports import Introduced, IntroduceNode
from spritz.model.resources import NodeCapacity
from spritz.node.hardware.detection import describe
from spritz.runtime.clock import SystemClock

if TYPE_CHECKING:
    from spritz.client.command.sync import Connection
    from spritz.client.locate import ControllerConfig
    from spritz.client.trust.membership import Membership
    from spritz.model.node.record import NodeConfig
    from spritz.node.hardware.detection import Hardware
    from spritz.node.options import Options

RETRY_SECONDS = 1.0

#: keys that describe processors: if one is given, none is filled in
_PROCESSORS = frozenset({"boards", "cpus", "procs", "sockets", "socketsperboard", "corespersocket", "threadspercore"})


def introduce(path: str, options: Options, hardware: Hardware, membership: Membership | None = None) -> NodeConfig:
    """The node that this daemon is. Raises SpritzError if the controller has none for it, or is on another machine."""
    hostname = known_as(membership)
    request = IntroduceNode(
        hostname=hostname,
        capacity=_capacity(path, hardware),
        line=node_line(options, hardware, hostname.partition(".")[0]) if options.dynamic else "",
        feature=options.feature,
    )
    config = locate_controller(path)
    reported = False
    while True:
        try:
            with _connected(config, membership) as controller:
                return controller.call(request, Introduced).config
        except RemoteError as error:
            raise SpritzError(
                f"the controller has no node for this slurmd: {error.message}", hint=error.hint
            ) from error
        except RemoteHost:
            raise
        except ClientError as error:
            if not reported:
                sys.stderr.write(
                    f"slurmd: error: Unable to register with slurm controller, retrying: {error.message}\n"
                )
                reported = True
        sleep(RETRY_SECONDS)


def _connected(config: ControllerConfig, membership: Membership | None) -> Connection:
    """To a controller here, or with keys to one on another machine. Raises ClientError."""
    if membership is None:
        return connect_controller(config)
    from spritz.client.joining.member import member_of

    clock = SystemClock()
    member = member_of(membership, config.cluster_name, "node", config.hosts, config.port, clock)
    if member is None:
        return connect_controller(config)
    context = member_context(membership, config.cluster_name, "node", clock.now())
    addresses = [address for address in member.addresses if not isinstance(address, str)]
    return connect(addresses, context, cluster=config.cluster_name)


def node_line(options: Options, hardware: Hardware, hostname: str) -> str:
    """The node's line of slurm.conf: --conf, completed with detected values."""
    name = options.nodes or hostname
    keys = {word.partition("=")[0].lower() for word in options.conf.split()}
    if keys & _PROCESSORS:
        keys |= _PROCESSORS
    hardware_words = describe(hardware, name).splitlines()[0].split()
    words = [word for word in hardware_words[1:] if word.partition("=")[0].lower() not in keys]
    if "nodename" in keys:
        raise SpritzError("--conf has a NodeName: name the node with -N")
    if "nodehostname" not in keys:
        words.append(f"NodeHostname={hostname}")
    return " ".join((f"NodeName={name}", *words, options.conf))


def _capacity(path: str, hardware: Hardware) -> NodeCapacity:
    """Detected hardware; empty if nodes may declare anything."""
    settings = load(path).settings
    if any(settings.has_option("SlurmdParameters", name) for name in ("config_overrides", "private_hosts")):
        return NodeCapacity(cpus=0)
    shape = hardware.topology
    return NodeCapacity(
        cpus=hardware.cpus,
        sockets=shape.sockets,
        cores_per_socket=shape.cores_per_socket,
        threads_per_core=shape.threads_per_core,
        memory_mib=hardware.memory_mib,
        tmp_mib=hardware.tmp_mib,
        gres=hardware.gpus,
    )
