"""Compare the controller's usage with the accounting records of jobs, and adopt the latter if requested."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from spritz.cli.context import Context
from spritz.cli.local.paths import ClusterPaths
from spritz.client.errors import ClientError
from spritz.client.locate import locate_controller
from spritz.client.sync import connect_controller
from spritz.model.limits.records import CompareUsage, UsageCompared

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


#: Figures that differ by less are the same to every digit that is printed: events in flight, and rounding.
_SAME = 1e-6


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `spritz usage`."""
    parser.add_argument("--dir", metavar="DIR", help="directory of the cluster (default: the one that commands find)")
    parser.add_argument("--adopt", action="store_true", help="adopt the usage by the records")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: Namespace, context: Context) -> int:
    """0; 1 if there is no answer."""
    conf = ClusterPaths.of(arguments.dir, context.environ).slurm_conf if arguments.dir else None
    try:
        with connect_controller(locate_controller(conf)) as controller:
            found = controller.call(CompareUsage(adopt=arguments.adopt), UsageCompared, timeout=600.0)
    except ClientError as error:
        context.error(error.message)
        return 1
    if arguments.json:
        context.out(json.dumps(msgspec.to_builtins(found), indent=2) + "\n")
    else:
        context.out("".join(line + "\n" for line in text_lines(found)))
    return 0


def text_lines(found: UsageCompared) -> list[str]:
    """The lines that people read."""
    lines = [f"{'':40} {'kept':>18} {'by the records':>18}"]
    differ = 0
    for row in found.rows:
        same = abs(row.kept - row.recorded) <= max(0.5, _SAME * max(row.kept, row.recorded))
        differ += not same
        lines.append(f"{row.name:40} {row.kept:18.2f} {row.recorded:18.2f}{'' if same else '  differs'}")
    of = f"{found.jobs} job{'' if found.jobs == 1 else 's'} in the records"
    if found.adopted:
        lines.append(f"What the records say holds from now on ({of}).")
    elif differ:
        lines.append(f"{differ} of {len(found.rows)} differ ({of}); --adopt lets the records hold.")
    else:
        lines.append(f"All figures are the same ({of}).")
    return lines
