"""`spritz-health-check`: a HealthCheckProgram that drains its node for a fault of the machine, and resumes it.

    HealthCheckProgram=/usr/local/bin/spritz-health-check
    HealthCheckInterval=60

The drain's reason is `health-check: CHECK: WHAT; …`. It is taken back by the run that finds nothing. Drains of others
are kept, but for those that the Kubernetes operator set for the machine's health: a fault found here is more exact.
Options come from a script that slurm.conf names instead: `exec spritz-health-check --link mlx5_0`.

Source: slurm.conf(5) HealthCheckProgram: the program runs as root with few variables, and updates its node itself.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError, RemoteError
from spritz.model.commands.cluster import UpdateNode
from spritz.model.commands.job import Done
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.node.machine_checks import disk_faults, kernel_log, link_faults, log_faults, nvidia_faults

if TYPE_CHECKING:
    from spritz.node.machine_checks import Fault

#: Reasons of drains that are ours, and of those that we replace.
OURS: Final = "health-check: "
_REPLACED: Final = (OURS, "spritz-operator: health: ")

_REASON_LENGTH: Final = 400


def entry() -> None:
    """Run `spritz-health-check`, and exit with its status."""
    sys.exit(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    """0 when the node's state says what was found, faults or none; 1 when it could not be set."""
    parser = argparse.ArgumentParser(
        prog="spritz-health-check",
        description="Drain this node if its machine has a fault, and resume it once the fault is gone.",
    )
    parser.add_argument(
        "--kernel-log", metavar="FILE", default="/dev/kmsg", help="kernel log to search (default: %(default)s)"
    )
    parser.add_argument(
        "--directory", metavar="DIR", action="append", help="check that DIR is writable and not full (default: /tmp)"
    )
    parser.add_argument(
        "--free-percent",
        metavar="N",
        type=float,
        default=1.0,
        help="free space that DIR needs, in percent of its file system (default: %(default)s)",
    )
    parser.add_argument(
        "--link",
        metavar="NAME",
        action="append",
        default=[],
        help="check that this network interface or InfiniBand device is up",
    )
    parser.add_argument("--print", action="store_true", help="print the faults, and do not change the node's state")
    given = parser.parse_args(argv)
    faults = [
        *nvidia_faults(),
        *log_faults(kernel_log(given.kernel_log)),
        *disk_faults(given.directory or ["/tmp"], given.free_percent),
        *link_faults(given.link),
    ]
    if given.print:
        for check, words in faults:
            print(f"{check}: {words}")
        return 0
    name = os.environ.get("SLURMD_NODENAME", "")
    if not name:
        print("spritz-health-check: SLURMD_NODENAME is not set; outside slurmd use --print", file=sys.stderr)
        return 1
    try:
        report(name, faults)
    except ClientError as error:
        print(f"spritz-health-check: {error.message}", file=sys.stderr)
        return 1
    return 0


def reason_of(faults: list[Fault]) -> str:
    """The reason for a drain because of these faults; "" without a fault."""
    return (OURS + "; ".join(f"{check}: {words}" for check, words in faults))[:_REASON_LENGTH] if faults else ""


def change(drained: bool, have: str, wanted: str) -> str:
    """DRAIN, RESUME or "": what to make of a node with this reason."""
    if wanted:
        may = not drained or have.startswith(_REPLACED)
        return "DRAIN" if may and not (drained and have == wanted) else ""
    return "RESUME" if drained and have.startswith(OURS) else ""


def report(name: str, faults: list[Fault]) -> None:
    """Make the node's state say what was found. Raises ClientError."""
    wanted = reason_of(faults)
    with connect_controller() as controller:
        (view,) = controller.call(ListNodes(names=(name,), all=True), Nodes).nodes
        state = change("DRAIN" in view.state_names, view.node.reason, wanted)
        if state:
            try:
                controller.call(UpdateNode(names=(name,), state=state, reason=wanted), Done)
            except RemoteError as error:
                raise ClientError(f"{name} cannot be changed to {state}: {error.message}") from error
